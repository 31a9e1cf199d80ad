"""The commands that show conversations. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Option, Positional

DEFAULT_THREADS: Final = 20
"""How many threads `pal thread list` shows."""

_GROUP: Final = "Messages"

THREAD_COMMANDS: Final = (
    Command(
        path=("thread",),
        group=_GROUP,
        summary="Read conversations.",
        description="A thread is a name that messages share. It does not change their recipients.",
        is_group=True,
        examples=(("pal thread list", "list recent conversations"),),
    ),
    Command(
        path=("thread", "list"),
        group=_GROUP,
        summary="List the most recently active threads.",
        options=(
            Option(name="--limit", metavar="N", help=f"At most N threads (default: {DEFAULT_THREADS})."),
        ),
        examples=(("pal thread list", "list recent conversations"),),
    ),
    Command(
        path=("thread", "show"),
        group=_GROUP,
        summary="Show a thread as a conversation.",
        positionals=(Positional(name="THREAD", help="The name of the thread.", completes="threads"),),
        options=(Option(name="--last", metavar="N", help="Only the newest N messages (default: all)."),),
        examples=(("pal thread show pr-123", "read a conversation from the start"),),
    ),
)
