"""The log knows which version of the fold made its rows, and builds them again for another one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.log.logs import draft, fold, writes

from palaver.clock import SystemClock
from palaver.errors import StorageFailed
from palaver.log.repair import repair
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME, MIGRATIONS, connect_writer, migrate


async def open_log(directory: Path, version: int) -> SqliteLog:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock(), fold_version=version)


async def make_log(directory: Path, version: int, events: int = 3) -> None:
    log = await open_log(directory, version)
    for _ in range(events):
        await log.commit(None, writes(draft()))
    await log.close()


async def is_old(directory: Path, version: int) -> bool:
    log = await open_log(directory, version)
    await log.close()
    return log.is_fold_old


async def test_new_log_has_the_version_of_its_fold(tmp_path: Path) -> None:
    await make_log(tmp_path, 1)

    assert not await is_old(tmp_path, 1)
    assert await is_old(tmp_path, 2)


async def test_rebuild_stores_the_version_with_the_rows(tmp_path: Path) -> None:
    await make_log(tmp_path, 1)
    log = await open_log(tmp_path, 2)
    assert log.is_fold_old

    count = await log.rebuild()

    assert (count, log.is_fold_old) == (3, False)
    await log.close()
    assert not await is_old(tmp_path, 2)
    assert await is_old(tmp_path, 1)


async def test_rebuild_reports_its_progress(tmp_path: Path) -> None:
    await make_log(tmp_path, 1, 9)
    log = await open_log(tmp_path, 1)
    await log.archive(5)
    counts: list[int] = []

    await log.rebuild(counts.append)

    assert counts == [9]
    await log.close()


async def test_log_of_an_older_schema_is_built_again(tmp_path: Path) -> None:
    with closing(connect_writer(tmp_path / FILE_NAME)) as connection:
        migrate(connection, MIGRATIONS[:8])
        connection.execute("INSERT INTO meta (key, value) VALUES ('device', 'OLDA'), ('fold', '1')")

    assert await is_old(tmp_path, 1)


async def test_rebuild_that_fails_is_tried_again_later(tmp_path: Path) -> None:
    await make_log(tmp_path, 1, 9)
    log = await open_log(tmp_path, 2)
    moved = await log.archive(5)
    assert moved.path is not None
    moved.path.rename(tmp_path / "away")

    with pytest.raises(StorageFailed):
        await log.rebuild()

    assert log.is_fold_old
    await log.close()
    assert await is_old(tmp_path, 2)


async def test_repair_stores_the_version(tmp_path: Path) -> None:
    await make_log(tmp_path, 1)

    await repair(tmp_path, apply=fold, clock=SystemClock(), fold_version=2)

    assert not await is_old(tmp_path, 2)


async def test_events_that_a_killed_repair_left_without_rows_are_folded(tmp_path: Path) -> None:
    await make_log(tmp_path, 1)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        connection.execute("DELETE FROM meta")
        connection.execute("DELETE FROM state")

    assert await is_old(tmp_path, 1)
