"""A bus with its WebSocket open, agents, tokens, and clients."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from tests.daemon.stage import Home, Shell, check_output, run_as_person
from tests.limits import LIMIT_S
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

Reply = dict[str, Any]


class Client:
    """One connection. Every reply and push is an object."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def send(self, frame: object) -> None:
        """Send a text as it is, and anything else as JSON."""
        self.socket.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    def next(self) -> Reply:
        """Return the next reply or push."""
        found: Reply = json.loads(self.socket.recv(LIMIT_S))
        return found

    def ask(self, type: str, **fields: object) -> Reply:
        """Send a request and return the next frame."""
        self.send({"type": type, **{name.rstrip("_"): value for name, value in fields.items()}})
        return self.next()

    def ok(self, type: str, **fields: object) -> Reply:
        """Send a request that must succeed, and must be answered before anything is pushed."""
        reply = self.ask(type, **fields)
        assert reply["type"] == f"{type}.ok", reply
        return reply

    def refused(self, type: str, **fields: object) -> tuple[str, str]:
        """Send a request that must be refused. Return the code and the sentence."""
        reply = self.ask(type, **fields)
        assert reply["type"] == f"{type}.error", reply
        return reply["code"], reply["error"]

    def end(self) -> tuple[int, str]:
        """Read until the connection is closed. Return the code and the reason."""
        self.rest()
        closed = self.socket.protocol.close_rcvd
        assert closed is not None
        return closed.code, closed.reason

    def rest(self) -> list[Reply]:
        """Return everything up to the end of the connection."""
        found: list[Reply] = []
        with suppress(ConnectionClosed):
            while True:
                found.append(self.next())
        return found


class Stage:
    """A home with agents, each in a shell, so that all of them are present."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.shells: dict[str, Shell] = {}
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The URL of the WebSocket."""
        where: str = self.home.ok("status", "--json").json["doors"]["http"]
        return f"{where.replace('http', 'ws', 1)}/ws"

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of the door."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def join(self, *names: str, role: str = "") -> None:
        """Add agents."""
        for name in names:
            self.shells[name] = self.home.shell()
            self.shells[name].ok("join", "--name", name, *(("--role", role) if role else ()))

    def token(self, *words: str) -> str:
        """Create a token, as a person."""
        made = check_output(run_as_person(self.home, "token", "create", *words, "--json"))
        token: str = made.json["token"]
        return token

    def open(self, **options: Any) -> Client:
        """Open a connection. It ends with the test."""
        return self.open_at(self.url, **options)

    def open_at(self, url: str, **options: Any) -> Client:
        """Open a connection at any URL."""
        made = connect(url, open_timeout=LIMIT_S, max_size=None, **options)
        return Client(self._stack.enter_context(made))

    def client(self, token: str) -> Client:
        """Open a connection that has identified itself."""
        made = self.open()
        assert made.ask("auth", token=token) == {"type": "auth.ok"}
        return made

    def close(self) -> None:
        """Close all connections."""
        self._stack.close()


@contextmanager
def opened_stage(home: Home) -> Iterator[Stage]:
    """Use a home whose daemon runs with an open WebSocket."""
    stage = Stage(home)
    try:
        yield stage
    finally:
        stage.close()
