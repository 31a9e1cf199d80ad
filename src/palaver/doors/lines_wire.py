"""Lines of JSON on the Unix door: split a stream into lines, decode requests, encode replies. Pure.

{"req": 7, "op": "send", "to": ["@nova"], "text": "hello"}        a request, numbered by its sender
{"req": 7, "ok": {...}}                                           its reply
{"req": 7, "error": "unknown_recipient", "message": "...", "details": {...}}
{"push": "message", "name": "luna", "message": {...}}             sent without a request

The requests are defined in `model/lines/`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from palaver.errors import BadRequest, PalaverError
from palaver.model.lines.wire import Op
from palaver.model.text import LIMIT_FRAME_BYTES

_decoder: Final[msgspec.json.Decoder[Op]] = msgspec.json.Decoder(Op)
_number: Final = msgspec.json.Decoder(dict[str, object])
_encode: Final = msgspec.json.Encoder().encode


class LineReader:
    """Splits a stream of bytes into lines. An incomplete line is kept; a line over the limit is dropped."""

    def __init__(self, limit_bytes: int = LIMIT_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._is_dropping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Add bytes and yield every complete line, and None for each line that was too long."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            if (whole := self._ended(line)) != b"":
                yield whole
        if self._is_dropping:
            return
        self._buffer += rest
        if len(self._buffer) > self._limit_bytes:
            self._is_dropping = True
            self._buffer.clear()
            yield None

    def rest(self) -> bytes:
        """Return the incomplete line at the end."""
        return bytes(self._buffer)

    def _ended(self, line: bytes) -> bytes | None:
        if self._is_dropping:
            self._is_dropping = False
            return b""
        if self._buffer:
            line = bytes(self._buffer) + line
            self._buffer.clear()
        return line.strip() if len(line) <= self._limit_bytes else None


def op_from_json(line: bytes) -> Op:
    """Decode one request. Raise BadRequest with a sentence that names the bad field."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def req_of(line: bytes) -> int:
    """Return the number of a request that cannot be decoded, for its error reply; 0 if it has no number."""
    try:
        found = _number.decode(line).get("req", 0)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return found if isinstance(found, int) else 0


def answer_line(req: int, ok: object) -> bytes:
    """Encode the reply to a request."""
    return _encode({"req": req, "ok": ok}) + b"\n"


def error_line(req: int, error: PalaverError) -> bytes:
    """Encode an error. Its fields are only in `details`, because the other keys belong to this wire."""
    return _encode({"req": req, **_named(error), **_detailed(error)}) + b"\n"


def error_object(error: PalaverError) -> dict[str, object]:
    """Return an error as commands and tools show it: its fields are at the top level and in `details`.

    A field that has the same name as a key of this object is only in `details`.
    """
    return {**_named(error), **error.details, **_named(error), **_detailed(error)}


def _named(error: PalaverError) -> dict[str, object]:
    return {"error": error.code, "message": str(error)}


def _detailed(error: PalaverError) -> dict[str, object]:
    return {"details": dict(error.details)} if error.details else {}


def push_line(kind: str, fields: Mapping[str, object]) -> bytes:
    """Encode a push, which is sent without a request."""
    return _encode({"push": kind, **fields}) + b"\n"
