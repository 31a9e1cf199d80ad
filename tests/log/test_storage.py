"""Storage failures become errors that say who must act."""

import errno
import sqlite3
from pathlib import Path

import pytest

from palaver.errors import BadRequest, DiskFull, NameTaken, PalaverError, StorageFailed
from palaver.log.storage import (
    FILE_NAME,
    connect_reader,
    connect_writer,
    copy_database,
    failure_from,
    lay_out_wal,
)


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (sqlite_error(sqlite3.SQLITE_FULL), DiskFull),
        (sqlite_error(sqlite3.SQLITE_IOERR_WRITE), DiskFull),
        (sqlite_error(sqlite3.SQLITE_IOERR_READ), StorageFailed),
        (sqlite_error(sqlite3.SQLITE_BUSY), StorageFailed),
        (sqlite3.OperationalError("without a code"), StorageFailed),
        (sqlite3.ProgrammingError("type 'object' is not supported"), BadRequest),
        (OSError(errno.ENOSPC, "No space left on device"), DiskFull),
        (OSError(errno.EACCES, "Permission denied"), StorageFailed),
        (OverflowError("int too large"), BadRequest),
        (NameTaken("luna", "she is here"), NameTaken),
    ],
)
def test_failure_becomes_the_right_error(error: Exception, named: type[PalaverError]) -> None:
    assert type(failure_from(error)) is named


def test_writer_waits_for_the_disk(tmp_path: Path) -> None:
    connection = connect_writer(tmp_path / "file")

    journal = connection.execute("PRAGMA journal_mode").fetchone()
    synchronous = connection.execute("PRAGMA synchronous").fetchone()
    connection.close()

    assert journal == ("wal",)
    assert synchronous == (2,)


def test_writer_requests_a_full_sync_on_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")

    connection = connect_writer(tmp_path / "file")

    assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
    assert connection.execute("PRAGMA checkpoint_fullfsync").fetchone() == (1,)
    connection.close()


def test_reader_cannot_write(tmp_path: Path) -> None:
    connect_writer(tmp_path / "file").close()
    connection = connect_reader(tmp_path / "file")

    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("CREATE TABLE t (x)")
    connection.close()


def test_copy_in_steps_ends_although_each_step_meets_a_new_commit(tmp_path: Path) -> None:
    writer = connect_writer(tmp_path / FILE_NAME)
    writer.execute("CREATE TABLE t (content BLOB)")
    writer.executemany("INSERT INTO t VALUES (?)", [(bytes(1_000_000),) for _ in range(9)])
    source = connect_reader(tmp_path / FILE_NAME)
    left: list[int] = []

    def commit(_: int, remaining: int, total: int) -> None:
        left.append(remaining)
        assert len(left) <= total  # Otherwise this test would not end.
        writer.execute("INSERT INTO t VALUES ('meanwhile')")

    copy_database(source, tmp_path / "copy", commit)

    assert left == sorted(left, reverse=True)
    assert len(left) > 1
    copy = sqlite3.connect(tmp_path / "copy")
    assert copy.execute("SELECT count(*) FROM t").fetchone() == (9,)
    assert not source.in_transaction
    for connection in (writer, source, copy):
        connection.close()


def test_missing_write_ahead_log_is_not_preallocated(tmp_path: Path) -> None:
    lay_out_wal(tmp_path / FILE_NAME, 8192)

    assert list(tmp_path.iterdir()) == []


def test_preallocated_write_ahead_log_keeps_committed_events(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    connection = connect_writer(path)
    connection.execute("CREATE TABLE kept (word TEXT)")
    connection.execute("INSERT INTO kept VALUES ('before')")

    lay_out_wal(path, 1_000_000)
    connection.execute("INSERT INTO kept VALUES ('after')")

    copy = tmp_path / "copy.sqlite"
    for ending in ("", "-wal"):  # the state after a crash: only the files, without the log's memory
        Path(f"{copy}{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())
    read = connect_reader(copy)
    assert read.execute("SELECT word FROM kept").fetchall() == [("before",), ("after",)]
    read.close()
    connection.close()


def test_write_ahead_log_is_not_preallocated_on_a_nearly_full_disk(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    wal = tmp_path / f"{FILE_NAME}-wal"
    wal.write_bytes(b"x")

    lay_out_wal(path, 1 << 60)

    assert wal.read_bytes() == b"x"
