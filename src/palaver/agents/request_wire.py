"""The protocol of an agent's socket: one JSON request, one JSON reply. Pure.

    {"type": "send", "priority": "normal", "from": "luna", "body": "hello"}
    {"ok": true, "message_id": "01K..."}
    {"ok": false, "error": "unknown request type: nope"}

The request ends with its line, or with its last brace if the line end is missing, so that bytes after it are
never taken for a part of it.
"""

from typing import Final

import msgspec

from palaver.errors import BadRequest
from palaver.model.priority import parse_priority

REQUEST_TYPES: Final = ("send", "attach", "show", "status", "hook_event", "stop")

MIN_COLS: Final = 1
MIN_ROWS: Final = 3
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


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply to a request."""

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


def reply_to_json(reply: Reply) -> bytes:
    """Encode a reply, with its line end."""
    return _encode(reply) + b"\n"


def reply_from_json(line: bytes) -> Reply:
    """Decode a reply; raises BadRequest if it is malformed."""
    try:
        return _decode_reply(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the answer cannot be read: {error}") from error


def refusal(sentence: str) -> bytes:
    """Encode a refusal."""
    return reply_to_json(Reply(is_ok=False, error=sentence))


def is_size(cols: object, rows: object) -> bool:
    """Return whether these are integers and a possible terminal size: at least 1 by 3."""
    return (
        isinstance(cols, int)
        and isinstance(rows, int)
        and MIN_COLS <= cols <= LIMIT_SIDE
        and MIN_ROWS <= rows <= LIMIT_SIDE
    )
