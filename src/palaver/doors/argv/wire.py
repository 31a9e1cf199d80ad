"""The wire format of the thin client: frames, and the fields of a request. Pure: bytes in, values out.

A frame is a type (1 byte), a length (4 bytes, big-endian) and a payload. `native/wire.c` is the other end.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from palaver.errors import BadRequest

MAGIC: Final = b"PAL1"
LIMIT_FRAME_BYTES: Final = 10 * 1024 * 1024
WINDOW_BYTES: Final = 64 * 1024
"""Standard output that may be sent and not yet flushed, see `output.py`."""

_HEAD: Final = struct.Struct(">cI")
_OUTPUT: Final = struct.Struct(">IH")


class FrameReader:
    """Splits a stream of bytes into frames. An incomplete frame is kept until the rest arrives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Add bytes, and yield type and payload of each complete frame; raise BadRequest for a long one."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._buffer)
            if length > LIMIT_FRAME_BYTES:
                raise BadRequest(f"a frame of {length} bytes is over the limit of {LIMIT_FRAME_BYTES}")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEAD.size : end])
            del self._buffer[:end]
            yield kind, payload


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """Format one frame."""
    return _HEAD.pack(kind, len(payload)) + payload


def output_frame(number: int, token: bytes, data: bytes) -> bytes:
    """Format a frame of standard output. The client acknowledges its number after it has flushed the data."""
    return frame(b"O", _OUTPUT.pack(number, len(token)) + token + data)


def read_frame(limit_bytes: int, path: bytes | None = None) -> bytes:
    """Format a frame that asks for standard input, or for the file at `path`. A limit of 0 means no limit."""
    return frame(b"I" if path is None else b"F", struct.pack(">I", limit_bytes) + (path or b""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of a thin client: its arguments, and everything else that the result depends on."""

    key: bytes
    version: str
    argv: tuple[str, ...]
    cwd: str
    environment: dict[str, str]
    stdin_is_terminal: bool
    stdout_is_terminal: bool
    stderr_is_terminal: bool
    width: int
    resume: bytes | None = None
    can: bytes = b""
    """The optional frame types that the client understands, one letter each."""
    body: bytes = b""
    """The input that a hook received from its harness."""
    build: str = ""
    """How the client was built; only with `pal doctor`."""


def asked_from_bytes(payload: bytes) -> Asked:
    """Parse a request frame. Bytes that are not UTF-8 become surrogate escapes."""
    fields: dict[bytes, list[bytes]] = {}
    for tag, value in _fields(payload):
        fields.setdefault(tag, []).append(value)
    terminals = _one(fields, b"t", b"000").ljust(3, b"0")
    key, width = _one(fields, b"k", b""), _one(fields, b"w", b"0")
    if len(key) != 16:
        raise BadRequest("the request has no key of 16 bytes")
    entries = (entry.partition(b"=") for entry in fields.get(b"e", ()))
    return Asked(
        key=key,
        version=_text(_one(fields, b"v", b"0")),
        argv=tuple(map(_text, fields.get(b"a", ()))),
        cwd=_text(_one(fields, b"d", b"/")),
        environment={_text(name): _text(value) for name, _, value in entries},
        stdin_is_terminal=terminals[0:1] == b"1",
        stdout_is_terminal=terminals[1:2] == b"1",
        stderr_is_terminal=terminals[2:3] == b"1",
        width=int(width) if width.isdigit() and len(width) < 6 else 0,
        resume=fields[b"r"][-1] if b"r" in fields else None,
        can=_one(fields, b"c", b""),
        body=_one(fields, b"b", b""),
        build=_text(_one(fields, b"n", b"")),
    )


def _fields(payload: bytes) -> Iterator[tuple[bytes, bytes]]:
    place, end = 0, len(payload)
    while place < end:
        if place + _HEAD.size > end:
            raise BadRequest("the request ends in the middle of a field")
        tag, length = _HEAD.unpack_from(payload, place)
        place += _HEAD.size
        if place + length > end:
            raise BadRequest("the request ends in the middle of a field")
        yield tag, payload[place : place + length]
        place += length


def _one(fields: dict[bytes, list[bytes]], tag: bytes, default: bytes) -> bytes:
    return fields[tag][-1] if tag in fields else default


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
