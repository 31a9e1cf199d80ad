"""What every log promises. Engines live beside this module; nothing here does any work.

A log keeps events in places and, beside them, the rows that one fold makes of them. The fold is handed to
the engine when it is opened; an engine only stores what it answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from palaver.model.envelope import Draft, Event
from palaver.model.query import Query

Change: TypeAlias = tuple[str, str, bytes | None]
"""One row to store: table, key, value. None as the value removes the row."""


class Rows(Protocol):
    """The folded rows. Keys are text, in code point order; values are bytes that only the fold reads."""

    def get(self, table: str, key: str) -> bytes | None:
        """Return the row's value, or None when there is no such row."""
        ...

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        """Return the rows whose key begins with `prefix`, in key order, at most `limit` of them.

        `after` is a whole key, and the answer begins behind it: above it, or below it when `reverse` is
        set. An empty `after` begins at the end. Keys come back whole.
        """
        ...


Decide: TypeAlias = Callable[[Rows], Draft | None]
"""Makes a draft; None writes nothing, a PalaverError refuses. Pure: it may be called again."""

Apply: TypeAlias = Callable[[Rows, Event], Sequence[Change]]
"""The fold: what an event changes. Pure and total."""

Scrub: TypeAlias = Callable[[Event], Event]
"""Makes an event without its text: only the payload may differ. Doing it twice is the same as once."""

Hear: TypeAlias = Callable[[Sequence[Event]], None]
"""Hears new events, in place order, on the event loop. Must not raise and must not wait."""

LIMIT_WAITING = 100_000
"""Commits that may wait for the writer; the next one fails with TooSlow."""

LIMIT_NEWEST = 1024
"""Events kept in memory for those who follow closely."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What became of a commit: the stored event, or None when `decide` had nothing to write."""

    event: Event | None
    is_repeat: bool = False
    """True when the request key, or the sender and id, were there before: `event` is the first one."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What archiving came to."""

    count: int
    """Events that left the log."""
    last: int
    """The highest place that is archived; 0 when there is none."""
    path: Path | None = None
    """The new file, where the engine writes one and there was something to archive."""
    unredacted: Mapping[int, str] = field(default_factory=dict)
    """Events whose text could not be removed as ordered, with the reason; the broker fills it in."""


@dataclass(frozen=True, slots=True)
class BlobCount:
    """How many contents lie beside the log, and which of them are gone or are not what they were."""

    count: int
    lost: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Containing:
    """Events that were found by a piece of their payload."""

    events: Sequence[Event]
    unreadable: Sequence[str] = ()
    """Archive files in which some lines could not be searched."""


@dataclass(frozen=True, slots=True)
class ArchivedPage:
    """What was found in archives, and the place up to which they were looked through."""

    events: Sequence[Event]
    place: int


class Log(Protocol):
    """The truth. One process writes; order is the place and nothing else.

    Places rise strictly and may have gaps, and none is used twice. All methods belong to the event loop's
    thread.
    """

    @property
    def device(self) -> str:
        """The id of this home, drawn once and kept."""
        ...

    @property
    def rows(self) -> Rows:
        """The folded rows as this process reads them: every commit that has returned is in them."""
        ...

    async def commit(self, key: str | None, decide: Decide, *, request_key: bytes | None = None) -> Commit:
        """Write at most one event, and return once it is durable and this process reads it.

        `key` is the one thing the decision is about (`agent/luna`); `decide` sees everything already on it,
        and may be called again, also in another thread. Messages and the like have no key. A request key
        seen before, or a sender and id seen before, gives the first event again; for a known request key
        `decide` is not called.

        A draft whose type, id or sender is empty is refused with BadRequest: no reader could read it back.
        What `decide` raises is raised here and nothing is written; neither is anything after DiskFull,
        StorageFailed or ShuttingDown. One bad draft never harms those beside it. A caller that is cancelled
        does not know whether its event was written: the same request key tells.
        """
        ...

    def last(self) -> int:
        """The place of the newest event that commits have returned; 0 when there is none."""
        ...

    def largest_id(self) -> str:
        """The largest ULID in the log, for the generator to start above; empty when there is none."""
        ...

    def event(self, seq: int) -> Event | None:
        """The event in a place, or None, also when it is archived and its file is lost."""
        ...

    def recall(self, seq: int) -> Event | None:
        """The event in a place, or None; for somebody who asks for this very event.

        Raises StorageFailed when it is archived and its file is lost, and so does `find`.
        """
        ...

    async def fetch(self, seq: int) -> Event | None:
        """Return what `recall` returns, but read it in a thread: for an event that may be large."""
        ...

    def find(self, id_or_end: str) -> list[Event]:
        """Events with this id or, when there is none, whose id ends so (four characters or more, any case).

        Newest first, at most five: more than one says that the end is not unique.
        """
        ...

    async def read(self, query: Query) -> list[Event]:
        """Return what matches, in place order: the first `limit`, or with `last` the newest so many.

        Raises BadQuery for a search or WHERE clause that cannot be used and TooSlow for one that takes too
        long. Nothing stays open afterwards, and the event loop runs on meanwhile.
        """
        ...

    def subscribe(self, hear: Hear) -> Callable[[], None]:
        """Call `hear` with each batch of new events, and return what ends that.

        Batches come in place order, each event once, after it is durable and before its commit returns.
        """
        ...

    def tail(self, after: int, limit: int) -> list[Event] | None:
        """Return up to `limit` events behind a place; None when memory does not reach back so far."""
        ...

    async def rebuild(self) -> int:
        """Make all rows anew, from archives and log, and return how many events that took.

        Commits wait meanwhile. Raises StorageFailed, and changes nothing, when an archive is damaged or gone.
        """
        ...

    async def archive(self, before: int) -> Archived:
        """Move the events below a place into an archive.

        Their rows stay, their places stay taken, and `event`, `find` and a commit with the same request key,
        or sender and id, still find them; `read` and `follow` do not. An event is in the archive before it
        leaves the log: whatever fails or is cancelled loses nothing, and archiving once more ends the job.
        Commits go on meanwhile.
        """
        ...

    def archived(self) -> int:
        """The highest place that is archived; 0 when there is none."""
        ...

    async def read_archived(self, query: Query) -> ArchivedPage:
        """Look through archives for what matches behind `query.after`, a bounded way; see `pages`.

        Raises BadQuery for an SQL condition, and StorageFailed when an archive is damaged or gone.
        """
        ...

    async def redact(self, seqs: Sequence[int], scrub: Scrub) -> int:
        """Replace events by what `scrub` makes of them, wherever they are stored; return how many there were.

        Only payloads change, and no row that the fold made. On return the old payloads are in no file of the
        log, its index or its archives. Commits wait meanwhile. A call that failed can be repeated. Raises
        StorageFailed when an archive may hold one of them in a line that cannot be read.
        """
        ...

    def redacted(self) -> int:
        """The place of the last record of a removal that is finished, as are all before it; 0 at first."""
        ...

    def unfinished_redactions(self) -> Sequence[int]:
        """Return the seqs of events that `mark_redacted` left out."""
        ...

    async def mark_redacted(self, seq: int, unfinished: Sequence[int] = ()) -> None:
        """Keep that all removals are finished that are recorded up to a place; it never goes back.

        Except those of the events `unfinished`, which replace the ones that were given before.
        """
        ...

    async def find_containing(self, pieces: Sequence[str]) -> Containing:
        """Return the events, archived or not, whose payload contains one of some pieces of JSON, in order.

        At most ten thousand of them. The event loop runs on meanwhile. Lines of archives that cannot be read
        are skipped.
        """
        ...

    async def check_archives(self) -> int:
        """Read all archives through, and return how many events they hold.

        Raises StorageFailed when an archive is damaged, or gone with events that have left the log.
        """
        ...

    async def check_blobs(self) -> BlobCount:
        """Read through all that lies beside the log because it is too large for it."""
        ...

    async def check_storage(self) -> Sequence[str]:
        """Read the whole storage through; a sentence for each kind of damage and for events that are missing.

        Takes long for a large log; the event loop runs on meanwhile.
        """
        ...

    async def count_unreadable(self) -> int:
        """Return how many events of the log cannot be read back. Every other method skips them."""
        ...

    async def close(self) -> None:
        """Write what waits, and end. What comes later fails with ShuttingDown. Closing twice is harmless."""
        ...
