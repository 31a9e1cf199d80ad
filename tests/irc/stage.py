"""A bus with an open IRC door, and plain clients of it. Only `irctokens` and sockets: no code of the door."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from irctokens.line import Line
from irctokens.stateful import StatefulDecoder
from tests.daemon.stage import Home, check_output, new_home, run_as_person, write_settings
from tests.limits import LIMIT_S

Fields = dict[str, Any]

_LARGE_BYTES = 1 << 20


def open_irc(home: Home, *, guests: str = "talk", **settings: str | int) -> None:
    """Start a daemon with an open IRC door at a free port."""
    write_settings(home, irc="127.0.0.1:0", irc_guests=guests, **settings)
    home.start_daemon()


@contextmanager
def irc_bus(*, guests: str = "talk", **settings: str | int) -> Iterator[Home]:
    """Yield a home with a running daemon whose IRC door is open."""
    with new_home() as home:
        open_irc(home, guests=guests, **settings)
        yield home


def port_of(home: Home) -> int:
    """Return the port of the open IRC door."""
    address: str = home.ok("status", "--json").json["doors"]["irc"]
    return int(address.rpartition(":")[2])


def register(home: Home, name: str, *options: str) -> str:
    """Register a name as a person does, and return its token."""
    made = check_output(run_as_person(home, "agent", "register", name, *options, "--json"))
    token: str = made.json["token"]
    return token


def code_of(home: Home) -> str:
    """Return a new one-time code of the person."""
    made = check_output(run_as_person(home, "irc", "code", "--json"))
    code: str = made.json["code"]
    return code


class Client:
    """One connection. Lines are sent as written, and waits look at every received line in order."""

    def __init__(self, home: Home, *, receive_bytes: int = 0) -> None:
        """With `receive_bytes`, the system keeps about this much unread input."""
        self.wire = socket.socket()
        if receive_bytes:
            self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.wire.settimeout(LIMIT_S)
        self.wire.connect(("127.0.0.1", port_of(home)))
        self._decoder = StatefulDecoder()
        self._waiting: list[Line] = []
        self.lines: list[Line] = []
        """All lines that were read."""
        self.raw = b""
        self.is_closed = False
        self._pings = 0

    def send(self, *lines: str | bytes) -> None:
        """Send lines; CR LF is added."""
        encoded = (line if isinstance(line, bytes) else line.encode() for line in lines)
        self.wire.sendall(b"".join(line + b"\r\n" for line in encoded))

    def next_line(self) -> Line:
        """Return the next line. A PING of the server is returned too, and responded to."""
        while not self._waiting:
            data = self.wire.recv(1 << 16)
            self.raw += data
            if not data:
                self.is_closed = True
                raise ConnectionError(f"the server closed the connection; it sent {self.raw[-2000:]!r}")
            self._waiting += self._decoder.push(data) or []
        line = self._waiting.pop(0)
        self.lines.append(line)
        if line.command == "PING":
            self.send(f"PONG :{line.params[-1]}")
        return line

    def until(self, is_it: Callable[[Line], bool]) -> Line:
        """Read until a line meets a condition, and return it."""
        try:
            while not is_it(line := self.next_line()):
                pass
        except (OSError, ConnectionError) as error:
            received = "\n".join(one.format() for one in self.lines[-40:])
            raise AssertionError(f"{error}; the last lines were:\n{received}") from error
        return line

    def until_command(self, *commands: str) -> Line:
        """Read until a line with one of these commands."""
        return self.until(lambda line: line.command in commands)

    def until_text(self, text: str, command: str = "PRIVMSG") -> Line:
        """Read until a line with this command whose last parameter contains a text."""
        return self.until(lambda line: line.command == command and text in line.params[-1])

    def until_envelope(self, **fields: object) -> Fields:
        """Read until a PRIVMSG with a JSON envelope that has these fields, and return it."""
        found: list[Fields] = []

        def is_it(line: Line) -> bool:
            if line.command != "PRIVMSG" or not line.params[-1].startswith("{"):
                return False
            envelope = json.loads(line.params[-1])
            found.append(envelope)
            return all(envelope.get(name) == value for name, value in fields.items())

        self.until(is_it)
        return found[-1]

    def sync(self) -> list[Line]:
        """Return the lines up to the response to everything that was sent before."""
        self._pings += 1
        token = f"sync-{self._pings}"
        before = len(self.lines)
        self.send(f"PING {token}")
        self.until(lambda line: line.command == "PONG" and token in line.params)
        return self.lines[before:-1]

    def until_closed(self) -> None:
        """Read until the server closes the connection. No PING is responded to."""
        # As fast as possible, and decoded at the end: the server cuts the connection after a few seconds.
        self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LARGE_BYTES)
        pieces: list[bytes] = []
        with suppress(ConnectionError):  # reset because something that was sent was not read
            while data := self.wire.recv(_LARGE_BYTES):
                pieces.append(data)
        rest = b"".join(pieces)
        self.raw += rest
        self.lines += self._waiting + (self._decoder.push(rest) or [] if rest else [])
        self._waiting.clear()
        self.is_closed = True

    def request_capabilities(self, *names: str) -> None:
        """Request capabilities before registration; all of them must be granted."""
        self.send("CAP LS 302", f"CAP REQ :{' '.join(names)}")
        granted = self.until(lambda line: line.command == "CAP" and line.params[1] in ("ACK", "NAK"))
        assert granted.params[1] == "ACK", granted

    def register(self, nick: str, *, password: str = "", capabilities: tuple[str, ...] = ()) -> Self:
        """Register with PASS, NICK and USER, and read the welcome."""
        if capabilities:
            self.request_capabilities(*capabilities)
        if password:
            self.send(f"PASS {password}")
        self.send(f"NICK {nick}", f"USER {nick} 0 * :{nick}")
        if capabilities:
            self.send("CAP END")
        self.until_command("001")
        self.until_command("376", "422")
        return self

    def join(self, channel: str) -> Self:
        """Join a channel and read its list of nicks."""
        self.send(f"JOIN {channel}")
        self.until(lambda line: line.command == "366" and line.params[1] == channel)
        return self

    def close(self) -> None:
        """Close the connection without QUIT."""
        self.wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
