"""The wire between holders and `adopt.sock`: lines to forward a client's connection. Pure.

{"do": "read", "name": "nova"}                       with the client's descriptor; its request is unread there
{"ok": true, "message_id": "01J...", "seq": 42}      written to that descriptor, if the request is a send
{"ok": true, "replied": true}                        then the reply to the holder; for any other request:
{"ok": true, "name": "luna", "standing": "worker", "kind": "instance", "request": {"type": "stop"}}
"""

from typing import Final

import msgspec

from palaver.errors import BadRequest, PalaverError

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
_encode: Final = msgspec.json.Encoder().encode


def read_for_from_json(line: bytes) -> ReadFor:
    """Decode one line of a holder. Raise BadRequest with a sentence that names the bad field."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def request_from_json(line: bytes) -> SendRequest:
    """Decode the request of a client. Raise BadRequest with a sentence that names the bad field."""
    try:
        return _request_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def ok_line(**fields: object) -> bytes:
    """Encode a success with its result fields."""
    return _encode({"ok": True, **fields}) + b"\n"


def refusal_line(error: PalaverError) -> bytes:
    """Encode an error: its sentence, and its code for programs."""
    return _encode({"ok": False, "error": str(error), "code": error.code}) + b"\n"
