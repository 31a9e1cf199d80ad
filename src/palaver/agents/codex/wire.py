"""What is said to the app-server of Codex, and what it says: JSON-RPC without its version word. Pure.

A request of the server is a question to a person, about permissions above all. What answers it (`Reply`) is a
person's word, and is written where such a word comes in and nowhere else.
"""

from typing import Final, TypeVar

import msgspec

from palaver.errors import BadRequest

CLIENT: Final = "palaver"
"""Our name as a client, and the name of our MCP server in the settings of Codex."""
_NOT_RUNNING: Final = frozenset({"failed", "cancelled", "authenticationRequired"})

T = TypeVar("T")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request of ours."""

    id: int
    method: str
    params: dict[str, object]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What is said and not answered."""

    method: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A person's word on a question of the server."""

    id: int | str
    result: dict[str, object]


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the server: an answer, its refusal, news, or a question (an id and a method)."""

    id: int | str | None = None
    method: str = ""
    params: dict[str, object] = {}
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: "Refusal | None" = None

    @property
    def is_question(self) -> bool:
        """Whether the server asks something."""
        return bool(self.method) and self.id is not None


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why the server did not do it."""

    message: str = ""
    code: int = 0


_said: Final = msgspec.json.Decoder(Said).decode
_encode: Final = msgspec.json.Encoder().encode
INITIALIZED: Final = Notice(method="initialized")


def said_from_json(data: bytes) -> Said:
    """Read one message; raises BadRequest for what is none."""
    try:
        return _said(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the app-server said what cannot be read: {error}") from error


def to_json(message: Call | Notice | Reply) -> bytes:
    """Write one message."""
    return _encode(message)


# What is asked


def initialize(version: str) -> tuple[str, dict[str, object]]:
    """Say who we are. Some of what we need is called experimental."""
    return "initialize", {
        "clientInfo": {"name": CLIENT, "title": "Palaver", "version": version},
        "capabilities": {"experimentalApi": True},
    }


def list_loaded() -> tuple[str, dict[str, object]]:
    """Ask which threads are in memory."""
    return "thread/loaded/list", {}


def read_thread(thread: str) -> tuple[str, dict[str, object]]:
    """Ask about one thread, without its turns."""
    return "thread/read", {"threadId": thread}


def subscribe(thread: str, turns: int = 1) -> tuple[str, dict[str, object]]:
    """Ask to hear what happens in a thread, and for its newest turns. Changes nothing about it."""
    page = {"limit": turns, "itemsView": "full"}
    return "thread/resume", {"threadId": thread, "excludeTurns": True, "initialTurnsPage": page}


def unsubscribe(thread: str) -> tuple[str, dict[str, object]]:
    """Ask to hear no more of a thread, so that it can be let go of."""
    return "thread/unsubscribe", {"threadId": thread}


def list_tools(thread: str) -> tuple[str, dict[str, object]]:
    """Ask for the state of our MCP server in one thread.

    Codex answers when the start of that server has ended. Without `serverName` it would start a second one.
    """
    return "mcpServerStatus/list", {"threadId": thread, "serverName": CLIENT, "detail": "toolsAndAuthOnly"}


def start_turn(thread: str, text: str, key: str) -> tuple[str, dict[str, object]]:
    """Wake an idle thread with a text; `key` is what it is known by in the thread."""
    return "turn/start", {"threadId": thread, "clientUserMessageId": key, "input": _input(text)}


def steer_turn(thread: str, turn: str, text: str, key: str) -> tuple[str, dict[str, object]]:
    """Give a text to the turn that runs, and to no other."""
    return "turn/steer", {
        "threadId": thread,
        "expectedTurnId": turn,
        "clientUserMessageId": key,
        "input": _input(text),
    }


def _input(text: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": text}]


# What is answered


class Thread(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One conversation."""

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
        """Whether a person works in it: neither a title's, nor a sub-agent's."""
        return not self.ephemeral and self.parent_thread_id is None

    @property
    def is_subagent(self) -> bool:
        """Whether an agent has started it to work for it: no review, no summary, no title."""
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
    """What is known of a thread."""

    thread: Thread


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, with what is loaded of it."""

    id: str
    status: str = ""
    items: list[dict[str, object]] = []
    error: dict[str, object] | None = None


class TurnPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some turns, the newest first."""

    data: list[Turn] = []


class Subscribed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A thread whose news come from now on."""

    thread: Thread
    initial_turns_page: TurnPage | None = None


class ToolServer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An MCP server as one thread uses it."""

    name: str
    runtime_status: str | None = None
    tools_error: str | None = None


class ToolServers(msgspec.Struct, frozen=True, kw_only=True):
    """The MCP servers of one thread; empty if the user has switched ours off."""

    data: list[ToolServer] = []

    @property
    def trouble(self) -> str:
        """Why our tools cannot be used; empty if they can, or if there are none."""
        for server in self.data:
            if server.name == CLIENT and (server.tools_error or server.runtime_status in _NOT_RUNNING):
                return server.tools_error or f"its MCP server is {server.runtime_status}"
        return ""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that began."""

    turn: Turn


def result_as(raw: msgspec.Raw, kind: type[T]) -> T:
    """Read an answer as what was asked for; raises BadRequest when it is something else."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the app-server answered what cannot be read: {error}") from error
