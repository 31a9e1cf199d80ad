"""Results for a sender: at once, the recipients of its message; later, its delivery states."""

import msgspec


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message, with its seq and its recipients."""

    seq: int = 0
    """0 for a dry run, which stores nothing."""
    id: str = ""
    to: tuple[str, ...] = ()
    delivered_to: tuple[str, ...] = ()
    empty_groups: tuple[str, ...] = ()
    """Groups that are empty now."""
    dead: tuple[str, ...] = ()
    """Paths without a subscriber."""
    is_repeat: bool = msgspec.field(name="repeat", default=False)
    """The id was stored before, by an earlier call or an earlier try: this is that result."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One receipt of a message: its state for one recipient, and the evidence for it."""

    name: str
    state: str
    """queued, submitted, seen or answered; or held, refused, expired, dead."""
    ts: int = 0
    lane: str = ""
    grade: str = ""
    reason: str = ""
    is_unconfirmed: bool = msgspec.field(name="unconfirmed", default=False)
    answer: int = 0
    """The seq of the reply, once there is one."""
    by: str = ""
