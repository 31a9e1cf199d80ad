"""The writer's thread: batches, drafts that break them, and work between them."""

import asyncio
import math
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.limits import LIMIT_S
from tests.log.logs import AtOnce, begun, draft, fold, put, writes

from palaver.clock import SystemClock
from palaver.errors import BadRequest, StorageFailed, TooSlow
from palaver.log import writer
from palaver.log import writer as upkeep
from palaver.log.api import Commit
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME
from palaver.log.writer import Upkeep
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.query import Query
from palaver.state.rows import Rows


class Gate:
    """A decision that blocks until the test opens it: meanwhile other commits queue up."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self, rows: Rows) -> Draft | None:
        self.is_reached.set()
        assert self._opened.wait(LIMIT_S)
        return None

    def open(self) -> None:
        self._opened.set()


async def held(log: SqliteLog) -> tuple[Gate, "asyncio.Task[Commit]"]:
    """Keep the writer busy; later commits wait in the queue."""
    gate = Gate()
    task = asyncio.ensure_future(log.commit(None, gate))
    await asyncio.to_thread(gate.is_reached.wait, LIMIT_S)
    return gate, task


async def test_all_waiting_commits_are_one_batch(sqlite_log: SqliteLog) -> None:
    batches: list[int] = []
    sqlite_log.subscribe(lambda events: batches.append(len(events)))
    gate, task = await held(sqlite_log)
    commits = [asyncio.ensure_future(put(sqlite_log)) for _ in range(100)]
    await begun()

    gate.open()
    await asyncio.gather(task, *commits)

    assert batches == [100]


async def test_very_long_queue_is_several_batches(
    sqlite_log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_LIMIT_BATCH", 40)
    batches: list[int] = []
    sqlite_log.subscribe(lambda events: batches.append(len(events)))
    gate, task = await held(sqlite_log)
    commits = [asyncio.ensure_future(put(sqlite_log)) for _ in range(100)]
    await begun()

    gate.open()
    await asyncio.gather(task, *commits)

    assert batches == [40, 40, 20]


async def test_commit_over_the_queue_limit_is_refused(
    sqlite_log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LIMIT_WAITING", 11)  # the commit that is being made counts too
    gate, task = await held(sqlite_log)
    commits = [asyncio.ensure_future(put(sqlite_log)) for _ in range(11)]
    await begun()

    gate.open()
    results = await asyncio.gather(*commits, return_exceptions=True)
    await task

    assert [isinstance(result, TooSlow) for result in results] == [False] * 10 + [True]


def _with(**fields: object) -> Draft:
    return replace(draft(), **fields)


@pytest.mark.parametrize(
    "bad",
    [
        _with(ts=2**70),
        _with(sender="\ud800"),
        _with(type=None),
        _with(sender=object()),
        _with(to=("\ud800",)),
    ],
    ids=["time", "half a character", "type", "sender", "recipient"],
)
async def test_draft_that_breaks_the_batch_fails_alone(sqlite_log: SqliteLog, bad: Draft) -> None:
    gate, task = await held(sqlite_log)
    good = [asyncio.ensure_future(put(sqlite_log, f"good {number}")) for number in range(5)]
    spoiled = asyncio.ensure_future(sqlite_log.commit(None, writes(bad)))
    late = asyncio.ensure_future(put(sqlite_log, "late"))
    await begun()

    gate.open()
    results = await asyncio.gather(task, *good, spoiled, late, return_exceptions=True)

    events = [result for result in results if isinstance(result, Event)]
    assert len(events) == 6
    assert isinstance(results[6], BadRequest)
    assert await sqlite_log.read(Query()) == events
    assert sqlite_log.rows.get("count", "message") == b"6"


async def test_commits_made_together_are_stored_whole_or_not_at_all(sqlite_log: SqliteLog) -> None:
    gate, task = await held(sqlite_log)
    orders = [(None, writes(one)) for one in (draft("first"), _with(ts=2**70), draft("last"))]
    together = asyncio.ensure_future(sqlite_log.commit_all(orders))
    good = asyncio.ensure_future(put(sqlite_log, "good"))
    await begun()

    gate.open()
    await task
    outcomes = await together

    assert [type(outcome) for outcome in outcomes] == [BadRequest] * 3
    assert await sqlite_log.read(Query()) == [await good]
    assert sqlite_log.rows.get("count", "message") == b"1"


async def test_draft_that_cannot_be_stored_is_refused(sqlite_log: SqliteLog) -> None:
    with pytest.raises(BadRequest, match="cannot be stored"):
        await sqlite_log.commit(None, writes(_with(ts=2**70)))

    assert (await put(sqlite_log)).seq == 1


async def test_decision_that_raises_system_exit_does_not_end_the_thread(sqlite_log: SqliteLog) -> None:
    def leave(rows: Rows) -> Draft:
        raise SystemExit

    with pytest.raises(BadRequest):
        await sqlite_log.commit(None, leave)

    assert (await put(sqlite_log)).seq == 1


async def test_checkpoint_runs_in_a_pause(
    sqlite_log: SqliteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_IDLE_S", 0.01)
    is_done = threading.Event()
    checkpoint = Upkeep.checkpoint

    def watched(self: Upkeep) -> None:
        checkpoint(self)
        is_done.set()

    monkeypatch.setattr(Upkeep, "checkpoint", watched)
    before = (tmp_path / FILE_NAME).stat().st_size

    await asyncio.gather(*(put(sqlite_log, "x" * 1000) for _ in range(600)))
    await asyncio.to_thread(is_done.wait, LIMIT_S)

    assert (tmp_path / FILE_NAME).stat().st_size > before


async def test_long_journal_is_checkpointed_without_a_pause(
    sqlite_log: SqliteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_PAGES_AT_MOST", 10)
    path = tmp_path / FILE_NAME
    before = path.stat().st_size

    await put(sqlite_log, "x" * 50_000)
    await put(sqlite_log)

    assert path.stat().st_size > before


async def test_reader_that_blocks_a_checkpoint_causes_no_damage(
    sqlite_log: SqliteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_PAGES_AT_MOST", 10)
    await put(sqlite_log)
    reader = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchall()

    events = [await put(sqlite_log) for _ in range(5)]
    reader.close()

    assert await sqlite_log.read(Query(last=5)) == events


async def test_failed_rebuild_leaves_the_rows_unchanged(tmp_path: Path) -> None:
    is_broken = False

    def apply(rows: Rows, event: Event) -> object:
        if is_broken:
            raise ZeroDivisionError
        return fold(rows, event)

    log = await SqliteLog.open(tmp_path, apply=apply, clock=SystemClock())  # type: ignore[arg-type]  # as the fold
    await put(log)
    is_broken = True

    with pytest.raises(BadRequest):
        await log.rebuild()

    assert log.rows.get("count", "message") == b"1"
    is_broken = False
    assert await log.rebuild() == 1
    await log.close()


async def test_other_program_that_locks_the_file_is_reported(sqlite_log: SqliteLog, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    sqlite_log._writer._connection.execute("PRAGMA busy_timeout = 10")
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StorageFailed, match="locked"):
        await put(sqlite_log)

    other.execute("ROLLBACK")
    other.close()
    assert (await put(sqlite_log)).seq == 1


def test_loop_that_ends_without_closing_is_not_waited_for(tmp_path: Path) -> None:
    gate = Gate()

    async def begin() -> SqliteLog:
        log = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock())
        asyncio.ensure_future(log.commit(None, gate)).add_done_callback(lambda _: None)
        await asyncio.to_thread(gate.is_reached.wait, LIMIT_S)
        return log

    log = asyncio.run(begin())
    gate.open()

    # The writer finds no loop to notify, and continues: the next job is done.
    async def end() -> None:
        async with asyncio.timeout(LIMIT_S):
            await log.close()

    asyncio.run(end())


async def test_unindexed_words_are_indexed_by_a_search(sqlite_log: SqliteLog) -> None:
    event = await put(sqlite_log, "a rare pomegranate")

    found = await sqlite_log.read(Query(search="pomegranate"))

    assert [one.seq for one in found] == [event.seq]


async def test_closed_log_is_not_indexed(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock())
    await log.close()
    words = log._writer._batches.words
    words.written(3)

    await log._writer.index()

    assert words.unindexed == 3


async def test_too_many_unindexed_words_are_indexed_at_once(
    sqlite_log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LIMIT_UNINDEXED", 3)

    for number in range(8):
        await put(sqlite_log, f"word{number}")

    assert sqlite_log._writer._batches.words.unindexed < 4


async def test_batch_does_not_fill_an_index_that_an_upgrade_has_emptied(
    sqlite_log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = [draft(f"a rare fig {number}") for number in range(40)]

    with monkeypatch.context() as patched:
        patched.setattr(writer, "LIMIT_INDEXED", 0)
        await put(sqlite_log, "a rare pomegranate")
        await sqlite_log.commit_all([(None, writes(one)) for one in drafts])

    assert sqlite_log._writer._batches.words.unindexed == 41
    assert len(await sqlite_log.read(Query(search="rare"))) == 41


async def test_write_ahead_log_is_preallocated_at_the_first_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_IDLE_S", 0.001)
    is_done = threading.Event()
    do_all = Upkeep.do_all

    def watched(self: Upkeep) -> int:
        done = do_all(self)
        is_done.set()
        return done

    monkeypatch.setattr(Upkeep, "do_all", watched)
    log = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock())
    await put(log)

    await asyncio.to_thread(is_done.wait, LIMIT_S)
    is_done.clear()
    await put(log)
    await asyncio.to_thread(is_done.wait, LIMIT_S)

    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size >= upkeep.WAL_BYTES
    assert await log.rebuild() == 2  # with nothing left to do the writer just waits
    assert len(await log.read(Query())) == 2
    await log.close()


@pytest.fixture
async def at_once(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    log = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock(), pace=AtOnce())
    yield log
    await log.close()


async def test_immediate_commit_runs_in_the_callers_thread(at_once: SqliteLog) -> None:
    threads: list[threading.Thread] = []

    def decide(rows: Rows) -> Draft:
        threads.append(threading.current_thread())
        return draft()

    await at_once.commit(None, decide)

    assert threads == [threading.current_thread()]


async def test_large_draft_is_left_to_the_thread(at_once: SqliteLog) -> None:
    threads: list[threading.Thread] = []

    def decide(rows: Rows) -> Draft:
        threads.append(threading.current_thread())
        return draft("x" * 100_000)

    commit = await at_once.commit(None, decide)

    assert commit.event is not None
    assert threads[-1] != threading.current_thread()
    assert await at_once.read(Query()) == [commit.event]


async def test_subscribers_of_an_immediate_commit_are_called_before_it_returns(at_once: SqliteLog) -> None:
    heard: list[Event] = []
    at_once.subscribe(heard.extend)

    event = await put(at_once)

    assert heard == [event]


async def test_task_woken_by_an_immediate_commit_runs_before_it_returns(at_once: SqliteLog) -> None:
    order: list[str] = []
    news = asyncio.Event()
    at_once.subscribe(lambda _: news.set())

    async def receive() -> None:
        await news.wait()
        order.append("receiver")

    receiver = asyncio.ensure_future(receive())
    await begun()

    await put(at_once)
    order.append("sender")
    await receiver

    assert order == ["receiver", "sender"]


async def test_immediate_repeat_is_not_published_again(at_once: SqliteLog) -> None:
    heard: list[Event] = []
    first = await at_once.commit(None, writes(draft()), request_key=b"k")
    at_once.subscribe(heard.extend)

    again = await at_once.commit(None, writes(draft()), request_key=b"k")

    assert (again.event, again.is_repeat, heard) == (first.event, True, [])


async def test_commit_waits_for_commits_that_are_already_queued(at_once: SqliteLog) -> None:
    at_once._writer._in_use.acquire()
    first = asyncio.ensure_future(put(at_once, "first"))
    await begun()
    at_once._writer._in_use.release()

    second = await put(at_once, "second")

    assert [(await first).seq, second.seq] == [1, 2]


async def test_rows_are_read_after_the_writer_has_closed_its_connection(at_once: SqliteLog) -> None:
    await put(at_once)

    await at_once._writer.close()

    assert at_once.rows.get("count", "message") == b"1"
    assert at_once.rows.scan("count", "") == [("message", b"1")]


async def test_pending_events_are_published_before_those_of_an_immediate_commit(at_once: SqliteLog) -> None:
    seqs: list[int] = []
    at_once.subscribe(lambda events: seqs.extend(event.seq for event in events))
    gate = Gate()
    with at_once._writer._in_use:
        behind_the_gate = asyncio.ensure_future(at_once.commit(None, gate))
        first = asyncio.ensure_future(put(at_once, "first"))
        await begun()
    await asyncio.to_thread(gate.is_reached.wait, LIMIT_S)
    gate.open()

    await asyncio.gather(behind_the_gate, first, put(at_once, "second"))

    assert seqs == [1, 2]


async def test_refusal_of_an_immediate_commit_affects_only_its_caller(at_once: SqliteLog) -> None:
    def refuse(rows: Rows) -> Draft:
        raise TooSlow("no")

    with pytest.raises(TooSlow):
        await at_once.commit(None, refuse)
    with pytest.raises(BadRequest, match="cannot be stored"):
        await at_once.commit(None, writes(_with(ts=2**70)))

    assert (await put(at_once)).seq == 1


async def test_event_loop_does_not_wait_for_another_program_that_locks_the_file(
    at_once: SqliteLog, tmp_path: Path
) -> None:
    await put(at_once)
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    waiting = asyncio.ensure_future(put(at_once))
    await begun()
    other.execute("ROLLBACK")
    other.close()

    assert (await waiting).seq == 2


async def test_deferred_work_runs_in_the_pause_after_immediate_commits(
    at_once: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_IDLE_S", 0.01)
    is_done = threading.Event()
    do_all = Upkeep.do_all

    def watched(self: Upkeep) -> int:
        done = do_all(self)
        is_done.set()
        return done

    monkeypatch.setattr(Upkeep, "do_all", watched)
    await put(at_once, "a rare pomegranate")
    pace = at_once._writer._pace
    ended_s, pace.ended_s = pace.ended_s, math.inf
    at_once._writer._nudge_thread()  # there is no pause during commits, so it tries again
    pace.ended_s = ended_s

    await asyncio.to_thread(is_done.wait, LIMIT_S)

    assert at_once._writer._batches.words.unindexed == 0


async def test_urgent_work_is_done_by_the_thread(at_once: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LIMIT_UNINDEXED", 3)

    for number in range(8):
        await put(at_once, f"word{number}")

    assert at_once._writer._batches.words.unindexed <= 4  # the thread writes one, and then handles the rest
