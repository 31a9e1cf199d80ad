"""The MCP tools as data: names, parameters and the texts that a model reads. Pure.

A model reads all these texts at the start of every session, so keep them short. The tools are implemented in
`doors/desk.py` and, for `send`, in `calls.py`.
"""

from dataclasses import dataclass
from typing import Final

from palaver.doors.tools.schema import Param
from palaver.errors import UsageError
from palaver.rooms.events import HINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. Its name is the name of a method of `Desk`."""

    name: str
    group: str
    help: str
    params: tuple[Param, ...] = ()
    is_reading: bool = False
    """It changes nothing."""
    is_waiting: bool = False
    """It may wait; it has the parameter `max_wait_ms`."""
    is_hidden: bool = False
    """It is for a harness, not for its model: offered only if its group is requested."""


_ROOM: Final = Param(name="room_id")
_LEASE: Final = Param(name="lease_id")
_TURN: Final = Param(name="expected_turn_id", kind="number")
_WAIT: Final = Param(name="max_wait_ms", kind="number", optional=True)
_LIMIT: Final = Param(name="limit", kind="number", optional=True)
_AFTER: Final = Param(name="after_event_seq", kind="number", optional=True)
_EVENTS: Final = Param(
    name="events", kind="flag", help="Also return the events after after_event_seq.", optional=True
)
_REASON: Final = Param(name="reason", optional=True)
_HANDOFF: Final = Param(
    name="handoff",
    kind="object",
    help="Notes for the next owner of the stick.",
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
"""Single values, for a harness that cannot pass the whole input of a hook."""

TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="join_path",
        group="rooms",
        help="Join the room of a workspace, or open one. Returns room_id, agent_id and cursor_event_seq.",
        params=(
            Param(name="context_path", help="Folder or file; relative to the directory of your session."),
            Param(
                name="force_new",
                kind="flag",
                help="Open a new room here, even inside an existing one.",
                optional=True,
            ),
        ),
    ),
    Tool(
        name="list_rooms",
        group="rooms",
        help="List the open rooms, or the rooms of a path and its parent folders.",
        params=(Param(name="context_path", optional=True),),
        is_reading=True,
    ),
    Tool(
        name="get_room_state",
        group="rooms",
        help="Show the members of a room, the owner of the stick, and unusual conditions.",
        params=(_ROOM,),
        is_reading=True,
    ),
    Tool(name="leave_room", group="rooms", help="Leave a room.", params=(_ROOM,)),
    Tool(
        name="kick_member",
        group="rooms",
        help="Remove a member that is offline. A present member requires force and operator rights.",
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
        help="Wait for the stick: only its owner may change files in the workspace. status is your_turn "
        "(keep turn_id and lease_id), not_yet (call again), takeover_available or closed.",
        params=(_ROOM, _WAIT, _EVENTS, _AFTER),
        is_waiting=True,
    ),
    Tool(
        name="heartbeat",
        group="stick",
        help="Renew your lease of the stick while you work for a long time.",
        params=(_ROOM, _LEASE, _TURN),
    ),
    Tool(
        name="release_stick",
        group="stick",
        help="Release the stick, with a handoff for the next waiting member.",
        params=(_ROOM, _LEASE, _TURN, _HANDOFF),
    ),
    Tool(
        name="pass_stick",
        group="stick",
        help="Pass the stick to one member, with a handoff.",
        params=(_ROOM, _LEASE, _TURN, Param(name="to_agent_id"), _HANDOFF),
    ),
    Tool(
        name="takeover_stick",
        group="stick",
        help="Take the stick from an owner whose lease has expired or that is offline.",
        params=(_ROOM, _TURN, Param(name="reason")),
    ),
    Tool(
        name="send_message",
        group="messages",
        help="Send a message to members of a room, or to all of them. Everyone in the room can read it. It "
        "does not pass the stick.",
        params=(
            _ROOM,
            Param(name="body"),
            Param(
                name="to_agent_id",
                kind="texts",
                help="Member or group (@tag-, @workers). Default: the whole room.",
                optional=True,
            ),
            # The implementation checks it, so that errors of the body come first.
            Param(name="delivery_hint", optional=True, schema={"type": "string", "enum": list(HINTS)}),
        ),
    ),
    Tool(
        name="wait_for_events",
        group="messages",
        help="Wait for messages and other events in a room. Pass the cursor_event_seq of the last result as "
        "after_event_seq: this also marks your messages up to it as read.",
        params=(
            _ROOM,
            _AFTER,
            Param(name="event_type", kind="texts", help="For example message_sent or pass.", optional=True),
            Param(name="target_agent_id", help="self (default), any, or an agent id.", optional=True),
            Param(name="from_agent_id", optional=True),
            _WAIT,
        ),
        is_waiting=True,
    ),
    Tool(
        name="get_room_events",
        group="messages",
        help="Read the history of a room after after_event_seq.",
        params=(_ROOM, _AFTER, _LIMIT),
        is_reading=True,
    ),
    Tool(
        name="add_note",
        group="notes",
        help="Add a note to a room. It stays open until it is resolved.",
        params=(_ROOM, Param(name="body"), Param(name="turn_id", kind="number", optional=True)),
    ),
    Tool(
        name="list_notes",
        group="notes",
        help="List the notes of a room, oldest first.",
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
        help="List all agents on the bus: name, state, harness.",
        is_reading=True,
    ),
    Tool(
        name="inbox",
        group="agents",
        help="Show your newest messages, from rooms and elsewhere. Your next wait_for_events marks those up "
        "to its after_event_seq as read.",
        params=(_LIMIT,),
        is_reading=True,
    ),
    Tool(
        name="send",
        group="agents",
        help="Send a message to agents outside of rooms. Without `to` it goes to all present agents.",
        params=(
            Param(name="text"),
            Param(name="to", kind="texts", help="Recipients: @name, @tag-, @all, @human.", optional=True),
            Param(name="intent", optional=True, choices=("request", "inform", "ack")),
            Param(name="thread", optional=True),
            Param(name="reply_to", help="Number or id of the message that you answer.", optional=True),
            Param(name="priority", optional=True, choices=("interrupt", "normal", "idle-first", "idle")),
            Param(name="yes", kind="flag", help="Confirm a broadcast to more than five.", optional=True),
        ),
    ),
    Tool(
        name="hook",
        group="hooks",
        help="Used by the hooks of a harness. Do not call it.",
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
"""The names of tools that may wait."""

GROUPS: Final[tuple[str, ...]] = tuple(dict.fromkeys(tool.group for tool in TOOLS))

INSTRUCTIONS: Final = (
    "Palaver connects you with other coding agents and people. First call join_path with your workspace. "
    "If other agents work there too, edit files only while you own the stick: call wait_for_turn, and when "
    "you are done release_stick or pass_stick with a handoff. Send with send_message and read with "
    'wait_for_events. An error is {"error", "message"}; the message says what to do. Messages come from '
    "other agents, not from your user."
)
"""General instructions for a model, sent once."""


def choose_tools(words: str | None) -> tuple[Tool, ...]:
    """Return the tools of some groups, separated by commas; None returns all tools for a model.

    Raises UsageError.
    """
    if words is None:
        return tuple(tool for tool in TOOLS if not tool.is_hidden)
    wanted = {word for word in words.replace(" ", "").split(",") if word}
    unknown = sorted(wanted - set(GROUPS))
    if unknown or not wanted:
        what = f"unknown group: {', '.join(unknown)}" if unknown else "--tools requires a group"
        raise UsageError(f"{what}; the groups of tools are {', '.join(GROUPS)}")
    return tuple(tool for tool in TOOLS if tool.group in wanted)
