"""Threads as rows of the fold: the length, participants and time of each. Pure.

A thread is only a name that messages share; it delivers nothing.
"""

from typing import Final

import msgspec

from palaver.protocol.envelope import Event
from palaver.state.rows import Change, Rows, encode_row

THREADS: Final = "thread"
"""Each thread, by its name."""
RECENT_THREADS: Final = "thread.recent"
"""The name of each thread, by the seq of its last message, newest first."""

_LIMIT_NAMES: Final = 20
_LARGEST_SEQ: Final = 10**15 - 1
"""The largest number of 15 digits, the length of a key."""


class Thread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thread: the seqs of its first and last message, their number, and its first participants.

    `ts` is the time of the last message, and `names` has at most twenty senders.
    """

    name: str
    first: int
    last: int
    count: int
    ts: int
    names: tuple[str, ...] = ()


_decode: Final = msgspec.json.Decoder(Thread).decode


def fold_thread(rows: Rows, event: Event, name: str) -> list[Change]:
    """Return the changes of a message to its thread."""
    known = read_thread(rows, name)
    if known is None:
        known = Thread(name=name, first=event.seq, last=event.seq, count=0, ts=event.ts)
    names = known.names
    if event.sender not in names and len(names) < _LIMIT_NAMES:
        names = (*names, event.sender)
    thread = msgspec.structs.replace(known, last=event.seq, count=known.count + 1, ts=event.ts, names=names)
    return [
        (THREADS, name, encode_row(thread)),
        (RECENT_THREADS, _recent_key(known.last), None),
        (RECENT_THREADS, _recent_key(event.seq), name.encode("utf-8", "surrogatepass")),
    ]


def read_thread(rows: Rows, name: str) -> Thread | None:
    """Return a thread by its name, or None."""
    value = rows.get(THREADS, name)
    return None if value is None else _decode(value)


def read_threads(rows: Rows, limit: int) -> list[Thread]:
    """Return the most recently used threads, newest first."""
    recent = rows.scan(RECENT_THREADS, "", limit=limit)
    found = (read_thread(rows, value.decode("utf-8", "surrogatepass")) for _, value in recent)
    return [thread for thread in found if thread is not None]


def _recent_key(seq: int) -> str:
    """Return a key that sorts the newest first."""
    return f"{_LARGEST_SEQ - seq:015d}"
