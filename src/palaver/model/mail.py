"""An agent's open mail and the ledger, as rows of the fold: their keys and their values. Pure.

    mail      what waits for an agent, is held or on its way to it; a key sorts as delivery hands out
    unread    how much that is, without what is held
    ledger    what became of each message for each recipient
    expiry    when what waits expires, soonest first
    carried   what was submitted on a lane that has not answered
    unsure    what lanes carried and never confirmed
    held      what is kept back from everybody until it is let through, by place
    tip       which one-time tips an agent was told, with what it has seen

Open mail sorts by priority, then by place; `idle-first` newest first. So the next message of any agent is the
first row under its name, however long its backlog is. Quiet mail, which wakes nobody, has lines of its own,
one for each priority: whoever looks for a reason to wake an agent need not walk past it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.model.delivery import State
from palaver.model.envelope import Event
from palaver.model.message import MESSAGE, is_raw
from palaver.model.priority import Priority, parse_priority

MAIL: Final = "mail"
LEDGER: Final = "ledger"
UNREAD: Final = "unread"
EXPIRY: Final = "expiry"
CARRIED: Final = "carried"
UNSURE: Final = "unsure"
HELD: Final = "held"
TIP: Final = "tip"

_QUIET: Final = len(Priority)
"""What the number of a priority is raised by in the keys of quiet mail."""
_LAST_PLACE: Final = 10**15 - 1
_PLACE_DIGITS: Final = 15


class Mail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message that waits for one agent. `expires` is 0 for never.

    No default is a word, here or below: msgspec leaves out only the very same object, so a word that was read
    would make another row than the same word in the code.
    """

    seq: int
    state: str
    expires: int = 0
    since: int = 0
    raw: bool = False
    """Bytes for a terminal: nobody else takes it."""
    is_gated: bool = False
    """Held by the gate of a terminal: whoever fetches it itself may have it."""

    @property
    def is_kept_back(self) -> bool:
        """Whether it is nobody's to read until it is let through."""
        return self.state == State.HELD and not self.is_gated


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the ledger: what became of one message for one recipient.

    There is no entry while it is queued: that is the message itself. Times are Unix milliseconds, 0 for not
    yet.
    """

    state: str
    ts: int
    lane: str = ""
    grade: str = ""
    reason: str = ""
    unconfirmed: bool = False
    submitted: int = 0
    seen: int = 0
    answer: int = 0
    """The place of the reply."""
    by: str = ""


class DeliveryReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a `delivery` event: one recipient, one batch, one step."""

    agent: str
    messages: tuple[int, ...]
    state: str
    lane: str = ""
    grade: str = ""
    reason: str = ""
    unconfirmed: bool = False
    priority: str = ""
    """Only where mail comes back into line that had left it."""
    author: str = ""
    answers: int = 0
    """Only where a held reply is released: who wrote it, and the place of what it answers."""
    tips: tuple[str, ...] = ()
    """The one-time tips that were shown with the messages."""
    evidence: str = ""
    """What the lane saw when it happened, such as the screen into which raw keys were typed."""


@dataclass(frozen=True, slots=True)
class Deliverable:
    """What delivery needs to know of an event."""

    delivered_to: tuple[str, ...]
    priority: Priority
    expires: int
    held: str
    wakes: tuple[str, ...] | None = None
    """Those whom it wakes; None for everybody. For the others it is quiet."""

    is_raw: bool = False

    def is_quiet_for(self, name: str) -> bool:
        """Tell whether it only lies there for a recipient, until something else brings it along."""
        return self.wakes is not None and name not in self.wakes


def deliverable(event: Event) -> Deliverable:
    """Read what an event says about its delivery, nobody named twice.

    A message says it in its payload. Another envelope says it beside its payload, which is not ours to read.
    Raises ValueError, TypeError or BadRequest when a message cannot be read.
    """
    payload = event.payload
    if event.type != MESSAGE:
        return Deliverable(_once(event.delivered_to), Priority.NORMAL, 0, "")
    names = _names(payload.get("delivered_to", ()), "delivered_to")
    wakes = payload.get("wakes")
    word = payload.get("priority")
    priority = Priority.NORMAL if word is None else parse_priority(str(word))
    expires = payload.get("expires", 0)
    if type(expires) is not int or not 0 <= expires <= _LAST_PLACE:
        raise ValueError("expires")
    return Deliverable(
        _once(names),
        priority,
        expires,
        str(payload.get("held", "")),
        None if wakes is None else tuple(_names(wakes, "wakes")),
        is_raw(event),
    )


def _names(found: object, what: str) -> Sequence[str]:
    if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) for name in found):
        raise TypeError(what)
    return found


def _once(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def reply_place(event: Event) -> int | None:
    """Give the place of the local message that an event answers, if it answers one."""
    found = event.payload.get("reply_to")
    if not isinstance(found, str) or not found.isdecimal() or len(found) > _PLACE_DIGITS:
        return None
    return int(found)


def mail_key(agent: str, priority: Priority, seq: int, *, is_quiet: bool = False) -> str:
    """Where one waiting message stands in its agent's line."""
    place = _LAST_PLACE - seq if priority is Priority.IDLE_FIRST else seq
    return f"{mail_prefix(agent, priority, is_quiet=is_quiet)}{place:015d}"


def mail_prefix(agent: str, priority: Priority | None = None, *, is_quiet: bool = False) -> str:
    """What every key of an agent's open mail, or that of one priority, begins with."""
    return f"{agent}/" if priority is None else f"{agent}/{priority + _QUIET * is_quiet:d}"


def mail_keys(agent: str, seq: int) -> tuple[str, ...]:
    """Every key under which one message could wait, the likeliest first."""
    return tuple(
        mail_key(agent, priority, seq, is_quiet=is_quiet)
        for is_quiet in (False, True)
        for priority in _LIKELIEST
    )


def priority_of_key(key: str) -> Priority:
    """Read the priority back from a key of open mail."""
    return Priority((int(key[key.rindex("/") + 1]) - 1) % _QUIET + 1)


def ledger_key(seq: int, agent: str) -> str:
    """Where the ledger keeps one line."""
    return f"{seq:015d}/{agent}"


def receiver_of_key(key: str) -> tuple[int, str]:
    """Give (place, agent) back that `ledger_key` wrote."""
    seq, agent = key.split("/", 1)
    return int(seq), agent


def agent_key(agent: str, seq: int) -> str:
    """Where an agent's short lists keep a message: what is on its way to it, and what it may have read."""
    return f"{agent}/{seq:015d}"


def tip_key(agent: str, tip: str) -> str:
    """Where it is kept that an agent was told a tip."""
    return f"{agent}/{tip}"


def place_of_key(key: str) -> int:
    """Read the place back that `agent_key` wrote."""
    return int(key[key.rindex("/") + 1 :])


def expiry_key(expires: int, seq: int, agent: str) -> str:
    """Sorts by the moment of expiry."""
    return f"{expires:015d}/{seq:015d}/{agent}"


def expiry_of_key(key: str) -> tuple[int, int, str]:
    """Give (moment, place, agent) back from a key."""
    moment, seq, agent = key.split("/", 2)
    return int(moment), int(seq), agent


_LIKELIEST: Final = (Priority.NORMAL, Priority.INTERRUPT, Priority.IDLE, Priority.IDLE_FIRST)

encode_row: Final = msgspec.json.Encoder().encode
decode_mail: Final = msgspec.json.Decoder(Mail).decode
decode_entry: Final = msgspec.json.Decoder(Entry).decode
decode_count: Final = msgspec.json.Decoder(int).decode
