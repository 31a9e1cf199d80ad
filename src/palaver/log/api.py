"""The contract of every log. The engines are in the other modules of this package; this one has no logic.

A log stores events in seq order and, with them, the rows that one fold derives from them. The engine receives
the fold when it is opened and only stores its results.
"""

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import msgspec

from palaver.protocol.envelope import Draft, Event
from palaver.protocol.query import Query
from palaver.state.rows import Change, Rows

Decide: TypeAlias = Callable[[Rows], Draft | None]
"""Makes a draft; None writes nothing, a PalaverError refuses.

Pure, because it may be called again, and in another thread than the event loop's.
"""

Order: TypeAlias = tuple[str | None, Decide]
"""One of several commits that are made together: the key of its decision, and the decision."""

Apply: TypeAlias = Callable[[Rows, Event], Sequence[Change]]
"""The fold: the changes of an event.

Pure, so that a rebuild gives the same rows. Total, because an event that makes it fail could not be stored.
"""

Scrub: TypeAlias = Callable[[Event], Event]
"""Makes an event without its text: only the payload may differ.

Must be idempotent, because a removal that was interrupted is repeated, and then meets events that are done.
"""


class EventKind(enum.Enum):
    """Kinds of events that a handler can ask for in addition to single types."""

    ANY = "any"
    DELIVERED = "delivered"
    """Events of any type that have recipients, such as envelopes of other programs."""
    IN_ROOM = "in_room"
    """Events that are about a room, and messages to one."""
    EXPECTS_REPLY = "expects_reply"
    """Messages whose recipients are reminded until they reply."""


EventKey: TypeAlias = str | EventKind
"""A key of the table of handlers: an event type, or a kind of event."""

ANY_EVENT: Final = frozenset({EventKind.ANY})

Hear: TypeAlias = Callable[[Sequence[Event]], None]
"""Receives new events, in seq order, on the event loop. Must not raise and must not wait.

The commit has not returned yet: the time of each handler is added to the time of every send.
"""

LIMIT_WAITING = 100_000
"""Commits that may wait for the writer or be made by it; the next one fails with TooSlow.

Without a limit, senders on a disk that hangs would fill the memory.
"""

LIMIT_NEWEST = 1024
"""Events kept in memory for followers that read close to the end; others read from the storage."""


class Commit(msgspec.Struct, frozen=True):
    """The result of a commit: the stored event, or None if `decide` had nothing to write."""

    event: Event | None
    is_repeat: bool = False
    """True if the request key, or the sender and id, are known already: `event` is the first one."""


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of archiving."""

    count: int
    """Events that left the log."""
    last: int
    """The highest archived seq; 0 if nothing is archived."""
    path: Path | None = None
    """The new file, if the engine writes one and there was something to archive."""
    unredacted: Mapping[int, str] = field(default_factory=dict)
    """Events whose text could not be removed as ordered, with the reason; the broker fills it in."""


@dataclass(frozen=True, slots=True)
class BlobCount:
    """The number of contents stored next to the log, and the names of those that are missing or changed."""

    count: int
    lost: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Containing:
    """Events that were found by a fragment of their payload."""

    events: Sequence[Event]
    unreadable: Sequence[str] = ()
    """Archive files in which some lines could not be searched."""


@dataclass(frozen=True, slots=True)
class ArchivedPage:
    """The events found in archives, and the seq up to which the archives were searched."""

    events: Sequence[Event]
    seq: int


class Log(Protocol):
    """The single source of truth. One process writes, and the seq alone defines the order.

    Seqs increase strictly and may have gaps, and none is used twice. All methods belong to the event loop's
    thread.
    """

    @property
    def device(self) -> str:
        """The id of this home, drawn once and kept."""
        ...

    @property
    def rows(self) -> Rows:
        """The folded rows as this process reads them: they include every commit that has returned."""
        ...

    async def commit(self, key: str | None, decide: Decide, *, request_key: bytes | None = None) -> Commit:
        """Write at most one event, and return once it is durable and visible to this process.

        `key` names what the decision is about (`agent/luna`); `decide` sees every event already stored under
        it, and may be called again, also in another thread. Messages and the like have no key. A request key,
        or a sender and id, that is known already returns the first event again; for a known request key
        `decide` is not called.

        A draft whose type, id or sender is empty is refused with BadRequest: no reader could read it back.

        An exception of `decide` is raised here and nothing is written; the same holds for DiskFull,
        StorageFailed and ShuttingDown. A bad draft never affects other commits. A caller that is cancelled
        does not know whether its event was written: a repeat with the same request key returns the outcome.
        """
        ...

    async def commit_all(self, orders: Sequence[Order]) -> list[Commit | Exception]:
        """Make several commits together, in order. Return the result of each, or the exception it raises.

        Each one is refused alone, as with `commit`, but all of them cost little more than one. Each decision
        sees the events of those before it. After a crash, the events of all of them are stored or none is;
        an error of the storage also concerns all of them. Raises ShuttingDown and other refusals that concern
        every commit; then nothing was written.
        """
        ...

    def last(self) -> int:
        """Return the seq of the newest event whose commit has returned; 0 in an empty log."""
        ...

    def largest_id(self) -> str:
        """Return the largest ULID in the log, for the generator to start above; empty in an empty log."""
        ...

    def event(self, seq: int) -> Event | None:
        """Return the event with a seq, or None; None also if it is archived and its file is lost."""
        ...

    def recall(self, seq: int) -> Event | None:
        """Return the event with a seq, or None, for a caller that needs exactly this event.

        Raises StorageFailed if it is archived and its file is lost, as `find` does.
        """
        ...

    async def fetch(self, seq: int) -> Event | None:
        """Return the same as `recall`, but read in a thread: for an event that may be large."""
        ...

    def find(self, id_or_end: str) -> list[Event]:
        """Return events with this id, or else those whose id ends with it (four characters or more).

        Newest first, at most five: more than one means that the end is not unique.
        """
        ...

    async def read(self, query: Query) -> list[Event]:
        """Return matching events in seq order: the first `limit`, or with `last` the newest `last`.

        Raises BadQuery for a search or WHERE clause that cannot be used, TooSlow for one that takes too long,
        and Unavailable if the process of a WHERE clause ends without a result. Nothing stays open afterwards,
        and the event loop is not blocked.
        """
        ...

    def subscribe(self, hear: Hear, types: Collection[EventKey] = ANY_EVENT) -> Callable[[], None]:
        """Call `hear` with the new events of these types. Return a function that ends the subscription.

        Batches come in seq order, each event once, after it is durable and before its commit returns. Within
        a batch, handlers are called in the order in which they were added. Other types cost nothing.
        """
        ...

    def tail(self, after: int, limit: int) -> list[Event] | None:
        """Return up to `limit` events after a seq; None if memory does not reach back far enough."""
        ...

    async def rebuild(self) -> int:
        """Rebuild all rows from archives and log. Return the number of events read.

        Commits wait meanwhile. Raises StorageFailed, and changes nothing, if an archive is damaged or
        missing.
        """
        ...

    async def archive(self, before: int) -> Archived:
        """Move the events below a seq into an archive.

        Their rows stay, their seqs stay used, and `event`, `find` and a commit with the same request key, or
        sender and id, still find them; `read` and `follow` do not. An event is in the archive before it
        leaves the log: a failure or a cancellation loses nothing, and archiving again finishes the job.
        Commits continue meanwhile.
        """
        ...

    def archived(self) -> int:
        """Return the highest archived seq; 0 if nothing is archived."""
        ...

    async def read_archived(self, query: Query) -> ArchivedPage:
        """Search a bounded part of the archives for matches after `query.after`; see `pages`.

        Raises BadQuery for an SQL condition, and StorageFailed if an archive is damaged or missing.
        """
        ...

    async def read_shown(self, query: Query) -> list[Event]:
        """Return messages in the conversations of `query.shown`, archived or not, as `read` returns events.

        The cost depends on the number of returned events, not on the size of the log or of the archives.
        """
        ...

    async def redact(self, seqs: Sequence[int], scrub: Scrub) -> None:
        """Replace events with the result of `scrub`, wherever they are stored. Missing ones are ignored.

        Only payloads change, and no row that the fold made. On return the old payloads are in no file of the
        log, its index or its archives. Commits wait meanwhile. A failed call can be repeated. Raises
        StorageFailed if an archive may contain one of them in an unreadable line.
        """
        ...

    def redacted(self) -> int:
        """Return the seq up to which all recorded redactions are finished; 0 at first."""
        ...

    def unfinished_redactions(self) -> Sequence[int]:
        """Return the seqs of events that `mark_redacted` left out."""
        ...

    async def mark_redacted(self, seq: int, unfinished: Sequence[int] = ()) -> None:
        """Record that all redactions recorded up to a seq are finished; the stored seq never decreases.

        Those of the events in `unfinished` are not; the list replaces the stored one.
        """
        ...

    async def find_containing(self, pieces: Sequence[str]) -> Containing:
        """Return the events, archived or not, whose payload contains one of the JSON fragments, in order.

        At most ten thousand of them. The event loop is not blocked. Unreadable lines of archives are skipped.
        """
        ...

    async def check_archives(self) -> int:
        """Read all archives, and return how many events they contain.

        Raises StorageFailed if an archive is damaged, or missing with events that have left the log.
        """
        ...

    async def check_blobs(self) -> BlobCount:
        """Read all contents that are stored next to the log because they are too large for it."""
        ...

    async def check_storage(self) -> Sequence[str]:
        """Read the whole storage; return a sentence for each kind of damage and for missing events.

        Takes long for a large log; the event loop is not blocked.
        """
        ...

    async def count_unreadable(self) -> int:
        """Return how many events of the log cannot be read back. Every other method skips them."""
        ...

    async def close(self) -> None:
        """Write waiting commits, and close. Later calls fail with ShuttingDown. Closing twice is harmless."""
        ...
