"""The command for a conversation in a room. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Positional
from palaver.doors.argv.table_rooms import ROOM

CHAT_COMMANDS: Final = (
    Command(
        path=("chat",),
        group="Rooms",
        summary="Talk in a room, as a person at a terminal.",
        description=(
            "Shows what was said last and what is said from now on. A line goes to everyone in the room; "
            "@name says it to one, !@name interrupts them, and a name nobody has holds the line back. Under "
            "the conversation stands what became of your last message, for each who was to read it. Routing "
            "is not privacy: everyone in the room can read everything. You do not become a member, and never "
            "hold the stick here. /help in the chat tells the rest."
        ),
        positionals=(
            Positional(
                name="PATH",
                help="A folder or file of the workspace; otherwise the working directory.",
                optional=True,
                completes="directories",
            ),
        ),
        options=(ROOM,),
        examples=(
            ("pal chat", "talk in the room of this folder"),
            ("pal chat --room shop-x4kd", "in that room"),
        ),
    ),
)
