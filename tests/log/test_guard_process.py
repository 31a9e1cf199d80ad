"""SQL of callers in a separate process: answered, refused, or ended."""

import io
import os
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from tests.fakes import FakeClock
from tests.limits import LIMIT_S
from tests.log.logs import put

from palaver.errors import BadQuery, PalaverError, ShuttingDown, TooSlow, Unavailable
from palaver.log import sql_guard as guard_process
from palaver.log.sql_guard import Guard, GuardProcess, answer
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME

_GROWN = "'" + "a" * 1000 + "'"
ENDLESS = f"instr(replace(replace({_GROWN},'a',{_GROWN}),'a','aaa'), replace({_GROWN},'a',{_GROWN})||'b') = 0"
"""One step that takes far longer than any timeout."""


@pytest.fixture
def path(sqlite_log: SqliteLog, tmp_path: Path) -> Path:
    return next(tmp_path.rglob(FILE_NAME))


def found_seqs(path: Path, clause: str, limit_s: float = LIMIT_S) -> list[int]:
    found = GuardProcess(path, limit_s).seqs(clause, after=0, before=10**9, is_newest_first=False)
    return [seq for some in found for seq in some]


async def test_seqs_are_returned_in_order(sqlite_log: SqliteLog, path: Path) -> None:
    events = [await put(sqlite_log, text) for text in ("apple", "pear", "apple")]

    found = found_seqs(path, "text = 'apple'")

    assert found == [events[0].seq, events[2].seq]


async def test_invalid_condition_is_refused(path: Path) -> None:
    with pytest.raises(BadQuery, match="no such column"):
        found_seqs(path, "nonsense = 1")


async def test_condition_that_is_slow_between_two_clock_checks_is_cut(
    sqlite_log: SqliteLog, path: Path
) -> None:
    for number in range(50):
        await put(sqlite_log, f"text {number}")

    endless = "(SELECT count(*) FROM events_v a, events_v b, events_v c, events_v d, events_v e) > 0"
    with pytest.raises(TooSlow):
        found_seqs(path, endless, limit_s=0.05)


async def test_single_endless_step_ends_with_its_process(
    sqlite_log: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_process, "_START_S", 0.5)
    await put(sqlite_log, "hello")

    with pytest.raises(TooSlow, match="was stopped"):
        found_seqs(path, ENDLESS, limit_s=0.05)


async def test_stop_ends_the_running_query_and_all_later_ones(sqlite_log: SqliteLog, path: Path) -> None:
    await put(sqlite_log, "hello")
    guard = GuardProcess(path, LIMIT_S)
    outcome: list[Exception] = []

    def run() -> None:
        try:
            list(guard.seqs(ENDLESS, after=0, before=10**9, is_newest_first=True))
        except ShuttingDown as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while guard._child is None:
        thread.join(0.001)
    guard.stop()
    thread.join(LIMIT_S)

    assert len(outcome) == 1
    with pytest.raises(ShuttingDown):
        list(guard.seqs("1", after=0, before=10**9, is_newest_first=True))
    guard.stop()


async def test_closed_iterator_ends_the_process(sqlite_log: SqliteLog, path: Path) -> None:
    await put(sqlite_log, "hello")
    guard = GuardProcess(path, LIMIT_S)
    found = guard.seqs("1", after=0, before=10**9, is_newest_first=True)
    next(found)

    found.close()

    assert guard._child is None


@pytest.mark.parametrize(
    ("clause", "limit_s", "words"),
    [
        ("text = 'hello'", 5.0, ['"places"', '"is_end"']),
        ("nonsense = 1", 5.0, ['"bad"']),
        ("(SELECT max(value) FROM meta) > ''", 5.0, ['"bad"']),
        ("(SELECT count(*) FROM events_v a, events_v b, events_v c) > 0", 0.0, ['"slow"']),
    ],
    ids=["answered", "refused", "denied", "cut"],
)
async def test_process_answers_line_by_line(
    sqlite_log: SqliteLog, path: Path, clause: str, limit_s: float, words: list[str]
) -> None:
    for _ in range(40):
        await put(sqlite_log, "hello")
    asked = {
        "path": str(path),
        "limit_s": limit_s,
        "clause": clause,
        "after": 0,
        "before": 10**9,
        "is_newest_first": False,
    }
    output = io.BytesIO()

    answer(io.BytesIO(msgspec.json.encode(asked)), output)

    lines = output.getvalue().decode().splitlines()
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))


class OnceOutOfMemory(io.BytesIO):
    """A stream whose first write finds no memory."""

    has_failed = False

    def write(self, data: object) -> int:
        if not self.has_failed:
            self.has_failed = True
            raise MemoryError
        assert isinstance(data, bytes)
        return super().write(data)


async def test_process_says_that_the_condition_needs_too_much_memory(
    sqlite_log: SqliteLog, path: Path
) -> None:
    await put(sqlite_log, "hello")
    asked = {
        "path": str(path),
        "limit_s": 5.0,
        "clause": "1",
        "after": 0,
        "before": 9,
        "is_newest_first": False,
    }
    output = OnceOutOfMemory()

    answer(io.BytesIO(msgspec.json.encode(asked)), output)

    (line,) = output.getvalue().decode().splitlines()
    assert "needs more than 1 GB of memory" in msgspec.json.decode(line)["bad"]


def run_instead(monkeypatch: pytest.MonkeyPatch, folder: Path, lines: str) -> None:
    """Run a shell script in place of the query process."""
    script = folder / "query-process"
    script.write_text(f"#!/bin/sh\n{lines}\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("kill -KILL $$", Unavailable, "too little memory; try again"),
        ("exit 3", Unavailable, r"without a result \(exit status 3\); try again"),
        ("exit 0", Unavailable, r"without a result \(exit status 0\); try again"),
        ("kill -TERM $$", Unavailable, r"without a result \(signal 15\); try again"),
        ("kill -PROF $$", TooSlow, "took more than 2 s"),
        ("printf '{\"places\":[1'; exit 3", Unavailable, "exit status 3"),
    ],
    ids=["killed", "failed", "silent", "ended", "processor-time", "cut-line"],
)
def test_abnormal_end_of_the_process_is_reported_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: type[PalaverError], words: str
) -> None:
    run_instead(monkeypatch, tmp_path, script)

    with pytest.raises(kind, match=words) as caught:
        found_seqs(tmp_path, "1", limit_s=2.0)

    assert type(caught.value) is kind


def test_time_that_the_caller_reads_events_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "go")
    one, two, end = (
        "echo '" + line + "'" for line in ('{"places":[1]}', '{"places":[2]}', '{"is_end":true}')
    )
    run_instead(monkeypatch, tmp_path, f"{one}; read go < '{tmp_path}/go'; {two}; {end}")
    clock = FakeClock()
    guard = GuardProcess(tmp_path, LIMIT_S, monotonic_s=clock.monotonic_s)
    found = guard.seqs("1", after=0, before=10**9, is_newest_first=False)
    first = next(found)

    clock.advance(3600)
    (tmp_path / "go").write_text("go\n")

    assert [first, *found] == [[1], [2]]


async def test_condition_is_timed_only_while_sqlite_runs(
    sqlite_log: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_process, "_SEQS_AT_ONCE", 1)
    monkeypatch.setattr(guard_process, "_STEPS_BETWEEN_LOOKS", 1)
    events = [await put(sqlite_log, "hello") for _ in range(3)]
    clock = FakeClock()
    guard = Guard(path, 1.0, monotonic_s=clock.monotonic_s)

    found = []
    for some in guard.seqs("1", after=0, before=10**9, is_newest_first=False):
        found += some
        clock.advance(3600)

    guard.close()
    assert found == [event.seq for event in events]


async def test_time_of_all_steps_of_sqlite_counts_together(
    sqlite_log: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_process, "_SEQS_AT_ONCE", 1)
    monkeypatch.setattr(guard_process, "_STEPS_BETWEEN_LOOKS", 1)
    for _ in range(20):
        await put(sqlite_log, "hello")
    clock = FakeClock()

    def ticking_s() -> float:
        clock.advance(1.0)
        return clock.monotonic_s()

    guard = Guard(path, 50.0, monotonic_s=ticking_s)
    found = guard.seqs("1", after=0, before=10**9, is_newest_first=False)

    with pytest.raises(TooSlow, match="more than 50 s"):
        list(found)

    guard.close()
