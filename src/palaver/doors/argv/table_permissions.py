"""The commands about what agents ask leave for. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Positional

_GROUP: Final = "Permissions"

_ID: Final = Positional(name="ID", help="What is asked, as 'pal pending' names it.", completes="permissions")

PERMISSION_COMMANDS: Final = (
    Command(
        path=("pending",),
        group=_GROUP,
        summary="Show what waits for a person's word.",
        description=(
            "Agents that are blocked, and on what. Those with an id can be answered from here: with the "
            "setting 'approvals' on, and where the harness can be told. All others ask at their own "
            "terminal. Behind them the messages that are held until 'pal release' lets them through."
        ),
        examples=(
            ("pal pending", "who waits for a person?"),
            ("pal pending --json", "with every word of what is asked"),
        ),
    ),
    Command(
        path=("approve",),
        group=_GROUP,
        summary="Allow what an agent asks leave for.",
        description=(
            "For the human in person: an agent or a script is refused, with --as too. It answers the very "
            "request that 'pal pending' has shown, once; one that is over cannot be answered. No key is "
            "typed."
        ),
        positionals=(_ID,),
        examples=(("pal approve 3f9c2a1", "yes, this once"),),
    ),
    Command(
        path=("deny",),
        group=_GROUP,
        summary="Deny what an agent asks leave for.",
        description="As 'pal approve', with a no. When nobody answers in time the answer is no as well.",
        positionals=(_ID,),
        examples=(("pal deny 3f9c2a1", "no"),),
    ),
)
