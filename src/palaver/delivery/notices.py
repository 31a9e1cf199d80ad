"""What a sender is told when its message did not simply arrive. Pure: events in, words out."""

from collections.abc import Sequence

from palaver.model.envelope import Event
from palaver.model.message import BROADCAST, EXTERNAL, SYSTEM
from palaver.model.request import Notify

_SENTENCES = {
    "held": "#{seq} is held for {names}: {reason}",
    "refused": "#{seq} was refused for {names}: {reason}",
    "expired": "#{seq} expired before {names} saw it",
    "dead": "#{seq} reached nobody: no one is subscribed to {names}",
    "unconfirmed": (
        "#{seq} was handed to {names} and never confirmed: it may or may not have been read. "
        "'pal redeliver {seq}' sends it again"
    ),
}


def notice(event: Event, state: str, names: Sequence[str], reason: str = "") -> Notify | None:
    """Word what became of a message for its sender; None when there is nobody to tell.

    A broadcast gets one notice for each kind of end, whatever number of recipients it concerns: the cause is the same,
    so a later one is a repeat and is not written.
    """
    if event.payload.get("sender_kind") in (SYSTEM, EXTERNAL) or state not in _SENTENCES:
        return None
    is_broadcast = event.payload.get("scope") == BROADCAST
    who = names[0] if len(names) == 1 else f"{names[0]} (+{len(names) - 1})"
    text = _SENTENCES[state].format(seq=event.seq, names=who, reason=reason or "no reason given")
    if is_broadcast:
        text += f" ('pal receipts {event.seq}' shows everyone)"
    cause = f"{event.id}/{state}" if is_broadcast else f"{event.id}/{state}/{','.join(names)}"
    return Notify(to=event.sender, text=text, cause=cause, about=0)
