"""The commands that show the bus to a person: the dashboard, notices, and the chat of a room.

The client runs all three in its own process.
"""

from typing import Final

from palaver.doors.cli.call import Call, room_of
from palaver.doors.cli.rooms import ROOM
from palaver.doors.cli.spec import Command, Option, Positional

_GROUP: Final = "Dashboard"
_UI: Final = "__ui"
_CHAT: Final = "__chat"
_NOTIFY: Final = "__notify"

UI_COMMANDS: Final = (
    Command(
        path=("ui",),
        group=_GROUP,
        summary="Show agents, messages and what waits for you.",
        description=(
            "Opens the dashboard: what waits for you, agents, conversations, rooms, the log and the past. "
            "'pal' alone at a terminal does the same. Press ? for the keys of a screen. Everything you do "
            "there is a 'pal' command, which is shown and has your rights. Without a terminal, or with "
            "--plain, each change is printed as a line."
        ),
        options=(Option(name="--plain", help="Print changes as lines, for screen readers and pipes."),),
        examples=(
            ("pal ui", "open the dashboard"),
            ("pal ui --plain", "print what happens, line by line"),
        ),
        see=(("ui", "ui.md"),),
    ),
    Command(
        path=("notify",),
        group=_GROUP,
        summary="Notify you when an agent needs you or has finished.",
        description=(
            "Sends a notice when an agent becomes blocked, asks you, or finishes, until you end it with "
            "Ctrl-C. An open 'pal ui', 'pal chat' or 'pal attach' sends the same notices; each is sent once. "
            "The settings notify, notify_command and notify_text say how."
        ),
        examples=(("pal notify", "ring the terminal bell when an agent needs you"),),
        see=(("notices", "notices.md"),),
    ),
)

CHAT_COMMANDS: Final = (
    Command(
        path=("chat",),
        group="Rooms",
        summary="Chat in a room, as a person at a terminal.",
        description=(
            "Shows the latest messages and follows new ones. A line goes to all members of the room; @name "
            "sends it to one member, !@name interrupts that member. A line with an unknown name is not sent. "
            "Below each message you see who has read it, and why others have not. Routing is not privacy: "
            "everyone in the room can read everything. You do not become a member and never own the stick. "
            "Type /help in the chat for more."
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
        see=(("chat", "chat.md"),),
    ),
)


async def open_ui(call: Call) -> int:
    """Let the client open the dashboard."""
    call.connection.run_here(_UI, *(["--plain"] if call.parsed.has("--plain") else []))
    return 0


async def notify(call: Call) -> int:
    """Let the client send notices."""
    call.connection.run_here(_NOTIFY)
    return 0


async def chat(call: Call) -> int:
    """Let the client open a conversation in the named room, or in the caller's room."""
    room = await room_of(call, call.parsed.positionals[0] if call.parsed.positionals else "")
    state = await call.services.rooms.get_room_state(call.caller, room_id=room)
    call.connection.run_here(_CHAT, "--room", state.room_id)
    return 0
