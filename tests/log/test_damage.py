"""A damaged log, a log with missing events, and a log on a full disk."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest
from tests.log.logs import files_no_larger_than, fold, put

from palaver.clock import SystemClock
from palaver.errors import DiskFull, StorageFailed
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME, MARK_NAME, SeqMark, find_damage, forget_lost, note_lost
from palaver.protocol.query import Query


async def open_log(directory: Path) -> SqliteLog:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock())


async def test_lost_write_ahead_log_is_detected_and_no_seq_is_reused(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put(log, "one")
    await log.close()
    old = (tmp_path / FILE_NAME).read_bytes()
    log = await open_log(tmp_path)
    await put(log, "two")
    await put(log, "three")
    await log.close()
    (tmp_path / FILE_NAME).write_bytes(old)

    log = await open_log(tmp_path)
    event = await put(log, "four")
    reports = await log.check_storage()

    assert log.lost == "events #2 to #3 are missing: the write-ahead log was lost or damaged"
    assert list(reports) == [log.lost]
    assert event.seq == 4
    await log.close()


async def test_loss_is_reported_until_it_is_cleared(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await log.close()
    connection = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)

    reports = note_lost(connection, 1, 0)
    again = note_lost(connection, 5, 3)
    found = find_damage(tmp_path / FILE_NAME)
    forgotten = forget_lost(connection)

    assert forgotten == 3
    assert reports == "event #1 is missing: the write-ahead log was lost or damaged"
    assert found == [reports, again]
    assert find_damage(tmp_path / FILE_NAME) == []
    connection.close()


def test_loss_that_cannot_be_recorded_changes_nothing() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE meta (key PRIMARY KEY, value)")

    with pytest.raises(sqlite3.Error):
        note_lost(connection, 1, 0)

    assert connection.execute("SELECT * FROM meta").fetchall() == []
    connection.close()


async def test_intact_log_has_no_damage(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put(log)

    assert list(await log.check_storage()) == []
    await log.close()


async def test_damaged_log_is_detected(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    for _ in range(200):
        await put(log, "x" * 500)
    await log.close()
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40_000)

    assert find_damage(tmp_path / FILE_NAME)


@pytest.mark.parametrize("content", [b"no database" * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_file_that_is_not_a_database_is_refused_with_advice(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)

    with pytest.raises(StorageFailed, match=r"the log is damaged .*'pal doctor --repair'"):
        await open_log(tmp_path)

    assert find_damage(tmp_path / FILE_NAME)


def test_mark_of_another_device_does_not_count(tmp_path: Path) -> None:
    mark = SeqMark(tmp_path, "NAVO")
    mark.write(57)
    other = SeqMark(tmp_path, "LUKA")

    assert (mark.read(), other.read()) == (57, 0)
    for one in (mark, other, other):
        one.close()


def test_missing_mark_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / MARK_NAME).mkdir()
    mark = SeqMark(tmp_path, "NAVO")

    mark.write(57)

    assert mark.read() == 0
    mark.close()


async def test_log_that_cannot_be_opened_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await open_log(tmp_path)).close()
    before = len(os.listdir("/dev/fd"))

    def full(*values: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("palaver.log.sqlite.note_lost", full)
    with pytest.raises(DiskFull) as kept:
        await open_log(tmp_path)

    assert len(os.listdir("/dev/fd")) <= before
    # Used after the check, because Python would close the connections together with the error.
    assert kept.value.__cause__ is not None


async def test_log_that_refuses_commits_can_be_read(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put(log, "before")
    log.refuse_commits(DiskFull("there is no room"))

    with pytest.raises(DiskFull):
        await put(log, "after")

    assert [event.payload["text"] for event in await log.read(Query())] == ["before"]
    assert await log.has_room()
    await log.close()


async def test_log_on_a_full_disk_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await open_log(tmp_path)
    with files_no_larger_than(os.stat(tmp_path / f"{FILE_NAME}-wal").st_size):
        assert not await log.has_room()
    full = os.statvfs_result((4096, 4096, *[0] * 8))
    monkeypatch.setattr(os, "statvfs", lambda path: full)

    assert not await log.has_room()
    await log.close()
