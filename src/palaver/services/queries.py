"""Read events for doors. The only module that hands events of the log to them; it changes nothing."""

import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import Final

from palaver.broker.bundles import find_bundle
from palaver.broker.messages import fetch_event, find_message
from palaver.broker.tasks import find_task
from palaver.errors import PalaverError
from palaver.log.api import ANY_EVENT, BlobCount, EventKey, Hear, Log
from palaver.log.follow import follow, pages, seq_before_newest
from palaver.log.storage import damaged, failure_from
from palaver.protocol.envelope import Event
from palaver.protocol.events import DeliveryReport, LifeChanged, MessageSent
from palaver.protocol.query import Query
from palaver.protocol.redaction import REDACTED, asks_secret, redact, removed_text
from palaver.protocol.requests import TYPED
from palaver.protocol.tasks import Task
from palaver.services.export import Exports
from palaver.state.rooms import read_irc_level
from palaver.state.rows import Rows


class Queries:
    """The log as doors see it: events and rows to read, and nothing to write."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.exports = Exports()

    @property
    def device(self) -> str:
        """The id of this home."""
        return self._log.device

    @property
    def rows(self) -> Rows:
        """The folded rows, for the queries of `state/`."""
        return self._log.rows

    def last(self) -> int:
        """Return the seq of the newest event; 0 in an empty log."""
        return self._log.last()

    def archived(self) -> int:
        """Return the highest archived seq; 0 if nothing is archived."""
        return self._log.archived()

    def redacted(self) -> int:
        """Return the seq up to which all recorded redactions are finished; 0 at first."""
        return self._log.redacted()

    def irc_level(self, channel: str) -> str:
        """Return how much the notices of an IRC channel, written in any case, show: see `IRC_LEVELS`."""
        return read_irc_level(self.rows, channel)

    # One event

    def event(self, seq: int) -> Event | None:
        """Return the event with a seq, or None; None also if it is archived and its file is lost."""
        return self._log.event(seq)

    async def fetch(self, seq: int) -> Event | None:
        """Return the event with a seq, read in a thread because it may be large. Raises StorageFailed."""
        return await self._log.fetch(seq)

    def with_id(self, id_or_end: str) -> list[Event]:
        """Return events with this id, or else those whose id ends with it; newest first, at most five."""
        return self._log.find(id_or_end)

    async def fetch_event(self, reference: str) -> Event:
        """Return any event by its reference, read in a thread because it may be large. Raises NotFound."""
        return await fetch_event(self._log, reference)

    def message(self, reference: str) -> Event:
        """Return a message, or a foreign envelope that was delivered like one. Raises NotFound."""
        return find_message(self._log, reference)

    async def bundle(self, reference: str) -> Event:
        """Return the event that created a bundle. Raises NotFound."""
        return await find_bundle(self._log, reference)

    def task(self, reference: str) -> Task:
        """Return a task by its id, a unique end of that, or its number. Raises NotFound."""
        return find_task(self._log, reference)

    # Many events

    async def read(self, query: Query) -> list[Event]:
        """Return matching events in seq order: the first `limit`, or with `last` the newest `last`."""
        return await self._log.read(query)

    async def shown(self, query: Query) -> list[Event]:
        """Return messages in the places of `query.shown`, archived or not, as `read` returns events."""
        return await self._log.read_shown(query)

    async def seq_at(self, ts: int) -> int:
        """Return the seq of the first event from a time on; that after the last one if there is none.

        Found by bisection: times rise with the seqs of a log, except in imported events.
        """
        low, high = 1, self._log.last() + 1
        while low < high:
            middle = (low + high) // 2
            event = await self._first_from(middle)
            if event is None or event.ts >= ts:
                high = middle
            else:
                low = event.seq + 1
        return low

    async def _first_from(self, seq: int) -> Event | None:
        event = self._log.event(seq)
        if event is not None:
            return event
        query = Query(after=seq - 1, limit=1, with_imported=True)
        archived = (await self._log.read_archived(query)).events if seq <= self._log.archived() else ()
        return next(iter([*archived, *await self._log.read(query)]), None)

    def pages(self, query: Query, *, with_archives: bool = True) -> AsyncGenerator[Sequence[Event], None]:
        """Yield the matching events that are stored by now, in seq order, never an empty page."""
        return pages(self._log, query, with_archives=with_archives)

    def follow(
        self, query: Query, *, after: int, with_archives: bool = False
    ) -> AsyncGenerator[Sequence[Event], None]:
        """Yield matching events above a seq, then new ones, until the iterator is closed."""
        return follow(self._log, query, after=after, with_archives=with_archives)

    async def next_events(self, seq: int, limit: int) -> tuple[Sequence[Event], int]:
        """Return the first events of any kind above a seq, and the seq up to which there are no others.

        Archived, imported and migrated ones are included.
        """
        while seq < (last := self._log.last()):
            if (events := self._log.tail(seq, limit)) is not None:
                return events, events[-1].seq if events else last
            if seq < self._log.archived():
                page = await self._log.read_archived(Query(after=seq, limit=limit, with_imported=True))
                if page.events:
                    return page.events, page.seq
                seq = page.seq
                continue
            events = await self._log.read(Query(after=seq, before=last + 1, limit=limit, with_imported=True))
            if seq >= self._log.archived():  # Else some may have moved into an archive during the read.
                return events, events[-1].seq if len(events) == limit else last
        return (), seq

    async def seq_before_newest(self, query: Query, count: int) -> int:
        """Return the seq after which the newest `count` matching events in the log come."""
        return await seq_before_newest(self._log, query, count)

    def subscribe(self, hear: Hear, types: Collection[EventKey] = ANY_EVENT) -> Callable[[], None]:
        """Call `hear` with the new events of these types. Return a function that ends the subscription."""
        return self._log.subscribe(hear, types)

    # Checks, which read the whole log or its archives

    async def typed_secrets(self) -> list[int]:
        """Return the seqs of typed lines and raw keys that may be secrets, in order.

        A line counts if it contains a known form of secret, or is a single word with digits and other
        characters, like a password. Raw keys also count if the screen stored with them asked for a secret.
        """
        events = (await self._log.find_containing(_PIECES)).events
        asked = {seq for event in events for seq in _typed_at_secret_prompt(event)}
        typed = filter(_is_typed, events)
        return [event.seq for event in typed if event.seq in asked or _looks_secret(event)]

    async def check_storage(self) -> Sequence[str]:
        """Read the whole storage; return a sentence for each kind of damage and for missing events."""
        return await self._log.check_storage()

    async def check_archives(self) -> int:
        """Read all archives, and return how many events they contain. Raises StorageFailed."""
        return await self._log.check_archives()

    async def check_blobs(self) -> BlobCount:
        """Read all contents that are stored next to the log because they are too large for it."""
        return await self._log.check_blobs()

    async def count_unreadable(self) -> int:
        """Return how many events of the log cannot be read back."""
        return await self._log.count_unreadable()


def read_failure(error: Exception) -> PalaverError:
    """Return the error for a log that could not be read, with advice."""
    return failure_from(error) if isinstance(error, sqlite3.Error) else damaged(error)


# --------------------
# Find passwords that older versions stored when people typed them at a hidden prompt.

_PIECES: Final = (f'"action":"{TYPED}"', '"raw":"', '"evidence":')
_WORD: Final = re.compile(r"[^\s/]{6,64}")
_DIGIT: Final = re.compile(r"[0-9]")
_OTHER: Final = re.compile(r"[^0-9]")


def _is_typed(event: Event) -> bool:
    match event.body:
        case LifeChanged(action=action, secret=None, text=text):
            return action == TYPED and text != REDACTED
        case MessageSent(raw=str(raw), secret=None, text=text):
            return bool(raw) and text != REDACTED
    return False


def _typed_at_secret_prompt(event: Event) -> tuple[int, ...]:
    """Return the raw keys that were typed into a screen whose last line asked for a secret."""
    # The numbers in an imported report belong to another log.
    if not isinstance(report := event.body, DeliveryReport) or event.imported:
        return ()
    lines = report.evidence.rstrip().splitlines()
    return report.messages if lines and asks_secret(lines[-1]) else ()


def _looks_secret(event: Event) -> bool:
    text = removed_text(event, is_foreign=False).strip()
    is_mixed = _DIGIT.search(text) is not None and _OTHER.search(text) is not None
    return redact(text) != text or (is_mixed and _WORD.fullmatch(text) is not None)
