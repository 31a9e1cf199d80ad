"""The protocol of an agent's socket: one JSON request, one JSON reply. Pure.

    {"type": "send", "priority": "normal", "from": "luna", "body": "hello"}
    {"ok": true, "message_id": "01K..."}
    {"ok": false, "error": "unknown request type: nope"}

The request ends with its line, or with its last brace if the line end is missing, so that bytes after it are
never taken for a part of it.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from palaver.errors import BadRequest, MessageTooLarge, PalaverError
from palaver.protocol.message import parse_priority
from palaver.protocol.text import LIMIT_FRAME_BYTES

REQUEST_TYPES: Final = ("send", "attach", "show", "status", "hook_event", "stop")

MIN_COLS: Final = 1
MIN_ROWS: Final = 3
# The system stores each side in 16 bits.
LIMIT_SIDE: Final = 0xFFFF
"""The longest side of a terminal, in cells."""

_NOTHING: Final = msgspec.Raw(b"null")


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}, omit_defaults=True):
    """One request, with the keys of all types. `from` is only a hint: the daemon identifies the caller."""

    type: str
    priority: str | None = None
    sender: str = ""
    body: str = ""
    raw: bool = False
    cols: int = 0
    rows: int = 0
    message_id: str = ""
    event_name: str = ""
    payload: msgspec.Raw = _NOTHING


class SocketReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply to a request."""

    is_ok: bool = msgspec.field(name="ok")
    error: str = ""
    message_id: str = ""
    seq: int = 0
    message: dict[str, object] | None = None
    agent: dict[str, object] | None = None
    bridge: dict[str, object] | None = None


_decode: Final = msgspec.json.Decoder(AgentRequest).decode
_decode_reply: Final = msgspec.json.Decoder(SocketReply).decode
_encode: Final = msgspec.json.Encoder().encode


def request_from_json(line: bytes) -> AgentRequest:
    """Decode a request; raises BadRequest with the sentence for the reply."""
    try:
        request = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error
    if request.type not in REQUEST_TYPES:
        raise BadRequest(f"unknown request type: {request.type}")
    if request.type == "send" and request.priority is not None and not request.raw:
        parse_priority(request.priority)
    return request


def request_to_json(request: AgentRequest) -> bytes:
    """Encode a request as `request_from_json` reads it, with its line end."""
    return _encode(request) + b"\n"


def reply_to_json(reply: SocketReply) -> bytes:
    """Encode a reply, with its line end."""
    return _encode(reply) + b"\n"


def reply_from_json(line: bytes) -> SocketReply:
    """Decode a reply; raises BadRequest if it is malformed."""
    try:
        return _decode_reply(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the response cannot be read: {error}") from error


def refusal(sentence: str) -> bytes:
    """Encode a refusal."""
    return reply_to_json(SocketReply(is_ok=False, error=sentence))


def is_size(cols: object, rows: object) -> bool:
    """Return whether these are integers and a possible terminal size: at least 1 by 3."""
    return (
        isinstance(cols, int)
        and isinstance(rows, int)
        and MIN_COLS <= cols <= LIMIT_SIDE
        and MIN_ROWS <= rows <= LIMIT_SIDE
    )


# --------------------
# Find the end of the only request on a connection to an agent's own socket. Pure.
#
# The holder reads the request, and so does the daemon: both must agree where it ends.

# A line feed ends the request also inside a text: JSON writes it there as an escape, so it cannot be a part
# of one.
_SIGNS: Final = re.compile(rb'["{}\n]')
_IN_STRING: Final = re.compile(rb'\\[^\n]|["\n]')
_BLANKS: Final = b" \t\r\n"


class RequestReader:
    """Separates the request from the following bytes. Reads every byte once, however they arrive."""

    def __init__(self, limit_bytes: int = LIMIT_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._received = bytearray()
        self._position = 0
        self._depth = 0
        self._is_in_string = False

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Add bytes; return the request and all bytes after it, or None if it has not ended.

        Raises MessageTooLarge for one that does not end within the limit.
        """
        # An empty line before the request would otherwise be taken for the request.
        if not self._received:
            data = data.lstrip(_BLANKS)
        self._received += data
        # The end is searched before the size is checked: the bytes after a request may be many.
        end = self._find_end()
        if end is not None:
            return bytes(self._received[:end]), bytes(self._received[end:])
        if len(self._received) > self._limit_bytes:
            raise MessageTooLarge("the request", len(self._received), self._limit_bytes)
        return None

    def end(self) -> bytes:
        """Return the bytes of a request without an end, at the end of input; empty if nothing was sent."""
        return bytes(self._received)

    def _find_end(self) -> int | None:
        """Return the end of the line, or of the object that begins it, or None."""
        while found := (_IN_STRING if self._is_in_string else _SIGNS).search(self._received, self._position):
            sign = found[0]
            self._position = found.end()
            if sign == b"\n":
                return found.start()
            if sign == b'"':
                self._is_in_string = not self._is_in_string
            elif sign == b"{":
                self._depth += 1
            elif sign == b"}":
                self._depth -= 1
                # Below 0 after an extra closing brace: then only the end of the line ends the request.
                if self._depth == 0:
                    return self._position
        # A backslash at the very end is read again, together with the byte after it.
        is_half = self._is_in_string and self._received[self._position :].endswith(b"\\")
        self._position = len(self._received) - is_half
        return None


# --------------------
# The wire between holders and `adopt.sock`: lines to forward a client's connection. Pure.
#
# The holder sends one line, with the descriptor of the client. It has not read the client's request:
#
# -> {"do": "read", "name": "nova"}
#
# The daemon reads the request. If it is a `send`, the daemon writes the reply to the client and tells the
# holder so:
#
# to the client: {"ok": true, "message_id": "01J...", "seq": 42}
# to the holder: {"ok": true, "replied": true}
#
# For any other request the holder gets the request and the identity of the client, and acts itself:
#
# to the holder: {"ok": true, "name": "luna", "standing": "worker", "kind": "instance",
#                 "request": {"type": "stop"}}

LIMIT_LINE_BYTES: Final = 1024 * 1024
"""Enough for a message of the largest size in any JSON escaping."""


class SendRequest(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A request at an agent's own socket, with the keys of that wire. Unknown keys are ignored."""

    type: str = "send"
    body: str = ""
    priority: str | None = None
    sender: str = ""
    raw: bool = False
    id: str = ""
    thread: str = ""
    intent: str = ""
    reply_to: str = ""
    expects_reply: bool = False
    bare: bool = False


class ReadFor(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="read"):
    """Read the request from the descriptor, which is a connection to the socket of the agent `name`."""

    name: str


_decoder: Final = msgspec.json.Decoder(ReadFor)
_request_decoder: Final = msgspec.json.Decoder(SendRequest)
_encode_reply: Final = msgspec.json.Encoder().encode


def read_for_from_json(line: bytes) -> ReadFor:
    """Decode one line of a holder. Raise BadRequest with a sentence that names the bad field."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def forwarded_request_from_json(line: bytes) -> SendRequest:
    """Decode the request of a client. Raise BadRequest with a sentence that names the bad field."""
    try:
        return _request_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def ok_line(**fields: object) -> bytes:
    """Encode a success with its result fields."""
    return _encode_reply({"ok": True, **fields}) + b"\n"


def refusal_line(error: PalaverError) -> bytes:
    """Encode an error: its sentence, and its code for programs."""
    return _encode_reply({"ok": False, "error": str(error), "code": error.code}) + b"\n"


# --------------------
# Frames on an agent's socket after `attach`: a type byte, a length of four bytes, the payload. Pure.
#
# Type 0 carries keys to the agent and its output back, type 1 carries JSON controls. The size limit is the
# same in both directions. Which viewer may type, and what a control means, is decided elsewhere.

DATA: Final = 0
CONTROL: Final = 1

_HEAD: Final = struct.Struct(">BI")
_LINE_ENDS: Final = b"\r\n"

Frame = tuple[int, bytes]
"""A type and its payload. Readers ignore unknown types."""


class ViewerFrameReader:
    """Splits a stream of bytes into frames. An incomplete frame stays in the buffer until the rest arrives.

    The line end of the request before the first frame is skipped, even if it arrives late. A reader
    of the request may have stopped at its last brace, and no frame begins like a line end.
    """

    def __init__(self, first: bytes = b"") -> None:
        """`first` is the data read after the request, or the rest of an earlier reader."""
        self._buffer = bytearray(first)
        self._is_begun = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes and yield every complete frame, in order.

        Raises MessageTooLarge for a frame over the limit as soon as its head has arrived.
        """
        self._buffer += data
        if not self._is_begun:
            del self._buffer[: len(self._buffer) - len(self._buffer.lstrip(_LINE_ENDS))]
            self._is_begun = bool(self._buffer)
        while len(self._buffer) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._buffer)
            # Before the payload is awaited: otherwise a peer could make the buffer grow up to 4 GiB.
            _check_length(length)
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_HEAD.size : end])
            del self._buffer[:end]
            yield kind, payload

    def rest(self) -> bytes:
        """Return the bytes of the incomplete frame."""
        return bytes(self._buffer)


def frame(kind: int, payload: bytes) -> bytes:
    """Make one frame. Raises MessageTooLarge over the limit, because the other side would refuse it."""
    _check_length(len(payload))
    return _HEAD.pack(kind, len(payload)) + payload


def data_frames(data: bytes) -> bytes:
    """Split any number of bytes into frames within the limit. No bytes make no frame."""
    pieces = (data[start : start + LIMIT_FRAME_BYTES] for start in range(0, len(data), LIMIT_FRAME_BYTES))
    return b"".join(frame(DATA, piece) for piece in pieces)


def control_to_bytes(fields: dict[str, object]) -> bytes:
    """Make the frame of a control. The field `type` names it."""
    return frame(CONTROL, msgspec.json.encode(fields))


def control_from_bytes(payload: bytes) -> dict[str, object]:
    """Parse the payload of a control. Raises BadRequest unless it is an object with a `type`."""
    try:
        fields = msgspec.json.decode(payload, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the control cannot be read: {error}") from error
    if not isinstance(fields.get("type"), str):
        raise BadRequest("a control needs a `type`")
    return fields


def _check_length(length: int) -> None:
    if length > LIMIT_FRAME_BYTES:
        raise MessageTooLarge("the frame", length, LIMIT_FRAME_BYTES)
