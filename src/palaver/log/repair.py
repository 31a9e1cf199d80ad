"""Rebuild a damaged log from the pages that can still be read, and from the archives.

The pages are read without SQLite, which gives up at the first damaged one. The damaged files are kept. The
caller holds the lock of the home.
"""

import heapq
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from palaver.clock import Clock
from palaver.errors import BadRequest, DiskFull, NewerSchema, PalaverError, StorageFailed
from palaver.home import file_id, sync
from palaver.log.api import Apply
from palaver.log.archive import ArchiveFile, archive_files, write_archive
from palaver.log.records import (
    COLUMNS,
    Blobs,
    EventRow,
    add_archived_conversations,
    decode_event_row,
    insert_many,
)
from palaver.log.sqlite import SqliteLog, put_saved_back
from palaver.log.storage import (
    FILE_NAME,
    KEPT,
    MARK_NAME,
    MIGRATIONS,
    REBUILT,
    connect_reader,
    connect_writer,
    count_lost,
    failure_from,
    find_damage,
    forget_lost,
    is_busy,
    migrate,
)
from palaver.protocol.envelope import Event, decode_event

_STORED: Final = (
    *("seq", "id", "type", "sender", "recipients", "ts", "device", "by_"),
    *("delivered_to", "thread", "payload", "blob", "request_key", "room", "imported", "sent_ts"),
)
"""The columns of a row of `events` in the order in which SQLite stores them; old rows lack the last three."""
_ORDER: Final = tuple(_STORED.index(name) for name in COLUMNS.split(", "))
_DEVICE: Final = COLUMNS.split(", ").index("device")
_IMPORTED: Final = COLUMNS.split(", ").index("imported")
_FEWEST_COLUMNS: Final = len(_STORED) - 3
_HEAD: Final = b"SQLite format 3\0"
_PAGE_BYTES: Final = 4096
# The type of a page that has rows of a table, in SQLite's file format.
_LEAF: Final = 0x0D
# By SQLite's code for the type of a value.
_INTEGER_BYTES: Final = (0, 1, 2, 3, 4, 6, 8)
_HIGHEST_SEQ: Final = 10**15 - 1
"""The largest number of 15 digits, the length of a seq in keys and in names of archives."""
_NO_MARK: Final = ("", 0)
_LIMIT_OVERFLOW: Final = 100_000
"""Pages of one row, so that a damaged chain comes to an end."""

_Value = int | str | bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The result of a repair."""

    is_whole: bool
    """No file was damaged and no event is missing; only the state was rebuilt from the events."""
    events: int
    """Events in the log and its archives now."""
    missing: int = 0
    """Seqs for which no event was found."""
    kept: Path | None = None
    """The folder with the damaged files; None if no file is damaged."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Events that could not be read from an archive file, by the name of the file."""
    unfiled: int = 0
    """Archived events whose archive file is missing."""


_OpenLog: TypeAlias = Callable[[], Awaitable[SqliteLog]]


async def repair(home: Path, *, apply: Apply, clock: Clock, fold_version: int = 0) -> Repaired:
    """Make the log of a home usable again; raise PalaverError or OSError if that fails.

    `fold_version` is the version of `apply`.
    Unreadable events are left out and counted. Every damaged file is kept. A repair that was killed or that
    failed can be repeated.
    """
    path = home / FILE_NAME
    # First: an earlier repair may have been killed after its new log was complete.
    put_saved_back(path)
    kept, before = _new_folder(home), file_id(path)
    # A signal can end the repair at any line, so the folder is made inside the block that removes it.
    try:
        _keep(home, kept)
        # Not before: SQLite removes a damaged write-ahead log when the file is closed.
        _check_schema(path)
        return await _repair(
            home, kept, lambda: SqliteLog.open(home, apply=apply, clock=clock, fold_version=fold_version)
        )
    except NewerSchema:
        # The log is intact, and the newer version has what was in a write-ahead log.
        shutil.rmtree(kept, ignore_errors=True)
        raise
    except BaseException:
        # A copy of files that are still at their paths would only fill the disk.
        is_still_there = kept.exists() and all((home / one.name).exists() for one in kept.iterdir())
        # SQLite may have removed a damaged write-ahead log by now. Its copy is then the only one.
        if file_id(path) == before and is_still_there and not (kept / "archive").exists():
            shutil.rmtree(kept, ignore_errors=True)
        raise


async def _repair(home: Path, kept: Path, open_log: _OpenLog) -> Repaired:
    path = home / FILE_NAME
    # The archives first: neither a rebuild nor a new log can be made while one of them is unreadable.
    archived = _check_archives(home)
    if not archived and _has_no_log(home, kept):
        shutil.rmtree(kept)
        count, _ = await _rebuild_rows(home, open_log)
        return Repaired(is_whole=True, events=count)
    unreadable = _rescue_archives(home, kept, [one for one in archived if one.unreadable])
    if path.exists() and not [fault for fault in find_damage(path) if "is damaged" in fault]:
        try:
            with closing(connect_reader(path)) as connection:
                recorded = count_lost(connection)
            lost, unfiled = _forget_missing(path, archived)
            count, gone = await _rebuild_rows(home, open_log)
        # Its pages are intact but their contents are not: continue as with a damaged file.
        except (PalaverError, sqlite3.Error, msgspec.MsgspecError, UnicodeError) as error:
            _raise_unless_damage(error)
        else:
            missing = sum(lost.values()) + unfiled + gone
            # A write-ahead log that has lost events is a damaged file, unless it was lost itself. Events that
            # an earlier start has recorded as missing were lost with another one.
            is_wal_damaged = gone > recorded and (kept / f"{FILE_NAME}-wal").exists()
            if lost or unfiled or (kept / "archive").exists() or is_wal_damaged:
                return Repaired(
                    is_whole=False, events=count, missing=missing, kept=kept, lost=lost, unfiled=unfiled
                )
            shutil.rmtree(kept)
            return Repaired(is_whole=not gone, events=count, missing=missing)
    # From the copy: the attempt above may have changed the original.
    rows = _readable(salvage(kept / FILE_NAME), Blobs(home / "blobs"))
    highest = _write_anew(home, rows, max((one.file.last for one in archived), default=0))
    count, _ = await _rebuild_rows(home, open_log)
    return Repaired(is_whole=False, events=count, missing=highest - count, kept=kept, lost=unreadable)


def salvage(path: Path) -> Iterator[tuple[_Value, ...]]:
    """Yield all rows of `events` in readable pages, in no order; repeats are possible.

    A row of another table is left out only if its shape is different: the caller must check the values.
    """
    pages = _Pages(path)
    for number in pages.numbers():
        for rowid, values in pages.rows(number):
            # The tree of the table is not followed, because a damaged inner page would hide all pages below
            # it. So rows are recognised by their shape: SQLite stores the primary key as the rowid and a
            # null.
            if len(values) >= _FEWEST_COLUMNS and values[0] is None and rowid <= _HIGHEST_SEQ:
                yield (rowid, *values[1:])


async def _rebuild_rows(home: Path, open_log: _OpenLog) -> tuple[int, int]:
    """Rebuild the state. Return the number of events, and how many were recorded as missing."""
    log = await open_log()
    try:
        count = await log.rebuild()
    finally:
        await log.close()
    with closing(connect_writer(home / FILE_NAME)) as connection:
        # The report of the repair has the number of missing events, so the next start does not repeat it.
        return count, forget_lost(connection)


def _check_schema(path: Path) -> None:
    """Raise NewerSchema for a log that a newer Palaver wrote: rows of it could be lost."""
    try:
        with closing(connect_reader(path)) as connection:
            (found,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        # A header that cannot be read says nothing: that file is what a repair is for.
        _raise_unless_damage(error)
    else:
        if found > len(MIGRATIONS):
            raise NewerSchema(found, len(MIGRATIONS))


def _raise_unless_damage(error: Exception) -> None:
    """Raise the error of a full disk or of a locked file: they say nothing about the log."""
    failure = failure_from(error)
    if isinstance(failure, DiskFull):
        raise failure from error
    if is_busy(error):
        raise StorageFailed(
            "another program has locked the log, so it was not repaired: "
            "end that program, for example a sqlite3 shell, and repair again"
        ) from error


def _new_folder(home: Path) -> Path:
    """Return a path for the damaged files that does not exist yet. No other repair of this home runs."""
    number = 1
    while (folder := home / f"{KEPT}{number}").exists():
        number += 1
    return folder


def _has_no_log(home: Path, kept: Path) -> bool:
    """Return whether there is no file of a log, and never was one."""
    # A log whose files were removed has left its mark, and its events are missing.
    return not any(kept.iterdir()) and _mark(home) == _NO_MARK


def _keep(home: Path, folder: Path) -> None:
    """Copy the files of the log into a new folder."""
    folder.mkdir(mode=0o700)
    for ending in ("", "-wal", "-shm"):
        if (file := home / f"{FILE_NAME}{ending}").exists():
            shutil.copy2(file, folder)
            sync(folder / file.name)
    sync(folder)


@dataclass(frozen=True, slots=True)
class _Checked:
    """An archive file, the seqs that can be read from it, and the number of its unreadable lines."""

    file: ArchiveFile
    seqs: frozenset[int]
    unreadable: int


def _check_archives(home: Path) -> list[_Checked]:
    checked = []
    for file in archive_files(home / "archive"):
        seqs = set()
        unreadable = 0
        for event in _lines(file):
            if event is None:
                unreadable += 1
            else:
                seqs.add(event.seq)
        checked.append(_Checked(file, frozenset(seqs), unreadable))
    return checked


def _lines(file: ArchiveFile) -> Iterator[Event | None]:
    """Read an archive file line by line; yield None for each part that cannot be read.

    A line whose seq does not fit its position and the name of the file does not count. Raises OSError for a
    file that cannot be opened: it may be complete, and must not be given up.
    """
    seq = file.first - 1
    event: Event | None = None
    with file.path.open("rb") as lines:
        try:
            for line in lines:
                event = _event_after(line, seq, file.last)
                seq = seq if event is None else event.seq
                yield event
        except OSError:
            event = None
            yield None
    if seq < file.last and (event is not None or seq < file.first):
        yield None  # All its lines are complete, and the last ones are missing.


def _event_after(line: bytes, seq: int, last: int) -> Event | None:
    try:
        event = decode_event(line)
    except (msgspec.MsgspecError, BadRequest, ValueError):
        return None
    return event if seq < event.seq <= last else None


def _rescue_archives(home: Path, kept: Path, damaged: list[_Checked]) -> dict[str, int]:
    """Replace each damaged archive file by one with all readable events; keep the damaged one.

    Events that are still in the log as well are taken from there. Return the number of lost lines by file.
    """
    lost: dict[str, int] = {}
    if not damaged:
        return lost
    blobs = Blobs(home / "blobs")
    rows = _readable(salvage(kept / FILE_NAME), blobs)
    folder = kept / "archive"
    folder.mkdir(mode=0o700)
    for one in damaged:
        path = one.file.path
        in_log = [seq for seq in sorted(rows) if one.file.first <= seq <= one.file.last]
        in_log = [seq for seq in in_log if seq not in one.seqs]
        if not one.seqs and not in_log:
            path.rename(folder / path.name)
        else:
            # The damaged file is kept durably before its replacement takes its name: a repair that is killed
            # in between loses no line.
            _link(path, folder / path.name)
            sync(folder)
            sync(kept)
            from_log = (decode_event_row(rows[seq], blobs) for seq in in_log)
            readable = (event for event in _lines(one.file) if event is not None)
            new = write_archive(path.parent, heapq.merge(readable, from_log, key=attrgetter("seq")))
            # The name has the first and the last seq, so it differs if one of these is lost.
            if new is None or new.path != path:
                path.unlink()
        sync(path.parent)
        if one.unreadable > len(in_log):
            lost[path.name] = one.unreadable - len(in_log)
    return lost


def _link(path: Path, target: Path) -> None:
    """Link a file to a second name; copy it where that is impossible."""
    try:
        # A link needs no free space on the disk.
        os.link(path, target)
    except OSError:
        shutil.copy2(path, target)
        sync(target)


def _forget_missing(path: Path, archived: list[_Checked]) -> tuple[dict[str, int], int]:
    """Delete the entries of archived events that no archive file contains.

    Return how many each file had lost, and how many are in no file.
    """
    found = frozenset[int]().union(*(one.seqs for one in archived))
    with closing(connect_writer(path)) as connection:
        migrate(connection)
        # After `migrate`: a log of the first schema has no table `archived`.
        names = {seq for (seq,) in connection.execute("SELECT seq FROM archived")}
        missing = sorted(names - found)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM archived WHERE seq = ?", [(seq,) for seq in missing])
        connection.execute("COMMIT")
    lost: dict[str, int] = {}
    unfiled = 0
    for seq in missing:
        files = (one.file.path.name for one in archived if one.file.first <= seq <= one.file.last)
        if name := next(files, ""):
            lost[name] = lost.get(name, 0) + 1
        else:
            unfiled += 1
    return lost, unfiled


def _readable(salvaged: Iterator[tuple[_Value, ...]], blobs: Blobs) -> dict[int, EventRow]:
    found: dict[int, EventRow] = {}
    for stored in salvaged:
        # A row that was written before a column was added ends without it.
        values = (*stored, None, None, None)[: len(_STORED)]
        try:
            row = msgspec.convert([values[at] for at in _ORDER], EventRow, strict=True)
            event = decode_event_row(row, blobs)
        except (msgspec.MsgspecError, ValueError, TypeError, PalaverError):
            continue
        found[event.seq] = row
    return found


def _write_anew(home: Path, rows: dict[int, EventRow], last_archived: int) -> int:
    """Write the rows into a new file, move it to its path, and return the highest seq ever used."""
    temporary = home / f"{FILE_NAME}.repaired"
    _remove(temporary)
    # The file of a repair that was killed is removed first: its rows would otherwise be mixed with new ones.
    device, highest = _mark(home)
    highest = max(highest, last_archived)
    connection = connect_writer(temporary)
    try:
        migrate(connection)
        connection.execute("BEGIN IMMEDIATE")
        for file in archive_files(home / "archive"):
            for event in file.events():
                # An event that is in both is archived: in the log it would be a second one.
                rows.pop(event.seq, None)
                highest = max(highest, event.seq)
                remembered = (event.seq, event.id, event.sender)
                connection.execute(
                    "INSERT OR IGNORE INTO archived (seq, id, sender) VALUES (?, ?, ?)", remembered
                )
                add_archived_conversations(connection, [event])
        kept = [rows[seq] for seq in sorted(rows)]
        highest = max([highest, *rows])
        # IGNORE: rows of damaged pages may repeat an id or a request key, and both are unique.
        insert_many(connection, f"INSERT OR IGNORE INTO events ({COLUMNS})", kept)
        # The newest event of this home: an imported one has the device of another home. A new device would
        # make every reference such as `42:BOXE` invalid.
        device = device or next((str(row[_DEVICE]) for row in reversed(kept) if row[_IMPORTED] is None), "")
        if device:
            connection.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('device', ?)", (device,))
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (highest,))
        connection.execute("COMMIT")
        # Closing alone does not fail when pages are left in the write-ahead log, which is not renamed.
        connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        connection.close()
        _remove(temporary)
        failure = failure_from(error)
        raise (
            failure
            if isinstance(failure, DiskFull)
            else StorageFailed(f"the log could not be rewritten: {error}")
        ) from error
    finally:
        connection.close()
    sync(temporary)
    # Only a complete file gets this name. If the repair is killed from here on, the next start uses the file.
    temporary.rename(home / f"{FILE_NAME}{REBUILT}")
    put_saved_back(home / FILE_NAME)
    return highest


def _remove(path: Path) -> None:
    # The database last: a write-ahead log must never be without it, or the next file of that name would take
    # it.
    for ending in ("-wal", "-shm", ""):
        Path(f"{path}{ending}").unlink(missing_ok=True)


def _mark(home: Path) -> tuple[str, int]:
    """Return the device and the highest seq from the separate file; empty values if that is lost too."""
    try:
        device, seq = (home / MARK_NAME).read_text(encoding="ascii").split()
        return device, int(seq)
    except (OSError, ValueError):
        return _NO_MARK


class _Pages:
    """The pages of a database file, replaced by newer ones of its write-ahead log.

    Checks every length and offset; the checksums of the write-ahead log are not checked.
    """

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes() if path.exists() else b""
        wal = Path(f"{path}-wal")
        log = wal.read_bytes() if wal.exists() else b""
        self._size = _page_size(int.from_bytes(self._content[16:18], "big")) or _page_size(
            int.from_bytes(log[8:12], "big")
        )
        # The header of either file may be the damaged part; then assume the size that SQLite uses for new
        # files.
        self._size = self._size or _PAGE_BYTES
        self._newer = _frames(log, self._size)

    def numbers(self) -> list[int]:
        """Return the pages that may contain rows, in ascending order, without freed pages."""
        free = self._free()
        # Rounded up, because the last page may be cut.
        count = -(-len(self._content) // self._size)
        return [number for number in sorted({*range(1, count + 1), *self._newer}) if number not in free]

    def page(self, number: int) -> bytes:
        """Return a page; shorter, or empty, if the file was truncated."""
        return self._newer.get(number) or self._content[(number - 1) * self._size : number * self._size]

    def rows(self, number: int) -> Iterator[tuple[int, tuple[_Value, ...]]]:
        """Yield the rows of a table leaf; leave unreadable rows out."""
        page = self.page(number)
        # The first page begins with the header of the file.
        start = 100 if number == 1 else 0
        if page[start : start + 1] != bytes([_LEAF]):
            return
        for at in range(int.from_bytes(page[start + 3 : start + 5], "big")):
            pointer = start + 8 + 2 * at
            try:
                yield self._row(page, int.from_bytes(page[pointer : pointer + 2], "big"))
            except (IndexError, ValueError):
                continue

    def _row(self, page: bytes, at: int) -> tuple[int, tuple[_Value, ...]]:
        length, at = _varint(page, at)
        rowid, at = _varint(page, at)
        usable = self._size
        local = length
        # SQLite's rule for how many bytes of a long row are in its page; the others are in a chain of pages.
        if length > usable - 35:
            least = (usable - 12) * 32 // 255 - 23
            local = least + (length - least) % (usable - 4)
            local = local if local <= usable - 35 else least
        payload = page[at : at + local]
        following = int.from_bytes(page[at + local : at + local + 4], "big") if local < length else 0
        pieces = [payload]
        while following and len(pieces) < _LIMIT_OVERFLOW:
            further = self.page(following)
            following = int.from_bytes(further[:4], "big")
            pieces.append(further[4:])
        whole = b"".join(pieces)[:length]
        if len(whole) < length:
            raise ValueError("cut")
        return rowid, _values(whole)

    def _free(self) -> set[int]:
        """Return the pages that the file marks as free: their contents were removed.

        A repair must not bring archived or redacted events back from them.
        """
        first = self.page(1)
        found: set[int] = set()
        trunk = int.from_bytes(first[32:36], "big") if first.startswith(_HEAD) else 0
        # A damaged list may form a circle.
        while trunk and trunk not in found:
            page = self.page(trunk)
            # The stored number may be damaged, and a page has no space for more entries than this.
            count = min(int.from_bytes(page[4:8], "big"), self._size // 4)
            leaves = {int.from_bytes(page[8 + 4 * at : 12 + 4 * at], "big") for at in range(count)}
            found |= leaves | {trunk}
            trunk = int.from_bytes(page[:4], "big")
        return found


def _page_size(stored: int) -> int:
    """Return the page size in a header, or 0 if it is impossible."""
    # Two bytes cannot hold 65,536, so SQLite writes 1 for it.
    stored = 65536 if stored == 1 else stored
    return stored if 512 <= stored <= 65536 and not stored & stored - 1 else 0


def _frames(log: bytes, size: int) -> dict[int, bytes]:
    """Return the newest version of each page in a write-ahead log, up to its last complete transaction."""
    salts = log[16:24]
    pages: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    # The file begins with a header of 32 bytes, and each frame with one of 24.
    for at in range(32, len(log) - 24 - size + 1, 24 + size):
        head = log[at : at + 24]
        # SQLite changes the salts when it restarts the file: the frames after this one are from an earlier
        # use.
        if head[8:16] != salts:
            break
        pending[int.from_bytes(head[:4], "big")] = log[at + 24 : at + 24 + size]
        if any(head[4:8]):  # The last frame of a transaction.
            pages |= pending
            pending = {}
    return pages


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    # Seven bits in each of up to eight bytes; a ninth byte has eight bits and no continuation bit.
    for byte in data[at : at + 8]:
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value << 8 | data[at], at + 1


def _values(payload: bytes) -> tuple[_Value, ...]:
    """Return the values of one row; raise ValueError or IndexError for invalid ones."""
    end, at = _varint(payload, 0)
    body = end
    values: list[_Value] = []
    while at < end:
        kind, at = _varint(payload, at)
        if kind == 0:
            values.append(None)
        elif kind <= 6:
            length = _INTEGER_BYTES[kind]
            values.append(int.from_bytes(payload[body : body + length], "big", signed=True))
            body += length
        elif kind in (8, 9):
            # The constants 0 and 1, which take no bytes in the row.
            values.append(kind - 8)
        elif kind >= 12:
            length = (kind - 12) // 2
            content = payload[body : body + length]
            values.append(content.decode() if kind % 2 else content)
            body += length
        else:
            # A float, or a kind that SQLite reserves: no column of `events` has one.
            raise ValueError("not a value of Palaver")
    return tuple(values)
