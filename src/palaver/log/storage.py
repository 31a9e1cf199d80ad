"""Open connections to the log's file, and map its failures to errors. Does not know events."""

import contextlib
import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from palaver.errors import BadRequest, DiskFull, NewerSchema, PalaverError, StorageFailed
from palaver.home import sync

FILE_NAME: Final = "log.sqlite"
KEPT: Final = "damaged-"
"""Prefix of the folders in which a repair keeps the damaged files."""
REBUILT: Final = ".rebuilt"
"""Suffix of a complete repaired log until it is moved to its path."""

_WRITER: Final = (
    # Readers neither wait for the writer nor delay it.
    "journal_mode = WAL",
    # With NORMAL, a WAL database does not sync at a commit: a power loss would drop acknowledged events.
    "synchronous = FULL",
    # The writer does it itself, when no commit waits: see writer.py.
    "wal_autocheckpoint = 0",
    # Some builds of SQLite have it on, which makes each deletion write more. A redaction turns it on itself.
    "secure_delete = OFF",
    # Four megabytes: enough for the ends of the indexes, which are the parts that grow.
    "cache_size = -4096",
)
BUSY_TIMEOUT_S: Final = 5.0
"""Seconds to wait for another program that locks the file, such as the shell `sqlite3`."""
_ROOM_FACTOR: Final = 8
"""A disk is nearly full if it has less than this many times the preallocated size."""
_PAGES_AT_ONCE: Final = 1024
"""Pages that are copied between two reports of the progress: four megabytes."""
_ZEROS_BYTES: Final = 1024 * 1024
_STATEMENTS: Final = 64
_NO_ROOM: Final = frozenset(
    # A full disk is not always SQLITE_FULL: with a quota or a file size limit the failing call is reported.
    (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_DIR_FSYNC,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    )
)
# Caused by the values of one draft and not by the disk, so only the caller of that draft is refused.
_DRAFTS_FAULT: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
_DAMAGED: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
_BUSY: Final = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED))
# A quota and a file size limit also end a write for lack of space, and both pass when space is freed.
_NO_ROOM_ERRNOS: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open the only connection that writes. A new file is readable only by its owner."""
    # SQLite would create it with the umask. It gives the write-ahead log the mode of the database.
    path.touch(mode=0o600)
    connection = _connect(path, "rwc")
    for setting in _WRITER:
        connection.execute(f"PRAGMA {setting}")
    # On macOS fsync returns before the data is on the disk.
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that reads, in any thread; it sees each durable commit."""
    # Not `ro`: after a crash the first connection must recover the write-ahead log, and that writes its
    # index.
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
    temporary = target.with_name(f"{target.name}.unfinished")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    try:
        copy = sqlite3.connect(temporary, isolation_level=None)
        # SQLite begins a copy again after each commit of another connection, so on a busy bus a copy in
        # several steps would never end. In one read transaction all steps read the same state.
        source.execute("BEGIN")
        try:
            source.execute("SELECT 1 FROM sqlite_schema").fetchone()  # BEGIN alone does not start to read.
            source.backup(copy, pages=-1 if progress is None else _PAGES_AT_ONCE, progress=progress)
            # The copy is moved as one file, so nothing of it may be in a write-ahead log next to it.
            copy.execute("PRAGMA journal_mode = DELETE")
        finally:
            copy.close()
            source.rollback()
        # Before the rename: otherwise a power loss could leave an incomplete file under the final name.
        sync(temporary)
        temporary.replace(target)
        sync(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
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
        # Zeros are written, not skipped: a hole in a file is allocated only when a commit writes into it.
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
        # The full code: the lowest byte of most of these is that of every I/O error, also of a failed read.
        if code in _NO_ROOM:
            return DiskFull(f"no disk space for the log: {error}; nothing was stored")
        # The lowest byte of an extended code is its kind.
        if code is not None and code & 0xFF in _DAMAGED:
            return damaged(error)
        return StorageFailed(f"the log could not be written: {error}")
    return BadRequest(f"the event cannot be stored: {error}")


def is_busy(error: BaseException | None) -> bool:
    """Return whether an error, or the error that caused it, says that another program has locked the file."""
    if isinstance(error, PalaverError):
        error = error.__cause__
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _BUSY


def damaged(error: BaseException) -> StorageFailed:
    """Return the error for a log that cannot be read, with advice."""
    return StorageFailed(
        f"the log is damaged ({error}): run 'pal down' and then 'pal doctor --repair', "
        "which saves all readable events and keeps the damaged files"
    )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # A URI, so that the mode can be given: a plain path would create a missing file.
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        # No implicit transactions: the code that writes says where each one begins and ends.
        isolation_level=None,
        # The owner decides which thread uses a connection: a reader's is opened in one thread of a pool, used
        # in another, and closed on the event loop.
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    # A damaged text must not fail the query of all rows around it: its own row is skipped when it is read.
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    return connection


def kept_folders(home: Path) -> list[Path]:
    """Return the folders in which repairs have kept damaged files."""
    return sorted(folder for folder in home.glob(f"{KEPT}*") if folder.is_dir())


# --------------------
# The files of an open log: whether they are still the ones that were opened. Reads names and sizes only.
#
# If a file of an open log is removed, every later commit is lost with it, without an error. So the writer
# checks the files at each commit, and nothing is acknowledged once a file was removed, replaced or truncated.
# The highest seq is stored in a separate file, so that a start after a kill detects missing events.

_ENDINGS: Final = ("", "-wal", "-shm")
MARK_NAME: Final = "log.seq"


class LogFiles:
    """The database, its write-ahead log and the index of that. Usable from any thread.

    The first file that is found lost stays lost: only opening the log again helps.
    """

    def __init__(self, path: Path) -> None:
        """Record the identities of the three files of the open log."""
        self._paths: tuple[str, ...] = tuple(f"{path}{ending}" for ending in _ENDINGS)
        self._known = [_identity(file) for file in self._paths]
        self.trouble = ""
        """A sentence that names the lost file; empty if no file is lost."""
        self.is_cut = False
        """True if a file was truncated, so a part of the log is in no file."""
        self._is_being_cut = False
        self._is_closed = False
        # The writer's thread and the event loop both check the files.
        self._looking = threading.Lock()

    @property
    def has_database(self) -> bool:
        """Whether the database itself is still at its path."""
        # Without the size: a database that has grown is still the same file.
        return _identity(self._paths[0])[:2] == self._known[0][:2]

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log."""
        return _identity(self._paths[1])[2]

    def close(self) -> None:
        """Stop checking: the log closes and removes its files."""
        self._is_closed = True

    def check(self) -> None:
        """Check all files; raise StorageFailed if one is not the one that was opened."""
        with self._looking:
            # The first trouble is permanent: the open connection keeps using the lost file, even if a file
            # appears at its path again.
            if not self.trouble and not self._is_closed:
                for at, file in enumerate(self._paths):
                    now, known = _identity(file), self._known[at]
                    if now != known:
                        self._compare(at, now, known)
        if self.trouble:
            raise StorageFailed(self.trouble)

    @contextmanager
    def being_cut(self) -> Iterator[None]:
        """Let the log's own writer truncate files within a block; later their sizes are checked again."""
        with self._looking:
            self._is_being_cut = True
        try:
            yield
        finally:
            with self._looking:
                self._is_being_cut = False
                now = [_identity(file) for file in self._paths]
                # A file that was replaced meanwhile keeps its old identity here, so that the next check finds
                # it.
                self._known = [
                    new if new[:2] == old[:2] else old for new, old in zip(now, self._known, strict=True)
                ]

    def _compare(self, at: int, now: "_Identity", known: "_Identity") -> None:
        if now == _NO_FILE:
            what = "removed"
        elif now[:2] != known[:2]:
            what = "replaced"
        elif self._is_being_cut:
            return
        elif now[2] < known[2]:
            what = "cut"
            self.is_cut = True
        else:
            # It has grown: remember the size, so that a later cut is detected.
            self._known[at] = now
            return
        name = self._paths[at].rpartition("/")[2]
        self.trouble = (
            f"{name} was {what} while the bus was running, so nothing can be stored or read; "
            "run 'pal down' and then 'pal up'"
        )


_Identity = tuple[int, int, int]
_NO_FILE: Final[_Identity] = (0, 0, 0)


def _identity(path: str) -> _Identity:
    """Return device, inode and size of a file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for every commit; pathlib takes twice the time
    except OSError:
        return _NO_FILE
    return found.st_dev, found.st_ino, found.st_size


class SeqMark:
    """The highest committed seq, in a small file next to the log: `log.seq`.

    It is written after each commit and never synced, so it costs no time. It survives a kill; after a power
    loss it may be too low, never too high. On a full disk there is no such file.
    """

    def __init__(self, directory: Path, device: str) -> None:
        """Open the file, or create it. A file of another device does not count."""
        self._device = device.encode()
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(directory / MARK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        """Return the seq; 0 if the file contains none."""
        if self._file is None:
            return 0
        device, _, digits = os.pread(self._file, 64, 0).strip().partition(b" ")
        # A new log has a new device, so the mark of an earlier log in this home says nothing about it.
        return int(digits) if device == self._device and digits.isdigit() else 0

    def write(self, seq: int) -> None:
        """Store a seq; an error is ignored. Called by one thread at a time."""
        if self._file is not None:
            # The event is durable already: a failure here must not fail its commit. The fixed width
            # overwrites the old text completely, in one write and without truncating the file first.
            with contextlib.suppress(OSError):
                os.pwrite(self._file, b"%s %020d\n" % (self._device, seq), 0)

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


# --------------------
# The numbered steps from an empty file to the current schema. The statements of a step never change after its
# release: files that have taken it already would otherwise differ from new ones. Comments may change: SQLite
# stores those inside a CREATE statement with the table, but nothing reads or compares that text.

# In the header of every log: with another value, existing logs would be refused as foreign files.
APPLICATION_ID: Final = 0x50616C21
"""Identifies the file in its header: `Pal!`."""

MIGRATIONS: Final[tuple[str, ...]] = tuple(
    resources.files("palaver.log").joinpath(name).read_text(encoding="utf-8")
    for name in (
        "schema.sql",
        "archived.sql",
        "rooms.sql",
        "imported.sql",
        "cjk.sql",
        "terms.sql",
        "sent.sql",
        "archived_terms.sql",
        "fold.sql",
    )
)
"""Step n leads from schema n to schema n + 1."""


def migrate(
    connection: sqlite3.Connection,
    steps: Sequence[str] = MIGRATIONS,
    upgrading: Callable[[], None] | None = None,
) -> int:
    """Bring the file to the newest schema. Return the number of steps.

    `upgrading` is called first for a file that an older version wrote.

    All steps are one transaction: a crash leaves the old schema or the new one. Raises NewerSchema, and
    changes nothing, for a file that a newer Palaver wrote, and StorageFailed for one that another program
    wrote.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _number(connection, "PRAGMA user_version")
        if found > len(steps):
            raise NewerSchema(found, len(steps))
        if _number(connection, "PRAGMA application_id") != APPLICATION_ID:
            # Only an empty file may become ours.
            if _number(connection, "SELECT count(*) FROM sqlite_schema"):
                raise StorageFailed(
                    "the file of the log is a database of another program; move it, or use another --home"
                )
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        if upgrading is not None and 0 < found < len(steps):
            upgrading()
        for step in steps[found:]:
            for statement in _statements(step):
                connection.execute(statement)
        if found < len(steps):  # Otherwise nothing is written: the disk may be full.
            connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return len(steps) - found


def _number(connection: sqlite3.Connection, statement: str) -> int:
    value: int = connection.execute(statement).fetchone()[0]
    return value


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements: executescript would end our transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


# --------------------
# Damage of the log's file: unreadable pages, and acknowledged events that are missing.
#
# Missing events are detected at a start, by the highest seq in a separate file, and recorded in the log's
# file.

_LIMIT_SHOWN: Final = 3
_KEY: Final = "lost"

_decode: Final = msgspec.json.Decoder(list[tuple[int, int]]).decode


def note_lost(connection: sqlite3.Connection, highest: int, last: int) -> str:
    """Record that the file ends below the highest committed seq. Return a sentence about it.

    The missing seqs are not used again. Returns an empty text if no event is missing.
    """
    if highest <= last:
        return ""
    ranges = [*_lost(connection), (last + 1, highest)]
    connection.execute("BEGIN IMMEDIATE")
    try:
        encoded = msgspec.json.encode(ranges).decode()
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (_KEY, encoded))
        # Raise the sequence: agents may have seen the lost numbers, so no other event may get one of them.
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
        # Deleted and inserted, because this table has no unique key for REPLACE, and an empty log has no such
        # row.
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (highest,))
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    return _sentence(last + 1, highest)


def count_lost(connection: sqlite3.Connection) -> int:
    """Return the number of events that are recorded as missing."""
    return sum(last - first + 1 for first, last in _lost(connection))


def forget_lost(connection: sqlite3.Connection) -> int:
    """Delete the record of missing events, and return their number: the caller must report it."""
    count = count_lost(connection)
    connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))
    return count


def find_damage(path: Path) -> list[str]:
    """Read the whole file, and return a sentence for each problem. Call it in a thread."""
    try:
        with contextlib.closing(connect_reader(path)) as connection:
            # Not `integrity_check`: it also compares each index with its table, which takes much longer.
            rows = connection.execute(f"PRAGMA quick_check({_LIMIT_SHOWN})").fetchall()
            found = [f"{path.name} is damaged: {fault}" for (fault,) in rows if fault != "ok"]
            return found + [_sentence(first, last) for first, last in _lost(connection)]
    except (sqlite3.Error, UnicodeError) as error:
        return [f"{path.name} is damaged: {error}"]


def _lost(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    return [] if row is None else _decode(row[0])


def _sentence(first: int, last: int) -> str:
    events = f"event #{first} is" if first == last else f"events #{first} to #{last} are"
    return f"{events} missing: the write-ahead log was lost or damaged"
