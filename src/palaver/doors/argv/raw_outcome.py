"""Wait for the outcome of raw keys, and show it to their sender.

Keys are typed, refused or expired within seconds. The ledger is not polled: new events in the log cause the
next read.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from palaver.broker.outcome import Sent
from palaver.doors.argv.call import Call
from palaver.doors.views import sent_view
from palaver.log.state import read_entry
from palaver.model.delivery import ENDS, State
from palaver.model.envelope import Event
from palaver.model.mail import Entry

_TYPED: Final = frozenset({State.SEEN, State.ANSWERED})
_KNOWN: Final = _TYPED | ENDS | {State.HELD}
_WORDS: Final[Mapping[str, str]] = {State.REFUSED: "was refused", State.EXPIRED: "expired"}
_GRACE_S: Final = 10.0
"""Seconds after the expiry of the keys in which a terminal that has received them may still report."""


async def say_outcome(call: Call, sent: Sent) -> int:
    """Wait for the outcome of raw keys and show it. Return 0 if they were typed, else 1."""
    assert sent.event is not None  # a dry run types nothing
    (name,) = sent.delivered_to
    entry = await _wait(call, sent.event, name)
    is_typed = entry.state in _TYPED
    if call.is_json:
        await call.say_json(sent_view(sent) | _view(entry))
    elif is_typed:
        seq = sent.event.seq
        await call.say(
            f"#{seq} was typed before, into {name}" if sent.is_repeat else f"typed #{seq} into {name}"
        )
    else:
        call.warn(_sentence(sent.event.seq, name, entry))
    return 0 if is_typed else 1


def _sentence(seq: int, name: str, entry: Entry) -> str:
    """Return why the keys were not typed, or that it is unknown whether they were."""
    if entry.state == State.SUBMITTED:
        return (
            f"#{seq} was handed to the terminal of {name} and never confirmed: it may or may not have been "
            f"typed. 'pal peek {name}' shows its screen"
        )
    why = f" ({entry.reason})" if entry.reason else ""
    return f"nothing was typed into {name}: #{seq} {_WORDS.get(entry.state, f'is {entry.state}')}{why}"


async def _wait(call: Call, event: Event, name: str) -> Entry:
    """Return the final ledger entry of the keys; after the time limit the present one."""
    log, news = call.services.log, asyncio.Event()
    stop = log.subscribe(lambda _: news.set())
    try:
        async with asyncio.timeout(_limit_s(call, event)):
            with call.connection.waiting():
                while not _is_known(entry := read_entry(log.rows, event.seq, name)):
                    await news.wait()
                    news.clear()
    except TimeoutError:
        entry = read_entry(log.rows, event.seq, name)
    finally:
        stop()
    return entry or Entry(state=State.QUEUED, ts=event.ts)


def _is_known(entry: Entry | None) -> bool:
    """Return whether the outcome is final. A submitted and unconfirmed entry stays unconfirmed."""
    return entry is not None and (entry.state in _KNOWN or entry.unconfirmed)


def _limit_s(call: Call, event: Event) -> float:
    expires = event.payload.get("expires")
    left_ms = expires - call.services.clock.now_ms() if isinstance(expires, int) else 0
    return max(0, left_ms) / 1000 + _GRACE_S


def _view(entry: Entry) -> dict[str, object]:
    view: dict[str, object] = {"state": entry.state}
    if entry.reason:
        view["reason"] = entry.reason
    if entry.unconfirmed:
        view["unconfirmed"] = True
    return view
