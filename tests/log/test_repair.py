"""Rebuilding a damaged log from its pages and archives."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.log.logs import TS, draft, files_no_larger_than, fold, put, writes

from palaver.clock import SystemClock
from palaver.errors import DiskFull, NewerSchema, StorageFailed
from palaver.log import storage
from palaver.log.repair import Repaired, repair, salvage
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME, MARK_NAME, REBUILT, kept_folders
from palaver.protocol.query import Query

TEXTS = ["short", "x" * 5_000, "y" * 30_000, "z" * 90_000, "ü" * 2_000]


async def open_log(directory: Path) -> SqliteLog:
    return await SqliteLog.open(directory, apply=fold, clock=SystemClock())


async def run_repair(directory: Path) -> Repaired:
    return await repair(directory, apply=fold, clock=SystemClock())


async def make(directory: Path, count: int = 60) -> list[str]:
    log = await open_log(directory)
    texts = [f"{number} {TEXTS[number % len(TEXTS)]}" for number in range(count)]
    for text in texts:
        await put(log, text)
    await log.commit(None, writes(draft("with a key", type="claim", room="lobby")), request_key=b"k" * 16)
    await log.close()
    return [*texts, "with a key"]


async def texts_of(directory: Path) -> list[object]:
    log = await open_log(directory)
    try:
        return [event.payload["text"] for event in await log.read(Query())]
    finally:
        await log.close()


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


async def test_intact_log_stays_unchanged(tmp_path: Path) -> None:
    texts = await make(tmp_path)

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events, done.kept) == (True, len(texts), None)
    assert await texts_of(tmp_path) == texts
    assert "damaged-1" not in os.listdir(tmp_path)


@pytest.mark.parametrize("is_started", [False, True])
async def test_events_of_a_lost_write_ahead_log_are_counted_as_missing(
    tmp_path: Path, is_started: bool
) -> None:
    await make(tmp_path, 4)
    device = (tmp_path / MARK_NAME).read_text().split()[0]
    (tmp_path / MARK_NAME).write_text(f"{device} {9:020d}\n")
    if is_started:
        await (await open_log(tmp_path)).close()

    done = await run_repair(tmp_path)
    again = await run_repair(tmp_path)

    assert (done.is_whole, done.events, done.missing, done.kept) == (False, 5, 4, None)
    assert (again.is_whole, again.missing) == (True, 0)
    assert kept_folders(tmp_path) == []


async def test_intact_write_ahead_log_is_not_kept_for_events_lost_earlier(tmp_path: Path) -> None:
    await make(tmp_path, 4)
    device = (tmp_path / MARK_NAME).read_text().split()[0]
    (tmp_path / MARK_NAME).write_text(f"{device} {9:020d}\n")
    log = await open_log(tmp_path)
    await put(log, "later")
    copies = {path: path.read_bytes() for path in (tmp_path / FILE_NAME, tmp_path / f"{FILE_NAME}-wal")}
    await log.close()
    for path, content in copies.items():
        path.write_bytes(content)

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events, done.missing, done.kept) == (False, 6, 4, None)
    assert kept_folders(tmp_path) == []


async def test_damaged_write_ahead_log_is_kept(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put(log, "one")
    end = _end_of_frames(wal := tmp_path / f"{FILE_NAME}-wal")
    await put(log, "two")
    copies = {path: path.read_bytes() for path in (tmp_path / FILE_NAME, wal)}
    await log.close()
    for path, content in copies.items():
        path.write_bytes(content)
    overwrite(wal, end + 24, b"\xff" * 100)
    damaged = wal.read_bytes()

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events, done.missing) == (False, 1, 1)
    assert done.kept is not None
    assert (done.kept / wal.name).read_bytes() == damaged


def _end_of_frames(wal: Path) -> int:
    """Return where the next frame of a write-ahead log begins."""
    content = wal.read_bytes()
    at = 32
    while content[at + 8 : at + 16] == content[16:24]:
        at += 24 + 4096
    return at


async def test_copy_saved_when_the_log_was_removed_is_used(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put(log, "before")
    (tmp_path / FILE_NAME).unlink()
    await log.close()

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events) == (True, 1)
    assert await texts_of(tmp_path) == ["before"]


async def test_every_event_is_found_when_the_header_is_lost(tmp_path: Path) -> None:
    texts = await make(tmp_path)
    overwrite(tmp_path / FILE_NAME, 0, b"\0" * 100)

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events, done.missing) == (False, len(texts), 0)
    assert await texts_of(tmp_path) == texts


async def test_missing_log_is_rebuilt_from_the_archives(tmp_path: Path) -> None:
    await make(tmp_path, 10)
    log = await open_log(tmp_path)
    await log.archive(6)
    await log.close()
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / "damaged-1").mkdir()

    done = await run_repair(tmp_path)
    log = await open_log(tmp_path)
    event = await put(log, "later")

    assert (done.events, done.missing, done.kept) == (5, 6, tmp_path / "damaged-2")
    assert kept_folders(tmp_path) == [tmp_path / "damaged-1", tmp_path / "damaged-2"]
    assert log.archived() == 5
    assert event.seq == 12
    await log.close()


async def test_places_of_archived_messages_are_found_after_a_repair(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    event = await put(log, "hello", to=("irc/local/#dev",))
    await log.archive(log.last() + 1)
    await log.close()
    (tmp_path / FILE_NAME).unlink()

    await run_repair(tmp_path)
    log = await open_log(tmp_path)

    assert await log.read_shown(Query(shown=("#dev",))) == [event]
    await log.close()


async def test_events_in_the_write_ahead_log_are_found(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    await put(log, "one")
    await put(log, "two")
    copies = {name: (tmp_path / name).read_bytes() for name in (FILE_NAME, f"{FILE_NAME}-wal")}
    await log.close()
    for name, content in copies.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / FILE_NAME).write_bytes(b"\0" * 4096)
    with (tmp_path / f"{FILE_NAME}-wal").open("ab") as wal:
        wal.write(b"\1" * 5_000)  # From an older generation, with different salts.

    found = list(salvage(tmp_path / FILE_NAME))

    assert sorted(row[0] for row in found if isinstance(row[0], int)) == [1, 2]


async def test_freed_pages_are_left_out(tmp_path: Path) -> None:
    await make(tmp_path)
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("DELETE FROM events WHERE seq <= 50")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()

    found = {row[0] for row in salvage(tmp_path / FILE_NAME)}

    assert found == set(range(51, 62))


async def test_unreadable_rows_are_left_out(tmp_path: Path) -> None:
    await make(tmp_path, 5)
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("UPDATE events SET payload = '{' WHERE seq = 1")
    connection.execute("UPDATE events SET sender = '' WHERE seq = 2")
    connection.execute("UPDATE events SET ts = 1.5 WHERE seq = 3")
    connection.execute("UPDATE events SET seq = -1 WHERE seq = 4")
    connection.commit()
    connection.close()
    overwrite(tmp_path / FILE_NAME, 0, b"\0" * 16)

    done = await run_repair(tmp_path)

    assert (done.events, done.missing) == (2, 4)


async def test_archived_entries_without_their_file_do_not_stop_a_repair(tmp_path: Path) -> None:
    texts = await make(tmp_path, 5)
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("INSERT INTO archived (seq, id, sender) VALUES (1000, 'x', 'y')")
    connection.commit()
    connection.close()

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events) == (False, len(texts))


async def test_readable_rows_of_a_file_that_cannot_be_opened_are_found(tmp_path: Path) -> None:
    texts = await make(tmp_path, 5)
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA application_id = 1")
    connection.close()

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events) == (False, len(texts))


async def test_device_is_kept_without_the_mark(tmp_path: Path) -> None:
    await make(tmp_path, 5)
    log = await open_log(tmp_path)
    device = log.device
    await log.close()
    (tmp_path / MARK_NAME).unlink()
    overwrite(tmp_path / FILE_NAME, 0, b"\0" * 100)

    await run_repair(tmp_path)

    log = await open_log(tmp_path)
    assert log.device == device
    await log.close()


async def test_device_of_an_imported_event_is_not_taken_over(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    device = log.device
    await put(log, "own", sent_ts=TS)
    await log.commit(None, writes(replace(draft("foreign"), imported=7, device="FORN")))
    await log.close()
    (tmp_path / MARK_NAME).unlink()
    overwrite(tmp_path / FILE_NAME, 0, b"\0" * 100)

    await run_repair(tmp_path)

    log = await open_log(tmp_path)
    assert log.device == device
    await log.close()


async def test_home_without_a_readable_event_gets_a_new_device(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 1000)

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events) == (False, 0)
    log = await open_log(tmp_path)
    assert log.device
    await log.close()


async def test_repair_of_nothing_creates_an_empty_log(tmp_path: Path) -> None:
    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events, done.missing, done.kept) == (True, 0, 0, None)
    assert await texts_of(tmp_path) == []
    assert kept_folders(tmp_path) == []


async def test_events_of_a_removed_log_are_counted_as_missing(tmp_path: Path) -> None:
    texts = await make(tmp_path, 4)
    (tmp_path / FILE_NAME).unlink()

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events, done.missing) == (False, 0, len(texts))


async def test_archive_with_events_of_another_one_is_kept_elsewhere(tmp_path: Path) -> None:
    await make(tmp_path, 10)
    log = await open_log(tmp_path)
    await log.archive(6)
    await log.close()
    (file,) = (tmp_path / "archive").iterdir()
    other = tmp_path / "archive" / f"{20:015d}-{29:015d}.jsonl"
    other.write_bytes(file.read_bytes())
    overwrite(tmp_path / FILE_NAME, 0, b"\0" * 100)

    done = await run_repair(tmp_path)

    assert done.events == 11
    assert (tmp_path / "damaged-1" / "archive" / other.name).read_bytes() == file.read_bytes()
    assert os.listdir(tmp_path / "archive") == [file.name]


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("log")
    asyncio.run(make(directory, 40))
    return (directory / FILE_NAME).read_bytes()


async def test_seqs_with_more_than_fifteen_digits_are_left_out(tmp_path: Path) -> None:
    await make(tmp_path)
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("UPDATE events SET seq = ? WHERE seq = 60", (10**15 - 1,))
    connection.execute("UPDATE events SET seq = ? WHERE seq = 61", (10**15,))
    connection.commit()
    connection.close()

    found = {row[0] for row in salvage(tmp_path / FILE_NAME)}

    assert 10**15 - 1 in found
    assert 10**15 not in found


@given(
    harms=st.lists(st.tuples(st.integers(0, 400_000), st.binary(min_size=1, max_size=40)), max_size=20),
    end=st.integers(0, 400_000),
    wal=st.binary(max_size=200),
)
def test_salvage_never_fails_whatever_the_files_contain(
    content: bytes,
    tmp_path_factory: pytest.TempPathFactory,
    harms: list[tuple[int, bytes]],
    end: int,
    wal: bytes,
) -> None:
    path = tmp_path_factory.mktemp("harmed") / FILE_NAME
    harmed = bytearray(content)
    for at, harm in harms:
        harmed[at % len(harmed) : at % len(harmed) + len(harm)] = harm
    path.write_bytes(harmed[: len(harmed) - end % len(harmed)])
    Path(f"{path}-wal").write_bytes(wal)

    assert all(isinstance(row[0], int) for row in salvage(path))


# Damaged archives


async def make_archive(directory: Path, count: int = 10, before: int = 6) -> Path:
    """Write a log whose first events are archived, and return the archive file."""
    await make(directory, count)
    log = await open_log(directory)
    done = await log.archive(before)
    await log.close()
    assert done.path is not None
    return done.path


def set_lines(path: Path, *lines: bytes) -> bytes:
    path.write_bytes(content := b"".join(lines))
    return content


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


async def seqs_of_archives(directory: Path) -> list[int]:
    log = await open_log(directory)
    try:
        return [event.seq for event in (await log.read_archived(Query())).events]
    finally:
        await log.close()


@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize(
    ("keep", "found"),
    [([0, 1, 3, 4], [1, 2, 4, 5]), ([0, 1], [1, 2]), ([0, 1, 1, 0, 4], [1, 2, 5]), ([], [])],
)
async def test_readable_lines_of_a_damaged_archive_are_rescued(
    tmp_path: Path, keep: list[int], found: list[int], has_head: bool
) -> None:
    path = await make_archive(tmp_path)
    lines = [*lines_of(path)]
    damaged = set_lines(path, *(lines[at] for at in keep), b'{"v":1,' if keep == [0, 1, 3, 4] else b"")
    if not has_head:
        connection = sqlite3.connect(tmp_path / FILE_NAME)
        connection.execute("VACUUM")  # Pages that archived events have left may still hold them.
        connection.close()
        overwrite(tmp_path / FILE_NAME, 0, b"\0" * 100)

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.kept, done.unfiled) == (False, tmp_path / "damaged-1", 0)
    assert done.missing == 5 - len(found)
    assert list(done.lost) == [path.name]
    assert (tmp_path / "damaged-1" / "archive" / path.name).read_bytes() == damaged
    assert await seqs_of_archives(tmp_path) == found
    assert (await run_repair(tmp_path)).is_whole


async def test_event_in_log_and_archive_is_rescued_from_the_log(tmp_path: Path) -> None:
    await make(tmp_path, 10)
    shutil.copytree(tmp_path, tmp_path / "copy")
    path = await make_archive(tmp_path / "copy", 0)
    (tmp_path / "archive").mkdir()  # As after a crash before events left the log.
    set_lines(tmp_path / "archive" / path.name, *lines_of(path)[:2], b"damaged\n", *lines_of(path)[3:])

    done = await run_repair(tmp_path)
    log = await open_log(tmp_path)

    assert (done.missing, done.lost) == (0, {})
    assert (await log.archive(6)).count == 5
    await log.close()
    assert await seqs_of_archives(tmp_path) == [1, 2, 3, 4, 5]


async def test_part_of_an_archive_that_the_disk_cannot_read_is_lost(tmp_path: Path) -> None:
    path = await make_archive(tmp_path)
    path.unlink()
    path.symlink_to("/proc/self/mem")  # Its first byte cannot be read.

    done = await run_repair(tmp_path)

    assert (done.missing, done.lost) == (5, {path.name: 5})
    assert os.readlink(tmp_path / "damaged-1" / "archive" / path.name) == "/proc/self/mem"


async def test_archive_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    path = await make_archive(tmp_path)
    path.unlink()
    path.mkdir()

    with pytest.raises(IsADirectoryError):
        await run_repair(tmp_path)

    assert kept_folders(tmp_path) == []


async def test_damaged_archive_is_copied_where_it_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("a file system without hard links")

    path = await make_archive(tmp_path)
    damaged = set_lines(path, *lines_of(path)[:3])
    monkeypatch.setattr(os, "link", refuse)

    await run_repair(tmp_path)

    assert (tmp_path / "damaged-1" / "archive" / path.name).read_bytes() == damaged


async def test_missing_archive_is_counted(tmp_path: Path) -> None:
    path = await make_archive(tmp_path)
    path.unlink()

    done = await run_repair(tmp_path)

    assert (done.is_whole, done.events, done.missing, done.unfiled) == (False, 6, 5, 5)


# Repairs that fail or are killed


async def test_log_of_a_newer_version_is_not_repaired(tmp_path: Path) -> None:
    await make(tmp_path, 3)
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (tmp_path / FILE_NAME).read_bytes()

    with pytest.raises(NewerSchema):
        await run_repair(tmp_path)

    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert kept_folders(tmp_path) == []


async def test_log_of_a_newer_version_with_a_write_ahead_log_is_not_copied(tmp_path: Path) -> None:
    texts = await make(tmp_path, 3)
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("PRAGMA user_version = 99")
    copies = {path: path.read_bytes() for path in (tmp_path / FILE_NAME, tmp_path / f"{FILE_NAME}-wal")}
    other.close()
    for path, content in copies.items():
        path.write_bytes(content)
    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size

    with pytest.raises(NewerSchema):
        await run_repair(tmp_path)

    assert kept_folders(tmp_path) == []
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (len(texts),)


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "PRAGMA locking_mode = EXCLUSIVE"])
async def test_locked_log_is_not_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str) -> None:
    texts = await make(tmp_path, 3)
    monkeypatch.setattr(storage, "BUSY_TIMEOUT_S", 0)
    shell = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    shell.execute(lock)
    shell.execute("DELETE FROM meta WHERE key = 'lost'")

    with pytest.raises(StorageFailed, match="another program has locked the log"):
        await run_repair(tmp_path)

    shell.close()
    assert kept_folders(tmp_path) == []
    assert await texts_of(tmp_path) == texts


async def test_lock_that_begins_during_a_repair_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = await make(tmp_path, 3)
    monkeypatch.setattr(storage, "BUSY_TIMEOUT_S", 0)
    shell = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)

    class LockingClock(SystemClock):
        def now_ms(self) -> int:
            shell.execute("BEGIN IMMEDIATE")
            return super().now_ms()

    with pytest.raises(StorageFailed, match="another program has locked the log"):
        await repair(tmp_path, apply=fold, clock=LockingClock())

    shell.close()
    assert await texts_of(tmp_path) == texts


async def test_damaged_write_ahead_log_is_kept_by_a_repair_that_fails(tmp_path: Path) -> None:
    texts = await make(tmp_path, 3)
    (tmp_path / f"{FILE_NAME}-wal").write_bytes(b"damaged" * 1000)
    disk = ExitStack()

    class FillingClock(SystemClock):
        def now_ms(self) -> int:
            disk.enter_context(files_no_larger_than(1024 * 1024))
            return super().now_ms()

    with disk, pytest.raises(DiskFull):
        await repair(tmp_path, apply=lambda *_: [("count", "all", bytes(2_000_000))], clock=FillingClock())

    (kept,) = kept_folders(tmp_path)
    assert (kept / f"{FILE_NAME}-wal").read_bytes() == b"damaged" * 1000
    assert await texts_of(tmp_path) == texts


async def test_intact_log_is_kept_when_the_disk_is_full(tmp_path: Path) -> None:
    texts = await make(tmp_path, 20)
    disk = ExitStack()

    class FillingClock(SystemClock):
        def now_ms(self) -> int:
            disk.enter_context(files_no_larger_than(1024 * 1024))
            return super().now_ms()

    with disk, pytest.raises(DiskFull):
        await repair(tmp_path, apply=lambda *_: [("count", "all", bytes(2_000_000))], clock=FillingClock())

    assert kept_folders(tmp_path) == []
    assert await texts_of(tmp_path) == texts


async def test_killed_repair_is_finished_at_the_next_start(tmp_path: Path) -> None:
    texts = await make(tmp_path, 5)
    (tmp_path / FILE_NAME).rename(tmp_path / f"{FILE_NAME}{REBUILT}")
    (tmp_path / FILE_NAME).write_bytes(b"damaged")
    (tmp_path / f"{FILE_NAME}-wal").write_bytes(b"of the damaged file")

    assert await texts_of(tmp_path) == texts


async def test_damaged_archive_is_kept_when_the_disk_is_full_later(tmp_path: Path) -> None:
    path = await make_archive(tmp_path)
    damaged = set_lines(path, *lines_of(path)[:3])
    overwrite(tmp_path / FILE_NAME, 0, b"\0" * 100)

    size = (tmp_path / FILE_NAME).stat().st_size
    with files_no_larger_than(size), pytest.raises(DiskFull):
        await run_repair(tmp_path)

    assert (tmp_path / "damaged-1" / "archive" / path.name).read_bytes() == damaged
    assert (await run_repair(tmp_path)).kept == tmp_path / "damaged-2"


async def test_copies_are_removed_when_the_disk_is_full(tmp_path: Path) -> None:
    await make(tmp_path, 20)
    overwrite(tmp_path / FILE_NAME, 0, b"\0" * 100)
    size = (tmp_path / FILE_NAME).stat().st_size
    before = sorted(os.listdir(tmp_path))

    for limit in (size // 2, size + 4096):  # The copy does not fit; the copy fits and the new log does not.
        with files_no_larger_than(limit), pytest.raises((DiskFull, OSError)):
            await run_repair(tmp_path)
        assert sorted(os.listdir(tmp_path)) == before

    done = await run_repair(tmp_path)
    assert (done.events, done.missing) == (21, 0)
