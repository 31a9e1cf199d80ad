"""What holders pass on by descriptor, and how it is answered. Pure: bytes in, values out.

{"do": "read", "name": "nova"}                       with the caller's descriptor; its request waits there
{"ok": true, "message_id": "01J...", "seq": 42}      written to that descriptor, for a request to send
{"ok": true, "replied": true}                        then the reply to the holder; for any other request:
{"ok": true, "name": "luna", "standing": "worker", "kind": "instance", "request": {"type": "stop"}}
"""

from typing import Final

import msgspec

from palaver.errors import BadRequest, PalaverError

LIMIT_LINE_BYTES: Final = 1024 * 1024
"""More than a message of the largest size needs, however it is written."""


class SendRequest(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A request at an agent's own socket, with the keys of that wire. Unknown ones are passed over."""

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
    """Read the request that waits at the descriptor, a connection to the socket of the agent `name`."""

    name: str


_decoder: Final = msgspec.json.Decoder(ReadFor)
_request_decoder: Final = msgspec.json.Decoder(SendRequest)
_encode: Final = msgspec.json.Encoder().encode


def read_for_from_json(line: bytes) -> ReadFor:
    """Read one line of a holder; raises BadRequest with a sentence that names the field."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def request_from_json(line: bytes) -> SendRequest:
    """Read the request of a caller; raises BadRequest with a sentence that names the field."""
    try:
        return _request_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def ok_line(**fields: object) -> bytes:
    """Write that something was done, and what came of it."""
    return _encode({"ok": True, **fields}) + b"\n"


def refusal_line(error: PalaverError) -> bytes:
    """Write a refusal: the sentence, and the word for programs."""
    return _encode({"ok": False, "error": str(error), "code": error.code}) + b"\n"
