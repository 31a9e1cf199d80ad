"""Decode the daemon's results and pushes into values. Pure; unknown fields are ignored."""

from typing import Final

import msgspec

from palaver.client.agent import Agent
from palaver.client.receipt import Delivery, Receipt
from palaver.errors import BadRequest
from palaver.model.envelope import Event, decode_event


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The joined name, and the id of this machine."""

    name: str = ""
    device: str = ""


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """A pushed message: the fields that every reader needs."""

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


class _Placed(msgspec.Struct, frozen=True):
    seq: int


joined_from_json: Final = msgspec.json.Decoder(Joined).decode
receipt_from_json: Final = msgspec.json.Decoder(Receipt).decode
mail_from_json: Final = msgspec.json.Decoder(Mail).decode
fields_from_json: Final = msgspec.json.Decoder(dict[str, object]).decode
_listed: Final = msgspec.json.Decoder(_Listed).decode
_ledger: Final = msgspec.json.Decoder(_Ledger).decode
_place: Final = msgspec.json.Decoder(_Placed).decode
_found: Final = msgspec.json.Decoder(_Found).decode


def agents_from_json(answer: msgspec.Raw) -> list[Agent]:
    """Read the list of agents."""
    return _listed(answer).agents


def ledger_from_json(answer: msgspec.Raw) -> list[Delivery]:
    """Read the receipts of a message."""
    return _ledger(answer).receipts


def event_from_json(line: msgspec.Raw) -> Event | None:
    """Read one event; return None if it is unreadable, so that one bad event never stops a reader."""
    try:
        return decode_event(line)
    except BadRequest:
        return None


def place_from_json(line: msgspec.Raw) -> int:
    """Read the seq of an event that is otherwise unreadable; return 0 if it has no seq."""
    try:
        return _place(line).seq
    except msgspec.DecodeError:
        return 0


def events_from_json(answer: msgspec.Raw) -> tuple[list[Event], int]:
    """Read a page of the log: its events, and the number of unreadable ones."""
    lines = _found(answer).events
    events = [event for event in map(event_from_json, lines) if event is not None]
    return events, len(lines) - len(events)


def last_from_json(answer: msgspec.Raw) -> int:
    """Read the last seq of the log at the time of the query."""
    return _found(answer).last
