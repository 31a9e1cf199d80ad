"""Find a message by its reference: `42`, `#42`, `42:BOXE`, its ULID or a unique end of it."""

import re
from typing import Final

from palaver.errors import BadRequest, NotFound
from palaver.log.api import Log
from palaver.model.envelope import Event

_PLACE: Final = re.compile(r"#?(\d{1,15})(?::([A-Za-z0-9]+))?", re.ASCII)
_LEAST: Final = 4
"""Characters of a ULID's end that are enough to search for it: fewer would match by accident."""
_END: Final = re.compile(rf"[0-9A-Za-z]{{{_LEAST},26}}", re.ASCII)


def find_event(log: Log, reference: str) -> Event:
    """Return any event by its reference. Raises `NotFound`, or names the candidates if several match."""
    if found := _PLACE.fullmatch(reference):
        return _checked(reference, log.recall(int(found[1])), found[2])
    if not _END.fullmatch(reference):
        raise BadRequest(
            f"{reference!r} is not a message: write its number, its ULID, or at least the last {_LEAST} "
            "characters of its ULID"
        )
    events = log.find(reference.upper())
    if not events:
        raise NotFound(f"event {reference}")
    if len(events) > 1:
        candidates = ", ".join(f"#{event.seq} ({event.id})" for event in events)
        raise BadRequest(f"{reference} is ambiguous: it matches {candidates}; write more characters")
    return events[0]


async def fetch_event(log: Log, reference: str) -> Event:
    """Return what `find_event` returns, but read it in a thread: for an event that may be large."""
    if found := _PLACE.fullmatch(reference):
        return _checked(reference, await log.fetch(int(found[1])), found[2])
    return find_event(log, reference)


def _checked(reference: str, event: Event | None, device: str | None) -> Event:
    if event is None or (device and device.upper() != event.device):
        raise NotFound(f"event {reference}")
    return event


def find_message(log: Log, reference: str) -> Event:
    """Return a message, or a foreign envelope that was delivered like one."""
    event = find_event(log, reference)
    if event.type != "message" and not event.delivered_to:
        raise NotFound(f"message {reference}", f"#{event.seq} is an event of type {event.type}")
    return event
