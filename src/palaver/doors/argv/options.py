"""Options that several commands have, said once. Data only."""

from typing import Final

from palaver.doors.argv.spec import Option
from palaver.model.agent import ROLES

NAME: Final = Option(name="--name", metavar="NAME", help="The name to have; otherwise a free one is given.")
TAG: Final = Option(name="--tag", metavar="TAG", help="Put it in a group: with tag api, luna is api-luna.")
ROLE: Final = Option(
    name="--role",
    metavar="ROLE",
    help="Its role (worker). Only a person gives a role above worker.",
    choices=ROLES,
)
DETACH: Final = Option(name="--detach", help="Leave it in the background and print its name.")
