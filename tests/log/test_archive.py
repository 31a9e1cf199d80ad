"""The archives of a SQLite log: an event is in the log or in a file; interrupted jobs are finished later."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.limits import LIMIT_S
from tests.log.logs import all_rows, begun, draft, files_no_larger_than, fold, put, writes

from palaver.clock import SystemClock
from palaver.errors import DiskFull, ShuttingDown, StorageFailed
from palaver.log.archive import Archives, Copier, remove_some
from palaver.log.follow import pages
from palaver.log.records import Blobs
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME, MIGRATIONS
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query

ROOT = Path(__file__).parents[2]


async def open_log(directory: Path) -> SqliteLog:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock())


async def put_many(log: SqliteLog, count: int) -> list[Event]:
    return list(await asyncio.gather(*(put(log, f"number {number}") for number in range(count))))


async def everything(log: SqliteLog) -> list[Event]:
    return [event async for page in pages(log, Query()) for event in page]


def in_log(directory: Path) -> list[int]:
    connection = sqlite3.connect(directory / FILE_NAME)
    seqs = [seq for (seq,) in connection.execute("SELECT seq FROM events ORDER BY seq")]
    connection.close()
    return seqs


def check_file(directory: Path, *, with_texts: bool = True) -> None:
    """Check the file with SQLite, and the index with FTS5, which compares it with the texts."""
    connection = sqlite3.connect(directory / FILE_NAME)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.execute(
        "INSERT INTO events_fts (events_fts, rank) VALUES ('integrity-check', ?)", (with_texts,)
    )
    connection.close()


def unfinished(directory: Path) -> list[Path]:
    return list((directory / "archive").glob("unfinished-*"))


def lose_log(directory: Path) -> None:
    for path in directory.glob(f"{FILE_NAME}*"):
        path.unlink()


def copy_only(directory: Path, before: int) -> None:
    """Archive up to the point of a crash right after the rename."""
    archives = Archives(directory / "archive")
    Copier(directory / FILE_NAME, archives, Blobs(directory / "blobs")).copy(before)


async def test_archive_is_a_file_in_the_home(sqlite_log: SqliteLog, tmp_path: Path) -> None:
    events = await put_many(sqlite_log, 5)

    moved = await sqlite_log.archive(4)

    assert moved.path == tmp_path / "archive" / "000000000000001-000000000000003.jsonl"
    assert moved.path.read_bytes().count(b"\n") == 3
    assert in_log(tmp_path) == [4, 5]
    assert [sqlite_log.event(event.seq) for event in events] == events


async def test_reopened_log_reads_its_archives(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    events = await put_many(log, 1100)
    await log.archive(1050)
    grown = all_rows(log)
    await log.close()

    log = await open_log(tmp_path)

    assert await everything(log) == events
    assert log.find(events[0].id) == [events[0]]
    assert await log.rebuild() == 1100
    assert all_rows(log) == grown
    await log.close()


async def test_archived_events_are_not_found_by_a_search_of_the_log(
    sqlite_log: SqliteLog, tmp_path: Path
) -> None:
    await put(sqlite_log, "an old needle")
    await put(sqlite_log, "", detail="another needle")
    await put(sqlite_log, "nothing to find", type="status", to=())
    await sqlite_log.read(Query(search="needle"))  # This updates the index up to here.
    await put(sqlite_log, "a needle that is not indexed yet")
    kept = await put(sqlite_log, "a new needle")

    await sqlite_log.archive(kept.seq)

    assert await sqlite_log.read(Query(search="needle")) == [kept]
    check_file(tmp_path)


async def test_blob_is_stored_completely_in_the_archive(sqlite_log: SqliteLog, tmp_path: Path) -> None:
    event = await put(sqlite_log, "large " * 20_000)
    await put(sqlite_log)
    await sqlite_log.read(Query(search="large"))

    await sqlite_log.archive(2)
    for blob in (tmp_path / "blobs").iterdir():
        blob.unlink()

    assert sqlite_log.event(1) == event
    check_file(tmp_path)


async def test_event_with_a_lost_blob_can_be_archived(sqlite_log: SqliteLog, tmp_path: Path) -> None:
    await put(sqlite_log, "large " * 20_000)
    await sqlite_log.read(Query(search="large"))
    for blob in (tmp_path / "blobs").iterdir():
        blob.unlink()

    moved = await sqlite_log.archive(2)

    found = sqlite_log.event(1)
    assert moved.count == 1
    assert found is not None
    assert "missing_blob" in found.payload
    assert await sqlite_log.read(Query(search="large")) == []


async def test_copied_event_that_was_not_removed_is_not_a_second_event(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    events = await put_many(log, 20)
    await log.close()
    copy_only(tmp_path, 11)

    log = await open_log(tmp_path)
    grown = all_rows(log)

    assert in_log(tmp_path) == list(range(1, 21))
    assert await everything(log) == events
    assert await log.rebuild() == 20
    assert all_rows(log) == grown
    moved = await log.archive(6)
    assert (moved.count, moved.last, moved.path) == (10, 10, None)
    assert in_log(tmp_path) == list(range(11, 21))
    await log.close()


async def test_archiving_after_a_crash_continues_past_the_old_end(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    events = await put_many(log, 20)
    await log.close()
    copy_only(tmp_path, 11)

    log = await open_log(tmp_path)
    moved = await log.archive(16)

    assert (moved.count, moved.last) == (15, 15)
    assert len(list((tmp_path / "archive").iterdir())) == 2
    assert await everything(log) == events
    await log.close()


async def test_only_events_in_the_archive_are_removed_from_the_log(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put_many(log, 9)
    await log.close()
    copy_only(tmp_path, 8)
    (file,) = (tmp_path / "archive").iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    for damage in (lines[:-1], lines[1:], [*lines[:3], lines[3].replace(b"number", b"nummer"), *lines[4:]]):
        file.write_bytes(b"".join(damage))

        log = await open_log(tmp_path)
        with pytest.raises(StorageFailed, match="do not match the log at #"):
            await log.archive(8)
        await log.close()

        assert in_log(tmp_path) == list(range(1, 10))


async def test_rebuild_without_the_archive_fails_and_changes_nothing(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put_many(log, 9)
    moved = await log.archive(6)
    grown = all_rows(log)
    await log.close()
    assert moved.path is not None
    moved.path.rename(tmp_path / "away")

    log = await open_log(tmp_path)
    with pytest.raises(StorageFailed, match=r"5 archived events up to #5 .* restore its files"):
        await log.rebuild()

    assert all_rows(log) == grown
    assert (await put(log)).seq == 10
    await log.close()


async def test_lost_archive_is_reported_when_its_events_are_requested(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    first = await log.commit(None, writes(draft("first")), request_key=b"k" * 16)
    await put_many(log, 8)
    moved = await log.archive(6)
    assert moved.path is not None
    moved.path.rename(tmp_path / "away")
    assert first.event is not None

    assert log.event(1) is None
    with pytest.raises(StorageFailed, match=str(moved.path)):
        log.recall(1)
    with pytest.raises(StorageFailed):
        await log.fetch(1)
    with pytest.raises(StorageFailed, match=str(moved.path)):
        log.find(first.event.id)
    with pytest.raises(StorageFailed, match=str(moved.path)):
        await log.check_archives()
    again = log.commit(None, writes(draft("again")), request_key=b"k" * 16)
    assert [type(one) for one in await asyncio.gather(again, put(log), return_exceptions=True)] == [
        StorageFailed,
        Event,
    ]
    await log.close()
    log = await open_log(tmp_path)
    with pytest.raises(StorageFailed, match="5 archived events up to #5"):
        await log.check_archives()
    await log.close()


async def test_archive_of_a_lost_log_still_reserves_its_seqs(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    events = await put_many(log, 9)
    await log.archive(10)
    grown = all_rows(log)
    await log.close()
    lose_log(tmp_path)

    log = await open_log(tmp_path)
    await log.rebuild()

    assert all_rows(log) == grown
    assert await everything(log) == events
    assert (await put(log)).seq == 10
    await log.close()


async def test_commit_that_repeats_an_unreadable_event_is_refused(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    first = await put(log, id="one")
    moved = await log.archive(2)
    assert moved.path is not None
    moved.path.unlink()

    with pytest.raises(StorageFailed, match="#1 is archived"):
        await log.commit(None, writes(draft(id=first.id)))

    assert in_log(tmp_path) == []
    await log.close()


async def test_nothing_is_archived_on_a_full_disk(sqlite_log: SqliteLog, tmp_path: Path) -> None:
    events = await put_many(sqlite_log, 50)

    with files_no_larger_than(4096), pytest.raises(DiskFull):
        await sqlite_log.archive(40)

    assert await sqlite_log.read(Query()) == events
    assert list((tmp_path / "archive").iterdir()) == []
    assert (await sqlite_log.archive(40)).count == 39


async def test_nothing_is_removed_on_a_full_disk(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    events = await put_many(log, 9)
    await log.close()
    copy_only(tmp_path, 8)
    archives, blobs = Archives(tmp_path / "archive"), Blobs(tmp_path / "blobs")
    connection = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    connection.execute(
        "CREATE TRIGGER full BEFORE DELETE ON events BEGIN SELECT RAISE(ROLLBACK, 'full'); END"
    )

    with pytest.raises(sqlite3.IntegrityError, match="full"):
        remove_some(connection, archives, blobs)
    connection.execute("DROP TRIGGER full")
    connection.execute("CREATE TRIGGER full BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'full'); END")
    with pytest.raises(sqlite3.IntegrityError, match="full"):
        remove_some(connection, archives, blobs)

    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM archived").fetchone() == (0,)
    connection.close()
    assert in_log(tmp_path) == [event.seq for event in events]


def test_stopped_copier_copies_nothing(tmp_path: Path) -> None:
    copier = Copier(tmp_path / FILE_NAME, Archives(tmp_path / "archive"), Blobs(tmp_path / "blobs"))
    copier.stop()

    with pytest.raises(ShuttingDown):
        copier.copy(10)

    assert list(tmp_path.glob("archive/*")) == []


async def test_job_of_a_cancelled_caller_is_finished_later(sqlite_log: SqliteLog, tmp_path: Path) -> None:
    events = await put_many(sqlite_log, 600)
    calls = [asyncio.ensure_future(sqlite_log.archive(500)) for _ in range(3)]
    await begun()

    for call in calls[:2]:
        call.cancel()
    await asyncio.wait_for(calls[2], LIMIT_S)

    assert sqlite_log.archived() == 499
    assert in_log(tmp_path) == list(range(500, 601))
    assert len(list((tmp_path / "archive").iterdir())) == 1
    assert await everything(sqlite_log) == events


async def test_writer_survives_a_cancelled_caller(sqlite_log: SqliteLog) -> None:
    await put_many(sqlite_log, 20)
    calls = [asyncio.ensure_future(sqlite_log.rebuild()) for _ in range(20)]
    await begun()

    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    assert (await asyncio.wait_for(put(sqlite_log), LIMIT_S)).seq == 21


CHILD = """
import asyncio, sys
from pathlib import Path
from palaver.clock import SystemClock
from palaver.log.sqlite import SqliteLog
from tests.log.logs import begun, draft, fold, writes

async def main():
    log = await SqliteLog.open(Path(sys.argv[1]), apply=fold, clock=SystemClock())
    start = log.last()
    async def commit(number):
        text = "large " * 20_000 if number % 100 == 7 else "small"
        made = draft(text, id=f"{start}-{number}")
        commit = await log.commit(None, writes(made), request_key=made.id.encode())
        print(commit.event.seq, made.id, flush=True)
    async def archive():
        while True:
            await log.archive(max(1, log.last() - 5))
            await begun()
    archiving = asyncio.ensure_future(archive())
    number = 0
    while True:
        await asyncio.gather(*(commit(number + one) for one in range(number % 40 + 1)))
        number += number % 40 + 1

asyncio.run(main())
"""


def acknowledged_before_a_kill(directory: Path, lines: int) -> list[tuple[int, str]]:
    """Let a child commit and archive continuously, kill it, and return the acknowledged events."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory)], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert child.stdout is not None
    read = [child.stdout.readline() for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    text = "".join(read) + child.stdout.read()
    child.stdout.close()
    child.wait()
    whole = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [(int(seq), id_) for seq, id_ in whole]


async def test_log_killed_during_archiving_loses_nothing_and_finishes_the_job(tmp_path: Path) -> None:
    acknowledged: list[tuple[int, str]] = []
    for round_ in range(6):
        acknowledged += await asyncio.to_thread(acknowledged_before_a_kill, tmp_path, 60 + 53 * round_)

        log = await open_log(tmp_path)
        events = {event.seq: event for event in await everything(log)}
        for seq, id_ in acknowledged:
            assert events[seq].id == id_
            assert "missing_blob" not in events[seq].payload
            assert log.event(seq) == events[seq]
            assert log.find(id_) == [events[seq]]
        grown = all_rows(log)
        assert await log.rebuild() == len(events)
        assert all_rows(log) == grown

        await log.archive(log.last() - 3)
        assert in_log(tmp_path) == sorted(events)[-4:]
        assert {event.seq: event for event in await everything(log)} == events
        await log.close()
        check_file(tmp_path, with_texts=False)  # The index is not up to date, and blobs are not seen.

    log = await open_log(tmp_path)
    await log.archive(log.last() + 1)
    await log.read(Query(search="small"))
    await log.close()
    check_file(tmp_path)
    assert unfinished(tmp_path) == []


# Places of archived messages


async def put_on_dev(log: SqliteLog, count: int) -> list[Event]:
    return [await put(log, str(number), to=("irc/local/#dev",)) for number in range(count)]


async def test_places_of_events_archived_by_an_older_version_are_read(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    events = await put_on_dev(log, 10)
    await log.archive(events[6].seq)
    await log.close()
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        # As the log was before its index had places: what the migration finds.
        connection.execute("INSERT INTO events_terms (events_terms) VALUES ('delete-all')")
        connection.execute("DELETE FROM meta WHERE key IN ('indexed', 'unplaced')")
        step = next(number for number, one in enumerate(MIGRATIONS) if "'unplaced'" in one)
        connection.execute(f"PRAGMA user_version = {step}")
    connection.close()

    log = await open_log(tmp_path)
    await log.archive(events[8].seq)

    for query in (Query(shown=("#dev",)), Query(shown=("#dev",), last=100)):
        assert await log.read_shown(query) == events
    assert await log.read_shown(Query(shown=("#dev",), last=3, before=events[7].seq)) == events[4:7]
    assert await log.read_shown(Query(shown=("#dev",), limit=3, after=events[4].seq)) == events[5:8]
    await log.close()


async def test_many_events_of_an_older_version_are_read_newest_first(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    first, *_ = await put_on_dev(log, 2)
    await put_many(log, 1100)
    await log.archive(log.last() + 1)
    archives = Archives(tmp_path / "archive")

    found = list(archives.between(0, log.last() + 1, is_newest_first=True))

    assert found == list(archives.between(0, log.last() + 1, is_newest_first=False))[::-1]
    assert found[-1] == first
    assert list(archives.between(5, 5, is_newest_first=True)) == []
    await log.close()


async def test_place_of_a_lost_event_is_left_out(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    events = await put_on_dev(log, 3)
    await log.archive(log.last() + 1)
    (file,) = (tmp_path / "archive").iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], b"x" * (len(lines[1]) - 1) + b"\n", lines[2]]))

    assert await log.read_shown(Query(shown=("#dev",))) == [events[0], events[2]]
    await log.close()


async def test_event_whose_content_was_lost_keeps_its_place(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    event = await put(log, "x" * 100_000, to=("irc/local/#dev",))
    await log.read(Query(search="x", limit=1))
    for blob in (tmp_path / "blobs").iterdir():
        blob.unlink()

    await log.archive(log.last() + 1)

    (found,) = await log.read_shown(Query(shown=("#dev",)))
    assert found.seq == event.seq
    await log.close()
