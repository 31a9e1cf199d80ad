"""What messages refer to, as rows of the fold: threads by name, and bundles by id. Pure."""

from typing import Final

import msgspec

from palaver.protocol.bundles import format_bundle_id, parse_bundle_id
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import Bundle
from palaver.state.rows import Change, Rows, encode_row

# --------------------
# Threads: the length, participants and time of each.
#
# A thread is only a name that messages share; it delivers nothing.

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


_decode_thread: Final = msgspec.json.Decoder(Thread).decode


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
    return None if value is None else _decode_thread(value)


def read_threads(rows: Rows, limit: int) -> list[Thread]:
    """Return the most recently used threads, newest first."""
    recent = rows.scan(RECENT_THREADS, "", limit=limit)
    found = (read_thread(rows, value.decode("utf-8", "surrogatepass")) for _, value in recent)
    return [thread for thread in found if thread is not None]


def _recent_key(seq: int) -> str:
    """Return a key that sorts the newest first."""
    return f"{_LARGEST_SEQ - seq:015d}"


# --------------------
# Bundles: found by the eight characters of the id, and listed by seq.
#
# The rows contain the seq of a bundle; its contents are only in its event.

BUNDLES: Final = "bundle"
"""Each bundle, by the eight characters of its id."""
BUNDLE_PLACES: Final = "bundle.place"
"""The same characters, by seq."""

LIMIT_CHAIN: Final = 100
"""The number of steps that `read_parents` follows."""


class BundleRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One bundle, without its contents. `files` is the number of its files."""

    seq: int
    title: str
    by: str
    ts: int
    files: int = 0
    extends: str = ""


_decode_bundle: Final = msgspec.json.Decoder(BundleRow).decode


def made_bundle(rows: Rows, event: Event) -> list[Change]:
    """Return the rows of a new bundle. Raise ValueError for a known id, so that the fold skips the event."""
    bundle = body_as(event, Bundle)
    key = parse_bundle_id(bundle.bundle_id)
    if rows.get(BUNDLES, key) is not None:
        raise ValueError(bundle.bundle_id)
    row = BundleRow(
        seq=event.seq,
        title=bundle.title,
        by=event.sender,
        ts=event.ts,
        files=len(bundle.files),
        extends=bundle.extends,
    )
    by_seq = f"{event.seq:015d}"  # Of one length, so that the keys sort like the numbers.
    return [(BUNDLES, key, encode_row(row)), (BUNDLE_PLACES, by_seq, key.encode())]


def read_bundle(rows: Rows, key: str) -> BundleRow | None:
    """Return a bundle by its eight characters, in lower case, or None."""
    value = rows.get(BUNDLES, key)
    return None if value is None else _decode_bundle(value)


def read_newest_bundles(rows: Rows, limit: int) -> list[tuple[str, BundleRow]]:
    """Return the newest bundles with their ids, the newest last."""
    found = []
    for _, value in reversed(rows.scan(BUNDLE_PLACES, "", limit=limit, reverse=True)):
        key = value.decode()
        row = read_bundle(rows, key)
        assert row is not None  # One event wrote both.
        found.append((format_bundle_id(key), row))
    return found


def read_parents(rows: Rows, extends: str) -> list[tuple[str, BundleRow]]:
    """Return the bundle `extends` and its parents with their ids, the nearest first, at most a hundred.

    A bundle can only extend an older one: there are no cycles.
    """
    found: list[tuple[str, BundleRow]] = []
    while extends and len(found) < LIMIT_CHAIN:
        row = read_bundle(rows, parse_bundle_id(extends))
        if row is None:
            break
        found.append((extends, row))
        extends = row.extends
    return found
