"""Maintenance of the log's file: when it is due, when it is urgent, and that it is done."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaver.log import writer as upkeep
from palaver.log.records import Blobs
from palaver.log.search import LIMIT_INDEXED, LIMIT_UNINDEXED, Words
from palaver.log.storage import FILE_NAME, connect_writer, migrate
from palaver.log.writer import Upkeep


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = connect_writer(tmp_path / FILE_NAME)
    migrate(made)
    yield made
    made.close()


@pytest.fixture
def words(connection: sqlite3.Connection, tmp_path: Path) -> Words:
    return Words(connection, Blobs(tmp_path / "blobs"), 0)


@pytest.fixture
def rested(connection: sqlite3.Connection, words: Words) -> Upkeep:
    """An upkeep with nothing left to do."""
    made = Upkeep(connection, words, lambda: None)
    made.do_all()
    return made


def test_files_are_preallocated_once(connection: sqlite3.Connection, words: Words) -> None:
    laid_out: list[bool] = []
    made = Upkeep(connection, words, lambda: laid_out.append(True))
    assert made.is_wanted

    made.do_all()
    made.do_all()

    assert (laid_out, made.is_wanted) == ([True], False)


def test_failed_preallocation_on_a_full_disk_is_ignored(connection: sqlite3.Connection, words: Words) -> None:
    def fail() -> None:
        raise OSError(28, "no room")

    made = Upkeep(connection, words, fail)

    made.do_all()

    assert not made.is_wanted


def test_long_journal_is_due_and_a_very_long_one_is_urgent(
    rested: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_PAGES_WHEN_IDLE", 20)
    monkeypatch.setattr(upkeep, "_PAGES_AT_MOST", 40)

    rested.written(5)
    after_some = (rested.is_wanted, rested.is_urgent)
    rested.written(5)
    after_many = (rested.is_wanted, rested.is_urgent)
    rested.do_what_is_urgent()

    assert (after_some, after_many) == ((True, False), (True, True))
    assert (rested.is_wanted, rested.is_urgent) == (False, False)


def test_unindexed_words_are_due_and_too_many_are_urgent(rested: Upkeep, words: Words) -> None:
    words.written(LIMIT_UNINDEXED - 1)
    after_some = (rested.is_wanted, rested.is_urgent)
    words.written(LIMIT_UNINDEXED)
    after_many = (rested.is_wanted, rested.is_urgent)
    rested.do_what_is_urgent()

    assert (after_some, after_many) == ((True, False), (True, True))
    assert words.unindexed == 0


def test_failed_indexing_is_retried_later_but_reported_to_a_search(
    rested: Upkeep, words: Words, connection: sqlite3.Connection
) -> None:
    words.written(3)
    connection.execute("PRAGMA query_only = ON")

    rested.do_all()
    with pytest.raises(sqlite3.Error):
        rested.index()
    connection.execute("PRAGMA query_only = OFF")

    assert (words.unindexed, rested.index(), words.unindexed) == (3, 3, 0)


def test_emptied_index_is_filled_in_parts(rested: Upkeep, words: Words) -> None:
    words.written(LIMIT_INDEXED + 1)

    counts = [rested.index(), rested.index(), rested.index()]

    assert counts == [LIMIT_INDEXED, 1, 0]


def test_long_journal_is_checkpointed_in_a_pause(rested: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_PAGES_WHEN_IDLE", 20)
    rested.written(5)

    rested.do_all()

    assert not rested.is_wanted
