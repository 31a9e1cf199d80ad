"""A view of the bus for a program of a person: a snapshot, every change, and answers to questions.

It outlives the daemon: after a restart it continues with the events after the last one. It starts a daemon
that has crashed, and waits for one that was stopped with `pal down`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from itertools import count
from typing import Final, TypeVar

import msgspec

from palaver.client.connection import Stream
from palaver.client.start import upgraded_percent
from palaver.client.wire import ReplyLine, Wire, open_wire
from palaver.errors import Disconnected, PalaverError, Unavailable
from palaver.protocol.lines import AckOp, AskOp, NoticeOp, NoticeReply, Op, ViewOp, op_to_json
from palaver.protocol.views import AnyAsk, Changes, Snapshot, ViewValue

_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between two tries to reach the daemon; the last one is repeated."""
_LOOK_S: Final = 0.5
"""Seconds between two looks at a daemon that is away: it may be upgrading its log."""
_LIMIT_WAITING: Final = 100
"""Records that wait here to be taken. At this limit reading pauses, and the daemon keeps the rest."""
_LIMIT_ACKED: Final = 1000
"""Messages that are acknowledged at once."""

T = TypeVar("T", bound=ViewValue)

_decode_snapshot: Final = msgspec.json.Decoder(Snapshot).decode
_decode_changes: Final = msgspec.json.Decoder(Changes).decode
_decode_notice: Final = msgspec.json.Decoder(NoticeReply).decode


class BusAway(msgspec.Struct, frozen=True, kw_only=True):
    """The connection is lost. A snapshot follows once the bus can be reached again."""

    why: str = ""
    upgraded: int | None = None
    """How much of its log a starting daemon has upgraded, in percent; None if it does not do that."""


Record = Snapshot | Changes | BusAway


class ViewLink:
    """One view of the bus of a home. Belongs to one event loop. Close it at the end."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._progress: dict[int, Callable[[int], None]] = {}
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()
        self._was_connected = False
        self._records: Stream[Record] = Stream()
        self._is_paused = False
        self._closing = asyncio.Event()
        self._seq = 0
        self._epoch = ""

    @property
    def is_away(self) -> bool:
        """Whether the bus is not connected now."""
        return self._wire is None

    # The records of the view

    async def records(self) -> AsyncGenerator[Record, None]:
        """Yield a snapshot, then the changes; after a loss `BusAway`, and a snapshot that continues.

        Every event of the log is in one record only. Call it once. Raises Disconnected only if the bus cannot
        be reached at the first try. Ends with `close`.
        """
        wire: Wire | None = await self._connected()
        failures = 0
        while wire is not None:
            failures += 1
            try:
                yield await self._begin(wire)
                async for record in self._taken(wire):
                    failures = 0
                    yield record
                lost: PalaverError = wire.error or Disconnected("the connection to the daemon was lost")
            except Unavailable as error:
                lost = error
            # A closed view ends without a record: its reader asked for the end.
            if not self._closing.is_set():
                yield BusAway(why=str(lost))
            if failures > 1:  # A daemon that answers nothing is not asked again and again.
                await self._pause(_PAUSES_S[min(failures, len(_PAUSES_S)) - 1])
            # A task, so that the progress of an upgrade is read while the connection is awaited.
            returning = asyncio.ensure_future(self._returned(wire))
            try:
                async for percent in self._upgrades(returning):
                    yield BusAway(why=f"the bus is upgrading its log ({percent} %)", upgraded=percent)
                wire = await returning
            finally:
                # The reader may end this generator at the `yield` above.
                returning.cancel()

    async def _upgrades(self, returning: "asyncio.Future[Wire | None]") -> AsyncGenerator[int, None]:
        """Yield how far a daemon is with an upgrade of its log, after each change, until it listens."""
        shown: int | None = None
        while not returning.done():
            await asyncio.wait((returning,), timeout=_LOOK_S)
            percent = None if returning.done() else upgraded_percent(self._home)
            if percent is not None and percent != shown:
                shown = percent
                yield percent

    async def _begin(self, wire: Wire) -> Snapshot:
        """Open the view on a new connection, after the last record of the one before."""
        # Records of the lost connection that were not taken are dropped: the daemon sends them again after
        # `_seq`.
        self._records = Stream()
        self._is_paused = False
        raw = await self._send(wire, ViewOp(after=self._seq, epoch=self._epoch))
        return self._noted(_decode_snapshot(raw))

    async def _taken(self, wire: Wire) -> AsyncGenerator[Record, None]:
        # The seq is that of the last taken record: records that still wait are lost with the connection.
        records = self._records
        async for record in records:
            if isinstance(record, Snapshot):
                self._noted(record)
            elif isinstance(record, Changes):
                self._seq = record.seq
            if self._is_paused and len(records) <= _LIMIT_WAITING // 2:
                self._is_paused = False
                if wire.error is None:  # After a loss the remaining records are still taken here.
                    wire.resume_reading()
            yield record

    def _noted(self, snapshot: Snapshot) -> Snapshot:
        self._seq, self._epoch = snapshot.seq, snapshot.epoch
        return snapshot

    # Questions

    async def ask(
        self, question: AnyAsk, answer: type[T], progress: Callable[[int], None] | None = None
    ) -> T:
        """Return the answer to a question. Raises its refusal, or Disconnected while the bus is away.

        A question about the past of a long log takes a while: `progress` gets the seq that is reached, once a
        second, until it is the seq in question.
        """
        # Only the first question connects. Later ones fail at once, because `records` connects again.
        wire = self._wire if self._was_connected else await self._connected()
        if wire is None:
            raise Disconnected("the bus is not reachable; run 'pal status'")
        raw = await self._send(wire, AskOp(ask=question), progress)
        return msgspec.json.decode(raw, type=answer)

    async def acknowledge(self, seqs: Iterable[int]) -> None:
        """Mark messages to the person as seen. Raises Disconnected while the bus is away."""
        wanted = list(dict.fromkeys(seqs))
        for begin in range(0, len(wanted), _LIMIT_ACKED):
            wire = self._wire if self._was_connected else await self._connected()
            if wire is None:
                raise Disconnected("the bus is not reachable; run 'pal status'")
            messages = tuple(wanted[begin : begin + _LIMIT_ACKED])
            await self._send(wire, AckOp(messages=messages, lane="ui"))

    async def notice(self, key: str, *, is_in_view: bool) -> NoticeReply:
        """Ask whether this view tells the person of something; the reply takes up to a few seconds.

        Raises NotAllowed if the caller is not the person, and Disconnected while the bus is away.
        """
        wire = self._wire if self._was_connected else await self._connected()
        if wire is None:
            raise Disconnected("the bus is not reachable; run 'pal status'")
        return _decode_notice(await self._send(wire, NoticeOp(key=key, is_in_view=is_in_view)))

    async def close(self) -> None:
        """End the view, and every question that waits. Closing twice is harmless."""
        self._closing.set()
        self._records.end()
        if (wire := self._wire) is not None:
            wire.close()
            await wire.wait_closed()

    # The connection

    async def _connected(self) -> Wire:
        # One at a time: `records` and a question would otherwise open one connection each.
        async with self._connecting:
            if self._closing.is_set():
                raise Disconnected("the view was closed")
            if self._wire is None:
                is_returning = self._was_connected
                self._wire = await open_wire(self._home, self._hear, self._lose, is_returning=is_returning)
                self._was_connected = True
                # `close` found no connection to close while this one was opened.
                if self._closing.is_set():
                    self._wire.close()
                    raise Disconnected("the view was closed")
            return self._wire

    async def _returned(self, before: Wire) -> Wire | None:
        """Wait until the bus can be reached again; None if the view was closed meanwhile."""
        if before.error is None:  # A daemon that is stopping closes the connection soon.
            before.close()
        await before.wait_closed()
        tries = 0
        while not self._closing.is_set():
            connecting = asyncio.ensure_future(self._connected())
            closing = asyncio.ensure_future(self._closing.wait())
            try:
                await asyncio.wait((connecting, closing), return_when=asyncio.FIRST_COMPLETED)
                if connecting.done():
                    return connecting.result()
            except Disconnected:
                await self._pause(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
                tries += 1
            finally:
                connecting.cancel()
                closing.cancel()
        return None

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._closing.wait()
        except TimeoutError:
            pass

    async def _send(
        self, wire: Wire, request: Op, progress: Callable[[int], None] | None = None
    ) -> msgspec.Raw:
        number = next(self._numbers)
        line = op_to_json(number, request)
        # On a lost connection this request would wait for a reply that never comes.
        if wire.error is not None:
            raise wire.error
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        if progress is not None:
            self._progress[number] = progress
        wire.write(line)
        try:
            return await answer
        finally:
            del self._calls[number]
            self._progress.pop(number, None)

    def _hear(self, line: ReplyLine) -> None:
        if line.push == "view":
            # A field that is missing in the line has the default, which is the JSON value null.
            is_snapshot = bytes(line.changes) == b"null"
            self._put(_decode_snapshot(line.snapshot) if is_snapshot else _decode_changes(line.changes))
            return
        answer = self._calls.get(line.req)
        if answer is None or answer.done():
            return
        if line.push == "past":
            if (progress := self._progress.get(line.req)) is not None:
                progress(line.seq)
        elif line.error:
            answer.set_exception(line.refusal)
        else:
            answer.set_result(line.ok)

    def _put(self, record: Record) -> None:
        self._records.put(record)
        if len(self._records) >= _LIMIT_WAITING and not self._is_paused and self._wire is not None:
            self._is_paused = True
            self._wire.pause_reading()

    def _lose(self, wire: Wire) -> None:
        # The end of an older connection must not end the calls on the current one.
        if wire is not self._wire:
            return
        self._wire = None
        self._records.end()
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(wire.error or Disconnected("the connection to the daemon was lost"))
