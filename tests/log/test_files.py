"""Files of an open log that are removed, replaced or truncated."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.log.logs import AtOnce, fold, put

from palaver.clock import SystemClock
from palaver.errors import StorageFailed
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME, LogFiles, copy_database
from palaver.log.writer import CommitPace
from palaver.protocol.query import Query

NAMES = [FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"]


async def open_log(directory: Path, pace: CommitPace | None = None) -> SqliteLog:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock(), pace=pace)


async def texts(log: SqliteLog) -> list[object]:
    return [event.payload["text"] for event in await log.read(Query())]


@pytest.mark.parametrize("pace", [CommitPace, AtOnce])
@pytest.mark.parametrize("name", NAMES)
async def test_commit_after_a_file_was_removed_is_refused(
    tmp_path: Path, name: str, pace: type[CommitPace]
) -> None:
    log = await open_log(tmp_path, pace())
    await put(log, "before")
    (tmp_path / name).unlink()

    with pytest.raises(StorageFailed, match=f"{name} was removed while the bus was running"):
        await put(log, "after")
    with pytest.raises(StorageFailed, match="was removed"):
        await log.read(Query())
    with pytest.raises(StorageFailed, match="was removed"):
        await log.archive(2)
    await log.close()
    log = await open_log(tmp_path)

    assert await texts(log) == ["before"]
    await log.close()


async def test_file_removed_during_a_commit_is_detected(tmp_path: Path) -> None:
    log = await open_log(tmp_path)

    def remove(rows: object) -> None:
        (tmp_path / FILE_NAME).unlink()

    with pytest.raises(StorageFailed, match="was removed"):
        await log.commit(None, remove)
    await log.close()


async def test_replaced_file_has_a_saved_copy(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put(log, "before")
    assert log.find_trouble() == ""
    shutil.copy(tmp_path / FILE_NAME, tmp_path / "other")
    (tmp_path / "other").rename(tmp_path / FILE_NAME)

    assert "was replaced" in log.find_trouble()
    await log.save()
    await log.save()  # It is saved once.

    copy = sqlite3.connect(tmp_path / f"{FILE_NAME}.saved")
    assert copy.execute("SELECT count(*) FROM events").fetchone() == (1,)
    copy.close()
    await log.close()


async def test_truncated_file_is_not_saved(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put(log, "before")
    os.truncate(tmp_path / f"{FILE_NAME}-wal", 0)

    with pytest.raises(StorageFailed, match="-wal was cut"):
        await put(log, "after")
    await log.save()

    assert not (tmp_path / f"{FILE_NAME}.saved").exists()
    await log.close()


async def test_log_that_cannot_be_saved_is_closed_anyway(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / f"{FILE_NAME}.saved.unfinished").mkdir()

    await log.close()

    assert not (tmp_path / FILE_NAME).exists()


async def test_saved_copy_replaces_a_missing_log(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put(log, "before")
    wal = (tmp_path / f"{FILE_NAME}-wal").read_bytes()
    (tmp_path / FILE_NAME).unlink()
    await log.close()
    (tmp_path / f"{FILE_NAME}-wal").write_bytes(wal)  # As after a kill.

    log = await open_log(tmp_path)
    event = await put(log, "after")

    assert await texts(log) == ["before", "after"]
    assert event.seq == 2
    await log.close()


def test_unfinished_copy_leaves_no_file(tmp_path: Path) -> None:
    source = sqlite3.connect(":memory:")
    (tmp_path / "copy").mkdir()

    with pytest.raises(IsADirectoryError):
        copy_database(source, tmp_path / "copy")

    assert not (tmp_path / "copy.unfinished").exists()
    source.close()


async def test_writer_itself_may_truncate_files_but_a_later_cut_is_detected(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    event = await put(log, "before")
    files = LogFiles(tmp_path / FILE_NAME)
    with files.being_cut():
        await log.redact([event.seq], lambda one: one)
        files.check()
    files.check()
    later = await put(log, "later")

    os.truncate(tmp_path / FILE_NAME, 4096)

    with pytest.raises(StorageFailed, match="was cut"):
        files.check()
    assert later.seq > event.seq
    with pytest.raises(StorageFailed, match="was cut"):
        await put(log, "after")
    await log.close()


async def test_log_that_closes_while_files_are_made_shorter_closes_well(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    files = LogFiles(tmp_path / FILE_NAME)

    with files.being_cut():
        files.close()
        await log.close()

    files.check()
    assert files.trouble == ""
