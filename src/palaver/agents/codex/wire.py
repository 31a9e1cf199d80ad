"""The messages to and from a Codex app-server: JSON-RPC without the version field. Pure.

Requests of the server are questions to the user, mostly for permissions. A `Reply` carries the user's
decision and must not be created for any other reason.
"""

from typing import Final, TypeVar

import msgspec

from palaver.errors import BadRequest

CLIENT: Final = "palaver"
"""Our name as a client, and the name of our MCP server in the settings of Codex."""
_NOT_RUNNING: Final = frozenset({"failed", "cancelled", "authenticationRequired"})

T = TypeVar("T")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the server."""

    id: int
    method: str
    params: dict[str, object]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification to the server; it has no reply."""

    method: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The user's decision on a request of the server."""

    id: int | str
    result: dict[str, object]


class Said(msgspec.Struct, frozen=True, kw_only=True):
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


_said: Final = msgspec.json.Decoder(Said).decode
_encode: Final = msgspec.json.Encoder().encode
INITIALIZED: Final = Notice(method="initialized")


def said_from_json(data: bytes) -> Said:
    """Decode a message; raises BadRequest if it is malformed."""
    try:
        return _said(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the app-server said what cannot be read: {error}") from error


def to_json(message: Call | Notice | Reply) -> bytes:
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


class Thread(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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
    def moment(self) -> int:
        """When it was last used."""
        return max(self.recency_at or 0, self.created_at or 0)


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The threads in memory."""

    data: list[str]


class ThreadRead(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a thread."""

    thread: Thread


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn with its loaded items."""

    id: str
    status: str = ""
    items: list[dict[str, object]] = []
    error: dict[str, object] | None = None


class TurnPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some turns, newest first."""

    data: list[Turn] = []


class Subscribed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The thread that we subscribed to, and its newest turns."""

    thread: Thread
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


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that was started."""

    turn: Turn


def result_as(raw: msgspec.Raw, kind: type[T]) -> T:
    """Decode a result; raises BadRequest if it has another type."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the app-server answered what cannot be read: {error}") from error
