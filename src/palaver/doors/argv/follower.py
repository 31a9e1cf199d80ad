"""A follower of the log on a command line: where it begins, which events it skips, and what it has flushed.

A seq counts only after the client has written out everything up to it: the printed cursor and the stored
cursor of a consumer are never ahead of that. A client that never reads delays only itself.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Final

from msgspec.structs import replace

from palaver.doors.argv.call import Call
from palaver.doors.argv.event_line import Skipped, event_line, skipped_line
from palaver.doors.argv.table_log import DEFAULT_BEHIND
from palaver.errors import PalaverError
from palaver.links.consumers import Consumer
from palaver.log.pages import pages, place_before_newest
from palaver.model.envelope import Event
from palaver.model.query import Query

_PAGE: Final = 1000
_LIMIT_WRITE_BYTES: Final = 16 * 1024
"""Events that are available together are written together, up to about this size."""


@asynccontextmanager
async def following(call: Call, query: Query) -> AsyncIterator["Follower"]:
    """Yield a follower; with --consumer take that consumer, and always release it at the end."""
    name = call.parsed.value("--consumer")
    if name is None:
        yield Follower(call, query, None)
        return
    peer = call.connection.peer
    consumer = await call.services.consumers.take(call.caller.name, name, pid=peer.pid)
    try:
        yield Follower(call, query, consumer)
    finally:
        consumer.release()


class Follower:
    """Shows events, and records the seq up to which they are flushed."""

    def __init__(self, call: Call, query: Query, consumer: Consumer | None) -> None:
        self._call = call
        self._log = call.services.log
        self._query = replace(query, last=None)
        self._consumer = consumer
        self._failure: PalaverError | None = None
        self.flushed_place: int | None = None
        """The seq up to which everything was written out; None before `begin`."""
        self.is_resumed = False
        """The client had lost the daemon and has reconnected."""

    async def begin(self) -> int:
        """Return the seq to follow from, after showing which earlier events are skipped."""
        place, most = await self._start()
        if self._consumer is not None:
            await self._consumer.begin(place)
        elif not self.is_resumed:
            place = max(place, self._log.archived())  # Only a consumer can have missed archived events.
        self.flushed_place = place
        if most is not None and (skipped := await self._behind(place, most)) is not None:
            place = skipped.before - 1
            await self._write(skipped_line(self._call, skipped), place)
        elif not self.is_resumed:
            await self._write(b"", place)  # A token to resume from, even if nothing is shown.
        return place

    async def show(self, events: Iterable[Event], last_token: bytes = b"") -> None:
        """Write events, the available ones together in one write. Waits while the client does not read."""
        lines, size, place = [], 0, None
        for event in events:
            if place is not None and size >= _LIMIT_WRITE_BYTES:
                await self._write(b"".join(lines), place)
                lines, size = [], 0
            line = event_line(self._call, event)
            lines.append(line)
            size += len(line)
            place = event.seq
        if place is not None:
            await self._write(b"".join(lines), place, last_token)

    async def flushed(self) -> None:
        """Wait until everything is written out, and raise if a consumer's cursor could not be stored."""
        await self._call.connection.output.flushed()
        self._check()

    async def _start(self) -> tuple[int, int | None]:
        """Return the seq to begin after, and how many events after it are shown at most; None means all."""
        call, parsed, query = self._call, self._call.parsed, self._query
        most, last = parsed.number("--last"), self._log.last()
        if (resumed := _resumed(call)) is not None:
            self.is_resumed = True
            return resumed, None
        if parsed.has("--after"):
            return query.after, most
        kept = None if self._consumer is None else self._consumer.place()
        if kept is not None:
            if kept > last:
                call.warn(f"#{kept} was kept, and the log ends at #{last}: going on from there")
            if most is None and not parsed.has("--all"):
                most = DEFAULT_BEHIND
            return min(kept, last), most
        is_from_now = parsed.has("--wait")  # --wait shows only new events.
        if parsed.has("--all") and not is_from_now:
            return 0, None
        if most is None or is_from_now:
            return last, None
        return await place_before_newest(self._log, query, most), None

    async def _behind(self, place: int, most: int) -> Skipped | None:
        """Return what is skipped if only the `most` newest events after a seq are shown; None for nothing."""
        if most < _PAGE and place >= self._log.archived():
            # The usual case needs one short read, however long the log is.
            asked = replace(self._query, after=place, last=most + 1, limit=most + 1)
            if len(await self._log.read(asked)) <= most:
                return None
        return await self._newest(place, most)

    async def _newest(self, place: int, most: int) -> Skipped | None:
        """Count all matching events after a seq, archived or not. Keeps only seqs in memory."""
        newest: deque[int] = deque(maxlen=most)
        count, end = 0, place
        asked = replace(self._query, after=place, limit=_PAGE)
        async with aclosing(pages(self._log, asked)) as found:
            async for page in found:
                count += len(page)
                newest.extend(event.seq for event in page)
                end = page[-1].seq
        if count <= most:
            return None
        before = newest[0] if newest else end + 1
        is_archived = place < self._log.archived()
        return Skipped(count=count - len(newest), after=place, before=before, is_archived=is_archived)

    async def _write(self, data: bytes, place: int, token: bytes = b"") -> None:
        self._check()
        await self._call.write(data, token or str(place).encode(), flushed=partial(self._flushed, place))

    def _flushed(self, place: int) -> None:
        self.flushed_place = place
        if self._consumer is not None and self._failure is None:
            try:
                self._consumer.keep(place)
            except PalaverError as error:
                self._failure = error  # The next write raises it: this callback has no caller that could.

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _resumed(call: Call) -> int | None:
    """Return the seq after which a reconnected client continues; None for a new client."""
    token = call.asked.resume
    return int(token) if token is not None and token.isdigit() and len(token) <= 15 else None
