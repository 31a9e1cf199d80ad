"""The wire format of the thin client: frames, and the fields of a request. Pure: bytes in, values out.

A frame is a type (1 byte), a length (4 bytes, big-endian) and a payload. `native/wire.c` is the other end.
"""

import hashlib
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.errors import BadRequest

# The door selects the protocol by these bytes, so the first bytes of no other protocol may be the same.
MAGIC: Final = b"PAL1"
LIMIT_FRAME_BYTES: Final = 10 * 1024 * 1024
"""As `protocol/text.py` has it for all wires; `native/wire.h` has the same number."""
WINDOW_BYTES: Final = 64 * 1024
"""Standard output that may be sent and not yet flushed, see `doors/thin.py`."""

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
            # Before the payload is awaited, so that the buffer cannot grow without limit.
            if length > LIMIT_FRAME_BYTES:
                raise BadRequest(f"a frame of {length} bytes is over the limit of {LIMIT_FRAME_BYTES}")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEAD.size : end])
            # Before the yield, so that a caller that stops at this frame does not get it again.
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
class ThinRequest:
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


def asked_from_bytes(payload: bytes) -> ThinRequest:
    """Parse a request frame. Bytes that are not UTF-8 become surrogate escapes."""
    words: list[str] = []
    environment: dict[str, str] = {}
    # Of the tags that may come only once, the last one counts.
    fields: dict[bytes, bytes] = {}
    start, end = 0, len(payload)
    while start < end:
        if start + _HEAD.size > end:
            raise BadRequest("the request ends in the middle of a field")
        tag, length = _HEAD.unpack_from(payload, start)
        start += _HEAD.size + length
        if start > end:
            raise BadRequest("the request ends in the middle of a field")
        value = payload[start - length : start]
        if tag == b"a":
            words.append(value.decode("utf-8", "surrogateescape"))
        elif tag == b"e":
            name, _, content = value.decode("utf-8", "surrogateescape").partition("=")
            environment[name] = content
        else:
            # Also unknown tags, which are then not read: a newer client may send more.
            fields[tag] = value
    terminals = fields.get(b"t", b"000").ljust(3, b"0")
    key, width = fields.get(b"k", b""), fields.get(b"w", b"0")
    if len(key) != 16:
        raise BadRequest("the request has no key of 16 bytes")
    return ThinRequest(
        key=key,
        version=_text(fields.get(b"v", b"0")),
        argv=tuple(words),
        cwd=_text(fields.get(b"d", b"/")),
        environment=environment,
        stdin_is_terminal=terminals[0:1] == b"1",
        stdout_is_terminal=terminals[1:2] == b"1",
        stderr_is_terminal=terminals[2:3] == b"1",
        # A longer number is no width, and Python refuses to convert one of thousands of digits.
        width=int(width) if width.isdigit() and len(width) < 6 else 0,
        resume=fields.get(b"r"),
        can=fields.get(b"c", b""),
        body=fields.get(b"b", b""),
        build=_text(fields.get(b"n", b"")),
    )


def _text(raw: bytes) -> str:
    # Arguments, paths and variables can be any bytes, and must come back unchanged.
    return raw.decode("utf-8", "surrogateescape")


# --------------------
# The wire of `pal mcp`: frames with numbered lines, and JSON-RPC errors. Pure.
#
# The client numbers the lines that it reads, and keeps each until the daemon reports its number as settled.
# When a daemon has ended, it sends unsettled lines again, marked as repeats. `native/pump.c` is the other
# end.
#
#     client  R request  L number, line  M the same again  X number, both ends of a line too long  Z no more
#     daemon  L number settled (0: none), line to write (or nothing)  T token for the next daemon
#             E error text  Q exit status

PUMP_MAGIC: Final = b"PALM"
LIMIT_LINE_BYTES: Final = 1024 * 1024
END_BYTES: Final = 4096
"""Bytes of each end of a too long line that the client sends, so that its id can be found."""

# The first three codes are those of JSON-RPC. From -32000 down a server may define its own.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
STOPPED: Final = -32000

RequestId = str | int


@dataclass(frozen=True, slots=True)
class BadLine:
    """The error code and sentence for a line that is not a valid message."""

    code: int
    sentence: str

    def answer(self, id: RequestId | None) -> bytes:
        """Encode the error reply."""
        return error_line(id, self.code, self.sentence)


TOO_LONG: Final = BadLine(
    INVALID_REQUEST, f"a message is at most {LIMIT_LINE_BYTES} bytes; this one was dropped"
)
IN_USE: Final = BadLine(
    INVALID_REQUEST, 'another request with this id is in progress; 1 and "1" count as the same id'
)


class _WithId(msgspec.Struct, frozen=True):
    """Decodes only the id of a message, and that as raw bytes: even an invalid id is an id."""

    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_NUMBER: Final = struct.Struct(">I")
_ID: Final = rb'"id"\s*:\s*("(?:[^"\\]|\\.){0,256}"|-?[0-9]{1,18})'
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_LAST: Final = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_encode: Final = msgspec.json.Encoder().encode


def numbered(payload: bytes) -> tuple[int, bytes]:
    """Split a numbered frame. Raise BadRequest."""
    if len(payload) < _NUMBER.size:
        raise BadRequest("a line without its number was received")
    return _NUMBER.unpack_from(payload)[0], payload[_NUMBER.size :]


def call_key(request_key: bytes, number: int) -> bytes:
    """Return the request key of the call on a line: the same for the same line of the same client.

    A line that is sent again to the next daemon so has the same key, and its effect happens once.
    """
    # A request key has 16 bytes. The next daemon computes it again, so this computation cannot change.
    return hashlib.sha256(request_key + number.to_bytes(4, "big")).digest()[:16]


def line_frame(number: int, line: bytes = b"") -> bytes:
    """Encode a line to write, and the number of the line that is settled."""
    return frame(b"L", _NUMBER.pack(number) + line)


def error_line(id: RequestId | None, code: int, sentence: str) -> bytes:
    """Encode a JSON-RPC error."""
    shown = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": sentence}}
    return _encode(shown) + b"\n"


def id_of(line: bytes) -> RequestId | None:
    """Return the id of a line that is not a valid message, for its error reply; None if it has no id."""
    try:
        message: object = msgspec.json.decode(line)
    except RecursionError:  # It is nested too deeply to be decoded.
        return id_of_ends(ends_of(line))
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = _with_halves(line)
    found = message.get("id") if isinstance(message, dict) else None
    is_id = isinstance(found, str | int) and not isinstance(found, bool)
    return found if is_id and _is_writable(found) else None


def has_half_pair(line: bytes) -> bool:
    """Return whether a line is JSON with half of a surrogate pair in a string, which is not a valid text."""
    # A line that is nested too deeply to be encoded is also too deep to be decoded: both need the same depth.
    return not _is_writable(_with_halves(line))


def _with_halves(line: bytes) -> object:
    """Decode JSON with `json`, which accepts half of a surrogate pair; None if it is not JSON."""
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return None


def _is_writable(value: object) -> bool:
    """Return whether a value can be written as UTF-8: half of a surrogate pair could not be put into the
    reply."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def has_id(line: bytes) -> bool:
    """Return whether a message has an id, even an invalid one."""
    return msgspec.json.decode(line, type=_WithId).id is not msgspec.UNSET


def ends_of(line: bytes) -> bytes:
    """Return both ends of a line that is too long."""
    return line[:END_BYTES] + line[-END_BYTES:]


def id_of_ends(ends: bytes) -> RequestId | None:
    """Return the id of a line of which only both ends are known; programs write it first or last.

    An `id` in the middle, for example in the arguments of a call, must not be taken for that of the message.
    So only an id at the very beginning or end counts.
    """
    return _id_at(ends[:END_BYTES], ends[END_BYTES:])


def _id_at(first: bytes, last: bytes) -> RequestId | None:
    found = _ID_FIRST.match(first) or _ID_LAST.search(last)
    if found is None:
        return None
    try:
        id: RequestId = msgspec.json.decode(found[1], type=RequestId)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return id
