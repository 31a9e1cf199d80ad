"""Lines of JSON on the Unix door: cut out of a stream, read as requests, and how answers look. Pure.

{"req": 7, "op": "send", "to": ["@nova"], "text": "hello"}        a request, tagged by its sender
{"req": 7, "ok": {...}}                                           its answer
{"req": 7, "error": "unknown_recipient", "message": "...", "details": {...}}
{"push": "message", "name": "luna", "message": {...}}             what nobody asked for just now

What can be asked, and how it is written, stands in `model/lines/`.
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
    """Cuts a stream of bytes into lines. Half a line waits for its other half; one too long is dropped."""

    def __init__(self, limit_bytes: int = LIMIT_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._is_dropping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Take bytes in and give every line that is whole, and None for each that was too long."""
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
        """Give what was begun and never ended."""
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
    """Read one request; raises BadRequest with a sentence that names the field."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def req_of(line: bytes) -> int:
    """Give the number of a request that could not be read, so that its error finds its way; 0 for none."""
    try:
        found = _number.decode(line).get("req", 0)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return found if isinstance(found, int) else 0


def answer_line(req: int, ok: object) -> bytes:
    """Write the answer to a request."""
    return _encode({"req": req, "ok": ok}) + b"\n"


def error_line(req: int, error: PalaverError) -> bytes:
    """Write a refusal. Its fields stand under `details` alone: beside them are the names of this wire."""
    return _encode({"req": req, **_named(error), **_detailed(error)}) + b"\n"


def error_object(error: PalaverError) -> dict[str, object]:
    """Give an error as commands and tools show it: its fields stand in the object itself, and in `details`.

    A field that is called like one of these words is found in `details` only.
    """
    return {**_named(error), **error.details, **_named(error), **_detailed(error)}


def _named(error: PalaverError) -> dict[str, object]:
    return {"error": error.code, "message": str(error)}


def _detailed(error: PalaverError) -> dict[str, object]:
    return {"details": dict(error.details)} if error.details else {}


def push_line(kind: str, fields: Mapping[str, object]) -> bytes:
    """Write what nobody asked for just now."""
    return _encode({"push": kind, **fields}) + b"\n"
