"""The threads of a Codex server: its messages on the wire, and what they say about each thread. Pure."""

import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeVar

import msgspec

from palaver.errors import BadRequest
from palaver.harness.base import OPEN, AgentReport, Gate, LaneGate, PermissionQuestion
from palaver.harness.hooks import (
    COMPACTING,
    LIMIT_COMMAND,
    PERMISSION,
    QUESTION,
    THINKING,
    TOOL_USE,
    as_map,
    as_number,
    one_line,
    text_in,
)
from palaver.protocol.events import AgentState
from palaver.protocol.requests import DIALOG, USAGE_LIMIT

# --------------------
# The messages to and from a Codex app-server: JSON-RPC without the version field. Pure.
#
# Requests of the server are questions to the user, mostly for permissions. A `Reply` carries the user's
# decision and must not be created for any other reason.

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
    """Not decoded here: only the sender of the request knows its type."""
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
"""Words of a plain command: the shell, its option and the command. More words would be its arguments."""
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
    # `shlex` raises ValueError for a quote that is not closed.
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
    """Encode the user's decision. It applies to this request only, never to the session or permanently."""
    return {"decision": _ACCEPT if is_allowed else _DECLINE}


def _asked(
    method: str, params: Mapping[str, object], item: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    shown = {name: value for name, value in params.items() if name not in _NOT_SHOWN and value is not None}
    if method == _COMMAND:
        command = text_in(params, "command")
        # Anything but a whole command that can be accepted once must be decided at the terminal: the user
        # would see less remotely than the approval covers.
        is_whole = bool(command) and params.get("kind", "command") == "command" and _can_accept(params)
        return BASH if is_whole else "", {**shown, "command": command}
    if method == _FILES:
        paths = paths_in(item)
        given = {"file_path": ", ".join(paths), **shown, "changes": item.get("changes")}
        # Without the work item the changed lines are unknown, and the user must not approve them unseen.
        return (PATCH, given) if paths else ("", shown)
    return "", {}


def _can_accept(params: Mapping[str, object]) -> bool:
    offered = params.get("availableDecisions")
    return not isinstance(offered, list) or _ACCEPT in offered


def changes_in(item: Mapping[str, object]) -> Mapping[str, object]:
    """Return the part of a work item that must be kept: a later request only refers to it by id."""
    return item if item.get("type") == "fileChange" else as_map(None)


# --------------------
# The state of one Codex thread as its app-server reports it: status, open requests, gate. Pure.

_AGAIN: Final = re.compile(r"\btry\s+again\s+at\s+([^.\n]{1,60})")
"""The text with which Codex tells the user when its usage limit ends."""
_LIMITED: Final = frozenset({"usageLimitExceeded", "sessionBudgetExceeded"})
_BEGUN: Final = frozenset({"active", "systemError"})
"""The statuses that a thread has only during its first turn or later; a failed turn leaves the second one."""


@dataclass(slots=True)
class ThreadState:
    """The current state of one thread."""

    parent: str = ""
    """The parent thread, for a sub-agent."""
    role: str = ""
    is_loaded: bool = True
    is_active: bool = False
    has_begun: bool = False
    """Whether a turn has begun in it: from then on Codex stores the thread."""
    flags: frozenset[str] = frozenset()
    turn: str = ""
    works: dict[str, AgentReport] = field(default_factory=dict)
    changes: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """The file changes in progress: a permission request refers to them without repeating them."""
    asked: dict[str, PermissionQuestion] = field(default_factory=dict)
    has_tools: bool | None = None
    """Whether our tools have started, or will not start; None if that was not asked for yet."""
    trouble: str = ""
    """Why our tools are missing."""
    limit: str = ""
    """Set while the last turn ended because of a usage limit; includes its end, if known."""
    report: int = 0
    """The number of the last report about it."""

    # Updates

    def set_status(self, status: Mapping[str, object]) -> None:
        """Set the status of the whole thread."""
        kind, flags = status.get("type"), status.get("activeFlags")
        self.is_loaded = kind != "notLoaded"
        if not self.is_loaded:
            self.has_tools = None  # Codex starts the MCP servers again when it loads the thread again.
        self.is_active = kind == "active"
        self.has_begun = self.has_begun or kind in _BEGUN
        self.flags = frozenset(map(str, flags)) if isinstance(flags, list) else frozenset()
        # Without flags nothing waits for the user, so every request is settled, also if its end was not
        # reported.
        if not self.flags:
            self.asked.clear()
        if not self.is_active:
            self.turn = ""
            self.works.clear()
            self.changes.clear()

    def begin_turn(self, turn: str) -> None:
        """Begin a turn."""
        self.turn, self.limit, self.has_begun = turn, "", True

    def apply_running(self, turn: CodexTurn) -> None:
        """Apply a running turn from a result: it also shows changes that were not reported."""
        if self.turn not in ("", turn.id):
            self.works.clear()
            self.changes.clear()
        self.is_active = True
        self.begin_turn(turn.id)
        for item in turn.items:
            if item.get("status") == "inProgress":
                self.begin_item(item)
            # Only reports show the end of an item without a status. An item that is missing may be running
            # too: Codex does not include a compaction before its end.
            elif item.get("status"):
                self.end_item(item)

    def end_turn(self, turn: Mapping[str, object], resets_at: int | None) -> None:
        """End a turn; `resets_at` is the end of the usage limit, if the server reported it separately."""
        # A late report about an earlier turn must not end the current one.
        if turn.get("id") == self.turn:
            self.turn = ""
        error = as_map(turn.get("error"))
        info = error.get("codexErrorInfo")
        if isinstance(info, str) and info in _LIMITED:
            retry = _AGAIN.search(text_in(error, "message"))
            until = str(resets_at or "") or (one_line(retry[1]) if retry else "")
            self.limit = f"{USAGE_LIMIT} until {until}" if until else USAGE_LIMIT

    def begin_item(self, item: Mapping[str, object]) -> None:
        """Begin a work item; ignore items that are not work."""
        name = text_in(item, "id")
        if (work := work_of(item)) is not None:
            self.works[name] = work
        if changes := changes_in(item):
            self.changes[name] = changes

    def end_item(self, item: Mapping[str, object]) -> None:
        """End a work item."""
        self.works.pop(text_in(item, "id"), None)
        self.changes.pop(text_in(item, "id"), None)

    # Queries

    @property
    def word(self) -> AgentReport:
        """The current status of the thread."""
        if not self.is_loaded:
            return AgentReport(state=AgentState.STARTING)
        if self.flags:
            asked = next((one.text for one in self.asked.values()), "")
            kind = PERMISSION if "waitingOnApproval" in self.flags else QUESTION
            return AgentReport(state=AgentState.BLOCKED, detail=f"{kind}: {asked}" if asked else kind)
        # Also if the thread counts as active: a status that was read before the end of the turn may come
        # after it. The next turn clears the limit.
        if self.limit:
            return AgentReport(state=AgentState.BLOCKED, detail=self.limit)
        if not self.is_active:
            return AgentReport(
                state=AgentState.STARTING if self.awaits_tools else AgentState.IDLE, detail=self.trouble
            )
        if self.works:
            return list(self.works.values())[-1]
        return AgentReport(state=AgentState.ACTIVE, detail=THINKING)

    @property
    def awaits_tools(self) -> bool:
        """Whether our tools are still starting: the agent could not reply to a message yet."""
        return self.has_tools is False

    @property
    def level(self) -> LaneGate:
        """Whether a message can be delivered now.

        While the model writes, only an interrupt: a text stops it.
        """
        if not self.is_loaded or (self.awaits_tools and not self.flags):
            return LaneGate(Gate(is_open=False, reason="starting"))
        if self.flags:
            return LaneGate(Gate(is_open=False, reason=DIALOG))
        if self.limit:
            return LaneGate(Gate(is_open=False, reason=USAGE_LIMIT))
        if any(work.detail == COMPACTING for work in self.works.values()):
            return LaneGate(Gate(is_open=False, reason=COMPACTING))
        return LaneGate(OPEN, is_paused=self.is_active and not self.works)


# --------------------
# All threads of one app-server, and which of them is the agent's.


@dataclass(frozen=True, slots=True)
class ThreadNews:
    """The consequences of one report of the server."""

    thread: str = ""
    """The thread of `seen` and `ended`."""
    seen: frozenset[str] = frozenset()
    """The keys of those texts from us that are now in that thread."""
    stranger: str = ""
    """An unknown thread that was mentioned and should be read."""
    ended: str = ""
    """The turn that ended: it takes no more texts."""
    edits: tuple[AgentReport, ...] = ()
    """Files that are being changed, in addition to the one in the agent's status."""
    closed: frozenset[str] = frozenset()
    """The threads that were closed: texts on their way into them are not reported any more."""


_NOTHING: Final = ThreadNews()
_CLOSED: Final = frozenset({"thread/closed", "thread/deleted"})
_BEGINNINGS: Final = frozenset({"thread/started", "thread/status/changed", "turn/started"})
_REPORTS: Final = frozenset(
    {
        *("thread/status/changed", "turn/started", "turn/completed"),
        *("item/started", "item/completed", "serverRequest/resolved"),
    }
)
"""Messages about the state of a thread. Others are frequent, such as those with parts of a text."""
_ENDED: Final = 50
"""Ended turns to remember: an older result can arrive after the report of the end."""
_NO_THREAD: Final = ThreadState(is_loaded=False)
"""Represents a thread that does not exist. It must not be changed."""


class Threads:
    """All threads of one server. `current` is the agent's; empty if there is no such thread."""

    def __init__(self, only: str = "") -> None:
        """`only` is the id of the agent's thread, if no other thread may be the agent's."""
        self._only = only
        self._states: dict[str, ThreadState] = {}
        self._others: set[str] = set()
        """Threads to ignore: titles, reviews, and those of other users."""
        self._refused: set[str] = set()
        """Threads that the server refused to show; they are read again only when something begins in them."""
        self._resets_at: int | None = None
        self._ended: deque[str] = deque(maxlen=_ENDED)
        self._numbers = count(1)
        self.current = ""

    @property
    def turn(self) -> str:
        """The running turn of the agent's thread; empty if not known."""
        return self.turn_in(self.current)

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running."""
        return self._state_of(self.current).is_active

    @property
    def is_loading(self) -> bool:
        """Whether the agent's thread exists but cannot be written to yet."""
        return self.current in self._states and not self._states[self.current].is_loaded

    # Updates

    def refused(self, thread: str) -> None:
        """Record that the server does not show a thread: it has ended, or has not begun yet."""
        self._refused.add(thread)

    def found(self, thread: CodexThread, *, is_outdated: bool = False) -> bool:
        """Add or update a thread; return True if it has just become the agent's.

        `is_outdated` is set if the thread has changed since it was read: its state is kept then.
        """
        self._refused.discard(thread.id)
        is_below = thread.is_subagent and (thread.parent_thread_id or "") in self._states
        if not is_below and (not thread.is_ours or self._only not in ("", thread.id)):
            self._others.add(thread.id)
            return False
        if is_outdated and thread.id not in self._states:
            return False  # It was closed since.
        state = self._states.setdefault(thread.id, ThreadState())
        if not is_outdated:
            state.set_status(thread.status)
        if is_below:
            state.parent, state.role = thread.parent_thread_id or "", thread.agent_role or ""
            return False
        # The user works in the thread that was started or resumed last.
        is_new = thread.id != self.current
        self.current = thread.id
        return is_new

    def begun(self, turn: CodexTurn, thread: str = "", *, is_outdated: bool = False) -> ThreadNews:
        """Apply a turn from a result, with its items, to a thread or by default to the agent's thread.

        `is_outdated` is set if the thread has changed since it was read: then the turn does not
        begin, and it ends only if no other turn is running.
        """
        thread = thread or self.current
        # The result is older than the report of the end: applied as it is, it would begin the turn again.
        if self.has_ended(turn):
            return ThreadNews(thread=thread, seen=keys_of(turn), ended=turn.id)
        state = self._states.setdefault(thread, ThreadState())
        if turn.status != "inProgress":
            if not is_outdated or state.turn in ("", turn.id):
                state.end_turn({"id": turn.id, "error": turn.error}, self._resets_at)
        elif not is_outdated:
            state.apply_running(turn)
        ended = "" if turn.status == "inProgress" else turn.id
        return ThreadNews(thread=thread, seen=keys_of(turn), ended=ended)

    def has_ended(self, turn: CodexTurn) -> bool:
        """Return whether a turn that a result shows as running has ended since."""
        return turn.status == "inProgress" and turn.id in self._ended

    def await_tools(self) -> list[str]:
        """Return the loaded threads whose tools were not asked for yet. They are closed until `equipped`."""
        found = [one for one, state in self._states.items() if state.is_loaded and state.has_tools is None]
        for thread in found:
            # At once, so that the tools of each thread are asked for only once.
            self._states[thread].has_tools = False
        return found

    def equipped(self, thread: str, trouble: str = "") -> None:
        """Record that the start of our tools in a thread has finished; `trouble` is the error, if any."""
        if (state := self._states.get(thread)) is not None:
            state.has_tools, state.trouble = True, trouble

    def lifted(self) -> None:
        """End all usage limits."""
        for state in self._states.values():
            state.limit = ""

    def hear(self, message: CodexMessage) -> ThreadNews:
        """Apply one message of the server."""
        params = message.params
        if message.method == "account/rateLimits/updated":
            self._hear_limits(params)
            return _NOTHING
        if message.method == "thread/started":
            return self._hear_started(params)
        thread = params.get("threadId")
        if not isinstance(thread, str):
            return _NOTHING
        state = self._states.get(thread)
        if state is None:
            return self._hear_unknown(message.method, thread)
        if message.is_question:
            item = state.changes.get(text_in(params, "itemId"), {})
            asked = question_of(message, item)
            # The server repeats open questions after the result of a request: they do not make it outdated.
            if asked.request not in state.asked:
                state.report = next(self._numbers)
            state.asked[asked.request] = asked
            return _NOTHING
        if message.method in _REPORTS:
            state.report = next(self._numbers)
        return self._hear_known(message.method, params, thread, state)

    def _hear_unknown(self, method: str, thread: str) -> ThreadNews:
        if method in _CLOSED:
            self._others.discard(thread)
            self._refused.discard(thread)
            return _NOTHING
        # A thread that was refused is mentioned often. Reading it again each time would only be refused
        # again.
        is_passed_over = thread in self._refused and method not in _BEGINNINGS
        return _NOTHING if thread in self._others or is_passed_over else ThreadNews(stranger=thread)

    def _hear_started(self, params: Mapping[str, object]) -> ThreadNews:
        thread = _part(params, "thread").get("id")
        # The caller reads the thread; that returns everything, whatever this report contains.
        return ThreadNews(stranger=thread) if isinstance(thread, str) else _NOTHING

    def _hear_known(
        self, method: str, params: Mapping[str, object], thread: str, state: ThreadState
    ) -> ThreadNews:
        match method:
            case "thread/status/changed":
                was_active = state.is_active
                state.set_status(_part(params, "status"))
                if state.is_active and not was_active and not state.parent:
                    self.current = thread  # The user has returned to this thread.
            case "thread/closed" | "thread/deleted":
                # `_close` is a generator and removes nothing before it is read; the set reads it to its end.
                return ThreadNews(closed=frozenset(self._close(thread)))
            case "turn/started":
                state.begin_turn(text_in(_part(params, "turn"), "id"))
            case "turn/completed":
                state.end_turn(_part(params, "turn"), self._resets_at)
                self._ended.append(text_in(_part(params, "turn"), "id"))
                return ThreadNews(thread=thread, ended=text_in(_part(params, "turn"), "id"))
            case "item/started":
                item = _part(params, "item")
                if key := _key_of(item):
                    return ThreadNews(thread=thread, seen=frozenset({key}))
                state.begin_item(item)
                return ThreadNews(edits=tuple(edits_of(item)) if thread == self.current else ())
            case "item/completed":
                state.end_item(_part(params, "item"))
            # The id is a number or a text; `PermissionQuestion.request` is always a text.
            case "serverRequest/resolved":
                state.asked.pop(str(params.get("requestId")), None)
        return _NOTHING

    def _close(self, thread: str) -> Iterator[str]:
        """Remove a closed thread and its child threads; yield each of them."""
        # A list, because the calls in the loop remove threads from `_states`.
        for below in [one for one, state in self._states.items() if state.parent == thread]:
            yield from self._close(below)
        del self._states[thread]
        self.current = "" if thread == self.current else self.current
        yield thread

    def _hear_limits(self, params: Mapping[str, object]) -> None:
        """Store when the full rate-limit windows reset; with two, the later time, until which both block."""
        limits = _part(params, "rateLimits")
        windows = [_part(limits, name) for name in ("primary", "secondary")]
        full = [window for window in windows if as_number(window.get("usedPercent")) >= 100]
        reset_times = [as_number(window.get("resetsAt")) for window in full]
        self._resets_at = max(filter(None, reset_times), default=None)

    # Queries

    @property
    def is_limited(self) -> bool:
        """Whether the agent has reached its usage limit."""
        return bool(self._state_of(self.current).limit)

    @property
    def word(self) -> AgentReport:
        """The current status of the agent."""
        return self._state_of(self.current).word

    @property
    def level(self) -> LaneGate:
        """Whether a message can be delivered to the agent now."""
        return self.level_of(self.current)

    def has(self, thread: str) -> bool:
        """Return whether a thread is known as the agent's or a sub-agent's."""
        return thread in self._states

    def version_of(self, thread: str) -> tuple[int, str]:
        """Return a value that changes with the state of a thread: a result from before that is outdated."""
        state = self._state_of(thread)
        # The turn changes also without a report: by the result of the request that starts it.
        return state.report, state.turn

    def is_loaded(self, thread: str) -> bool:
        """Return whether a thread is known and in the memory of the server."""
        return self._state_of(thread).is_loaded

    def is_active(self, thread: str) -> bool:
        """Return whether a thread works, or waits for its user."""
        return self._state_of(thread).is_active

    def has_begun(self, thread: str) -> bool:
        """Return whether a turn has begun in a thread."""
        return self._state_of(thread).has_begun

    def word_of(self, thread: str) -> AgentReport:
        """Return the current status of a thread."""
        return self._state_of(thread).word

    def level_of(self, thread: str) -> LaneGate:
        """Return whether a message can be delivered to a thread now."""
        return self._state_of(thread).level

    def turn_in(self, thread: str) -> str:
        """Return the running turn of a thread; empty if not known."""
        return self._state_of(thread).turn

    def subagents(self) -> dict[str, tuple[str, str]]:
        """Return the sub-agent threads, parents first, each with its parent and role."""
        found: dict[str, tuple[str, str]] = {}
        # Codex unloads a closed sub-agent until it is resumed.
        open_ones = {one: state for one, state in self._states.items() if state.parent and state.is_loaded}
        above, left = {self.current}, open_ones
        while below := {one: state for one, state in left.items() if state.parent in above}:
            found |= {one: (state.parent, state.role) for one, state in below.items()}
            above, left = set(below), {one: state for one, state in left.items() if one not in below}
        return found

    def questions(self) -> dict[str, PermissionQuestion]:
        """Return the open requests of the agent and its sub-agents that can be decided remotely."""
        states = [self._state_of(self.current), *(self._state_of(one) for one in self.subagents())]
        return {
            key: one
            for state in states
            if state.flags
            for key, one in state.asked.items()
            if one.is_answerable
        }

    def _state_of(self, thread: str) -> ThreadState:
        return self._states.get(thread, _NO_THREAD)


def keys_of(turn: CodexTurn) -> frozenset[str]:
    """Return the keys of the texts from us in the loaded items of a turn."""
    return frozenset(filter(None, map(_key_of, turn.items)))


def _key_of(item: Mapping[str, object]) -> str:
    return text_in(item, "clientId") if item.get("type") == "userMessage" else ""


def _part(params: Mapping[str, object], name: str) -> Mapping[str, object]:
    return as_map(params.get(name))
