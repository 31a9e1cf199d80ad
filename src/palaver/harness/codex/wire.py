"""The messages to and from a Codex app-server: JSON-RPC without the version field. Pure.

Requests of the server are questions to the user, mostly for permissions. A `Reply` carries the user's
decision and must not be created for any other reason.
"""

import shlex
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from palaver.errors import BadRequest
from palaver.harness.base import AgentReport, PermissionQuestion
from palaver.harness.hooks import COMPACTING, LIMIT_COMMAND, TOOL_USE, as_map, one_line, text_in
from palaver.protocol.events import AgentState

CLIENT: Final = "palaver"
"""Our name as a client, and the name of our MCP server in the settings of Codex."""
_NOT_RUNNING: Final = frozenset({"failed", "cancelled", "authenticationRequired"})

T = TypeVar("T")


class CodexRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the server."""

    id: int
    method: str
    params: dict[str, object]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification to the server; it has no reply."""

    method: str


class CodexReply(msgspec.Struct, frozen=True, kw_only=True):
    """The user's decision on a request of the server."""

    id: int | str
    result: dict[str, object]


class CodexMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the server: a result, a refusal, a notification, or a request (id and method)."""

    id: int | str | None = None
    method: str = ""
    params: dict[str, object] = {}
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: "Refusal | None" = None

    @property
    def is_question(self) -> bool:
        """Whether it is a request of the server."""
        return bool(self.method) and self.id is not None


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why the server refused a request."""

    message: str = ""
    code: int = 0


_decode_message: Final = msgspec.json.Decoder(CodexMessage).decode
_encode: Final = msgspec.json.Encoder().encode
INITIALIZED: Final = Notice(method="initialized")


def message_from_json(data: bytes) -> CodexMessage:
    """Decode a message; raises BadRequest if it is malformed."""
    try:
        return _decode_message(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the app-server sent an unreadable message: {error}") from error


def to_json(message: CodexRequest | Notice | CodexReply) -> bytes:
    """Encode a message."""
    return _encode(message)


# Requests


def initialize(version: str) -> tuple[str, dict[str, object]]:
    """Introduce this client. Some methods that we use require the experimental API."""
    return "initialize", {
        "clientInfo": {"name": CLIENT, "title": "Palaver", "version": version},
        "capabilities": {"experimentalApi": True},
    }


def list_loaded() -> tuple[str, dict[str, object]]:
    """List the threads in memory."""
    return "thread/loaded/list", {}


def read_thread(thread: str) -> tuple[str, dict[str, object]]:
    """Read a thread, without its turns."""
    return "thread/read", {"threadId": thread}


def subscribe(thread: str, turns: int = 1) -> tuple[str, dict[str, object]]:
    """Subscribe to a thread and read its newest turns. Does not change the thread."""
    page = {"limit": turns, "itemsView": "full"}
    return "thread/resume", {"threadId": thread, "excludeTurns": True, "initialTurnsPage": page}


def unsubscribe(thread: str) -> tuple[str, dict[str, object]]:
    """Unsubscribe from a thread, so that the server can unload it."""
    return "thread/unsubscribe", {"threadId": thread}


def list_tools(thread: str) -> tuple[str, dict[str, object]]:
    """Read the state of our MCP server in one thread.

    Codex replies when the start of that server has finished. Without `serverName` it would start a second
    one.
    """
    return "mcpServerStatus/list", {"threadId": thread, "serverName": CLIENT, "detail": "toolsAndAuthOnly"}


def start_turn(thread: str, text: str, key: str) -> tuple[str, dict[str, object]]:
    """Start a turn in an idle thread with a text; `key` identifies the text in the thread."""
    return "turn/start", {"threadId": thread, "clientUserMessageId": key, "input": _input(text)}


def steer_turn(thread: str, turn: str, text: str, key: str) -> tuple[str, dict[str, object]]:
    """Add a text to the running turn; the server refuses it if another turn is running."""
    return "turn/steer", {
        "threadId": thread,
        "expectedTurnId": turn,
        "clientUserMessageId": key,
        "input": _input(text),
    }


def _input(text: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": text}]


# Results


class CodexThread(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One Codex thread."""

    id: str
    ephemeral: bool = False
    parent_thread_id: str | None = None
    agent_role: str | None = None
    source: object = None
    recency_at: int | None = None
    created_at: int | None = None
    status: dict[str, object] = {}

    @property
    def is_ours(self) -> bool:
        """Whether the user works in it: it is neither a sub-agent's nor that of a title."""
        return not self.ephemeral and self.parent_thread_id is None

    @property
    def is_subagent(self) -> bool:
        """Whether an agent started it as a sub-agent, and not for a review, a summary or a title."""
        made = self.source.get("subAgent") if isinstance(self.source, dict) else None
        is_spawned = isinstance(made, dict) and "thread_spawn" in made
        return is_spawned and not self.ephemeral and self.parent_thread_id is not None

    @property
    def last_used(self) -> int:
        """When it was last used."""
        return max(self.recency_at or 0, self.created_at or 0)


class LoadedThreads(msgspec.Struct, frozen=True, kw_only=True):
    """The threads in memory."""

    data: list[str]


class ThreadRead(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a thread."""

    thread: CodexThread


class CodexTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn with its loaded items."""

    id: str
    status: str = ""
    items: list[dict[str, object]] = []
    error: dict[str, object] | None = None


class TurnPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some turns, newest first."""

    data: list[CodexTurn] = []


class Subscribed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The thread that we subscribed to, and its newest turns."""

    thread: CodexThread
    initial_turns_page: TurnPage | None = None


class ToolServer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of an MCP server in one thread."""

    name: str
    runtime_status: str | None = None
    tools_error: str | None = None


class ToolServers(msgspec.Struct, frozen=True, kw_only=True):
    """The MCP servers of one thread; empty if the user has switched ours off."""

    data: list[ToolServer] = []

    @property
    def trouble(self) -> str:
        """Why our tools cannot be used; empty if they can, or if there are no tools."""
        for server in self.data:
            if server.name == CLIENT and (server.tools_error or server.runtime_status in _NOT_RUNNING):
                return server.tools_error or f"its MCP server is {server.runtime_status}"
        return ""


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was started."""

    turn: CodexTurn


def result_as(raw: msgspec.Raw, kind: type[T]) -> T:
    """Decode a result; raises BadRequest if it has another type."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the app-server sent an unreadable response: {error}") from error


# --------------------
# The work items of Codex as short status values. Pure.
#
# Tool names are those that its hooks use. Items that are not work (texts, reasoning, plans) have no status.

_UNSTEERABLE: Final = frozenset({"contextCompaction", "enteredReviewMode"})
"""Item types during which Codex accepts no text."""
_SHELL_WORDS: Final = 3
_SHELLS: Final = frozenset(
    f"{folder}/{name}" for folder in ("/bin", "/usr/bin") for name in ("sh", "bash", "zsh")
)
"""The paths of standard shells. A program elsewhere may have the same name and do something else."""
BASH: Final = "Bash"
PATCH: Final = "apply_patch"


def work_of(item: Mapping[str, object]) -> AgentReport | None:
    """Return the status for a work item; None if it is not work, such as texts, reasoning and plans."""
    kind = item.get("type")
    match kind:
        case "commandExecution":
            return _at_work(BASH, command=plain_command(text_in(item, "command")))
        case "fileChange":
            return _at_work(PATCH, file=next(iter(paths_in(item)), ""))
        case "mcpToolCall":
            return _at_work(f"{text_in(item, 'server')}.{text_in(item, 'tool')}")
        case "dynamicToolCall" | "collabAgentToolCall":
            return _at_work(text_in(item, "tool"))
        case "webSearch":
            return _at_work("web_search", command=text_in(item, "query"))
        case "imageView" | "imageGeneration" | "sleep":
            return _at_work(str(kind))
        case str() if kind in _UNSTEERABLE:
            return AgentReport(state=AgentState.ACTIVE, detail=COMPACTING)
    return None


def _at_work(tool: str, *, command: str = "", file: str = "") -> AgentReport:
    what = command or file
    return AgentReport(
        state=AgentState.ACTIVE,
        detail=one_line(f"{tool}: {what}" if what else tool) or TOOL_USE,
        tool=one_line(tool),
        command=one_line(command, LIMIT_COMMAND),
        file=file,
    )


def plain_command(command: str) -> str:
    """Return the command that a standard shell runs, without the shell; any other command stays as it is.

    This is for display only. The user approves the full command.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if len(words) == _SHELL_WORDS and words[0] in _SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    return command


def paths_in(item: Mapping[str, object]) -> list[str]:
    """Return the files that a work item changes."""
    changes = item.get("changes")
    if item.get("type") != "fileChange" or not isinstance(changes, list):
        return []
    return [path for one in changes if (path := text_in(as_map(one), "path"))]


def edits_of(item: Mapping[str, object]) -> list[AgentReport]:
    """Return a status for each changed file except the first: that one is in the status of the item."""
    return [_at_work(PATCH, file=path) for path in paths_in(item)[1:]]


# --------------------
# The requests of a Codex app-server to the user, and the encoding of the decision. Pure.
#
# A request can be decided remotely only if it can be shown in full: a command, or a file change of which
# every line is known. Everything else (permanent network access, a form, a question of the model) must be
# answered at the terminal.

_COMMAND: Final = "item/commandExecution/requestApproval"
_FILES: Final = "item/fileChange/requestApproval"
_FORM: Final = "mcpServer/elicitation/request"
_ACCEPT: Final = "accept"
_DECLINE: Final = "decline"
"""Declines the request and lets the turn continue; the model is notified."""
_NOT_SHOWN: Final = frozenset(
    {
        *("threadId", "turnId", "itemId", "approvalId", "startedAtMs", "kind"),
        *("availableDecisions", "commandActions", "proposedExecpolicyAmendment"),
        "proposedNetworkPolicyAmendments",
    }
)
"""Fields that only identify a request, or offer more than a single approval: not shown to the user."""


def question_of(message: CodexMessage, item: Mapping[str, object]) -> PermissionQuestion:
    """Decode a request; `item` is the work item it refers to, as far as known."""
    params, session = message.params, text_in(message.params, "threadId")
    assert message.id is not None  # A request always has an id.
    tool, given = _asked(message.method, params, item)
    what = (
        plain_command(text_in(given, "command")) or text_in(given, "file_path") or text_in(params, "reason")
    )
    if message.method == _FORM:
        what = text_in(params, "message", "serverName")
    return PermissionQuestion(id=message.id, session=session, text=one_line(what), tool=tool, given=given)


def decision(*, is_allowed: bool) -> dict[str, object]:
    """Encode the user's decision. It applies to this request only, never permanently."""
    return {"decision": _ACCEPT if is_allowed else _DECLINE}


def _asked(
    method: str, params: Mapping[str, object], item: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    shown = {name: value for name, value in params.items() if name not in _NOT_SHOWN and value is not None}
    if method == _COMMAND:
        command = text_in(params, "command")
        is_whole = bool(command) and params.get("kind", "command") == "command" and _can_accept(params)
        return BASH if is_whole else "", {**shown, "command": command}
    if method == _FILES:
        paths = paths_in(item)
        given = {"file_path": ", ".join(paths), **shown, "changes": item.get("changes")}
        return (PATCH, given) if paths else ("", shown)
    return "", {}


def _can_accept(params: Mapping[str, object]) -> bool:
    offered = params.get("availableDecisions")
    return not isinstance(offered, list) or _ACCEPT in offered


def changes_in(item: Mapping[str, object]) -> Mapping[str, object]:
    """Return the part of a work item that must be kept: a later request only refers to it by id."""
    return item if item.get("type") == "fileChange" else as_map(None)
