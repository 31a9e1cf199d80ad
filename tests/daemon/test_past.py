"""The process that shows the past: the log up to a seq, its state, and the order of its questions."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.daemon.past_log import write_random_log
from tests.fakes import HUMAN, open_sqlite, opened_bus

from palaver.broker.context import Sent
from palaver.daemon import past
from palaver.daemon.past import PastLog, PastServer, serve
from palaver.errors import BadQuery, NewerSchema, StorageFailed, Unavailable
from palaver.log.storage import FILE_NAME, MIGRATIONS
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query, conversation_of_pair
from palaver.protocol.requests import Redact
from palaver.protocol.tasks import CreateTask
from palaver.protocol.views import AnyAsk, AskAgents, AskRooms, SeqPage
from palaver.services.past import PastLine, PastReply
from palaver.state.fold import KeptStates, PastState

COUNT = 300


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sequence[Event]]:
    """Return a home with a random log that no test changes, and its events."""
    home = tmp_path_factory.mktemp("home")
    return home, asyncio.run(write_random_log(home, seed=11, count=COUNT))


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[PastLog]:
    log = PastLog(home)
    try:
        yield log
    finally:
        await log.close()


def go(log: PastLog, at: int) -> int:
    """Bring a log to a seq; return the number of pauses on the way."""
    return sum(1 for _ in log.steps_to(at))


def fold(events: Sequence[Event], at: int) -> dict[str, dict[str, bytes]]:
    state = PastState()
    for event in events:
        if event.seq <= at:
            state.forward(event)
    return state.rows.tables()


def rows_of(log: PastLog) -> dict[str, dict[str, bytes]]:
    return log._state.rows.tables()


# The state at a seq


async def test_state_at_random_seqs_equals_a_fold_up_to_there(whole: tuple[Path, Sequence[Event]]) -> None:
    home, events = whole
    draw = random.Random(5)

    async with opened(home) as log:
        for at in [draw.randint(1, COUNT) for _ in range(50)]:
            go(log, at)

            assert (log.last(), log.folded, rows_of(log)) == (at, at, fold(events, at))
            assert log.ts == events[at - 1].ts


async def test_small_steps_fold_single_events(
    whole: tuple[Path, Sequence[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[int] = []
    forward = PastState.forward

    def count(self: PastState, event: Event) -> None:
        folded.append(event.seq)
        forward(self, event)

    monkeypatch.setattr(PastState, "forward", count)

    async with opened(whole[0]) as log:
        for at in (200, 201, 202, 201, 200, 199, 200):
            go(log, at)

    assert folded == [*range(1, 201), 201, 202, 200]


async def test_longer_way_back_than_the_undo_record_folds_again(
    whole: tuple[Path, Sequence[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, events = whole
    monkeypatch.setattr(past, "PastState", lambda: PastState(limit_undo=10))

    async with opened(home) as log:
        for at in (250, 245, 100, 240):
            go(log, at)
            assert rows_of(log) == fold(events, at)


async def test_long_ways_begin_at_a_kept_state(
    whole: tuple[Path, Sequence[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, events = whole
    monkeypatch.setattr(past, "PastState", lambda: PastState(limit_undo=10))
    monkeypatch.setattr(past, "KeptStates", lambda: KeptStates(every=50))
    monkeypatch.setattr(past, "_BETWEEN", past._BETWEEN.replace(f"LIMIT {past._EVENTS_AT_ONCE}", "LIMIT 25"))

    async with opened(home) as log:
        go(log, 290)
        assert log.kept == (50, 100, 150, 200, 250)
        for at, pauses in ((120, 1), (240, 2), (149, 2), (290, 2), (20, 1)):
            assert go(log, at) == pauses
            assert (rows_of(log), log.ts) == (fold(events, at), events[at - 1].ts)


async def test_abandoned_way_is_continued(
    whole: tuple[Path, Sequence[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, events = whole
    monkeypatch.setattr(past, "_BETWEEN", past._BETWEEN.replace(f"LIMIT {past._EVENTS_AT_ONCE}", "LIMIT 10"))

    async with opened(home) as log:
        steps = log.steps_to(200)
        next(steps)
        steps.close()
        assert log.folded == 10
        go(log, 5)
        assert rows_of(log) == fold(events, 5)
        assert go(log, 200) == 20
        assert rows_of(log) == fold(events, 200)


async def test_unreadable_event_is_left_out(tmp_path: Path) -> None:
    events = await write_random_log(tmp_path, seed=2, count=60)
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("UPDATE events SET payload = '{' WHERE seq = 40")

    async with opened(tmp_path) as log:
        go(log, 40)
        assert (log.last(), log.folded, log.event(40)) == (40, 39, None)
        go(log, 50)
        assert rows_of(log) == fold([event for event in events if event.seq != 40], 50)


# Archives


async def archive(home: Path, before: int) -> None:
    log = await open_sqlite(home)
    await log.archive(before)
    await log.close()


async def test_archived_events_are_folded_and_read(tmp_path: Path) -> None:
    events = await write_random_log(tmp_path, seed=3, count=200)
    await archive(tmp_path, 50)
    await archive(tmp_path, 120)

    async with opened(tmp_path) as log:
        for at in (200, 119, 49, 20, 130, 50):
            go(log, at)
            assert rows_of(log) == fold(events, at)
            assert log.event(30) == (events[29] if at >= 30 else None)
            assert log.archived() == min(at, 119)
            assert log.recall(at) == await log.fetch(at) == events[at - 1]
            assert log.find(events[at - 1].id) == [events[at - 1]]
            assert at == 200 or log.find(events[at].id) == []


async def test_log_that_is_archived_meanwhile_is_complete(tmp_path: Path) -> None:
    events = await write_random_log(tmp_path, seed=4, count=200)

    async with opened(tmp_path) as log:
        go(log, 60)
        await archive(tmp_path, 150)
        for at in (100, 149, 150, 200, 10):
            go(log, at)
            assert rows_of(log) == fold(events, at)


async def test_log_that_is_archived_during_the_fold_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = await write_random_log(tmp_path, seed=4, count=200)
    monkeypatch.setattr(past, "_BETWEEN", past._BETWEEN.replace(f"LIMIT {past._EVENTS_AT_ONCE}", "LIMIT 10"))

    async with opened(tmp_path) as log:
        steps = log.steps_to(190)
        next(steps)
        await archive(tmp_path, 100)
        for _ in steps:
            pass

        assert rows_of(log) == fold(events, 190)


async def test_lost_archive_is_an_error_and_not_a_wrong_state(tmp_path: Path) -> None:
    events = await write_random_log(tmp_path, seed=5, count=120)
    await archive(tmp_path, 80)
    (file,) = (tmp_path / "archive").iterdir()
    kept = file.read_bytes()
    file.unlink()

    async with opened(tmp_path) as log:
        with pytest.raises(StorageFailed, match="79 archived events up to #100 are not in"):
            go(log, 100)
        log.at = 100
        with pytest.raises(StorageFailed, match="event #70 is archived"):
            log.recall(70)
        file.write_bytes(kept)
        go(log, 100)
        assert rows_of(log) == fold(events, 100)


async def test_damaged_archive_is_an_error(tmp_path: Path) -> None:
    await write_random_log(tmp_path, seed=5, count=120)
    await archive(tmp_path, 80)
    (file,) = (tmp_path / "archive").iterdir()
    file.write_bytes(file.read_bytes()[:-40] + b"\n")

    async with opened(tmp_path) as log:
        with pytest.raises(StorageFailed, match="cannot be read"):
            go(log, 100)


# Reading


async def test_later_events_are_not_found(whole: tuple[Path, Sequence[Event]]) -> None:
    home, events = whole
    later = events[200]

    async with opened(home) as log:
        go(log, 200)

        assert (log.event(201), log.recall(201), await log.fetch(201)) == (None, None, None)
        assert log.find(later.id) == []
        assert log.find(later.id.lower()) == []
        assert log.find(events[150].id.lower()) == [events[150]]
        assert log.find("x") == []
        assert await log.read(Query(limit=1000)) == events[:200]
        assert await log.read(Query(last=3)) == events[197:200]
        assert await log.read(Query(last=2, before=100)) == events[97:99]
        assert await log.read(Query(after=199, before=900)) == events[199:200]


async def test_search_finds_events_that_are_not_indexed_yet(tmp_path: Path) -> None:
    async with opened_bus(open_sqlite, tmp_path) as bus:
        nova = await bus.join("nova")
        found = [await bus.send(nova, f"apple {number}", "@human") for number in range(3)]
        await bus.log.read(Query(search="apple"))  # The daemon indexes all events now.
        found += [await bus.send(nova, f"apple {number}", "@human") for number in range(3)]
        await bus.send(nova, "pear", "@human")
        last = await bus.send(nova, "apple at the end", "@human")

        async with opened(tmp_path) as log:
            go(log, last.seq - 1)
            assert await log.read(Query(search="apple")) == found
            assert await log.read(Query(search="apple", last=4)) == found[-4:]
            assert await log.read(Query(search="apple", limit=2, after=found[2].seq)) == found[3:5]
            with pytest.raises(BadQuery):
                await log.read(Query(search="?"))


async def test_conversations_are_read_with_their_archived_messages(tmp_path: Path) -> None:
    async with opened_bus(open_sqlite, tmp_path) as bus:
        nova = await bus.join("nova")
        found = [await bus.send(nova, f"apple {number}", "@human") for number in range(6)]
        await bus.log.archive(found[3].seq)
    query = Query(shown=(conversation_of_pair("nova", "human"),), last=4)

    async with opened(tmp_path) as log:
        go(log, found[4].seq)
        assert await log.read_shown(query) == found[1:5]
        assert (await log.read_archived(Query(types=("message",)))).events == found[:3]
        go(log, found[1].seq)
        assert await log.read_shown(query) == found[:2]
        page = await log.read_archived(Query(types=("message",)))
        assert (page.events, page.seq) == (found[:2], found[1].seq)


async def test_removed_text_does_not_stay_in_the_state(tmp_path: Path) -> None:
    async with opened_bus(open_sqlite, tmp_path) as bus:
        nova = await bus.join("nova")
        sent = await bus.send(nova, "the password is apple7", "@human")
        async with opened(tmp_path) as log:
            go(log, sent.seq)
            before = log._state
            go(log, sent.seq)
            assert log._state is before

            await bus.broker.submit(HUMAN, Redact(event=str(sent.seq), hash="scrypt$1"))
            go(log, sent.seq)

            assert log._state is not before
            assert "apple7" not in repr((rows_of(log), log.event(sent.seq)))


async def test_text_that_is_removed_during_a_fold_is_not_in_the_state(tmp_path: Path) -> None:
    async with opened_bus(open_sqlite, tmp_path) as bus:
        nova = await bus.join("nova")
        made = await bus.broker.submit(nova, CreateTask(to=("@nova",), title="the password is apple7"))
        assert isinstance(made, Sent)
        assert made.event is not None
        async with opened(tmp_path) as log:
            steps = log.steps_to(made.event.seq)
            next(steps)
            assert "apple7" in repr(rows_of(log))

            await bus.broker.submit(HUMAN, Redact(event=str(made.event.seq), hash="scrypt$1"))
            for _ in steps:
                pass

            assert "apple7" not in repr(rows_of(log))
            assert log.last() == made.event.seq


# Versions


@pytest.mark.parametrize(
    ("version", "error"), [(len(MIGRATIONS) + 1, NewerSchema), (len(MIGRATIONS) - 1, Unavailable)]
)
async def test_other_schema_is_refused(tmp_path: Path, version: int, error: type[Exception]) -> None:
    await write_random_log(tmp_path, seed=1, count=10)
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"PRAGMA user_version = {version}")

    with pytest.raises(error):
        PastLog(tmp_path)


# Questions


class Asked:
    """A server whose answers name the seq, the replies that it gave, and a clock."""

    def __init__(self, log: PastLog) -> None:
        self.replies: list[PastReply] = []
        self.now_s = 0.0
        self.failure: BaseException | None = None
        self.came = asyncio.Event()
        self.server = PastServer(log, self._answer, self._say, monotonic_s=lambda: self.now_s)
        self._log = log

    async def _answer(self, ask: AnyAsk) -> SeqPage:
        if self.failure is not None:
            raise self.failure
        return SeqPage(seq=self._log.last(), found=len(rows_of(self._log)))

    def _say(self, reply: PastReply) -> None:
        self.replies.append(reply)
        self.came.set()

    def ask(self, number: int, at: int) -> None:
        self.server.hear(PastLine(id=number, ask=AskAgents(at=at)))

    async def run(self, count: int) -> list[PastReply]:
        """Run the server until it has given this many replies."""
        task = asyncio.create_task(self.server.run())
        while len(self.replies) < count and not task.done():
            self.came.clear()
            await asyncio.wait(
                (task, asyncio.create_task(self.came.wait())), return_when=asyncio.FIRST_COMPLETED
            )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return self.replies

    def seqs(self) -> list[tuple[int, int]]:
        return [(one.id, msgspec.json.decode(one.answer, type=SeqPage).seq) for one in self.replies]


async def test_questions_are_answered_in_order_and_those_about_this_seq_first(
    whole: tuple[Path, Sequence[Event]],
) -> None:
    async with opened(whole[0]) as log:
        asked = Asked(log)
        for number, at in enumerate((50, 60, 50, 40), 1):
            asked.ask(number, at)

        await asked.run(4)

        assert asked.seqs() == [(1, 50), (3, 50), (2, 60), (4, 40)]


async def test_question_that_is_no_longer_wanted_is_dropped(whole: tuple[Path, Sequence[Event]]) -> None:
    async with opened(whole[0]) as log:
        asked = Asked(log)
        asked.ask(1, 50)
        asked.ask(2, 60)
        asked.server.hear(PastLine(id=1))
        asked.server.hear(PastLine(id=9))

        await asked.run(1)

        assert asked.seqs() == [(2, 60)]


async def test_fold_stops_when_its_answer_is_no_longer_wanted(
    whole: tuple[Path, Sequence[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "_BETWEEN", past._BETWEEN.replace(f"LIMIT {past._EVENTS_AT_ONCE}", "LIMIT 10"))
    async with opened(whole[0]) as log:
        asked = Asked(log)
        asked.ask(1, 300)
        asyncio.get_running_loop().call_soon(lambda: asked.server.hear(PastLine(id=1)))
        asyncio.get_running_loop().call_soon(asked.ask, 2, 20)

        await asked.run(1)

        assert asked.seqs() == [(2, 20)]
        assert log.folded < 300


async def test_progress_is_reported_once_a_second(
    whole: tuple[Path, Sequence[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "_BETWEEN", past._BETWEEN.replace(f"LIMIT {past._EVENTS_AT_ONCE}", "LIMIT 10"))
    async with opened(whole[0]) as log:
        asked = Asked(log)
        times = iter(range(1000))
        asked.server._monotonic_s = lambda: next(times) / 4
        asked.ask(1, 100)

        *progress, last = await asked.run(3)

        assert [(one.id, one.seq) for one in progress] == [(0, 40), (0, 80)]
        assert (last.id, last.seq) == (1, 100)


async def test_fold_that_takes_too_long_is_refused_and_continued(
    whole: tuple[Path, Sequence[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "_BETWEEN", past._BETWEEN.replace(f"LIMIT {past._EVENTS_AT_ONCE}", "LIMIT 10"))
    async with opened(whole[0]) as log:
        asked = Asked(log)
        times = iter((0.0, 0.1, past.LIMIT_FOLD_S + 1, *[past.LIMIT_FOLD_S + 2] * 90))
        asked.server._monotonic_s = lambda: next(times)
        asked.ask(1, 100)
        asked.ask(2, 100)

        refused, answered = await asked.run(2)

        assert (refused.id, refused.code, refused.seq) == (1, "too_slow", 20)
        assert "#20 of #100" in refused.text
        assert (answered.id, answered.code, answered.seq) == (2, "", 100)


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (StorageFailed("the disk is broken"), "storage_failed", "the disk is broken"),
        (sqlite3.DatabaseError("malformed"), "storage_failed", "malformed"),
        (ValueError("a bug"), "unavailable", "ValueError: a bug"),
    ],
)
async def test_failure_is_the_answer_and_later_questions_are_answered(
    whole: tuple[Path, Sequence[Event]], failure: Exception, code: str, words: str
) -> None:
    async with opened(whole[0]) as log:
        asked = Asked(log)
        asked.failure = failure
        asked.ask(1, 50)
        await asked.run(1)
        asked.failure = None
        asked.ask(2, 50)
        await asked.run(2)

        refused, answered = asked.replies
        assert (refused.id, refused.code) == (1, code)
        assert words in refused.text
        assert ("Traceback" in refused.trace) == isinstance(failure, ValueError)
        assert (answered.id, answered.code) == (2, "")


async def test_server_ends_without_memory(whole: tuple[Path, Sequence[Event]]) -> None:
    async with opened(whole[0]) as log:
        asked = Asked(log)
        asked.failure = MemoryError()
        asked.ask(1, 50)

        with pytest.raises(MemoryError):
            await asked.server.run()

        (refused,) = asked.replies
        assert (refused.id, refused.code) == (1, "unavailable")
        assert "needs more than 2 GB of memory" in refused.text


# The stream


async def replies_of(home: Path, *lines: PastLine) -> list[PastReply]:
    """Run the whole program on a stream with these lines."""
    source = asyncio.StreamReader()
    for line in lines:
        source.feed_data(msgspec.json.encode(line) + b"\n")
    replies: list[PastReply] = []

    def say(reply: PastReply) -> None:
        replies.append(reply)
        if len(replies) == len(lines):
            source.feed_eof()

    await serve(home, source, say)
    return replies


async def test_log_that_cannot_be_opened_refuses_every_question(tmp_path: Path) -> None:
    (refused, other) = await replies_of(
        tmp_path, PastLine(id=1, ask=AskRooms(at=4)), PastLine(id=2, ask=AskRooms(at=5))
    )

    assert (refused.id, refused.code, other.id) == (1, "storage_failed", 2)
    assert "cannot be read" in refused.text


async def test_newer_schema_is_reported_with_its_numbers(tmp_path: Path) -> None:
    await write_random_log(tmp_path, seed=1, count=10)
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")

    (refused,) = await replies_of(tmp_path, PastLine(id=1, ask=AskRooms(at=4)))

    assert (refused.code, refused.details) == (
        "newer_schema",
        {"found": len(MIGRATIONS) + 1, "known": len(MIGRATIONS)},
    )
