"""Compose the notices to senders whose messages were not delivered as usual. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from palaver.model.envelope import Event
from palaver.model.message import BROADCAST, HUMAN, INSTANCE, MESSAGE
from palaver.model.names import SCRIPT_NAME
from palaver.model.request import Notify

_SENTENCES: Final[Mapping[str, str]] = {
    "held": "#{seq} is held for {names}: {reason}",
    "refused": "#{seq} was refused for {names}: {reason}",
    "expired": "#{seq} expired before {names} saw it",
    "dead": "#{seq} reached nobody: no one is subscribed to {names}",
    "unconfirmed": (
        "#{seq} was handed to {names} and never confirmed: it may or may not have been read. "
        "'pal redeliver {seq}' sends it again"
    ),
}


def notice(
    event: Event, state: str, names: Sequence[str], *, reason: str = "", attempt: int = 0
) -> Notify | None:
    """Return the notice about a message for its sender; None if the sender cannot receive one.

    A broadcast gets one notice per state, however many recipients it concerns; a later one counts as a repeat
    and is not written. For other messages `attempt` distinguishes two deliveries of the same message.
    """
    if not _can_be_told(event):
        return None
    who = names[0] if len(names) == 1 else f"{names[0]} (+{len(names) - 1})"
    text = _SENTENCES[state].format(seq=event.seq, names=who, reason=reason or "no reason given")
    if event.payload.get("scope") == BROADCAST:
        text += f" ('pal receipts {event.seq}' shows everyone)"
        return Notify(to=event.sender, text=text, cause=event.id, kind=state)
    return Notify(to=event.sender, text=text, cause=event.id, kind=f"{state} {','.join(names)} {attempt}")


def held_notices(agent: str, events: Sequence[Event], *, reason: str) -> Iterator[Notify]:
    """Yield notices about messages held for one recipient: one per sender, and one per broadcast."""
    many: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        many[event.id if event.payload.get("scope") == BROADCAST else event.sender].append(event)
    for first, *others in many.values():
        told = notice(first, "held", [agent], reason=reason)
        if told is not None and others:
            text = f"#{first.seq} and {len(others)} more are held for {agent}: {reason}"
            told = msgspec.structs.replace(told, text=text, kind=f"{told.kind} and {len(others)}")
        if told is not None:
            yield told


def _can_be_told(event: Event) -> bool:
    """Return whether the sender can receive a notice. Scripts and the bus itself have no mailbox."""
    if event.type == MESSAGE:
        return event.payload.get("sender_kind") in (INSTANCE, HUMAN)
    return event.sender != SCRIPT_NAME
