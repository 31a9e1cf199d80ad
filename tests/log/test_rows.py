"""The writer sees its batch on top of the file."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.log.records import (
    ROWS_AT_ONCE,
    BatchRows,
    CachedRows,
    SqliteRows,
    TableVersions,
    in_pieces,
    prefix_end,
)
from palaver.log.storage import connect_reader, connect_writer, migrate


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = connect_writer(tmp_path / "file")
    migrate(made)
    yield made
    made.close()


def cached(connection: sqlite3.Connection, versions: TableVersions) -> CachedRows:
    """Return the cached rows of a log with one connection."""
    return CachedRows(connection, versions, connection, threading.Lock())


def test_changes_are_visible_before_they_are_written(connection: sqlite3.Connection) -> None:
    rows = BatchRows(connection)

    rows.change([("t", "a", b"1"), ("t", "a", b"2"), ("t", "b", b"1"), ("t", "b", None)])

    assert (rows.get("t", "a"), rows.get("t", "b")) == (b"2", None)
    assert SqliteRows(connection).get("t", "a") is None


def test_scan_writes_pending_changes_first(connection: sqlite3.Connection) -> None:
    rows = BatchRows(connection)
    rows.change([("t", "a", b"1"), ("t", "b", b"1")])

    assert rows.scan("t", "") == [("a", b"1"), ("b", b"1")]

    rows.change([("t", "a", None)])
    assert rows.scan("t", "") == [("b", b"1")]


def test_only_the_file_counts_after_a_rollback(connection: sqlite3.Connection) -> None:
    rows = BatchRows(connection)
    connection.execute("BEGIN")
    rows.change([("t", "a", b"1")])
    rows.flush()

    connection.execute("ROLLBACK")
    rows.forget()

    assert rows.get("t", "a") is None


def test_many_rows_are_all_written(connection: sqlite3.Connection) -> None:
    rows = BatchRows(connection)
    many = [f"{number:05d}" for number in range(5000 + ROWS_AT_ONCE + 1)]

    rows.change(("t", key, b"x") for key in many)
    rows.flush()

    assert [key for key, _ in SqliteRows(connection).scan("t", "", limit=10_000)] == many


def test_cached_rows_are_dropped_in_time(connection: sqlite3.Connection) -> None:
    rows = BatchRows(connection)
    many = [f"{number:05d}" for number in range(5000)]
    rows.change(("t", key, b"old") for key in many)
    rows.flush()
    assert {rows.get("t", key) for key in many} == {b"old"}

    rows.change(("t", key, b"new") for key in many)
    rows.flush()

    assert {rows.get("t", key) for key in many} == {b"new"}


def test_row_that_was_read_and_changed_is_read_again(connection: sqlite3.Connection) -> None:
    rows = BatchRows(connection)
    assert rows.get("t", "a") is None

    rows.change([("t", "a", b"1")])
    rows.flush()
    rows.change([("t", "b", b"1")])

    assert rows.get("t", "a") == b"1"


def test_scan_is_cached_until_its_table_changes(connection: sqlite3.Connection) -> None:
    versions = TableVersions()
    rows, written = cached(connection, versions), BatchRows(connection)
    assert rows.scan("t", "") == []
    written.change([("t", "a", b"1"), ("other", "a", b"1")])
    written.flush()

    versions.rise({"other"})
    assert rows.scan("t", "") == []

    versions.rise(written.tables)
    assert rows.scan("t", "") == [("a", b"1")]


def test_open_transaction_is_not_visible_to_other_readers(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    reading, in_use = connect_reader(tmp_path / "file"), threading.Lock()
    rows, written = CachedRows(reading, TableVersions(), connection, in_use), BatchRows(connection)
    with in_use:
        connection.execute("BEGIN IMMEDIATE")
        written.change([("t", "a", b"1")])
        written.flush()

        assert rows.get("t", "a") is None
        assert rows.scan("t", "a") == []

        connection.execute("COMMIT")

    assert rows.get("t", "a") == b"1"
    assert rows.scan("t", "") == [("a", b"1")]
    reading.close()


def test_every_cached_scan_ends_when_all_rows_are_made_again(connection: sqlite3.Connection) -> None:
    versions = TableVersions()
    rows, written = cached(connection, versions), BatchRows(connection)
    assert rows.scan("t", "") == []
    written.change([("t", "a", b"1")])
    written.flush()

    versions.rise_all()

    assert rows.scan("t", "") == [("a", b"1")]


def test_caller_may_change_a_cached_result(connection: sqlite3.Connection) -> None:
    rows, written = cached(connection, TableVersions()), BatchRows(connection)
    written.change([("t", "a", b"1")])
    written.flush()

    rows.scan("t", "").clear()
    rows.scan("t", "").clear()

    assert rows.scan("t", "") == [("a", b"1")]


def test_long_results_are_not_cached(connection: sqlite3.Connection) -> None:
    rows, written = cached(connection, TableVersions()), BatchRows(connection)
    written.change(("t", f"{number:03d}", b"1") for number in range(100))
    written.flush()
    assert len(rows.scan("t", "")) == 100

    written.change([("t", "000", None)])
    written.flush()

    assert len(rows.scan("t", "")) == 99


def test_large_results_are_not_cached(connection: sqlite3.Connection) -> None:
    rows, written = cached(connection, TableVersions()), BatchRows(connection)
    written.change([("t", "large", b"x" * 5000)])
    written.flush()
    assert len(rows.scan("t", "")) == 1

    written.change([("t", "large", None)])
    written.flush()

    assert rows.scan("t", "") == []


def test_cached_scans_are_dropped_in_time(connection: sqlite3.Connection) -> None:
    rows, written = cached(connection, TableVersions()), BatchRows(connection)
    assert rows.scan("t", "first") == []
    written.change([("t", "first", b"1")])
    written.flush()

    for number in range(5000):
        rows.scan("t", str(number))

    assert rows.scan("t", "first") == [("first", b"1")]


@given(st.lists(st.integers()), st.integers(1, 5))
def test_joined_pieces_equal_the_whole(items: list[int], size: int) -> None:
    pieces = list(in_pieces(items, size))

    assert [item for piece in pieces for item in piece] == items
    assert all(len(piece) == size for piece in pieces[:-1])


texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\ud7ff\U0010ffff"), max_size=4)


@given(texts, texts)
def test_end_of_a_prefix_is_above_every_key_with_that_prefix(prefix: str, rest: str) -> None:
    end = prefix_end(prefix)

    assert end is None or prefix + rest < end
    assert end is None or not end.startswith(prefix)
    assert end is not None or prefix.strip("\U0010ffff") == ""
