"""What a sender is told: at once, where its message went; later, what became of it."""

import msgspec


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The message is stored, in this place, for these recipients."""

    seq: int = 0
    """0 for a dry run, which stores nothing."""
    id: str = ""
    to: tuple[str, ...] = ()
    delivered_to: tuple[str, ...] = ()
    empty_groups: tuple[str, ...] = ()
    """Groups with nobody in them now."""
    dead: tuple[str, ...] = ()
    """Paths that nobody is subscribed to."""
    is_repeat: bool = msgspec.field(name="repeat", default=False)
    """The same id was sent before, or its answer was lost on the way: this is what became of it then."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a message's ledger: how far it got with one recipient, and how that is known."""

    name: str
    state: str
    """queued, submitted, seen or answered; or held, refused, expired, dead."""
    ts: int = 0
    lane: str = ""
    grade: str = ""
    reason: str = ""
    is_unconfirmed: bool = msgspec.field(name="unconfirmed", default=False)
    answer: int = 0
    """The place of the reply, once there is one."""
    by: str = ""
