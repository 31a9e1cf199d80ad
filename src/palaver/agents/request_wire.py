"""What can be asked on an agent's own socket: one JSON request, one JSON reply. Pure.

{"type": "send", "priority": "normal", "from": "luna", "body": "hello"}
{"ok": true, "message_id": "01K..."}                    {"ok": false, "error": "unknown request type: nope"}

The request ends with its line, or with its last brace where the line end is missing, so that what stands
behind it is never taken for a part of it.
"""

from typing import Final

import msgspec

from palaver.errors import BadRequest
from palaver.model.priority import parse_priority

REQUEST_TYPES: Final = ("send", "attach", "show", "status", "hook_event", "stop")

MIN_COLS: Final = 1
MIN_ROWS: Final = 3
LIMIT_SIDE: Final = 0xFFFF
"""A terminal has no side longer than this."""

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
    seq: int = 0
    message: dict[str, object] | None = None
    agent: dict[str, object] | None = None
    bridge: dict[str, object] | None = None


_decode: Final = msgspec.json.Decoder(AgentRequest).decode
_decode_reply: Final = msgspec.json.Decoder(Reply).decode
_encode: Final = msgspec.json.Encoder().encode


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
