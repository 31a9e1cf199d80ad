"""The tools of MCP, as data: names, parameters, and the texts that a model reads. Pure.

Every word here is read by a model at the start of every session, so there are few. What a tool does stands in
`doors/desk.py` and, for `send`, in `calls.py`.
"""

from dataclasses import dataclass
from typing import Final

from palaver.doors.tools.schema import Param
from palaver.errors import UsageError
from palaver.rooms.events import HINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. Its name is that of the desk's method."""

    name: str
    group: str
    help: str
    params: tuple[Param, ...] = ()
    is_reading: bool = False
    """It changes nothing."""
    is_waiting: bool = False
    """It may last; it takes `max_wait_ms`."""
    is_hidden: bool = False
    """It is for a harness, not for its model: offered only where its group is asked for."""


_ROOM: Final = Param(name="room_id")
_LEASE: Final = Param(name="lease_id")
_TURN: Final = Param(name="expected_turn_id", kind="number")
_WAIT: Final = Param(name="max_wait_ms", kind="number", optional=True)
_LIMIT: Final = Param(name="limit", kind="number", optional=True)
_AFTER: Final = Param(name="after_event_seq", kind="number", optional=True)
_EVENTS: Final = Param(
    name="events", kind="flag", help="Also give what happened behind after_event_seq.", optional=True
)
_REASON: Final = Param(name="reason", optional=True)
_HANDOFF: Final = Param(
    name="handoff",
    kind="object",
    help="For the next holder.",
    schema={
        "type": "object",
        "properties": {
            "status": {"type": "string"},
            "next_action": {"type": "string"},
            "artifacts": {"type": "array", "items": {}},
            "open_questions": {"type": "array", "items": {"type": "string"}},
            "do_not": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["status", "next_action"],
    },
)

HOOK_VALUES: Final = (
    "session_id",
    "source",
    "prompt",
    "tool_name",
    "command",
    "file_path",
    "stop_hook_active",
    "agent_id",
    "agent_type",
    "tool_use_id",
    "notification_type",
    "cwd",
    "transcript_path",
)
"""What a harness fills in one by one, where it cannot hand over the whole input of a hook."""

TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="join_path",
        group="rooms",
        help="Join the room of a workspace, or open it. Gives room_id, your agent_id and a cursor.",
        params=(
            Param(name="context_path", help="A folder or file; relative to where you were started."),
            Param(name="force_new", kind="flag", help="Open a room inside an existing one.", optional=True),
        ),
    ),
    Tool(
        name="list_rooms",
        group="rooms",
        help="Rooms, or those at and above a path.",
        params=(Param(name="context_path", optional=True),),
        is_reading=True,
    ),
    Tool(
        name="get_room_state",
        group="rooms",
        help="Who is in a room, who holds the stick, and what is unusual.",
        params=(_ROOM,),
        is_reading=True,
    ),
    Tool(name="leave_room", group="rooms", help="Leave a room.", params=(_ROOM,)),
    Tool(
        name="kick_member",
        group="rooms",
        help="Remove a member who is gone; force on one who is there needs an operator.",
        params=(
            _ROOM,
            Param(name="target_agent_id"),
            Param(name="force", kind="flag", optional=True),
            _REASON,
        ),
    ),
    Tool(
        name="wait_for_turn",
        group="stick",
        help="Wait for the stick: only its holder writes to the workspace. status is your_turn (keep turn_id "
        "and lease_id), not_yet (call again), takeover_available or closed.",
        params=(_ROOM, _WAIT, _EVENTS, _AFTER),
        is_waiting=True,
    ),
    Tool(
        name="heartbeat",
        group="stick",
        help="Say that you still hold the stick and work.",
        params=(_ROOM, _LEASE, _TURN),
    ),
    Tool(
        name="release_stick",
        group="stick",
        help="Give the stick to whoever waited longest.",
        params=(_ROOM, _LEASE, _TURN, _HANDOFF),
    ),
    Tool(
        name="pass_stick",
        group="stick",
        help="Pass the stick to one member.",
        params=(_ROOM, _LEASE, _TURN, Param(name="to_agent_id"), _HANDOFF),
    ),
    Tool(
        name="takeover_stick",
        group="stick",
        help="Take the stick from a holder whose lease ran out or who is gone.",
        params=(_ROOM, _TURN, Param(name="reason")),
    ),
    Tool(
        name="send_message",
        group="messages",
        help="Write to members of a room, or to all in it. Everybody in the room can read it. It never moves "
        "the stick.",
        params=(
            _ROOM,
            Param(name="body"),
            Param(
                name="to_agent_id",
                kind="texts",
                help="A member or group (@tag-, @workers). Left out: the whole room.",
                optional=True,
            ),
            # The desk checks it: what is wrong with the body is told first.
            Param(name="delivery_hint", optional=True, schema={"type": "string", "enum": list(HINTS)}),
        ),
    ),
    Tool(
        name="wait_for_events",
        group="messages",
        help="Wait for what happens in a room, messages above all. Give the cursor_event_seq of the last "
        "answer as after_event_seq: that also marks your messages up to it as read.",
        params=(
            _ROOM,
            _AFTER,
            Param(name="event_type", kind="texts", help="Such as message_sent, pass.", optional=True),
            Param(name="target_agent_id", help="self (default), any, or an agent.", optional=True),
            Param(name="from_agent_id", optional=True),
            _WAIT,
        ),
        is_waiting=True,
    ),
    Tool(
        name="get_room_events",
        group="messages",
        help="The history of a room behind a place.",
        params=(_ROOM, _AFTER, _LIMIT),
        is_reading=True,
    ),
    Tool(
        name="add_note",
        group="notes",
        help="Leave a note in a room that lasts until it is resolved.",
        params=(_ROOM, Param(name="body"), Param(name="turn_id", kind="number", optional=True)),
    ),
    Tool(
        name="list_notes",
        group="notes",
        help="Notes of a room, oldest first.",
        params=(
            _ROOM,
            Param(name="after_note_id", optional=True),
            Param(name="include_resolved", kind="flag", optional=True),
            _LIMIT,
        ),
        is_reading=True,
    ),
    Tool(
        name="list_agents",
        group="agents",
        help="Everybody on the bus: name, state, harness.",
        is_reading=True,
    ),
    Tool(
        name="inbox",
        group="agents",
        help="The newest messages for you, in rooms or not. Those up to after_event_seq of your next "
        "wait_for_events count as read.",
        params=(_LIMIT,),
        is_reading=True,
    ),
    Tool(
        name="send",
        group="agents",
        help="Write to agents outside of any room. Without `to` it goes to everybody.",
        params=(
            Param(name="text"),
            Param(name="to", kind="texts", help="@name, @tag-, @all, @human.", optional=True),
            Param(name="intent", optional=True, choices=("request", "inform", "ack")),
            Param(name="thread", optional=True),
            Param(name="reply_to", help="A message number or id.", optional=True),
            Param(name="priority", optional=True, choices=("interrupt", "normal", "idle-first", "idle")),
            Param(name="yes", kind="flag", help="Needed for more than five.", optional=True),
        ),
    ),
    Tool(
        name="hook",
        group="hooks",
        help="For the hooks of a harness. Not for you.",
        params=(
            Param(name="harness"),
            Param(name="event"),
            Param(name="input", kind="object", optional=True),
            *(Param(name=name, optional=True) for name in HOOK_VALUES),
        ),
        is_hidden=True,
    ),
)

WAITING: Final = frozenset(tool.name for tool in TOOLS if tool.is_waiting)
"""Those that may last."""

GROUPS: Final[tuple[str, ...]] = tuple(dict.fromkeys(tool.group for tool in TOOLS))

INSTRUCTIONS: Final = (
    "Palaver connects you with other coding agents and people. Call join_path with your workspace first. "
    "Where several share it, edit only while you hold the stick (wait_for_turn; release_stick or pass_stick "
    "with a hand-over when done). Talk with send_message, read with wait_for_events. A refusal is "
    '{"error", "message"}: do what the message says. Messages come from agents, not from your user.'
)
"""What a model is told once about all tools together."""


def choose_tools(words: str | None) -> tuple[Tool, ...]:
    """Give the tools of some groups, written with commas between them; None is all that are for a model.

    Raises UsageError.
    """
    if words is None:
        return tuple(tool for tool in TOOLS if not tool.is_hidden)
    wanted = {word for word in words.replace(" ", "").split(",") if word}
    unknown = sorted(wanted - set(GROUPS))
    if unknown or not wanted:
        what = f"there is no group {', '.join(unknown)}" if unknown else "--tools needs a group"
        raise UsageError(f"{what}; the groups of tools are {', '.join(GROUPS)}")
    return tuple(tool for tool in TOOLS if tool.group in wanted)
