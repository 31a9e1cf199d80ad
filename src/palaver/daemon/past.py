"""The process that shows the bus as it was: it folds the log up to a seq and answers questions about it.

python -I -m palaver.daemon.past HOME

The daemon starts it for a question about the past (`services/past.py`, which defines the lines on standard
input and output). It only reads the log, at the lowest priority, and ends with its input. It keeps its state:
the next question about a seq nearby needs a few steps forward or back. It keeps copies of earlier states too,
so that a longer way back does not begin at the first event.
"""

import asyncio
import contextlib
import gc
import os
import resource
import sqlite3
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from palaver.config import Settings, load
from palaver.domain.stick import RoomFacts, Sight, lease_until_ms, policy_from
from palaver.errors import NewerSchema, PalaverError, StorageFailed, TooSlow, Unavailable
from palaver.log.api import ArchivedPage, Log
from palaver.log.archive import ArchiveIndex, Archives, read_mark, read_unfinished
from palaver.log.records import COLUMNS, Blobs, read_indexed, readable_events, searched_text
from palaver.log.search import check_search, in_order, is_found, parse_search
from palaver.log.sql_guard import TIME_LIMIT_S
from palaver.log.sqlite import Reader
from palaver.log.storage import FILE_NAME, MIGRATIONS, LogFiles, connect_reader
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState, PermissionAsked
from palaver.protocol.message import HUMAN
from palaver.protocol.query import Query
from palaver.protocol.views import AnyAsk, AttentionKind, PermissionPage, ViewValue
from palaver.services.past import PastLine, PastReply, decode_past_line, encode_past
from palaver.services.queries import Queries
from palaver.services.view_pages import ViewPages
from palaver.services.view_reader import LogReader
from palaver.state.agents import read_agent, read_agents
from palaver.state.attention import attention_of, beginning_of
from palaver.state.fold import KeptStates, PastState
from palaver.state.rooms import Room
from palaver.state.rows import Rows
from palaver.version import __version__

_LOWEST_PRIORITY: Final = 19
_LIMIT_MEMORY_BYTES: Final = 2 * 1024 * 1024 * 1024
"""Address space. A state that needs more ends this process, and not the daemon or another program."""
LIMIT_FOLD_S: Final = 600.0
"""Seconds that one question may fold. The state is kept, and the same question continues there."""
_REPORT_EVERY_S: Final = 1.0
_EVENTS_AT_ONCE: Final = 500
"""Events between two looks at the input, which may say that the answer is no longer wanted."""
_LIMIT_FOUND: Final = 5
_SHORTEST_END: Final = 4
"""Characters of the end of an id, as for the log: the index on ends has only the last four."""
# asyncio allows only 64 KiB in a line by default.
_LIMIT_LINE_BYTES: Final = 16 * 1024 * 1024
_OBJECTS_BEFORE_COLLECTION: Final = 100_000
"""New objects before garbage in cycles is collected. Nearly all objects of a fold stay, so that more frequent
collections would examine them again and again, and free nothing."""

_SELECT: Final = f"SELECT {COLUMNS} FROM events"  # noqa: S608 - a constant
_BETWEEN: Final = f"{_SELECT} WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT {_EVENTS_AT_ONCE}"
_BY_SEQ: Final = f"{_SELECT} WHERE seq = ?"
_HAS_ID: Final = "id = ?1 AND seq <= ?2 ORDER BY seq DESC LIMIT 5"
# The first condition is the expression of the index `events_by_end`. With the second alone, SQLite would read
# every row.
_HAS_END: Final = (
    "upper(substr(id, -4)) = upper(substr(?1, -4)) AND upper(substr(id, -length(?1))) = upper(?1)"
    " AND seq <= ?2 ORDER BY seq DESC LIMIT 5"
)
_COUNT_ARCHIVED: Final = "SELECT count(*) FROM archived WHERE seq > ? AND seq <= ?"


# --------------------
# The log up to a seq.


class PastLog:
    """The events up to a seq, archived or not, with the reading methods of a log. Writes nothing.

    Events may be archived meanwhile. An event is in its archive before it leaves the log, so the log is
    always read first and the archives are listed after that.
    """

    def __init__(self, home: Path) -> None:
        """Raises NewerSchema, or Unavailable for an older schema, which only the daemon may change."""
        self._state = PastState()
        self._kept = KeptStates()
        self.at = 0
        """The seq that is shown: later events do not exist."""
        path = home / FILE_NAME
        self._archive = home / "archive"
        self._blobs = Blobs(home / "blobs")
        self._connection = connect_reader(path)
        _check_schema(self._connection)
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'device'").fetchone()
        self.device: str = "" if row is None else row[0]
        self._redactions = self._read_redactions()
        files = LogFiles(path)
        # Only the daemon checks whether its files were replaced or cut. In this process, a cut that the
        # daemon itself makes, such as after a redaction, would look like a loss.
        files.close()
        self._reader = Reader(path, self._blobs, files, sql_limit_s=TIME_LIMIT_S)

    @property
    def rows(self) -> Rows:
        return self._state.rows

    @property
    def ts(self) -> int:
        """The time of the newest event that is shown."""
        return self._state.ts

    async def close(self) -> None:
        """Close the files."""
        await self._reader.close()
        self._connection.close()

    # The state at a seq

    @property
    def folded(self) -> int:
        """The seq of the newest folded event."""
        return self._state.seq

    @property
    def kept(self) -> tuple[int, ...]:
        """The seqs of earlier and later states that a fold can begin with."""
        return self._kept.seqs

    def steps_to(self, at: int) -> Generator[None, None, None]:
        """Fold or take back events until the state is that at a seq. Yields after every few of them.

        An abandoned generator leaves a valid state, from which the next one continues.
        """
        if (redactions := self._read_redactions()) != self._redactions:
            self._redactions = redactions
            self._forget()  # A removed text may be in the old rows.
        # A copy is needed if the undo record does not reach back that far, or if a copy is closer than the
        # present state. The present state is kept first: a later question may need it.
        if self._state.oldest > at or any(self._state.seq < seq <= at for seq in self.kept):
            self._kept.keep(self._state)
            self._state = self._kept.before(at)
        while self._state.seq > at:
            self._state.back()
        # Counted before anything is read: these events have left the log, so each of them must come from an
        # archive. Events that are archived from now on may still be read from the log.
        missing: int = self._connection.execute(_COUNT_ARCHIVED, (self._state.seq, at)).fetchone()[0]
        for events, is_archived in self._chunks(self._state.seq, at):
            for event in events:
                self._state.forward(event)
            self._kept.keep(self._state)
            missing -= len(events) if is_archived else 0
            yield
        if missing > 0:
            self._forget()
            raise StorageFailed(
                f"{missing} archived events up to #{at} are not in {self._archive}; restore its files"
            )
        if self._read_redactions() != self._redactions:
            yield from self.steps_to(at)  # A text was removed after it was folded.
        self.at = at

    def _forget(self) -> None:
        self._kept.clear()
        self._state = PastState()

    def _chunks(self, seq: int, at: int) -> Generator[tuple[Sequence[Event], bool], None, None]:
        """Yield the events above a seq and up to another, and whether they come from an archive."""
        while seq < at:
            # In this order: an event that leaves the log after this statement is in an archive by then.
            rows = self._connection.execute(_BETWEEN, (seq, at)).fetchall()
            archives = Archives(self._archive)
            if archives.last() > seq:
                with contextlib.closing(archives.events(seq)) as found:
                    upto = takewhile(lambda event: event.seq <= at, found)
                    while events := list(islice(upto, _EVENTS_AT_ONCE)):
                        yield events, True
                seq = min(archives.last(), at)
            elif rows:
                yield list(readable_events(rows, self._blobs)), False
                seq = rows[-1][0]
            else:
                return

    def _read_redactions(self) -> tuple[int, Sequence[int]]:
        return read_mark(self._connection), read_unfinished(self._connection)

    # The reading methods of a log

    def last(self) -> int:
        return self.at

    def archived(self) -> int:
        return min(Archives(self._archive).last(), self.at)

    def event(self, seq: int) -> Event | None:
        if seq > self.at:
            return None
        rows = self._connection.execute(_BY_SEQ, (seq,)).fetchall()
        return next(readable_events(rows, self._blobs), None) or Archives(self._archive).event(seq)

    def recall(self, seq: int) -> Event | None:
        if seq > self.at:
            return None
        return self.event(seq) or ArchiveIndex(self._connection, Archives(self._archive)).by_seq(seq)

    async def fetch(self, seq: int) -> Event | None:
        return self.recall(seq)

    def find(self, id_or_end: str) -> list[Event]:
        exact = self._with_ids(_HAS_ID, id_or_end)
        if exact or len(id_or_end) < _SHORTEST_END:
            return exact
        return self._with_ids(_HAS_END, id_or_end)

    async def read(self, query: Query) -> list[Event]:
        query = self._bounded(query)
        found = await self._reader.read(query)
        if query.search:
            found += await self._search_unindexed(query)
        return in_order(query, found)

    async def read_shown(self, query: Query) -> list[Event]:
        query = self._bounded(query)
        found = await self._reader.read(query)
        archives = Archives(self._archive)
        if query.after < archives.last():
            found += await self._reader.read_archived_conversations(query, archives)
        return in_order(query, found)

    async def read_archived(self, query: Query) -> ArchivedPage:
        events, seq = Archives(self._archive).look(self._bounded(query))
        return ArchivedPage(events, min(seq, self.at))

    def _bounded(self, query: Query) -> Query:
        end = self.at + 1
        return replace(query, before=end if query.before is None else min(query.before, end))

    def _with_ids(self, condition: str, text: str) -> list[Event]:
        rows = self._connection.execute(f"{_SELECT} WHERE {condition}", (text, self.at)).fetchall()
        seqs = self._connection.execute(
            f"SELECT seq FROM archived WHERE {condition}",  # noqa: S608 - constants
            (text, self.at),
        ).fetchall()
        index = ArchiveIndex(self._connection, Archives(self._archive))
        archived = [event for (seq,) in seqs if (event := index.by_seq(seq)) is not None]
        return [*readable_events(rows, self._blobs), *archived][:_LIMIT_FOUND]

    async def _search_unindexed(self, query: Query) -> list[Event]:
        """Return the matches among the newest events, which the daemon has not indexed yet."""
        check_search(query)
        phrases = parse_search(query.search)
        rest = replace(query, search="", after=max(query.after, read_indexed(self._connection)), last=None)
        found: list[Event] = []
        while some := await self._reader.read(replace(rest, limit=_EVENTS_AT_ONCE)):
            found += [event for event in some if is_found(phrases, searched_text(event.payload))]
            rest = replace(rest, after=some[-1].seq)
        return found


def _check_schema(connection: sqlite3.Connection) -> None:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > len(MIGRATIONS):
        raise NewerSchema(found, len(MIGRATIONS))
    if found < len(MIGRATIONS):
        raise Unavailable("the bus runs an older version than the installed one; run 'pal down' and 'pal up'")


# --------------------
# Facts that are not in the rows, as far as the log tells them.


class PastFacts:
    """The facts of a view of the past. All of them come from the rows and events up to its seq.

    The log has no connections: an agent counts as present from its join until it leaves, and nothing is known
    about lanes and about calls that wait for a stick. The time is that of the newest event.
    """

    def __init__(
        self,
        rows: Rows,
        event: Callable[[int], Event | None],
        *,
        now_ms: int,
        device: str,
        settings: Settings,
    ) -> None:
        self._rows = rows
        self._event = event
        self.now_ms = now_ms
        self.device = device
        self.epoch = f"{device}-past"
        self.version = __version__
        self.stale_after_ms = settings.stale_after_s * 1000
        self.policy = policy_from(settings)

    def is_present(self, name: str) -> bool:
        agent = read_agent(self._rows, name)
        return name == HUMAN if agent is None else not agent.left

    def agents(self) -> Iterable[Agent]:
        return (agent for agent in read_agents(self._rows) if not agent.left)

    def count_agents(self) -> int:
        return len(read_agents(self._rows))

    def text_of(self, seq: int) -> str:
        event = self._event(seq)
        return "" if event is None else beginning_of(event)

    def sender_of(self, seq: int) -> str:
        event = self._event(seq)
        return "" if event is None else event.sender

    def can_answer_permission(self, id: str) -> bool:
        return True  # The fold has ended all others.

    def permission_page(self, id: str) -> PermissionPage | None:
        found = attention_of(self._rows, f"{AttentionKind.PERMISSION}/{id}", self)
        event = None if found is None else self._event(found.seq)
        if found is None or event is None or not isinstance(asked := event.body, PermissionAsked):
            return None
        return PermissionPage(
            seq=event.seq,
            id=id,
            agent=found.who,
            tool=asked.tool,
            text=asked.text,
            input="",  # The log does not keep it.
            digest=asked.digest,
            since=found.since,
            until=found.until,
        )

    def lanes(self, name: str) -> None:
        return None

    def lease_until_ms(self, room: Room) -> int:
        return lease_until_ms(room, self.room(room.id, (room.owner,)), self.policy)

    def room(self, room: str, names: Iterable[str]) -> RoomFacts:
        return RoomFacts(now_ms=self.now_ms, sights={name: self._sight(name) for name in names})

    def _sight(self, name: str) -> Sight:
        agent = read_agent(self._rows, name)
        if agent is None or agent.left:
            return Sight(is_present=self.is_present(name))
        return Sight(is_present=True, is_active=agent.state == AgentState.ACTIVE, seen_ms=agent.since)


# --------------------
# The questions, one after the other.

Answer = Callable[[AnyAsk], Awaitable[msgspec.Struct]]
"""Answers a question with the log at its seq."""


class PastServer:
    """Takes questions in any order of seqs, and answers them in the order in which they came.

    Those about the present seq go first: they take no time.
    """

    def __init__(
        self,
        log: PastLog,
        answer: Answer,
        say: Callable[[PastReply], None],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._answer = answer
        self._say = say
        self._monotonic_s = monotonic_s
        self._questions: dict[int, AnyAsk] = {}
        self._news = asyncio.Event()

    def hear(self, line: PastLine) -> None:
        """Add a question, or drop one whose answer is no longer wanted."""
        if line.ask is None:
            self._questions.pop(line.id, None)
        else:
            self._questions[line.id] = line.ask
            self._news.set()

    async def run(self) -> None:
        """Answer questions until cancelled, or until there is too little memory."""
        while True:
            while self._questions:
                await self._answer_one(*self._next())
            # No await since the last question was seen to be answered, so no new one is overlooked.
            self._news.clear()
            await self._news.wait()

    def _next(self) -> tuple[int, AnyAsk]:
        waiting = list(self._questions.items())
        return next((one for one in waiting if one[1].at == self._log.at), waiting[0])

    async def _answer_one(self, number: int, ask: AnyAsk) -> None:
        try:
            if await self._go_to(number, ask.at):
                page = encode_past(await self._answer(ask))
                self._reply(
                    PastReply(id=number, answer=msgspec.Raw(page), seq=self._log.folded, kept=self._log.kept)
                )
        except PalaverError as error:
            self._refuse(number, error)
        except (sqlite3.Error, OSError) as error:
            self._refuse(number, StorageFailed(f"the log could not be read: {error}"))
        except MemoryError:
            limit_gb = _LIMIT_MEMORY_BYTES / 1024**3
            self._refuse(
                number, Unavailable(f"the state at #{ask.at} needs more than {limit_gb:g} GB of memory")
            )
            raise  # The state may be incomplete.
        except Exception as error:  # A bug: the daemon writes it down, and other questions are answered.
            sentence = f"the bus at #{ask.at} cannot be shown: {type(error).__name__}: {error}"
            self._refuse(number, Unavailable(sentence), trace=traceback.format_exc())

    async def _go_to(self, number: int, at: int) -> bool:
        """Bring the log to a seq, and report the progress. Return False if the answer is no longer wanted."""
        start_s = reported_s = self._monotonic_s()
        with contextlib.closing(self._log.steps_to(at)) as steps:
            for _ in steps:
                await asyncio.sleep(0)  # Read the input: the answer may not be wanted any more.
                if number not in self._questions:
                    return False
                now_s = self._monotonic_s()
                if now_s - start_s > LIMIT_FOLD_S:
                    raise TooSlow(
                        f"the replay reached #{self._log.folded} of #{at} in {LIMIT_FOLD_S:g} s; repeat the "
                        "request to continue there"
                    )
                if now_s - reported_s >= _REPORT_EVERY_S:
                    reported_s = now_s
                    self._say(PastReply(seq=self._log.folded, kept=self._log.kept))
        return True

    def _refuse(self, number: int, error: PalaverError, trace: str = "") -> None:
        self._reply(
            PastReply(
                id=number,
                code=error.code,
                text=str(error),
                details=error.details,
                seq=self._log.folded,
                kept=self._log.kept,
                trace=trace,
            )
        )

    def _reply(self, reply: PastReply) -> None:
        if self._questions.pop(reply.id, None) is not None:
            self._say(reply)


# --------------------
# The process.


async def serve(home: Path, source: asyncio.StreamReader, say: Callable[[PastReply], None]) -> None:
    """Answer the questions on a stream until it ends, or until there is too little memory."""
    try:
        settings = load(home, {}).settings
        log = PastLog(home)
    except (PalaverError, sqlite3.Error, OSError) as error:
        # If this process ended instead, the daemon would take that for a crash and start another one.
        await _refuse_all(source, say, error)
        return
    server = PastServer(log, answers_from(log, settings), say)
    answering = asyncio.create_task(server.run())
    reading = asyncio.create_task(_read_lines(source, server.hear))
    try:
        # Reading ends with the input, when the daemon has ended. Answering ends only without memory.
        await asyncio.wait((answering, reading), return_when=asyncio.FIRST_COMPLETED)
    finally:
        answering.cancel()
        reading.cancel()
        # Their errors are not raised: a lack of memory has been reported as a refusal.
        await asyncio.gather(answering, reading, return_exceptions=True)
        await log.close()


async def _read_lines(source: asyncio.StreamReader, hear: Callable[[PastLine], None]) -> None:
    while line := await source.readline():
        hear(decode_past_line(line))


async def _refuse_all(
    source: asyncio.StreamReader, say: Callable[[PastReply], None], error: Exception
) -> None:
    """Refuse every question because the log cannot be opened."""
    found = error if isinstance(error, PalaverError) else StorageFailed(f"the log cannot be read: {error}")

    def refuse(line: PastLine) -> None:
        say(PastReply(id=line.id, code=found.code, text=str(found), details=found.details))

    await _read_lines(source, refuse)


def answers_from(log: PastLog, settings: Settings) -> Answer:
    """Return a function that answers questions with the log at its seq."""
    queries = Queries(cast("Log", log))  # It calls only the reading methods.

    async def answer(ask: AnyAsk) -> ViewValue:
        facts = PastFacts(log.rows, log.event, now_ms=log.ts, device=log.device, settings=settings)
        return await ViewPages(log.rows, LogReader(queries), facts).answer(ask)

    return answer


async def _main(home: Path) -> None:  # pragma: no cover - runs in the other process
    source = asyncio.StreamReader(limit=_LIMIT_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(source), sys.stdin
    )

    def say(reply: PastReply) -> None:
        sys.stdout.buffer.write(encode_past(reply) + b"\n")
        sys.stdout.buffer.flush()

    await serve(home, source, say)


if __name__ == "__main__":  # pragma: no cover - runs in the other process
    os.nice(_LOWEST_PRIORITY)
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_MEMORY_BYTES, _LIMIT_MEMORY_BYTES))
    # Modules stay as long as the process, so no collection needs to examine them.
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    asyncio.run(_main(Path(sys.argv[1])))
