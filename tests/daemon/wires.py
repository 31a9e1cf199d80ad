"""The two protocols of the Unix door, written by hand."""

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
    """Return one frame of the thin client's protocol."""
    return kind + len(payload).to_bytes(4, "big") + payload


def request(
    *arguments: str | bytes,
    key: bytes | None = None,
    version: str = "0.1.0",
    token: bytes | None = None,
    environment: Sequence[str] = (),
) -> bytes:
    """Return a request frame, as the thin client would send it."""
    fields = [(b"k", os.urandom(16) if key is None else key), (b"v", version.encode())]
    fields += [(b"a", os.fsencode(word)) for word in arguments]
    fields += [(b"d", b"/"), (b"t", b"000"), (b"w", b"0")]
    fields += [(b"e", entry.encode()) for entry in environment]
    if token is not None:
        fields.append((b"r", token))
    return frame(b"R", b"".join(frame(tag, value) for tag, value in fields))


def connect(home: Path) -> socket.socket:
    """Open a plain connection to the daemon of a home."""
    wire = socket.socket(socket.AF_UNIX)
    try:
        wire.connect(str(home / "daemon.sock"))  # blocks until accepted; a socket with a timeout would not
    except OSError:
        wire.close()
        raise
    wire.settimeout(LIMIT_S)
    return wire


class Wire:
    """A connection to the daemon of a home, closed at the end of its block."""

    def __init__(self, home: Path | socket.socket) -> None:
        """Connect to a home, or use an existing connection."""
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
    """A thin client where the test writes each frame."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.wire.sendall(b"PAL1")

    def send(self, data: bytes) -> None:
        self.wire.sendall(data)

    def ask(self, *arguments: str | bytes, **options: Any) -> None:
        """Send a request and read nothing."""
        self.send(request(*arguments, **options))

    def next_frame(self) -> Frame:
        """Return the next frame; (b"", b"") if the daemon closed."""
        head = self._reader.read(5)
        while head == b"E\0\0\0\0":  # only a sign that the daemon is working
            head = self._reader.read(5)
        if len(head) < 5:
            return b"", b""
        return head[:1], self._reader.read(int.from_bytes(head[1:], "big"))

    def output(self) -> tuple[bytes, bytes]:
        """Return the next output, its token and its bytes, without an acknowledgement."""
        kind, payload = self.next_frame()
        assert kind == b"O", (kind, payload)
        self.number = payload[:4]
        size = int.from_bytes(payload[4:6], "big")
        return payload[6 : 6 + size], payload[6 + size :]

    def acknowledge(self) -> None:
        """Confirm that the last output was written out."""
        self.send(frame(b"A", self.number))

    def answer(self) -> tuple[int, bytes, bytes]:
        """Read until the end. Return the status, standard output and standard error."""
        texts = {b"O": b"", b"E": b""}
        while True:
            kind, payload = self.next_frame()
            if kind == b"Q":
                return payload[0], texts[b"O"], texts[b"E"]
            assert kind in texts, (kind, payload)
            if kind == b"O":
                with contextlib.suppress(BrokenPipeError):  # the daemon may already have closed
                    self.send(frame(b"A", payload[:4]))
                payload = payload[6 + int.from_bytes(payload[4:6], "big") :]
            texts[kind] += payload

    def is_closed(self) -> bool:
        """Return whether the daemon closed, after reading all remaining frames."""
        try:
            while self.next_frame() != (b"", b""):
                pass
        except ConnectionError:
            pass
        return True


class LinesWire(Wire):
    """A program at the door that uses JSON lines."""

    def __init__(self, home: Path | socket.socket) -> None:
        super().__init__(home)
        self._number = 0

    def send(self, data: bytes) -> None:
        self.wire.sendall(data)

    def tell(self, op: str, **fields: Any) -> int:
        """Send a request and read nothing. Return its number."""
        self._number += 1
        self.send(json.dumps({"req": self._number, "op": op, **fields}).encode() + b"\n")
        return self._number

    def next_line(self) -> dict[str, Any]:
        """Return the next line; empty if the daemon closed."""
        line = self._reader.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send a request and wait for its response, skipping pushes."""
        number = self.tell(op, **fields)
        while (line := self.next_line()).get("req") != number or "push" in line:
            assert line, "the daemon closed the connection"
        return line
