"""The two wires of the Unix door, spoken by hand."""

import contextlib
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.limits import LIMIT_S

Frame = tuple[bytes, bytes]


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """One frame of the thin client's wire."""
    return kind + len(payload).to_bytes(4, "big") + payload


def request(
    *arguments: str | bytes,
    key: bytes | None = None,
    version: str = "0.1.0",
    token: bytes | None = None,
    environment: Sequence[str] = (),
) -> bytes:
    """A request frame, as the thin client would send it."""
    fields = [(b"k", os.urandom(16) if key is None else key), (b"v", version.encode())]
    fields += [(b"a", os.fsencode(word)) for word in arguments]
    fields += [(b"d", b"/"), (b"t", b"000"), (b"w", b"0")]
    fields += [(b"e", entry.encode()) for entry in environment]
    if token is not None:
        fields.append((b"r", token))
    return frame(b"R", b"".join(frame(tag, value) for tag, value in fields))


def connect(home: Path) -> socket.socket:
    """A plain connection to the door of a home."""
    wire = socket.socket(socket.AF_UNIX)
    try:
        wire.connect(str(home / "daemon.sock"))  # waits for its turn, as one with a time limit would not
    except OSError:
        wire.close()
        raise
    wire.settimeout(LIMIT_S)
    return wire


class Wire:
    """A connection to the daemon of a home, closed at the end of its block."""

    def __init__(self, home: Path | socket.socket) -> None:
        """Connect to a home, or use a connection that is there."""
        self.wire = connect(home) if isinstance(home, Path) else home
        self._reader = self.wire.makefile("rb")

    def close(self) -> None:
        self._reader.close()
        self.wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ThinWire(Wire):
    """A thin client of which a test says every word."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.wire.sendall(b"PAL1")

    def send(self, data: bytes) -> None:
        self.wire.sendall(data)

    def ask(self, *arguments: str | bytes, **options: Any) -> None:
        """Send a request and read nothing."""
        self.send(request(*arguments, **options))

    def next_frame(self) -> Frame:
        """The next frame; (b"", b"") when the daemon closed."""
        head = self._reader.read(5)
        while head == b"E\0\0\0\0":  # only a sign that the daemon is at work
            head = self._reader.read(5)
        if len(head) < 5:
            return b"", b""
        return head[:1], self._reader.read(int.from_bytes(head[1:], "big"))

    def output(self) -> tuple[bytes, bytes]:
        """The next output: its token and its bytes. It is not acknowledged."""
        kind, payload = self.next_frame()
        assert kind == b"O", (kind, payload)
        self.number = payload[:4]
        size = int.from_bytes(payload[4:6], "big")
        return payload[6 : 6 + size], payload[6 + size :]

    def acknowledge(self) -> None:
        """Say that the last output was written out."""
        self.send(frame(b"A", self.number))

    def answer(self) -> tuple[int, bytes, bytes]:
        """Obey until the end: status, standard output, standard error."""
        texts = {b"O": b"", b"E": b""}
        while True:
            kind, payload = self.next_frame()
            if kind == b"Q":
                return payload[0], texts[b"O"], texts[b"E"]
            assert kind in texts, (kind, payload)
            if kind == b"O":
                with contextlib.suppress(BrokenPipeError):  # nobody waits for it where the end follows
                    self.send(frame(b"A", payload[:4]))
                payload = payload[6 + int.from_bytes(payload[4:6], "big") :]
            texts[kind] += payload

    def is_closed(self) -> bool:
        """Whether the daemon closed, once all that it still said is read."""
        try:
            while self.next_frame() != (b"", b""):
                pass
        except ConnectionError:
            pass
        return True


class LinesWire(Wire):
    """A program at the door that speaks lines of JSON."""

    def __init__(self, home: Path | socket.socket) -> None:
        super().__init__(home)
        self._number = 0

    def send(self, data: bytes) -> None:
        self.wire.sendall(data)

    def tell(self, op: str, **fields: Any) -> int:
        """Send a request and read nothing; gives its number."""
        self._number += 1
        self.send(json.dumps({"req": self._number, "op": op, **fields}).encode() + b"\n")
        return self._number

    def next_line(self) -> dict[str, Any]:
        """The next line; empty when the daemon closed."""
        line = self._reader.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send a request and wait for its answer, stepping over pushes."""
        number = self.tell(op, **fields)
        while (line := self.next_line()).get("req") != number or "push" in line:
            assert line, "the daemon closed the connection"
        return line
