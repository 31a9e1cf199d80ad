"""The wire of `pal mcp`: frames that carry numbered lines, and errors in the words of JSON-RPC. Pure.

The client numbers the lines that it reads and keeps each until it is told, by number, that it is settled.
After a daemon ended it hands over again what is not settled, marked as a repeat. `native/pump.h` is the other
end.

    client  R request  L number, line  M the same again  X number, both ends of a line too long  Z no more
    daemon  L number settled (0: none), line to write (or nothing)  T token for the next daemon  E, Q as ever
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
"""So much of each end of a line that is too long reaches the daemon, which looks for its id there."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
STOPPED: Final = -32000

RequestId = str | int


@dataclass(frozen=True, slots=True)
class BadLine:
    """Why a line is no message: the code and sentence of its error."""

    code: int
    sentence: str

    def answer(self, id: RequestId | None) -> bytes:
        """Write the error that answers it."""
        return error_line(id, self.code, self.sentence)


TOO_LONG: Final = BadLine(
    INVALID_REQUEST, f"a message is at most {LIMIT_LINE_BYTES} bytes; this one was dropped"
)
IN_USE: Final = BadLine(INVALID_REQUEST, "another request with this id is under way")


class _WithId(msgspec.Struct, frozen=True):
    """Of a message no more than whether it has an id."""

    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_NUMBER: Final = struct.Struct(">I")
_ID: Final = rb'"id"\s*:\s*("(?:[^"\\]|\\.){0,256}"|-?[0-9]{1,18})'
_ID_FIRST: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_LAST: Final = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_encode: Final = msgspec.json.Encoder().encode


def numbered(payload: bytes) -> tuple[int, bytes]:
    """Take a numbered frame apart; raises BadRequest."""
    if len(payload) < _NUMBER.size:
        raise BadRequest("a line came without its number")
    return _NUMBER.unpack_from(payload)[0], payload[_NUMBER.size :]


def call_key(request_key: bytes, number: int) -> bytes:
    """Give the key of the call on a line: the same for the same line of the same client."""
    return hashlib.sha256(request_key + number.to_bytes(4, "big")).digest()[:16]


def line_frame(number: int, line: bytes = b"") -> bytes:
    """Have a line written, and say that the one with this number is settled."""
    return frame(b"L", _NUMBER.pack(number) + line)


def error_line(id: RequestId | None, code: int, sentence: str) -> bytes:
    """Write an error of JSON-RPC."""
    shown = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": sentence}}
    return _encode(shown) + b"\n"


def id_of(line: bytes) -> RequestId | None:
    """Give the id of a line that is no proper message, so that its error finds its way; None for none."""
    try:
        message: object = msgspec.json.decode(line)
    except RecursionError:  # It is nested too deeply to be read.
        return _id_at(line[:END_BYTES], line[-END_BYTES:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = _with_halves(line)
    found = message.get("id") if isinstance(message, dict) else None
    is_id = isinstance(found, str | int) and not isinstance(found, bool)
    return found if is_id and _is_writable(found) else None


def has_half_pair(line: bytes) -> bool:
    """Tell whether a line is JSON that has half of a surrogate pair in a text, which no message may hold."""
    try:
        return not _is_writable(_with_halves(line))
    except RecursionError:
        return False


def _with_halves(line: bytes) -> object:
    """Read JSON with the one reader that takes half of a pair; None for what is none."""
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
    """Tell whether a message has an id, be it one that none can be."""
    return msgspec.json.decode(line, type=_WithId).id is not msgspec.UNSET


def id_of_ends(ends: bytes) -> RequestId | None:
    """Give the id of a line of which only both ends are there: programs write it first or last."""
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
