"""What the daemon answers and pushes, read into values. Pure; fields it does not know are passed over."""

from typing import Final

import msgspec

from palaver.client.agent import Agent
from palaver.client.receipt import Delivery, Receipt
from palaver.model.envelope import Event, decode_event


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The name that was opened, and the machine it is on."""

    name: str = ""
    device: str = ""


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was handed out: what every reader wants of it."""

    seq: int
    id: str
    ts: int
    sender: str = msgspec.field(name="from")
    text: str
    intent: str | None = None
    thread: str | None = None
    reply_to: str | None = None


class _Listed(msgspec.Struct, frozen=True):
    agents: list[Agent]


class _Ledger(msgspec.Struct, frozen=True):
    receipts: list[Delivery]


class _Found(msgspec.Struct, frozen=True):
    events: list[msgspec.Raw]
    last: int


joined_from_json: Final = msgspec.json.Decoder(Joined).decode
receipt_from_json: Final = msgspec.json.Decoder(Receipt).decode
mail_from_json: Final = msgspec.json.Decoder(Mail).decode
fields_from_json: Final = msgspec.json.Decoder(dict[str, object]).decode
_listed: Final = msgspec.json.Decoder(_Listed).decode
_ledger: Final = msgspec.json.Decoder(_Ledger).decode
_found: Final = msgspec.json.Decoder(_Found).decode


def agents_from_json(answer: msgspec.Raw) -> list[Agent]:
    """Read who is there."""
    return _listed(answer).agents


def ledger_from_json(answer: msgspec.Raw) -> list[Delivery]:
    """Read what became of a message."""
    return _ledger(answer).receipts


def events_from_json(answer: msgspec.Raw) -> list[Event]:
    """Read a piece of the log."""
    return [decode_event(event) for event in _found(answer).events]


def last_from_json(answer: msgspec.Raw) -> int:
    """Read where the log ended when that piece of it was read."""
    return _found(answer).last
