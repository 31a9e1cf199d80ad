"""What holders pass on by descriptor, and how it is answered. Pure: bytes in, values out.

{"do": "send", "name": "nova", "request": {"type": "send", "body": "hello"}}     with the caller's descriptor
{"ok": true, "message_id": "01J...", "seq": 42}                                  written to that descriptor
{"ok": true, "replied": true}                                                    the word to the holder
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


class SendFor(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="send"):
    """Send what the caller at the descriptor asked the agent's socket to send."""

    name: str
    request: SendRequest
    silent: bool = False
    """Give the answer to the holder alone: what the descriptor carries is no longer lines."""


class WhoIs(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag="who"):
    """Say who the caller at the descriptor is."""

    name: str


Adopted = SendFor | WhoIs

_decoder: Final[msgspec.json.Decoder[Adopted]] = msgspec.json.Decoder(Adopted)
_encode: Final = msgspec.json.Encoder().encode


def adopted_from_json(line: bytes) -> Adopted:
    """Read one line of a holder; raises BadRequest with a sentence that names the field."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from error


def ok_line(**fields: object) -> bytes:
    """Write that something was done, and what came of it."""
    return _encode({"ok": True, **fields}) + b"\n"


def refusal_line(error: PalaverError) -> bytes:
    """Write a refusal: the sentence, and the word for programs."""
    return _encode({"ok": False, "error": str(error), "code": error.code}) + b"\n"
