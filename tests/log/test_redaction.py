"""The files of the SQLite log after a redaction: no part of the text remains."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.log.contract_redaction import scrub
from tests.log.logs import fold, put

from palaver.clock import SystemClock
from palaver.errors import StorageFailed
from palaver.log.archive import ArchiveFile, redact_archives
from palaver.log.sqlite import SqliteLog
from palaver.log.storage import FILE_NAME
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query

SECRET = "hunter2"


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SqliteLog]:
    made = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock())
    yield made
    await made.close()


def files_with(directory: Path, text: str) -> list[str]:
    """Return the files below a directory that contain a text, in any case."""
    wanted = text.lower().encode()
    return [
        path.name for path in directory.rglob("*") if path.is_file() and wanted in path.read_bytes().lower()
    ]


async def test_no_byte_is_left_in_rows_index_journal_or_free_pages(log: SqliteLog, tmp_path: Path) -> None:
    for number in range(300):  # Parts of the index are merged, and pages split and freed.
        await put(log, f"{SECRET} {number}" if number % 3 else "x" * 900)
        if number % 50 == 0:
            await log.read(Query(search=SECRET))
    events = await log.read(Query(search=SECRET, limit=1000))
    assert files_with(tmp_path, SECRET)

    await log.redact([event.seq for event in events], scrub)

    assert files_with(tmp_path, SECRET) == []
    later = await put(log, "the log goes on")
    assert await log.read(Query(search="goes")) == [later]


@pytest.mark.parametrize("is_indexed", [True, False])
async def test_words_of_a_whole_payload_are_left_in_no_column(
    log: SqliteLog, tmp_path: Path, is_indexed: bool
) -> None:
    event = await put(log, type="x.note", thread=SECRET, room=SECRET, agent=SECRET, bundle_id=SECRET)
    if is_indexed:
        await log.read(Query(search="hello"))

    await log.redact([event.seq], lambda old: replace(old, payload={"text": "[redacted]"}))

    assert files_with(tmp_path, SECRET) == []
    assert await log.read(Query(threads=(SECRET,))) == []
    assert await log.read(Query(rooms=(SECRET,))) == []


async def test_event_that_is_not_indexed_yet_is_indexed_without_the_text(log: SqliteLog) -> None:
    event = await put(log, SECRET)
    await log.redact([event.seq], scrub)

    assert await log.read(Query(search=SECRET)) == []
    assert await log.read(Query(search="redacted")) == [scrub(event)]


async def test_blob_is_removed_with_its_last_event(log: SqliteLog, tmp_path: Path) -> None:
    large = f"{SECRET} " + "x" * 70_000
    first, second = await put(log, large), await put(log, large)
    await log.read(Query(search=SECRET))

    await log.redact([first.seq], scrub)
    assert len(list((tmp_path / "blobs").iterdir())) == 1
    await log.redact([second.seq], scrub)

    assert list((tmp_path / "blobs").iterdir()) == []
    assert files_with(tmp_path, SECRET) == []


async def test_event_with_a_lost_blob_can_be_redacted(log: SqliteLog, tmp_path: Path) -> None:
    event = await put(log, "x" * 70_000)
    await log.read(Query(search="x"))
    for path in (tmp_path / "blobs").iterdir():
        path.unlink()

    await log.redact([event.seq], scrub)

    found = log.event(event.seq)
    assert found is not None
    assert found.payload["text"] == "[redacted]"


async def test_event_without_a_text_afterwards_is_not_indexed(log: SqliteLog) -> None:
    event = await put(log, SECRET)
    await log.read(Query(search=SECRET))

    await log.redact([event.seq], lambda one: replace(one, payload={}))

    assert await log.read(Query(search=SECRET)) == []


async def test_concurrent_reader_is_reported_and_redaction_can_be_repeated(
    log: SqliteLog, tmp_path: Path
) -> None:
    event = await put(log, SECRET)
    with closing(sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        with pytest.raises(StorageFailed, match="redact it again"):
            await log.redact([event.seq], scrub)
        reader.execute("COMMIT")

    await log.redact([event.seq], scrub)

    assert files_with(tmp_path, SECRET) == []


async def test_failure_in_the_middle_changes_nothing(log: SqliteLog) -> None:
    event = await put(log, SECRET)
    later = await put(log, "later")

    def broken(one: Event) -> Event:
        if one.seq == later.seq:
            raise ValueError("a mistake")
        return scrub(one)

    with pytest.raises(Exception, match="a mistake"):
        await log.redact([event.seq, later.seq], broken)

    assert log.event(event.seq) == event
    await log.archive(later.seq + 1)
    with pytest.raises(ValueError, match="a mistake"):
        await log.redact([event.seq, later.seq], broken)
    assert log.event(event.seq) == event


async def test_lost_archive_is_reported(log: SqliteLog, tmp_path: Path) -> None:
    event = await put(log, SECRET)
    await log.archive(event.seq + 1)
    for path in (tmp_path / "archive").iterdir():
        path.unlink()

    with pytest.raises(StorageFailed):
        await log.redact([event.seq], scrub)
    found = await log.find_containing([SECRET])
    assert [Path(path).parent.name for path in found.unreadable] == ["archive"]


def test_archive_without_the_seq_is_left_unchanged() -> None:
    file = ArchiveFile(Path("nowhere"), 1, 4)

    redact_archives(Path("nowhere"), (file,), {5}, scrub)  # It would fail if it opened the file.


async def test_incomplete_first_archive_is_removed_by_a_redaction(log: SqliteLog, tmp_path: Path) -> None:
    event = await put(log, SECRET)
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "unfinished-1").write_text(SECRET)

    await log.redact([event.seq], scrub)

    assert list((tmp_path / "archive").iterdir()) == []


async def test_temporary_files_of_a_crash_are_removed_by_the_next_redaction(
    log: SqliteLog, tmp_path: Path
) -> None:
    event = await put(log, SECRET)
    kept = await put(log, "x" * 70_000)
    await log.archive(event.seq + 1)
    (tmp_path / "archive" / "unfinished-1").write_text(SECRET)
    (tmp_path / "blobs" / "tmp1").write_text(SECRET)

    await log.redact([event.seq], scrub)

    assert files_with(tmp_path, SECRET) == []
    assert log.event(kept.seq) == kept


async def test_mark_of_finished_redactions_survives_a_restart(tmp_path: Path) -> None:
    log = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock())
    await log.mark_redacted(7)
    await log.close()

    log = await SqliteLog.open(tmp_path, apply=fold, clock=SystemClock())

    assert log.redacted() == 7
    await log.close()


async def test_unreadable_archive_is_named(log: SqliteLog, tmp_path: Path) -> None:
    event = await put(log, SECRET)
    await log.archive(event.seq + 1)
    (path,) = (tmp_path / "archive").glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-9])

    assert (await log.find_containing([SECRET])).unreadable == (str(path),)
    with pytest.raises(StorageFailed, match="cannot be read"):
        await log.redact([event.seq], scrub)


async def test_line_that_has_its_seq_and_cannot_be_read_is_named(log: SqliteLog, tmp_path: Path) -> None:
    event = await put(log, SECRET)
    await log.archive(event.seq + 1)
    (path,) = (tmp_path / "archive").glob("*.jsonl")
    path.write_text(f'{{"seq":{event.seq},"text":"{SECRET}"}}\n')

    with pytest.raises(StorageFailed, match="cannot be read"):
        await log.redact([event.seq], scrub)


async def test_damaged_line_stays_and_the_others_are_redacted(log: SqliteLog, tmp_path: Path) -> None:
    first, event = await put(log, "first"), await put(log, SECRET)
    await log.archive(event.seq + 1)
    (path,) = (tmp_path / "archive").glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"\xff damaged\n" + lines[1])

    await log.redact([event.seq], scrub)

    assert path.read_bytes().startswith(b"\xff damaged\n")
    assert log.recall(event.seq) == scrub(event)
    assert log.event(first.seq) is None


async def test_search_fails_with_a_sentence_if_the_log_cannot_be_opened(
    log: SqliteLog, tmp_path: Path
) -> None:
    path = tmp_path / FILE_NAME
    path.rename(tmp_path / "aside")
    path.mkdir()

    with pytest.raises(StorageFailed, match="unable to open"):
        await log.find_containing([SECRET])

    path.rmdir()
    (tmp_path / "aside").rename(path)
