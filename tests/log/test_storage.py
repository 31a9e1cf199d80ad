"""Failures of the storage have names that say who must act."""

import errno
import sqlite3
from pathlib import Path

import pytest

from palaver.errors import BadRequest, DiskFull, NameTaken, PalaverError, StorageFailed
from palaver.log.storage import FILE_NAME, connect_reader, connect_writer, failure_from, lay_out_wal


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
def test_a_failure_gets_its_name(error: Exception, named: type[PalaverError]) -> None:
    assert type(failure_from(error)) is named


def test_the_writer_waits_for_the_disk(tmp_path: Path) -> None:
    connection = connect_writer(tmp_path / "file")

    journal = connection.execute("PRAGMA journal_mode").fetchone()
    synchronous = connection.execute("PRAGMA synchronous").fetchone()
    connection.close()

    assert journal == ("wal",)
    assert synchronous == (2,)


def test_on_macos_the_writer_asks_for_a_full_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")

    connection = connect_writer(tmp_path / "file")

    assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
    assert connection.execute("PRAGMA checkpoint_fullfsync").fetchone() == (1,)
    connection.close()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    connect_writer(tmp_path / "file").close()
    connection = connect_reader(tmp_path / "file")

    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("CREATE TABLE t (x)")
    connection.close()


def test_a_write_ahead_log_that_is_not_there_is_not_laid_out(tmp_path: Path) -> None:
    lay_out_wal(tmp_path / FILE_NAME, 8192)

    assert list(tmp_path.iterdir()) == []


def test_a_laid_out_write_ahead_log_keeps_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    connection = connect_writer(path)
    connection.execute("CREATE TABLE kept (word TEXT)")
    connection.execute("INSERT INTO kept VALUES ('before')")

    lay_out_wal(path, 1_000_000)
    connection.execute("INSERT INTO kept VALUES ('after')")

    copy = tmp_path / "copy.sqlite"
    for ending in ("", "-wal"):  # what a crash would leave behind: no memory of the log, only the files
        Path(f"{copy}{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())
    read = connect_reader(copy)
    assert read.execute("SELECT word FROM kept").fetchall() == [("before",), ("after",)]
    read.close()
    connection.close()


def test_the_write_ahead_log_is_not_laid_out_when_the_disk_has_little_room(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    wal = tmp_path / f"{FILE_NAME}-wal"
    wal.write_bytes(b"x")

    lay_out_wal(path, 1 << 60)

    assert wal.read_bytes() == b"x"
