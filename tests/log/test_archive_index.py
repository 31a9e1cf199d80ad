"""Archived events are found by their ids, newest first and at most five."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.log.test_archive_file import event

from palaver.errors import StorageFailed
from palaver.log.archive import ArchiveIndex, Archives, write_archive
from palaver.log.storage import migrate

IDS = ("01ARZ3NDEKTSV4RRFFQ69G5FAV", *(f"{letter}-end" for letter in "abcdefg"), "zz")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(tmp_path / "file", isolation_level=None)
    migrate(made)
    yield made
    made.close()


@pytest.fixture
def index(connection: sqlite3.Connection, tmp_path: Path) -> ArchiveIndex:
    events = [event(seq, id=id_) for seq, id_ in enumerate(IDS, start=1)]
    write_archive(tmp_path / "archive", events)
    connection.executemany(
        "INSERT INTO archived VALUES (?, ?, ?, ?)",
        [(one.seq, one.id, "luna", one.id.encode()) for one in events],
    )
    return ArchiveIndex(connection, Archives(tmp_path / "archive"))


def test_id_finds_its_event(index: ArchiveIndex) -> None:
    assert [found.seq for found in index.by_id("a-end")] == [2]
    assert index.by_id("end") == []


def test_end_of_an_id_finds_the_newest_five(index: ArchiveIndex) -> None:
    assert [found.seq for found in index.by_end("-END")] == [8, 7, 6, 5, 4]
    assert [found.seq for found in index.by_end("b-end")] == [3]


def test_sender_and_id_find_one_event(index: ArchiveIndex) -> None:
    assert index.by_sender("a-end", "kira") is None

    found = index.by_sender("a-end", "luna")

    assert found is not None
    assert found.seq == 2


def test_known_event_with_a_missing_file_is_an_error_and_not_new(index: ArchiveIndex, tmp_path: Path) -> None:
    for path in (tmp_path / "archive").iterdir():
        path.unlink()

    for look in (
        lambda: index.by_id("a-end"),
        lambda: index.by_end("a-end"),
        lambda: index.by_sender("a-end", "luna"),
        lambda: index.by_request_key(b"a-end"),
        lambda: index.by_seq(2),
    ):
        with pytest.raises(StorageFailed, match=r"#2 is archived .*/archive/0+1-0+9\.jsonl: restore"):
            look()


def test_seq_and_request_key_find_one_event(index: ArchiveIndex) -> None:
    assert index.by_seq(10) is None
    assert index.by_request_key(b"end") is None

    found = index.by_seq(2)

    assert found is not None
    assert found.id == "a-end"
    assert index.by_request_key(b"a-end") == found


def test_missing_file_is_named_by_its_directory(
    index: ArchiveIndex, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    emptied = ArchiveIndex(connection, Archives(tmp_path / "elsewhere"))

    with pytest.raises(StorageFailed, match=r"#2 is archived .*/elsewhere: restore the file"):
        emptied.by_seq(2)


def test_largest_ids_are_known(index: ArchiveIndex) -> None:
    assert index.largest_ulid() == IDS[0]
    assert index.largest_id() == "zz"


def test_empty_archive_has_no_largest_id(connection: sqlite3.Connection, tmp_path: Path) -> None:
    index = ArchiveIndex(connection, Archives(tmp_path / "archive"))

    assert (index.largest_ulid(), index.largest_id()) == ("", "")
