"""The log and other facts as views read them, and how long answers are built in steps."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from palaver.domain.stick import Policy, RoomFacts
from palaver.errors import StorageFailed
from palaver.protocol.envelope import Event
from palaver.protocol.message import MESSAGE
from palaver.protocol.query import Query
from palaver.protocol.views import PermissionPage
from palaver.services.queries import Queries
from palaver.state.attention import AttentionFacts
from palaver.state.reasons import WaitFacts

STEP: Final = 20
"""Rows that are built before other callers can run: one or two milliseconds of work."""
_ARCHIVED_SEQS: Final = 10_000
"""How far the archives are searched for the newest message of each agent."""
_ARCHIVE_WINDOW: Final = 2000
"""Seqs of an archive that are searched at once, backwards. Doubled after each that has too few."""


async def let_others_run(at: int) -> None:
    """Let other callers run now and then while many rows are built; `at` is the number of this one."""
    # A short list is built without a break, because each one costs a round of the event loop.
    if at and at % STEP == 0:
        await asyncio.sleep(0)


_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


async def in_steps(items: Iterable[_Item], make: Callable[[_Item], _Made]) -> list[_Made]:
    """Return what is made from each item. Other callers can run now and then."""
    found: list[_Made] = []
    for at, item in enumerate(items):
        await let_others_run(at)
        found.append(make(item))
    return found


class ViewReader(Protocol):
    """The log as a view reads it: all events up to `last()`, archived or not."""

    def last(self) -> int:
        """Return the seq of the newest event; 0 in an empty log."""
        ...

    def event(self, seq: int) -> Event | None:
        """Return the event with a seq, or None."""
        ...

    def message(self, reference: str) -> Event:
        """Return a message by its reference. Raises NotFound."""
        ...

    async def read(self, query: Query) -> list[Event]:
        """Return matching events in seq order: the first `limit`, or with `last` the newest `last`."""
        ...

    async def recent(self, query: Query) -> list[Event]:
        """Return the same without archived events: fast, also if nothing matches."""
        ...

    async def archived_by(self, sender: str) -> int:
        """Return the seq of the newest archived message of a sender; 0 if none is after `searched_from`."""
        ...

    @property
    def searched_from(self) -> int:
        """The seq up to which `archived_by` does not look; 0 if it looks at all archived messages."""
        ...

    async def shown(self, query: Query) -> list[Event]:
        """Return messages in the conversations of `query.shown`, as `read` returns events."""
        ...

    async def seq_at(self, ts: int) -> int:
        """Return the seq of the first event from a time on; that after the last one if all are older."""
        ...


class ViewFacts(AttentionFacts, WaitFacts, Protocol):
    """Facts that are not in the rows: time, presence, lanes, waits in rooms, open permission requests."""

    @property
    def epoch(self) -> str:
        """Differs for every start of the daemon."""
        ...

    @property
    def device(self) -> str:
        """The id of this home."""
        ...

    @property
    def version(self) -> str:
        """The version of the daemon."""
        ...

    @property
    def policy(self) -> Policy:
        """The times of rooms and leases."""
        ...

    def count_agents(self) -> int:
        """Return the number of all agents, also of those that have left."""
        ...

    def permission_page(self, id: str) -> PermissionPage | None:
        """Return an open permission request with its whole input, or None. Raises NotFound."""
        ...

    def room(self, room: str, names: Iterable[str]) -> RoomFacts:
        """Return the presence and the waits of some members of a room, by its id."""
        ...


class LogReader:
    """A log as a view reads it: that of the running daemon, or one that ends at an earlier seq."""

    def __init__(self, queries: Queries, *, archived_seqs: int = _ARCHIVED_SEQS) -> None:
        """`archived_seqs`: how far the archives are searched for the newest message of each agent."""
        self._queries = queries
        self._archived_seqs = archived_seqs
        self._archived_at = 0
        self._archived_by: dict[str, int] = {}
        self.last = queries.last
        self.event = queries.event
        self.message = queries.message
        self.shown = queries.shown
        self.seq_at = queries.seq_at

    async def read(self, query: Query) -> list[Event]:
        """Return matching events in seq order, archived or not."""
        if query.last is None:
            return await self._forward(query)
        while True:
            archived = self._queries.archived()
            found = await self._queries.read(replace(query, after=max(query.after, archived)))
            if archived == self._queries.archived():  # Else some may have moved into an archive meanwhile.
                break
        if len(found) < query.last and query.after < archived:
            return [*await self._backward(query, query.last - len(found), archived), *found]
        return found

    async def recent(self, query: Query) -> list[Event]:
        """Return the same without the archives."""
        return await self._queries.read(query)

    @property
    def searched_from(self) -> int:
        """The seq up to which `archived_by` does not look."""
        return max(0, self._archived_end - self._archived_seqs)

    @property
    def _archived_end(self) -> int:
        return min(self._queries.archived(), self.last())

    async def archived_by(self, sender: str) -> int:
        """Return the seq of the newest archived message of a sender; 0 if none is found.

        The archives are read once for all senders, and again when more events were archived.
        """
        # Read once for all senders: a search for each of hundreds of agents would read the archives as often.
        end = self._archived_end
        if end != self._archived_at:
            part = Query(types=(MESSAGE,), after=self.searched_from, before=end + 1, limit=_ARCHIVE_WINDOW)
            found: dict[str, int] = {}
            try:
                async for page in self._queries.pages(part):
                    found |= {event.sender: event.seq for event in page}
            except StorageFailed:  # An archive is lost. Its messages are not shown.
                found = {}
            self._archived_at, self._archived_by = end, found
        return self._archived_by.get(sender, 0)

    async def _forward(self, query: Query) -> list[Event]:
        found: list[Event] = []
        pages: AsyncGenerator[Sequence[Event], None] = self._queries.pages(query)
        async for page in pages:
            found.extend(page)
            if len(found) >= query.limit:
                break
        # After a `break` the generator is still open, and holds its resources until the collector finds it.
        await pages.aclose()
        return found[: query.limit]

    async def _backward(self, query: Query, count: int, archived: int) -> list[Event]:
        """Return the newest `count` matching archived events."""
        found: list[Event] = []
        end = archived + 1 if query.before is None else min(query.before, archived + 1)
        window = _ARCHIVE_WINDOW
        while len(found) < count and end > query.after + 1:
            begin = max(query.after, end - 1 - window)
            part = replace(query, after=begin, before=end, last=None, limit=_ARCHIVE_WINDOW)
            found = [*[event async for page in self._queries.pages(part) for event in page], *found]
            # Doubled, so that a rare match far back does not take thousands of small steps.
            end, window = begin + 1, window * 2
        return found[-count:]
