"""The commands for permission requests of agents. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Positional

_GROUP: Final = "Permissions"

_ID: Final = Positional(name="ID", help="The request, as 'pal pending' shows it.", completes="permissions")

PERMISSION_COMMANDS: Final = (
    Command(
        path=("pending",),
        group=_GROUP,
        summary="List requests that wait for a person's decision.",
        description=(
            "Shows blocked agents and their permission requests. Requests with an id can be answered with "
            "'pal approve' or 'pal deny'; this requires the setting 'approvals' and a harness that supports "
            "it. Answer all others in the agent's own terminal. Then it shows messages that are held until "
            "'pal release'."
        ),
        examples=(
            ("pal pending", "what must I decide?"),
            ("pal pending --json", "with the full text of each request"),
        ),
    ),
    Command(
        path=("approve",),
        group=_GROUP,
        summary="Approve a permission request of an agent.",
        description=(
            "Approves exactly the request that 'pal pending' shows, once. A request that has ended cannot be "
            "answered. No keys are typed. Only a person can do this: agents and scripts are refused, even "
            "with --as."
        ),
        positionals=(_ID,),
        examples=(("pal approve 3f9c2a1", "allow it this time"),),
    ),
    Command(
        path=("deny",),
        group=_GROUP,
        summary="Deny a permission request of an agent.",
        description="Works like 'pal approve'. A request that is not answered in time is denied too.",
        positionals=(_ID,),
        examples=(("pal deny 3f9c2a1", "refuse it"),),
    ),
)
