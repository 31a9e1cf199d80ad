"""SQL of callers in a separate process: answered, refused, or ended."""

import io
import threading
from pathlib import Path

import msgspec
import pytest
from tests.limits import LIMIT_S
from tests.log.logs import put

from palaver.errors import BadQuery, TooSlow
from palaver.log import sql_guard as guard_process
from palaver.log.sql_guard import GuardProcess, answer
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME

_GROWN = "'" + "a" * 1000 + "'"
ENDLESS = f"instr(replace(replace({_GROWN},'a',{_GROWN}),'a','aaa'), replace({_GROWN},'a',{_GROWN})||'b') = 0"
"""One step that takes far longer than any timeout."""


@pytest.fixture
def path(sqlite_log: SqliteLog, tmp_path: Path) -> Path:
    return next(tmp_path.rglob(FILE_NAME))


def places(path: Path, clause: str, limit_s: float = LIMIT_S) -> list[int]:
    found = GuardProcess(path, limit_s).places(clause, after=0, before=10**9, is_newest_first=False)
    return [seq for some in found for seq in some]


async def test_seqs_are_returned_in_order(sqlite_log: SqliteLog, path: Path) -> None:
    events = [await put(sqlite_log, text) for text in ("apple", "pear", "apple")]

    found = places(path, "text = 'apple'")

    assert found == [events[0].seq, events[2].seq]


async def test_invalid_condition_is_refused(path: Path) -> None:
    with pytest.raises(BadQuery, match="no such column"):
        places(path, "nonsense = 1")


async def test_condition_that_is_slow_between_two_clock_checks_is_cut(
    sqlite_log: SqliteLog, path: Path
) -> None:
    for number in range(50):
        await put(sqlite_log, f"text {number}")

    endless = "(SELECT count(*) FROM events_v a, events_v b, events_v c, events_v d, events_v e) > 0"
    with pytest.raises(TooSlow):
        places(path, endless, limit_s=0.05)


async def test_single_endless_step_ends_with_its_process(
    sqlite_log: SqliteLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_process, "_START_S", 0.5)
    await put(sqlite_log, "hello")

    with pytest.raises(TooSlow, match="was stopped"):
        places(path, ENDLESS, limit_s=0.05)


async def test_stop_ends_the_running_query_and_all_later_ones(sqlite_log: SqliteLog, path: Path) -> None:
    await put(sqlite_log, "hello")
    guard = GuardProcess(path, LIMIT_S)
    outcome: list[Exception] = []

    def run() -> None:
        try:
            list(guard.places(ENDLESS, after=0, before=10**9, is_newest_first=True))
        except TooSlow as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while guard._child is None:
        thread.join(0.001)
    guard.stop()
    thread.join(LIMIT_S)

    assert len(outcome) == 1
    with pytest.raises(TooSlow):
        list(guard.places("1", after=0, before=10**9, is_newest_first=True))
    guard.stop()


async def test_closed_iterator_ends_the_process(sqlite_log: SqliteLog, path: Path) -> None:
    await put(sqlite_log, "hello")
    guard = GuardProcess(path, LIMIT_S)
    found = guard.places("1", after=0, before=10**9, is_newest_first=True)
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
    said = io.BytesIO()

    answer(io.BytesIO(msgspec.json.encode(asked)), said)

    lines = said.getvalue().decode().splitlines()
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))
