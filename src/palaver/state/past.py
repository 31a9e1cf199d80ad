"""The bus as it was at a seq: rows in memory that go forward and back, event by event. Pure.

The state is folded from the events up to a seq, so nothing of a later event shows in it. An undo record of
the last steps makes small steps back cheap; a longer way back needs a new fold.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from palaver.protocol.envelope import Event
from palaver.state.fold import apply
from palaver.state.rows import Change

LIMIT_UNDO: Final = 10_000
"""Steps back that need no new fold."""

_LIMIT_BUCKET: Final = 1024
"""Keys that are sorted together: each change moves at most this many."""


class PastRows:
    """Rows in memory. A change costs about the same for ten rows and for a million."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, bytes]] = {}
        self._keys: dict[str, _SortedKeys] = {}

    def get(self, table: str, key: str) -> bytes | None:
        values = self._values.get(table)
        return None if values is None else values.get(key)

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        if (values := self._values.get(table)) is None:
            return []
        keys = self._keys[table].matching(prefix, after, is_reversed=reverse)
        return [(key, values[key]) for key in islice(keys, limit)]

    def change(self, changes: Iterable[Change]) -> list[Change]:
        """Store and remove rows. Return the changes that restore the former rows, in this order."""
        undo = [self._store(*change) for change in changes]
        undo.reverse()
        return undo

    def tables(self) -> dict[str, dict[str, bytes]]:
        """Return a copy of all rows by table, without empty tables."""
        return {table: dict(values) for table, values in self._values.items() if values}

    def _store(self, table: str, key: str, value: bytes | None) -> Change:
        values = self._values.get(table)
        if values is None:
            values = self._values[table] = {}
            self._keys[table] = _SortedKeys()
        old = values.get(key)
        if value is not None:
            values[key] = value
            if old is None:
                self._keys[table].add(key)
        elif old is not None:
            del values[key]
            self._keys[table].remove(key)
        return table, key, old


class PastState:
    """The folded rows at a seq, and the way to the events before it."""

    def __init__(self, limit_undo: int = LIMIT_UNDO) -> None:
        self.rows: Final = PastRows()
        self.seq = 0
        """The seq of the newest folded event; 0 before the first."""
        self.ts = 0
        """The time of the newest folded event that was not imported; 0 before the first."""
        self._undo: deque[tuple[int, int, list[Change]]] = deque(maxlen=limit_undo)

    @property
    def oldest(self) -> int:
        """The lowest seq that `back` can reach."""
        return self._undo[0][0] if self._undo else self.seq

    def forward(self, event: Event) -> None:
        """Fold the next event. Raises ValueError if it is not above the present seq."""
        if event.seq <= self.seq:
            raise ValueError(f"event #{event.seq} does not come after #{self.seq}")
        undo = self.rows.change(apply(self.rows, event))
        self._undo.append((self.seq, self.ts, undo))
        self.seq = event.seq
        if not event.imported:
            self.ts = event.ts

    def back(self) -> None:
        """Take the newest event back. Raises IndexError at the end of the undo record."""
        self.seq, self.ts, undo = self._undo.pop()
        self.rows.change(undo)


class _SortedKeys:
    """Different keys in order, in buckets of limited size."""

    def __init__(self) -> None:
        self._buckets: list[list[str]] = []
        self._lasts: list[str] = []

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        if not self._buckets:
            self._buckets.append([key])
            self._lasts.append(key)
            return
        at = min(bisect_left(self._lasts, key), len(self._lasts) - 1)
        bucket = self._buckets[at]
        insort(bucket, key)
        if len(bucket) > _LIMIT_BUCKET:
            # Most keys are added at the end. Then the full bucket stays full, and the next one is short.
            half = _LIMIT_BUCKET if bucket[-1] is key else _LIMIT_BUCKET // 2
            self._buckets.insert(at + 1, bucket[half:])
            self._lasts.insert(at + 1, bucket[-1])
            del bucket[half:]
        self._lasts[at] = bucket[-1]

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        at = bisect_left(self._lasts, key)
        bucket = self._buckets[at]
        del bucket[bisect_left(bucket, key)]
        if bucket:
            self._lasts[at] = bucket[-1]
        else:
            del self._buckets[at], self._lasts[at]

    def matching(self, prefix: str, after: str, *, is_reversed: bool) -> Iterator[str]:
        """Yield the keys with a prefix: those above `after` in order, or those below it in reverse order."""
        if is_reversed:
            return self._matching_below(prefix, after)
        return self._matching_above(prefix, after)

    def _matching_above(self, prefix: str, after: str) -> Iterator[str]:
        at = bisect_left(self._lasts, max(prefix, after))
        if at == len(self._buckets):
            return
        bucket = self._buckets[at]
        first = bucket[max(bisect_left(bucket, prefix), bisect_right(bucket, after) if after else 0) :]
        for key in chain(first, chain.from_iterable(self._buckets[at + 1 :])):
            if not key.startswith(prefix):
                return
            yield key

    def _matching_below(self, prefix: str, after: str) -> Iterator[str]:
        size = len(prefix)

        def start(key: str) -> str:
            return key[:size]

        at = bisect_right(self._lasts, prefix, key=start)
        if after:
            at = min(at, bisect_left(self._lasts, after))
        if at < len(self._buckets):
            bucket = self._buckets[at]
            end = bisect_right(bucket, prefix, key=start)
            last = bucket[: min(end, bisect_left(bucket, after)) if after else end]
        else:
            last = []
        before = (key for index in range(at - 1, -1, -1) for key in reversed(self._buckets[index]))
        for key in chain(reversed(last), before):
            if not key.startswith(prefix):
                return
            yield key
