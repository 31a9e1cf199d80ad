"""Options that several commands share. Data only."""

from typing import Final

from palaver.doors.argv.spec import Option
from palaver.model.agent import ROLES

NAME: Final = Option(name="--name", metavar="NAME", help="Name of the agent (default: a free name).")
TAG: Final = Option(name="--tag", metavar="TAG", help="Add it to a group: with tag api, luna is api-luna.")
ROLE: Final = Option(
    name="--role",
    metavar="ROLE",
    help="Role of the agent (default: worker). Only a person can give a higher role.",
    choices=ROLES,
)
DETACH: Final = Option(name="--detach", help="Start it in the background and print its name.")
