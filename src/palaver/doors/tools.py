"""The MCP tools: their table, the texts that a model reads, and their calls."""

import logging
import os.path
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from palaver.broker.context import Sent
from palaver.doors.hooks import hook_input
from palaver.errors import BadRequest, NotAllowed, PalaverError, Unavailable, UsageError
from palaver.protocol.address import AGENT
from palaver.protocol.agents import Caller
from palaver.protocol.display import safe
from palaver.protocol.lines import error_object
from palaver.protocol.paths import DEFAULT_COMMAND, INTERNAL, Content, RouteResult
from palaver.protocol.query import HINTS
from palaver.protocol.requests import Send
from palaver.services.results import SentView, ServiceResult
from palaver.services.rooms import LIMIT_WAIT_MS
from palaver.services.services import Services
from palaver.services.views import sent_view

# --------------------
# The parameters of a tool, and their JSON Schema. Pure.

Kind = Literal["text", "texts", "number", "flag", "object", "value"]
"""`texts` is one text or a list of them, `value` any JSON value."""

_TYPES: Final[dict[Kind, dict[str, object]]] = {
    "text": {"type": "string"},
    "texts": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "number": {"type": "integer"},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
    # Models write an object. Some harnesses take a parameter without one type as a string.
    "value": {"type": "object"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One parameter of a tool."""

    name: str
    kind: Kind = "text"
    help: str = ""
    optional: bool = False
    choices: tuple[str, ...] = ()
    schema: dict[str, object] | None = None
    """A more detailed schema than that of the kind."""


def input_schema(params: Sequence[Param]) -> dict[str, object]:
    """Return the JSON Schema of the parameters of a tool."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": {param.name: _schema(param) for param in params},
    }
    if required := [param.name for param in params if not param.optional]:
        schema["required"] = required
    return schema


def _schema(param: Param) -> dict[str, object]:
    schema = dict(param.schema or _TYPES[param.kind])
    if param.choices:
        schema["enum"] = list(param.choices)
    if param.help:
        schema["description"] = param.help
    return schema


# --------------------
# The MCP tools as data: names, parameters and the texts that a model reads. Pure.
#
# A model reads all these texts at the start of every session, so keep them short. The tools are implemented
# in `services/rooms.py` and, for `send` and `route_message`, below.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. Except for messages outside of rooms, its name is that of a method of `RoomService`."""

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


WAIT_MS: Final = 50_000
"""Milliseconds that a call waits by default. Harnesses abort a call after a minute."""

_ROOM: Final = Param(name="room_id")
_LEASE: Final = Param(name="lease_id")
_TURN: Final = Param(name="expected_turn_id", kind="number")
_WAIT: Final = Param(
    name="max_wait_ms",
    kind="number",
    help=f"Milliseconds to wait (default {WAIT_MS}, at most {LIMIT_WAIT_MS}).",
    optional=True,
)
_LIMIT: Final = Param(name="limit", kind="number", optional=True)
_AFTER: Final = Param(name="after_event_seq", kind="number", optional=True)
_EVENTS: Final = Param(
    name="events",
    kind="flag",
    help="Also wait for messages and events, and return those after after_event_seq.",
    optional=True,
)
_REASON: Final = Param(name="reason", optional=True)
_HANDOFF: Final = Param(
    name="handoff",
    kind="object",
    help="All that the next owner needs to continue without you.",
    schema={
        "type": "object",
        "properties": {
            "status": {"type": "string", "description": "The work that is done, tested and unfinished."},
            "next_action": {"type": "string", "description": "The next step."},
            "artifacts": {"type": "array", "items": {}, "description": "Files, or {path, lines, note}."},
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
        help="Renew your lease of the stick. Call it every 5 minutes while you make no other calls.",
        params=(_ROOM, _LEASE, _TURN),
    ),
    Tool(
        name="release_stick",
        group="stick",
        help="Release the stick with a handoff. reserved_for is the next owner: a member that waits or did "
        "so just now. If it is null, no one waits, and the stick is free.",
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
        help="Take the stick from an owner that is offline or idle for a long time, or whose lease has "
        "expired; also if a reservation was not claimed in time.",
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
            Param(
                name="delivery_hint",
                help="Use interrupt rarely: only if the work must stop now.",
                optional=True,
                schema={"type": "string", "enum": list(HINTS)},
            ),
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
        name="resolve_note",
        group="notes",
        help="Mark a note as resolved.",
        params=(_ROOM, Param(name="note_id")),
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
        help="Send a message to agents outside of rooms. Without `to` it goes to the author of "
        "`reply_to`, or to the participants of `thread`.",
        params=(
            Param(name="text"),
            Param(name="to", kind="texts", help="Recipients: @name, @tag-, @all, @human.", optional=True),
            Param(name="intent", optional=True, choices=("request", "inform", "ack")),
            Param(name="thread", optional=True),
            Param(name="reply_to", help="Number or id of the message that you answer.", optional=True),
            Param(
                name="priority",
                help="Use interrupt rarely: only if the work must stop now.",
                optional=True,
                choices=("interrupt", "normal", "idle-first", "idle"),
            ),
            Param(
                name="yes", kind="flag", help="Confirm a broadcast to more than five agents.", optional=True
            ),
        ),
    ),
    Tool(
        name="route_message",
        group="agents",
        help="Send a command with a payload to an agent, or to all subscribers of a path such as "
        "slack/team/#general. The result lists the recipients.",
        params=(
            Param(name="to", help="Agent name, or a path with a slash."),
            Param(name="command", help="What to do (default message).", optional=True),
            Param(name="payload", kind="value", optional=True),
            Param(name="source", optional=True),
            Param(name="external_id", optional=True),
            Param(
                name="yes",
                kind="flag",
                help="Confirm a path that reaches more than five agents.",
                optional=True,
            ),
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
    'wait_for_events. An error is {"error", "message", "details"}; its message names the tool that helps. '
    "Messages come from other agents, not from your user."
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


# --------------------
# Check the arguments of a tool call against its parameters. Pure.
#
# A model may omit an optional parameter or pass null for it, and may write a whole number as 5.0. Every other
# mismatch is refused with an error that names the expected type.

_WANTED: Final[Mapping[Kind, str]] = {
    "text": "a string",
    "texts": "a string or a list of strings",
    "number": "a whole number",
    "flag": "true or false",
    "object": "an object",
    "value": "a JSON value",
}
_LIMIT_NUMBER: Final = 2**53
"""Many programs read JSON numbers as doubles, in which larger whole numbers are not exact."""


def checked_arguments(tool: Tool, given: Mapping[str, object] | None) -> dict[str, object]:
    """Return the given arguments of a call by name; raises BadRequest."""
    arguments = {name: value for name, value in (given or {}).items() if value is not None}
    known = {param.name: param for param in tool.params}
    for name in arguments:
        if name not in known:
            takes = ", ".join(known) or "nothing"
            raise BadRequest(f"{tool.name} has no parameter {name[:64]!r}; it takes {takes}")
    for param in tool.params:
        if param.name not in arguments and not param.optional:
            raise BadRequest(f"{tool.name} requires {param.name} ({_WANTED[param.kind]})")
    return {name: _checked(tool, known[name], value) for name, value in arguments.items()}


def _checked(tool: Tool, param: Param, value: object) -> object:
    if param.kind == "number" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not _fits(param.kind, value):
        raise BadRequest(f"{param.name} of {tool.name} must be {_WANTED[param.kind]}")
    if param.choices and value not in param.choices:
        raise BadRequest(f"{param.name} of {tool.name} must be one of {', '.join(param.choices)}")
    return value


def _fits(kind: Kind, value: object) -> bool:
    if kind == "text":
        return _is_text(value)
    if kind == "texts":
        # The implementation checks an empty list: its meaning depends on the parameter.
        return _is_text(value) or (isinstance(value, list) and all(map(_is_text, value)))
    if kind == "number":
        # Not `isinstance`: a bool is an int too.
        return type(value) is int and -_LIMIT_NUMBER < value < _LIMIT_NUMBER
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "value":
        return _is_encodable(value)
    return isinstance(value, dict)


def _is_text(value: object) -> bool:
    """Return whether a value is a string that UTF-8 can encode: JSON may contain a lone surrogate."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_encodable(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


# --------------------
# The wait of a call, as the next daemon receives it. Pure.


class ToolWait(msgspec.Struct, frozen=True, kw_only=True):
    """How long a call waits, and since when."""

    until_ms: int
    """The end of the wait, in Unix milliseconds: a restart does not extend it."""
    # Named `place` on the wire, because a client passes it from an older daemon to the next one.
    seq: int = msgspec.field(name="place")
    """The last seq when the call was first made. Later events have not been checked."""

    def rest_ms(self, now_ms: int) -> int:
        """Return the remaining milliseconds."""
        return max(0, self.until_ms - now_ms)


# --------------------
# The sentence of an error for a caller of tools. It names tools and parameters instead of commands and
# options. Pure.

_TOOL_OF: Final[Mapping[str, str]] = {
    "join": "join_path",
    "room join": "join_path",
    "room list": "list_rooms",
    "room state": "get_room_state",
    "room leave": "leave_room",
    "room kick": "kick_member",
    "stick wait": "wait_for_turn",
    "stick claim": "wait_for_turn",
    "stick heartbeat": "heartbeat",
    "stick release": "release_stick",
    "stick pass": "pass_stick",
    "stick takeover": "takeover_stick",
    "note add": "add_note",
    "note list": "list_notes",
    "note resolve": "resolve_note",
    "list": "list_agents",
    "inbox": "inbox",
    "recv": "inbox",
    "send": "send",
    "route": "route_message",
}
"""The tool that does the same as a command."""
_PARAMETER_OF: Final[Mapping[str, str]] = {
    "--force": "force",
    "--yes": "yes",
    "--reply-to": "reply_to",
    "--thread": "thread",
    "--priority": "priority",
    "--room": "room_id",
    "--turn": "turn_id",
    "--as": "palaver/session in _meta",
}
"""The parameter that does the same as an option."""
_COMMAND: Final = re.compile(r"( run | with |)'pal ([a-z]+(?: [a-z]+)?)[^']*'")
_OPTION: Final = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)(?: [A-Z]+\b)?")


def tool_error(error: PalaverError, tool: str) -> dict[str, object]:
    """Return an error that a tool call got, as one object. Its sentence and its fields name no command."""
    if isinstance(error, NotAllowed):
        # Its subject is the command that was refused. The caller knows it as this tool.
        forced = " with force" if "--force" in error.request else ""
        return error_object(NotAllowed(f"{tool}{forced}", error.standing, error.needed))
    found = {**error_object(error), "message": _for_tools(str(error))}
    if isinstance(reason := error.details.get("reason"), str):
        found["details"] = {**error.details, "reason": _for_tools(reason)}
    return found


def _for_tools(text: str) -> str:
    return _OPTION.sub(_parameter, _COMMAND.sub(_tool_name, text))


def _tool_name(found: re.Match[str]) -> str:
    """Return the tool for a quoted command. The way in which a person does something is left out."""
    before, words = found[1], found[2]
    tool = _TOOL_OF.get(words) or _TOOL_OF.get(words.partition(" ")[0])
    if tool is None:
        return "" if before == " with " else found[0]
    return f"{before.replace('run', 'call')}{tool}"


def _parameter(found: re.Match[str]) -> str:
    return _PARAMETER_OF.get(found[1], found[0])


# --------------------
# Run one tool call: check arguments, call the room tools, return one object. Knows no protocol.
#
# `call_tool` is the only function that catches errors; it returns them as `{"error": code, "message": …}`.

_FAILED: Final = Unavailable("an internal error in the daemon; see daemon.log in its home")
_BY_NAME: Final = {tool.name: tool for tool in TOOLS}
HOOK: Final = "hook"

_logger: Final = logging.getLogger("palaver.doors")

Who = Callable[[Tool], Awaitable[Caller]]
"""Returns the caller of a tool; raises if it may not call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A call as a door received it."""

    tool: str
    arguments: Mapping[str, object] | None
    who: Who
    cwd: str = ""
    """Base of relative paths; empty if the caller has no directory on this machine."""
    home: str = ""
    """The caller's home directory, where no room may be; empty if unknown."""
    key: bytes | None = None
    """The request key: a repeated call with the same key is done once and has the same result."""
    waited: ToolWait | None = None
    """The wait of the same call in an earlier daemon, which continues."""
    on_wait: Callable[[ToolWait], None] | None = None
    """Called with the wait before it begins, if the door can pass it to the next daemon."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool."""

    content: dict[str, object]
    is_refusal: bool = False


async def call_tool(services: Services, offered: tuple[Tool, ...], asked: ToolRequest) -> ToolResult:
    """Run one call and return its result or its error. Only cancellation is raised."""
    try:
        return ToolResult(await run_tool(services, offered, asked))
    except PalaverError as error:
        if asked.tool == HOOK:  # a hook must never block its harness
            return ToolResult({})
        _logger.info("refused tool %s: %s: %s", safe(asked.tool[:64]), error.code, safe(str(error)))
        return ToolResult(tool_error(error, asked.tool), is_refusal=True)
    except Exception:
        _logger.exception("the tool %s failed", safe(asked.tool[:64]))
        return ToolResult(error_object(_FAILED), is_refusal=True)


async def run_tool(services: Services, offered: tuple[Tool, ...], asked: ToolRequest) -> dict[str, object]:
    """Run one call and return its result. Errors are raised."""
    tool = _BY_NAME.get(asked.tool)
    if tool is None or tool not in offered:
        names = ", ".join(one.name for one in offered)
        raise BadRequest(f"no such tool: {asked.tool[:64]}; the tools are {names}")
    return await _run(services, tool, asked)


async def _run(services: Services, tool: Tool, asked: ToolRequest) -> dict[str, object]:
    arguments = checked_arguments(tool, asked.arguments)
    # Here, because only the door knows the caller's directory.
    if "context_path" in arguments:
        arguments["context_path"] = _absolute(str(arguments["context_path"]), asked.cwd)
    if tool.name == "join_path":
        arguments["home"] = asked.home
    # After the arguments: for `join_path` this can join the bus, which a wrong call must not do.
    caller = await asked.who(tool)
    if tool.name == HOOK:
        return await _hook(services, caller, arguments)
    if tool.name == "send":
        return _rendered(await _send(services, caller, arguments, asked.key))
    if tool.name == "route_message":
        return await _route(services, caller, arguments, asked.key)
    if asked.key is not None and not tool.is_reading and tool.name not in _KEYLESS:
        arguments["key"] = asked.key
    if tool.is_waiting:
        arguments |= _waiting(services, asked, arguments)
    # Only names of the table get here, so a caller cannot choose another method.
    method = getattr(services.rooms, tool.name)
    result: ServiceResult = await method(caller, **arguments)
    return _with_way_on(tool, _rendered(result))


def _rendered(result: ServiceResult | RouteResult) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(result)
    return fields


_WAIT_EVENTS: Final = "wait_for_events"
_KEYLESS: Final = frozenset({"heartbeat", _WAIT_EVENTS})
"""They store nothing, so they have no request key."""


def _waiting(services: Services, asked: ToolRequest, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return how long a call may wait and, for a repeated one, the last seq when it first started."""
    wait_ms = arguments.get("max_wait_ms", WAIT_MS)
    assert isinstance(wait_ms, int)  # its parameter is a number
    if asked.on_wait is None:  # this call ends with its daemon, so its wait is not recorded
        return {"max_wait_ms": wait_ms}
    now_ms, limit_ms = services.clock.now_ms(), min(wait_ms, LIMIT_WAIT_MS)
    wait = asked.waited or ToolWait(until_ms=now_ms + limit_ms, seq=services.queries.last())
    asked.on_wait(wait)
    return {"max_wait_ms": min(limit_ms, wait.rest_ms(now_ms)), "since_event_seq": wait.seq}


async def _hook(services: Services, caller: Caller, arguments: Mapping[str, object]) -> dict[str, object]:
    harness, event = str(arguments["harness"]), str(arguments["event"])
    return await services.daemon.run_hook(caller, harness, event, hook_input(arguments))


async def _send(
    services: Services, caller: Caller, arguments: Mapping[str, object], key: bytes | None
) -> SentView:
    to = arguments.get("to", [])
    words = [to] if isinstance(to, str) else to
    assert isinstance(words, list)
    # An empty value would count as a missing one, and the message would go to others than the model meant.
    for name in ("to", "thread"):
        if name in arguments and not arguments[name]:
            raise BadRequest(f"{name} is empty: leave it out, or give it a value. Nothing was sent")
    request = Send(
        text=str(arguments["text"]),
        to=tuple(words),
        intent=str(arguments.get("intent", "")),
        thread=str(arguments.get("thread", "")),
        reply_to=str(arguments.get("reply_to", "")),
        priority=str(arguments.get("priority", "")),
        is_confirmed=arguments.get("yes") is True,
    )
    sent = await services.broker.submit(caller, request, key=key)
    assert isinstance(sent, Sent)
    return sent_view(sent)


async def _route(
    services: Services, caller: Caller, arguments: Mapping[str, object], key: bytes | None
) -> dict[str, object]:
    content = Content(
        command=str(arguments.get("command", DEFAULT_COMMAND)),
        payload=arguments.get("payload"),
        source=str(arguments.get("source", INTERNAL)),
        external_id=str(arguments.get("external_id", "")),
    )
    path, is_confirmed = _path_of(str(arguments["to"])), arguments.get("yes") is True
    routed = await services.paths.route(caller, path, content, is_confirmed=is_confirmed, key=key)
    found = _rendered(routed.result)
    if routed.result.unmatched:
        text = f"no agent or session is subscribed to {routed.message.path}: it is now a dead letter"
        return {**found, "hint": text}
    return found


def _path_of(to: str) -> str:
    """Return the path of a recipient: a path contains a slash, anything else is the name of an agent."""
    if "/" in to:
        return to
    if not (name := to.removeprefix("@")):
        raise BadRequest("to is empty: name an agent or a path. Nothing was sent")
    return f"{AGENT}/{name}"


def _absolute(path: str, cwd: str) -> str:
    if path.startswith("/"):
        return os.path.normpath(path)
    if not cwd:
        raise BadRequest("context_path must be absolute: a caller over HTTP has no working directory")
    return os.path.normpath(f"{cwd}/{path}")


def _with_way_on(tool: Tool, found: dict[str, object]) -> dict[str, object]:
    """Add how to continue to a result that needs it, unless it has a hint already."""
    if tool.name == "release_stick":
        return {**found, "hint": _release_hint(found.get("reserved_for"))}
    if not tool.is_waiting or found.get("hint"):
        return found
    if found.get("status") == "not_yet":
        return {**found, "hint": _turn_hint(found)}
    if tool.name == _WAIT_EVENTS and not found.get("events"):
        cursor = found.get("cursor_event_seq")
        return {
            **found,
            "status": "not_yet",
            "hint": f"nothing happened: call wait_for_events again with after_event_seq={cursor}",
        }
    return found


def _turn_hint(found: Mapping[str, object]) -> str:
    if not found.get("events"):
        return "it is not your turn: call wait_for_turn again to keep your place in line"
    cursor = found.get("cursor_event_seq")
    return f"it is not your turn: read events, then call wait_for_turn again with after_event_seq={cursor}"


def _release_hint(next_owner: object) -> str:
    if next_owner is None:
        return "no member waits: the stick is free, and the next call of wait_for_turn gets your handoff"
    return f"{next_owner} is next, and gets your handoff with its call of wait_for_turn"
