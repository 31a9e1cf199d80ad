"""The command for a conversation in a room. Data only."""

from typing import Final

from palaver.doors.argv.spec import Command, Positional
from palaver.doors.argv.table_rooms import ROOM

CHAT_COMMANDS: Final = (
    Command(
        path=("chat",),
        group="Rooms",
        summary="Chat in a room, as a person at a terminal.",
        description=(
            "Shows the latest messages and follows new ones. A line goes to all members of the room; @name "
            "sends it to one member, !@name interrupts that member. A line with an unknown name is not sent. "
            "Below the conversation you see who has read your last message. Routing is not privacy: everyone "
            "in the room can read everything. You do not become a member and never own the stick. Type /help "
            "in the chat for more."
        ),
        positionals=(
            Positional(
                name="PATH",
                help="Folder or file in the workspace (default: working directory).",
                optional=True,
                completes="directories",
            ),
        ),
        options=(ROOM,),
        examples=(
            ("pal chat", "chat in the room of this folder"),
            ("pal chat --room shop-x4kd", "chat in another room"),
        ),
    ),
)
