"""The log in memory, for tests: it meets the contract of the interface and guarantees nothing else.

It uses all liberties of the contract. Seqs have gaps. `decide` is called twice for every commit, and again
after a conflict on its key. Reads are late: an event is visible only when its commit returns. So code that
passes with this engine does not depend on the details of SQLite. It supports no SQL.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import cycle, islice
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from palaver.errors import BadQuery, ShuttingDown
from palaver.ids import is_ulid
from palaver.log.api import (
    ANY_EVENT,
    Apply,
    Archived,
    ArchivedPage,
    BlobCount,
    Commit,
    Containing,
    Decide,
    EventKey,
    Hear,
    Order,
    Scrub,
)
from palaver.log.records import decode_payload, encode_payload, prefix_end, searched_text
from palaver.log.search import check_search, in_order, is_found, parse_search, wanted
from palaver.log.writer import Newest
from palaver.protocol.envelope import Draft, Event, check_draft, event_from
from palaver.protocol.query import Query, matches
from palaver.state.rows import Change, Rows

# Gaps, so that code that expects adjacent seqs fails in tests: a lost write-ahead log makes such gaps.
_STEPS: Final = (1, 3, 2, 7)
_SHORTEST_END: Final = 4
_FOUND_AT_MOST: Final = 5
_LOOKED_AT_ONCE: Final = 3
"""Archived events that one call reads: few, so that tests meet several pages."""

_by_seq = attrgetter("seq")


class MemoryRows:
    """Rows in dictionaries, with sorted keys."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, bytes]] = {}
        self._keys: dict[str, list[str]] = {}

    def get(self, table: str, key: str) -> bytes | None:
        return self._values.get(table, {}).get(key)

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        keys = self._keys.get(table, [])
        end = prefix_end(prefix)
        found = keys[bisect_left(keys, prefix) : len(keys) if end is None else bisect_left(keys, end)]
        if reverse:
            found.reverse()
        if after:
            found = [key for key in found if (key < after if reverse else key > after)]
        return [(key, self._values[table][key]) for key in found[:limit]]

    def change(self, changes: Iterable[Change]) -> None:
        """Store and remove rows."""
        for table, key, value in changes:
            values = self._values.setdefault(table, {})
            keys = self._keys.setdefault(table, [])
            if key in values:
                del values[key]
                keys.remove(key)
            if value is not None:
                values[key] = value
                insort(keys, key)


class MemoryLog:
    """A log that ends with its process."""

    def __init__(self, *, apply: Apply, device: str = "MEMO") -> None:
        self._device = device
        self._apply = apply
        self._is_closed = False
        self._steps = cycle(_STEPS)
        self._last_seq = 0
        # The committed state. Other callers see only `_shown` and `_rows`.
        self._committed = MemoryRows()
        self._hidden: deque[tuple[Event, Sequence[Change]]] = deque()
        self._by_request_key: dict[bytes, Event] = {}
        self._by_id: dict[tuple[str, str], Event] = {}
        self._versions: dict[str | None, int] = {}
        self._shown: list[Event] = []
        self._archive: list[Event] = []
        self._rows = MemoryRows()
        self._newest = Newest(0)
        self._redacted = 0
        self._unfinished_redactions: tuple[int, ...] = ()

    @property
    def device(self) -> str:
        return self._device

    @property
    def rows(self) -> Rows:
        return self._rows

    async def commit(self, key: str | None, decide: Decide, *, request_key: bytes | None = None) -> Commit:
        while True:
            self._check_open()
            if (first := self._by_request_key.get(request_key or b"")) is not None:
                return await self._return(Commit(first, is_repeat=True))
            # Read before the decision: a commit on the same key in between makes the decision void.
            version = self._versions.get(key, 0)
            # Deciding has no effects, so a second call does no harm; a decision that is not pure fails here.
            decide(self._committed)
            draft = decide(self._committed)
            if draft is None:
                return Commit(None)
            check_draft(draft)
            await asyncio.sleep(0)  # Now others may commit.
            if key is None or self._versions.get(key, 0) == version:
                break
        self._check_open()
        return await self._return(self._write(key, draft, request_key))

    async def commit_all(self, orders: Sequence[Order]) -> list[Commit | Exception]:
        self._check_open()
        outcomes: list[Commit | Exception] = []
        for key, decide in orders:
            try:
                outcomes.append(await self.commit(key, decide))
            except Exception as error:
                outcomes.append(error)
        return outcomes

    def last(self) -> int:
        return self._newest.last()

    def largest_id(self) -> str:
        ulids = [event.id for event in self._all() if is_ulid(event.id) and event.id < "7ZZZZZZZZZ"]
        return max(ulids, default="")

    def event(self, seq: int) -> Event | None:
        return next((event for event in self._all() if event.seq == seq), None)

    def recall(self, seq: int) -> Event | None:
        return self.event(seq)

    async def fetch(self, seq: int) -> Event | None:
        await asyncio.sleep(0)
        return self.event(seq)

    def find(self, id_or_end: str) -> list[Event]:
        newest_first = self._all()[::-1]
        exact = [event for event in newest_first if event.id == id_or_end]
        if exact or len(id_or_end) < _SHORTEST_END:
            return exact[:_FOUND_AT_MOST]
        end = id_or_end.upper()
        return [event for event in newest_first if event.id.upper().endswith(end)][:_FOUND_AT_MOST]

    async def read(self, query: Query) -> list[Event]:
        await asyncio.sleep(0)
        self._check_open()
        check_search(query)
        if query.sql:
            raise BadQuery("the in-memory log does not support SQL")
        events = list(islice(_matching(query, self._shown), wanted(query)))
        return events if query.last is None else events[::-1]

    def subscribe(self, hear: Hear, types: Collection[EventKey] = ANY_EVENT) -> Callable[[], None]:
        return self._newest.handlers.add(hear, types)

    def tail(self, after: int, limit: int) -> list[Event] | None:
        return self._newest.tail(after, limit)

    async def rebuild(self) -> int:
        self._check_open()
        self._show()
        # After `_show`: the changes of a hidden event would otherwise be applied to the new rows later.
        self._committed, self._rows = MemoryRows(), MemoryRows()
        for event in self._all():
            changes = self._apply(self._committed, event)
            self._committed.change(changes)
            self._rows.change(changes)
        return len(self._all())

    async def archive(self, before: int) -> Archived:
        await asyncio.sleep(0)
        self._check_open()
        count = bisect_left(self._shown, before, key=_by_seq)
        self._archive += self._shown[:count]
        del self._shown[:count]
        return Archived(count, self.archived())

    def archived(self) -> int:
        return self._archive[-1].seq if self._archive else 0

    async def read_archived(self, query: Query) -> ArchivedPage:
        await asyncio.sleep(0)
        check_search(query)
        if query.sql:
            raise BadQuery("the in-memory log does not support SQL")
        start = bisect_right(self._archive, query.after, key=_by_seq)
        some = self._archive[start : start + _LOOKED_AT_ONCE]
        last = some[-1].seq if len(some) == _LOOKED_AT_ONCE else self.archived()
        return ArchivedPage(list(_matching(query, some)), last)

    async def read_shown(self, query: Query) -> list[Event]:
        await asyncio.sleep(0)
        self._check_open()
        return in_order(query, _matching(query, self._all()))

    async def redact(self, seqs: Sequence[int], scrub: Scrub) -> None:
        await asyncio.sleep(0)
        self._check_open()
        self._show()
        # After `_show`: a hidden event would otherwise be shown later with its text.
        new = {event.seq: scrub(event) for event in self._all() if event.seq in seqs}
        for events in (self._archive, self._shown):
            events[:] = [new.get(event.seq, event) for event in events]
        self._by_id = {key: new.get(event.seq, event) for key, event in self._by_id.items()}
        self._by_request_key = {key: new.get(event.seq, event) for key, event in self._by_request_key.items()}
        self._newest.replace(list(new.values()))

    def redacted(self) -> int:
        return self._redacted

    def unfinished_redactions(self) -> Sequence[int]:
        return self._unfinished_redactions

    async def mark_redacted(self, seq: int, unfinished: Sequence[int] = ()) -> None:
        await asyncio.sleep(0)
        self._check_open()
        self._redacted = max(self._redacted, seq)
        self._unfinished_redactions = tuple(unfinished)

    async def find_containing(self, pieces: Sequence[str]) -> Containing:
        await asyncio.sleep(0)
        self._check_open()
        wanted = [piece.encode() for piece in pieces]
        return Containing(
            [
                event
                for event in self._all()
                if any(piece in encode_payload(event.payload) for piece in wanted)
            ]
        )

    async def check_archives(self) -> int:
        return len(self._archive)

    async def check_blobs(self) -> BlobCount:
        return BlobCount(0)

    async def check_storage(self) -> Sequence[str]:
        return ()

    async def count_unreadable(self) -> int:
        return 0

    async def close(self) -> None:
        self._is_closed = True

    def _all(self) -> list[Event]:
        return self._archive + self._shown

    def _check_open(self) -> None:
        if self._is_closed:
            raise ShuttingDown("the log is closed; nothing was stored")

    def _write(self, key: str | None, draft: Draft, request_key: bytes | None) -> Commit:
        """Store one draft, unless it is known already. No await in here."""
        first = self._by_request_key.get(request_key or b"") or self._by_id.get((draft.sender, draft.id))
        if first is not None:
            return Commit(first, is_repeat=True)
        seq = self._last_seq + next(self._steps)
        # Encoded and decoded, as in any other engine: the log shares no payload with its callers.
        kept = decode_payload(encode_payload(draft.payload))
        event = event_from(replace(draft, payload=kept), seq, self._device)
        changes = self._apply(self._committed, event)
        self._last_seq = seq
        self._committed.change(changes)
        self._hidden.append((event, changes))
        self._by_id[event.sender, event.id] = event
        if request_key is not None:
            self._by_request_key[request_key] = event
        self._versions[key] = self._versions.get(key, 0) + 1
        return Commit(event)

    async def _return(self, commit: Commit) -> Commit:
        """Return late, when the event and all before it can be read."""
        await asyncio.sleep(0)
        self._show()
        return commit

    def _show(self) -> None:
        # All hidden events, not only those of one commit: readers must never see a gap in the order.
        batch = []
        while self._hidden:
            event, changes = self._hidden.popleft()
            self._shown.append(event)
            self._rows.change(changes)
            batch.append(event)
        self._newest.add(batch)


def _matching(query: Query, events: Sequence[Event]) -> Iterator[Event]:
    """Yield matching events, from the end at which the query begins."""
    phrases = parse_search(query.search)
    for event in events if query.last is None else reversed(events):
        if matches(query, event) and (not phrases or is_found(phrases, searched_text(event.payload))):
            yield event
