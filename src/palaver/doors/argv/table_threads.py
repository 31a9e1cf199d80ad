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
        summary="Show conversations.",
        description="A thread is a name that messages share. It changes nothing about who gets them.",
        is_group=True,
        examples=(("pal thread list", "what is being talked about?"),),
    ),
    Command(
        path=("thread", "list"),
        group=_GROUP,
        summary="List the threads written in last.",
        options=(Option(name="--limit", metavar="N", help=f"At most so many; otherwise {DEFAULT_THREADS}."),),
        examples=(("pal thread list", "what is being talked about?"),),
    ),
    Command(
        path=("thread", "show"),
        group=_GROUP,
        summary="Show a thread as a conversation.",
        positionals=(Positional(name="THREAD", help="Its name.", completes="threads"),),
        options=(Option(name="--last", metavar="N", help="Only the newest so many messages."),),
        examples=(("pal thread show pr-123", "read it from the start"),),
    ),
)
