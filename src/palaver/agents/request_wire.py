"""What can be asked on an agent's own socket: one JSON request, one JSON reply. Pure.

{"type": "send", "priority": "normal", "from": "luna", "body": "hello"}
{"ok": true, "message_id": "01K..."}                    {"ok": false, "error": "unknown request type: nope"}

The request ends with its line, or with its last brace where the line end is missing, so that what stands
behind it is never taken for a part of it.
"""

import re
from typing import Final

import msgspec

from palaver.errors import BadRequest, MessageTooLarge
from palaver.model.priority import parse_priority
from palaver.model.text import LIMIT_FRAME_BYTES

REQUEST_TYPES: Final = ("send", "attach", "show", "status", "hook_event", "stop")

MIN_COLS: Final = 1
MIN_ROWS: Final = 3
LIMIT_SIDE: Final = 0xFFFF
"""A terminal has no side longer than this."""

_SIGNS: Final = re.compile(rb'["{}\n]')
_IN_STRING: Final = re.compile(rb'\\[^\n]|["\n]')
_BLANKS: Final = b" \t\r\n"
_NOTHING: Final = msgspec.Raw(b"null")


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}, omit_defaults=True):
    """One request, with the keys of every type. `from` is a hint: who asks is found out."""

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


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one answer."""

    is_ok: bool = msgspec.field(name="ok")
    error: str = ""
    message_id: str = ""
    message: dict[str, object] | None = None
    agent: dict[str, object] | None = None
    bridge: dict[str, object] | None = None


_decode: Final = msgspec.json.Decoder(AgentRequest).decode
_decode_reply: Final = msgspec.json.Decoder(Reply).decode
_encode: Final = msgspec.json.Encoder().encode


class RequestReader:
    """Cuts the one request off what a connection sends. Looks at every byte once, however they come."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._place = 0
        self._depth = 0
        self._is_in_string = False

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Take bytes in; give the request and all that came behind it, or None when it has not ended.

        Raises MessageTooLarge for one that does not end within the limit.
        """
        if not self._received:
            data = data.lstrip(_BLANKS)
        self._received += data
        end = self._find_end()
        if end is not None:
            return bytes(self._received[:end]), bytes(self._received[end:])
        if len(self._received) > LIMIT_FRAME_BYTES:
            raise MessageTooLarge("the request", len(self._received), LIMIT_FRAME_BYTES)
        return None

    def end(self) -> bytes:
        """Nothing more will come: give what was sent and has no end; empty when nothing was."""
        return bytes(self._received)

    def _find_end(self) -> int | None:
        """Find the end of the line, or of the object that begins it."""
        while found := (_IN_STRING if self._is_in_string else _SIGNS).search(self._received, self._place):
            sign = found[0]
            self._place = found.end()
            if sign == b"\n":
                return found.start()
            if sign == b'"':
                self._is_in_string = not self._is_in_string
            elif sign == b"{":
                self._depth += 1
            elif sign == b"}":
                self._depth -= 1
                if self._depth == 0:
                    return self._place
        # A backslash at the very end is looked at again, with what comes behind it.
        is_half = self._is_in_string and self._received[self._place :].endswith(b"\\")
        self._place = len(self._received) - is_half
        return None


def request_from_json(line: bytes) -> AgentRequest:
    """Read one request; raises BadRequest with the sentence that goes into the reply."""
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
    """Write a request as `request_from_json` reads it, with its line end."""
    return _encode(request) + b"\n"


def reply_to_json(reply: Reply) -> bytes:
    """Write the answer, with its line end."""
    return _encode(reply) + b"\n"


def reply_from_json(line: bytes) -> Reply:
    """Read an answer; raises BadRequest for what is none."""
    try:
        return _decode_reply(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the answer cannot be read: {error}") from error


def refusal(sentence: str) -> bytes:
    """Write a no."""
    return reply_to_json(Reply(is_ok=False, error=sentence))


def is_size(cols: object, rows: object) -> bool:
    """Whether a terminal can be so large: whole numbers, at least 1 by 3. Anything else is passed over."""
    return (
        isinstance(cols, int)
        and isinstance(rows, int)
        and MIN_COLS <= cols <= LIMIT_SIDE
        and MIN_ROWS <= rows <= LIMIT_SIDE
    )
