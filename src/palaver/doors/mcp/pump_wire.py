"""The wire of `pal mcp`: frames that carry numbered lines, and errors in the words of JSON-RPC. Pure.

The client numbers the lines that it reads and keeps each until it is told, by number, that it is settled.
After a daemon ended it hands over again what is not settled, marked as a repeat. `native/pump.h` is the other
end.

    client  R request  L number, line  M the same again  X number, both ends of a line too long  Z no more
    daemon  L number settled (0: none), line to write (or nothing)  T token for the next daemon  E, Q as ever
"""

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
STOPPED: Final = -32000

RequestId = str | int


@dataclass(frozen=True, slots=True)
class BadLine:
    """Why a line is no message: the code and sentence of its error."""

    code: int
    sentence: str


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
        found = msgspec.json.decode(line, type=dict[str, object]).get("id")
    except RecursionError:  # It is nested too deeply to be read.
        return _id_at(line[:END_BYTES], line[-END_BYTES:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


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


def handshake_from(token: bytes) -> dict[str, object] | None:
    """Read what an earlier daemon left with the client; nothing when it is not ours."""
    try:
        return msgspec.json.decode(token, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
