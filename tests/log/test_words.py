"""The full-text index: how many events it lacks, and how it catches up."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaver.log.records import Blobs
from palaver.log.search import Words
from palaver.log.storage import FILE_NAME, connect_writer, migrate


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = connect_writer(tmp_path / FILE_NAME)
    migrate(made)
    yield made
    made.close()


def store(connection: sqlite3.Connection, *texts: str) -> int:
    """Store messages without updating the index."""
    last = 0
    for text in texts:
        last = (
            connection.execute(
                "INSERT INTO events (id, type, sender, ts, device, payload)"
                " VALUES (?, 'message', 'luna', 1, 'BOXE', json_object('text', ?))",
                (f"id-{text}", text),
            ).lastrowid
            or 0
        )
    return last


def found(connection: sqlite3.Connection, word: str) -> list[int]:
    return [
        row[0] for row in connection.execute("SELECT rowid FROM events_fts WHERE events_fts MATCH ?", (word,))
    ]


def test_missing_events_are_counted_and_indexed(connection: sqlite3.Connection, tmp_path: Path) -> None:
    last = store(connection, "apple", "pear")
    words = Words(connection, Blobs(tmp_path / "blobs"), last)
    unindexed = words.unindexed

    words.catch_up()

    assert unindexed == 2
    assert words.unindexed == 0
    assert found(connection, "pear") == [2]


def test_end_of_the_index_is_stored(connection: sqlite3.Connection, tmp_path: Path) -> None:
    last = store(connection, "apple")
    Words(connection, Blobs(tmp_path / "blobs"), last).catch_up()
    last = store(connection, "pear")

    again = Words(connection, Blobs(tmp_path / "blobs"), last)

    assert again.unindexed == 1


def test_failed_update_leaves_the_index_unchanged(connection: sqlite3.Connection, tmp_path: Path) -> None:
    last = store(connection, "apple")
    words = Words(connection, Blobs(tmp_path / "blobs"), last)
    connection.execute("ALTER TABLE meta RENAME TO hidden")

    with pytest.raises(sqlite3.OperationalError):
        words.catch_up()
    connection.execute("ALTER TABLE hidden RENAME TO meta")
    words.catch_up()

    assert found(connection, "apple") == [1]


def test_events_count_as_indexed_only_after_the_commit(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    last = store(connection, "apple", "pear")
    words = Words(connection, Blobs(tmp_path / "blobs"), last)

    connection.execute("BEGIN IMMEDIATE")
    words.take_in(last)
    before = words.unindexed
    connection.execute("COMMIT")
    words.written(last)

    assert (before, words.unindexed) == (2, 0)
