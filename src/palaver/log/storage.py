"""Open connections to the log's file, and map its failures to errors. Does not know events."""

import errno
import os
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from palaver.errors import BadRequest, DiskFull, PalaverError, StorageFailed
from palaver.home import sync

FILE_NAME: Final = "log.sqlite"
KEPT: Final = "damaged-"
"""Prefix of the folders in which a repair keeps the damaged files."""
REBUILT: Final = ".rebuilt"
"""Suffix of a complete repaired log until it is moved to its path."""

_WRITER: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "wal_autocheckpoint = 0",  # The writer does it itself, when no commit waits: see writer.py.
    "secure_delete = OFF",
    # Four megabytes: enough for the ends of the indexes, which are the parts that grow.
    "cache_size = -4096",
)
BUSY_TIMEOUT_S: Final = 5.0
_ROOM_FACTOR: Final = 8
"""A disk is nearly full if it has less than this many times the preallocated size."""
_PAGES_AT_ONCE: Final = 1024
_ZEROS_BYTES: Final = 1024 * 1024
_STATEMENTS: Final = 64
_NO_ROOM: Final = frozenset(
    (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_DIR_FSYNC,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    )
)
_DRAFTS_FAULT: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
_DAMAGED: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
_NO_ROOM_ERRNOS: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open the only connection that writes. A new file is readable only by its owner."""
    path.touch(mode=0o600)
    connection = _connect(path, "rwc")
    for setting in _WRITER:
        connection.execute(f"PRAGMA {setting}")
    if sys.platform == "darwin":  # There fsync alone does not reach the disk.
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that reads, in any thread; it sees each durable commit."""
    connection = _connect(path, "rw")
    connection.execute("PRAGMA query_only = ON")
    return connection


def copy_database(
    source: sqlite3.Connection, target: Path, progress: Callable[[int, int, int], None] | None = None
) -> None:
    """Copy all that a connection sees into a file; it is durable under its name on return.

    `progress` is called like that of `sqlite3.Connection.backup`, after every few pages. Raises sqlite3.Error
    or OSError; then there is no new file.
    """
    beside = target.with_name(f"{target.name}.unfinished")
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600)
    try:
        copy = sqlite3.connect(beside, isolation_level=None)
        try:
            source.backup(copy, pages=-1 if progress is None else _PAGES_AT_ONCE, progress=progress)
            # A copy is one file, and needs nothing next to it.
            copy.execute("PRAGMA journal_mode = DELETE")
        finally:
            copy.close()
        sync(beside)
        beside.replace(target)
        sync(target.parent)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def lay_out_wal(path: Path, size_bytes: int) -> None:
    """Extend the write-ahead log to its final size, so that commits overwrite it.

    A commit that extends a file also waits for the file system's own journal. SQLite ignores the bytes after
    its last frame, and keeps the length when it restarts the file. Does nothing if there is no such file yet,
    or if the disk is nearly full: the events need the space.
    """
    try:
        file = os.open(f"{path}-wal", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        length = os.fstat(file).st_size
        disk = os.fstatvfs(file)
        if disk.f_bavail * disk.f_frsize < _ROOM_FACTOR * size_bytes:
            return
        while length < size_bytes:
            length += os.pwrite(file, bytes(min(_ZEROS_BYTES, size_bytes - length)), length)
        os.fsync(file)
    finally:
        os.close(file)


def failure_from(error: BaseException) -> PalaverError:
    """Map an error of the storage: disk full, a draft that cannot be stored, or another failure."""
    if isinstance(error, PalaverError):
        return error
    if isinstance(error, OSError):
        if error.errno in _NO_ROOM_ERRNOS:
            return DiskFull(f"no disk space for the log: {error.strerror}; nothing was stored")
        return StorageFailed(f"the log could not be written: {error}")
    if isinstance(error, sqlite3.Error) and not isinstance(error, _DRAFTS_FAULT):
        code = getattr(error, "sqlite_errorcode", None)
        if code in _NO_ROOM:
            return DiskFull(f"no disk space for the log: {error}; nothing was stored")
        if code is not None and code & 0xFF in _DAMAGED:
            return damaged(error)
        return StorageFailed(f"the log could not be written: {error}")
    return BadRequest(f"the event cannot be stored: {error}")


def damaged(error: BaseException) -> StorageFailed:
    """Return the error for a log that cannot be read, with advice."""
    return StorageFailed(
        f"the log is damaged ({error}): run 'pal down' and then 'pal doctor --repair', "
        "which saves all readable events and keeps the damaged files"
    )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # The owner of a connection decides which thread uses it: a reader's belongs to its pool, which closes it.
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    # A damaged text must not fail the query of all rows around it: its own row is skipped when it is read.
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    return connection


def kept_folders(home: Path) -> list[Path]:
    """Return the folders in which repairs have kept damaged files."""
    return sorted(folder for folder in home.glob(f"{KEPT}*") if folder.is_dir())
