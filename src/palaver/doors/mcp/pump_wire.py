"""The wire of `pal mcp`: frames with numbered lines, and JSON-RPC errors. Pure.

The client numbers the lines that it reads, and keeps each until the daemon reports its number as settled.
When a daemon has ended, it sends unsettled lines again, marked as repeats. `native/pump.c` is the other end.

    client  R request  L number, line  M the same again  X number, both ends of a line too long  Z no more
    daemon  L number settled (0: none), line to write (or nothing)  T token for the next daemon
            E error text  Q exit status
"""

import hashlib
import json
import re
import struct
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.doors.argv.wire import frame
from palaver.errors import BadRequest

MAGIC: Final = b"PALM"
LIMIT_LINE_BYTES: Final = 1024 * 1024
END_BYTES: Final = 4096
"""Bytes of each end of a too long line that the client sends, so that its id can be found."""

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
IN_USE: Final = BadLine(INVALID_REQUEST, "another request with this id is under way")


class _WithId(msgspec.Struct, frozen=True):
    """Decodes only the id of a message."""

    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_NUMBER: Final = struct.Struct(">I")
_ID: Final = rb'"id"\s*:\s*("(?:[^"\\]|\\.){0,256}"|-?[0-9]{1,18})'
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_LAST: Final = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_encode: Final = msgspec.json.Encoder().encode


def numbered(payload: bytes) -> tuple[int, bytes]:
    """Split a numbered frame. Raise BadRequest."""
    if len(payload) < _NUMBER.size:
        raise BadRequest("a line came without its number")
    return _NUMBER.unpack_from(payload)[0], payload[_NUMBER.size :]


def call_key(request_key: bytes, number: int) -> bytes:
    """Return the request key of the call on a line: the same for the same line of the same client."""
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
        return _id_at(line[:END_BYTES], line[-END_BYTES:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = _with_halves(line)
    found = message.get("id") if isinstance(message, dict) else None
    is_id = isinstance(found, str | int) and not isinstance(found, bool)
    return found if is_id and _is_writable(found) else None


def has_half_pair(line: bytes) -> bool:
    """Return whether a line is JSON with half of a surrogate pair in a string, which is not a valid text."""
    try:
        return not _is_writable(_with_halves(line))
    except RecursionError:
        return False


def _with_halves(line: bytes) -> object:
    """Decode JSON with `json`, which accepts half of a surrogate pair; None if it is not JSON."""
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return None


def _is_writable(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def has_id(line: bytes) -> bool:
    """Return whether a message has an id, even an invalid one."""
    return msgspec.json.decode(line, type=_WithId).id is not msgspec.UNSET


def id_of_ends(ends: bytes) -> RequestId | None:
    """Return the id of a line of which only both ends are known; programs write it first or last."""
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
