"""The log in its file: contents of a reopened log, and reads in parallel with the writer."""

import asyncio
import os
import re
import sqlite3
import stat
from pathlib import Path

import pytest
from tests.log.logs import all_rows, draft, files_no_larger_than, fold, put, writes

from palaver.clock import SystemClock
from palaver.errors import DiskFull, NewerSchema, ShuttingDown, StorageFailed
from palaver.log.archive import Archives
from palaver.log.records import Blobs
from palaver.log.sqlite import Reader, SqliteLog
from palaver.log.storage import FILE_NAME, LogFiles
from palaver.protocol.query import Query


async def open_log(directory: Path, device: str | None = None) -> SqliteLog:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock(), device=device)


async def test_reopened_log_contains_everything(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    first = await log.commit(None, writes(draft()), request_key=b"k")
    await put(log, type="claim", room="r")
    rows, events, device = all_rows(log), await log.read(Query()), log.device
    await log.close()

    log = await open_log(tmp_path)

    assert (all_rows(log), await log.read(Query()), log.device) == (rows, events, device)
    assert log.last() == events[-1].seq
    assert log.largest_id() == events[-1].id
    assert (await log.commit(None, writes(draft()), request_key=b"k")).event == first.event
    assert (await put(log, id=events[1].id)) == events[1]
    assert (await put(log)).seq == 3
    await log.close()


async def test_seq_of_a_deleted_event_is_not_reused(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    events = [await put(log) for _ in range(3)]
    await log.close()
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("DELETE FROM events WHERE seq >= 2")
    connection.commit()
    connection.close()

    log = await open_log(tmp_path)

    assert log.last() == 3
    assert (await put(log)).seq == 4
    assert log.event(events[2].seq) is None
    await log.close()


async def test_device_is_drawn_once(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    drawn = log.device
    await log.close()

    log = await open_log(tmp_path, device="BOXE")

    assert re.fullmatch("[B-Z][AEIOU][B-Z][AEIOU]", drawn)
    assert log.device == drawn
    await log.close()


async def test_given_device_is_stored(tmp_path: Path) -> None:
    log = await open_log(tmp_path, device="BOXE")
    event = await put(log)
    await log.close()

    log = await open_log(tmp_path)

    assert log.device == event.device == "BOXE"
    await log.close()


async def test_files_are_private_to_their_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = await open_log(tmp_path)
        await put(log, "x" * 100_000)
    finally:
        os.umask(before)

    assert set(modes_in(tmp_path).values()) == {0o600}
    assert len(modes_in(tmp_path)) == 5
    await log.close()


def modes_in(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*") if path.is_file()}


async def test_log_of_a_newer_palaver_is_refused(tmp_path: Path) -> None:
    await (await open_log(tmp_path)).close()
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(NewerSchema, match="schema 99"):
        await open_log(tmp_path)


async def test_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"something else " * 1000)

    with pytest.raises(StorageFailed, match="not a database"):
        await open_log(tmp_path)


async def test_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed):
        await open_log(tmp_path / "missing")


async def test_log_cannot_be_created_on_a_full_disk_but_later(tmp_path: Path) -> None:
    with files_no_larger_than(4096), pytest.raises(DiskFull):
        await open_log(tmp_path)

    log = await open_log(tmp_path)
    assert (await put(log)).seq == 1
    await log.close()


async def test_point_reads_leave_nothing_open(sqlite_log: SqliteLog, tmp_path: Path) -> None:
    for _ in range(3):
        event = await put(sqlite_log)
        sqlite_log.rows.get("count", "message")
        sqlite_log.rows.scan("mail", "", limit=1)
        sqlite_log.event(event.seq)
        sqlite_log.find(event.id[-6:])
        sqlite_log.largest_id()
        await sqlite_log.read(Query(limit=1))
        await sqlite_log.read(Query(sql="1", limit=1))

    other = sqlite3.connect(tmp_path / FILE_NAME)
    busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    other.close()

    assert busy == 0
    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size == 0


async def test_reads_run_in_parallel_with_the_loop_and_each_other(sqlite_log: SqliteLog) -> None:
    events = await asyncio.gather(*(put(sqlite_log) for _ in range(300)))

    found = await asyncio.gather(*(sqlite_log.read(Query(limit=300)) for _ in range(20)))

    assert all(one == list(events) for one in found)


async def test_search_index_agrees_with_the_events(sqlite_log: SqliteLog, tmp_path: Path) -> None:
    await asyncio.gather(
        *(put(sqlite_log, f"word{number} é\n'x'", title="t", reason=5) for number in range(200))
    )
    await put(sqlite_log, "", type="status")
    await sqlite_log.read(Query(search="word1"))  # the index may not be up to date before a search

    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("INSERT INTO events_fts (events_fts, rank) VALUES ('integrity-check', 1)")
    other.execute("INSERT INTO events_fts (events_fts) VALUES ('rebuild')")
    copies = other.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'events_fts_content'").fetchone()
    other.close()

    assert copies == (0,)
    assert len(await sqlite_log.read(Query(search="word7 t"))) == 1


async def test_file_that_breaks_while_it_is_open_is_reported(sqlite_log: SqliteLog, tmp_path: Path) -> None:
    await put(sqlite_log)
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("DROP VIEW events_v")
    other.execute("DROP TABLE events")
    other.close()

    with pytest.raises(StorageFailed, match="could not be read"):
        await sqlite_log.read(Query())
    with pytest.raises(StorageFailed, match="could not be written"):
        await put(sqlite_log)


async def test_rows_that_pass_the_coarse_filter_are_checked_again(sqlite_log: SqliteLog) -> None:
    await put(sqlite_log, "nova is only spoken of", to=())
    meant = await put(sqlite_log, "nova is meant")

    assert await sqlite_log.read(Query(agents=("nova",))) == [meant]


async def test_reads_of_archives_stop_like_others_at_close_or_loss(
    sqlite_log: SqliteLog, tmp_path: Path
) -> None:
    await put(sqlite_log)
    path, query = tmp_path / FILE_NAME, Query(shown=("#dev",))
    archives = Archives(tmp_path / "archive")
    reader = Reader(path, Blobs(tmp_path / "blobs"), LogFiles(path), sql_limit_s=1)

    path.rename(tmp_path / "elsewhere")
    with pytest.raises(StorageFailed):
        await reader.read_archived_conversations(query, archives)
    (tmp_path / "elsewhere").rename(path)
    await reader.close()
    with pytest.raises(ShuttingDown):
        await reader.read_archived_conversations(query, archives)
