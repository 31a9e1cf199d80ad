"""Messages that are held until a person releases them, for `pal pending`. Changes nothing.

Messages that are held because of a usage limit are left out: they continue by themselves.
"""

from dataclasses import dataclass
from typing import Final

from palaver.doors.argv.call import Call
from palaver.doors.argv.style import ago
from palaver.harness.hook_states import USED_UP
from palaver.log.state import read_entry, read_held
from palaver.model.envelope import Event
from palaver.model.message import LOST

_SHOWN: Final = 50
"""How many messages are shown; the newest ones."""


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message, the recipients it is held for, and the reason."""

    event: Event
    names: list[str]
    reason: str
    since_ms: int


def held_messages(call: Call) -> list[HeldMessage]:
    """Return the messages that a person must release, oldest first; above the limit only the newest."""
    log = call.services.log
    found: list[HeldMessage] = []
    for seq, names in read_held(log.rows).items():
        entries = {name: read_entry(log.rows, seq, name) for name in sorted(names)}
        waiting = {name: one for name, one in entries.items() if one and not one.reason.startswith(USED_UP)}
        event = log.event(seq) if waiting else None
        if event is not None:
            first = next(iter(waiting.values()))
            found.append(HeldMessage(event, list(waiting), first.reason, first.ts))
        if len(found) == _SHOWN:
            break
    return found[::-1]


def held_view(one: HeldMessage) -> dict[str, object]:
    """Return a held message for JSON output, in the form of a permission request."""
    return {
        "id": None,
        "agent": one.event.sender,
        "harness": None,
        "session": None,
        "text": one.reason,
        "since": one.since_ms,
        "answerable": False,
        "held": one.event.seq,
        "to": one.names,
    }


def held_lines(call: Call, one: HeldMessage) -> list[str]:
    """Return lines with the message, the reason, and the command that releases it."""
    paint, seq = call.paint, one.event.seq
    sender, names = paint.name(one.event.sender), paint.names(one.names)
    since = ago(call.services.clock.now_ms() - one.since_ms)
    way = f"pal show {seq} | pal release {seq}"
    if one.reason == LOST:
        way = f"put its file back into blobs/, 'pal doctor' names it; then: pal release {seq}"
    return [
        f"{paint.bold(f'#{seq}')} from {sender} to {names} is held: {paint.safe(one.reason)}",
        f"    since {since}: {way}",
    ]
