"""An agent's open mail and the ledger, as rows of the fold: their keys and their values. Pure.

    mail      waiting, held or submitted messages of an agent; the keys sort in delivery order
    unread    their number, without held ones and handled copies
    ledger    the state of each message for each recipient
    expiry    expiry times of waiting messages, soonest first
    carried   messages submitted on a lane without an outcome
    unsure    messages that lanes carried and never confirmed
    held      messages held for all until they are released, by seq
    tip       the one-time tips that an agent has received

Open mail sorts by priority, then by seq; `idle-first` newest first. So the next message of any agent is the
first row under its name, however long its backlog is. Quiet mail, which wakes no agent, and handled copies,
which no lane carries, have separate keys per priority: a search for waking mail does not have to read them.

A session of an agent has its own mailbox, `agent+session`. Where a key contains an agent's name, it may
contain such a mailbox instead.
"""

import enum
from typing import Final, Protocol, TypeAlias

import msgspec

from palaver.protocol.envelope import Event
from palaver.protocol.events import MessageSent, State
from palaver.protocol.message import Priority, parse_priority


class Rows(Protocol):
    """The folded rows. Keys are text, in code point order; values are bytes that only the fold reads."""

    def get(self, table: str, key: str) -> bytes | None:
        """Return the row's value, or None if there is no such row."""
        ...

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        """Return the rows whose key begins with `prefix`, in key order, at most `limit` of them.

        `after` is a complete key, and the result begins after it: above it, or below it if `reverse` is set.
        An empty `after` begins at the first row, or with `reverse` at the last. Keys are returned complete.
        """
        ...


Change: TypeAlias = tuple[str, str, bytes | None]
"""One row to store: table, key, value. None as the value removes the row."""

# Names of stored tables. After a rename the rows of each log must be built again: `FOLD_VERSION` must rise.
MAIL: Final = "mail"
LEDGER: Final = "ledger"
UNREAD: Final = "unread"
EXPIRY: Final = "expiry"
CARRIED: Final = "carried"
UNSURE: Final = "unsure"
HELD: Final = "held"
TIP: Final = "tip"

# Numbers in keys have a fixed length, so that keys sort like the numbers. 15 digits are also exact in a
# double, which is all that a reader of JSON in another language may have.
_LARGEST_NUMBER: Final = 10**15 - 1
_SEQ_DIGITS: Final = 15
_PRIORITIES: Final = len(Priority)
_NEEDED: Final = frozenset({"delivered_to", "wakes", "priority", "expires", "held", "handled", "migrated"})
"""The fields of a message without which it cannot be delivered correctly. With one of them unreadable, the
message is skipped: its default could wake agents, or release what a brake holds."""


# The numbers are a part of stored keys, so they cannot change.
class MailKind(enum.IntEnum):
    """How a message reaches a recipient. A kind has one digit per priority in the keys of open mail."""

    WAKING = 0
    QUIET = 1
    """It wakes no agent, and goes along with other messages."""
    HANDLED = 2
    """Sessions of the agent have a copy too: only a reader that fetches messages gets this one."""


PUSHED: Final = (MailKind.WAKING, MailKind.QUIET)
"""The kinds that lanes carry and that are pushed to readers."""


class OpenMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message that waits for one agent. `expires` is 0 for never.

    No default here or below is a non-empty string: msgspec omits a field only if its value is the same object
    as the default, and a decoded string is not.
    """

    seq: int
    state: str
    expires: int = 0
    since: int = 0
    """When a report last changed its state, in Unix milliseconds; 0 for a new message."""
    raw: bool = False
    """Bytes for a terminal: no other lane takes it."""
    is_gated: bool = False
    """Held by the gate of a terminal: a reader that fetches mail may still have it."""

    @property
    def is_kept_back(self) -> bool:
        """Whether no reader may have it until it is released."""
        return self.state == State.HELD and not self.is_gated


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One ledger entry: the state of one message for one recipient.

    A queued message has no entry until its state first changes. Times are Unix milliseconds, 0 for not yet.
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
    """The seq of the reply."""
    implied: bool = False
    """The reply did not name the message: the sender's only open request was taken as the one it answers."""
    by: str = ""
    """The caller that caused the last change in the name of another, as the human with --as."""


class Deliverable(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an event that delivery needs."""

    delivered_to: tuple[str, ...]
    priority: Priority
    expires: int
    held: str
    wakes: tuple[str, ...] | None = None
    """The recipients that it wakes; None for all. For the others it is quiet."""

    is_raw: bool = False
    handled: tuple[str, ...] = ()
    """The agents whose copy is only for pull."""
    migrated: tuple[str, ...] = ()
    """The mailboxes that had taken it in the path broker that it comes from."""

    def kind_for(self, name: str) -> MailKind:
        """Return how it reaches a recipient."""
        if name in self.handled:
            return MailKind.HANDLED
        return MailKind.QUIET if self.wakes is not None and name not in self.wakes else MailKind.WAKING


def deliverable(event: Event) -> Deliverable:
    """Return the delivery fields of an event, each recipient once.

    A message has them in its payload. Another envelope has them outside its payload, which is not ours to
    read. Raises ValueError or BadRequest if a message cannot be read.
    """
    message = event.body
    if not isinstance(message, MessageSent):
        return Deliverable(
            delivered_to=_once(event.delivered_to), priority=Priority.NORMAL, expires=0, held=""
        )
    if event.odd_fields and (odd := event.odd_fields & _NEEDED):
        raise ValueError(", ".join(sorted(odd)))
    if not 0 <= message.expires <= _LARGEST_NUMBER:
        raise ValueError("expires")
    return Deliverable(
        delivered_to=_once(message.delivered_to),
        priority=Priority.NORMAL if message.priority is None else parse_priority(message.priority),
        expires=message.expires,
        held=message.held,
        wakes=message.wakes,
        is_raw=message.raw is not None,
        handled=tuple(message.handled),
        migrated=message.migrated or (),
    )


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    return names if len(names) < 2 else tuple(dict.fromkeys(names))


def answered_seq(event: Event) -> int | None:
    """Return the seq of the local message that an event answers, or None."""
    message = event.body
    # The numbers in an imported reply belong to another log.
    if not isinstance(message, MessageSent) or event.imported:
        return None
    found = message.reply_to
    if found is None:
        return message.answers
    # A longer number cannot be a seq, and would make a key that sorts wrongly.
    return int(found) if found.isdecimal() and len(found) <= _SEQ_DIGITS else None


def mail_key(agent: str, priority: Priority, seq: int, kind: MailKind = MailKind.WAKING) -> str:
    """Return the key of a waiting message in its agent's queue."""
    # Counted down, so that the newest one of this priority comes first in the order of keys.
    number = _LARGEST_NUMBER - seq if priority is Priority.IDLE_FIRST else seq
    return f"{mail_prefix(agent, priority, kind)}{number:015d}"


def mail_prefix(agent: str, priority: Priority | None = None, kind: MailKind = MailKind.WAKING) -> str:
    """Return the prefix of all keys of an agent's open mail, or of one priority and kind."""
    # One hexadecimal digit, because three kinds of four priorities need more than ten values.
    return f"{agent}/" if priority is None else f"{agent}/{priority + _PRIORITIES * kind:x}"


# A look-up by seq tries every possible key, so the common priority comes first.
_LIKELIEST: Final = (Priority.NORMAL, Priority.INTERRUPT, Priority.IDLE, Priority.IDLE_FIRST)


def mail_keys(agent: str, seq: int) -> tuple[str, ...]:
    """Return every key that one waiting message could have, the likeliest first."""
    return tuple(mail_key(agent, priority, seq, kind) for kind in MailKind for priority in _LIKELIEST)


def priority_of_key(key: str) -> Priority:
    """Return the priority in a key of open mail."""
    return Priority(_digit(key) % _PRIORITIES + 1)


def kind_of_key(key: str) -> MailKind:
    """Return the kind in a key of open mail."""
    return MailKind(_digit(key) // _PRIORITIES)


def seq_of_mail_key(key: str) -> int:
    """Return the seq in a key of open mail."""
    number = int(key[-_SEQ_DIGITS:])
    return _LARGEST_NUMBER - number if priority_of_key(key) is Priority.IDLE_FIRST else number


def _digit(key: str) -> int:
    return int(key[key.rindex("/") + 1], 16) - 1


def ledger_key(seq: int, agent: str) -> str:
    """Return the key of a ledger entry."""
    return f"{seq:015d}/{agent}"


def parse_ledger_key(key: str) -> tuple[int, str]:
    """Return the (seq, agent) of a key of `ledger_key`."""
    # At the first slash only: a dead letter has a path, with slashes, instead of an agent.
    seq, agent = key.split("/", 1)
    return int(seq), agent


def agent_key(agent: str, seq: int) -> str:
    """Return the key of a message in an agent's short lists of carried and unconfirmed messages."""
    return f"{agent}/{seq:015d}"


def tip_key(agent: str, tip: str) -> str:
    """Return the key that records that an agent has received a tip."""
    return f"{agent}/{tip}"


def seq_of_key(key: str) -> int:
    """Return the seq in a key of `agent_key`."""
    return int(key[key.rindex("/") + 1 :])


def expiry_key(expires: int, seq: int, agent: str) -> str:
    """Return a key that sorts by expiry time."""
    return f"{expires:015d}/{seq:015d}/{agent}"


def parse_expiry_key(key: str) -> tuple[int, int, str]:
    """Return the (expiry time, seq, agent) of a key."""
    at_ms, seq, agent = key.split("/", 2)
    return int(at_ms), int(seq), agent


encode_row: Final = msgspec.json.Encoder().encode
decode_mail: Final = msgspec.json.Decoder(OpenMessage).decode
decode_entry: Final = msgspec.json.Decoder(LedgerEntry).decode
decode_count: Final = msgspec.json.Decoder(int).decode
