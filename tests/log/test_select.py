"""A query becomes a statement that uses an index, in seq order, without sorting."""

import sqlite3
from collections.abc import Iterator

import pytest

from palaver.log.search import statement_from, statements_from, wanted
from palaver.log.storage import migrate
from palaver.protocol.query import Query


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:", isolation_level=None)
    migrate(made)
    yield made
    made.close()


def plan(connection: sqlite3.Connection, query: Query) -> str:
    statement, values = statement_from(query)
    return "; ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values))


@pytest.mark.parametrize(
    ("query", "way"),
    [
        (Query(last=20), "PRIMARY KEY"),
        (Query(after=5, before=9), "PRIMARY KEY"),
        (Query(types=("message",), last=20), "events_by_type"),
        (Query(types=("message", "message_sent")), "events_by_type"),
        (Query(types=("message", "status"), last=20), "PRIMARY KEY"),
        (Query(senders=("luna",), last=20), "events_by_sender"),
        (Query(senders=("luna", "nova"), last=20), "PRIMARY KEY"),
        (Query(senders=("luna",), types=("release",)), "events_by_type"),
        (Query(senders=("luna",), search="word"), "VIRTUAL TABLE"),
        (Query(agents=("luna",), last=20), "PRIMARY KEY"),
        (Query(threads=("pr-123",), last=20), "events_by_thread"),
        (Query(threads=("pr-123", "t"), types=("message", "status")), "events_by_thread"),
        (Query(threads=("pr-123",), types=("message",)), "events_by_thread"),
        (Query(threads=("pr-123",), search="word"), "VIRTUAL TABLE"),
        (Query(rooms=("repo-abcd",), last=20), "events_by_room"),
        (Query(rooms=("repo-abcd",), types=("message",), senders=("luna",)), "events_by_room"),
        (Query(rooms=("a", "b"), after=7), "events_by_room"),
        (Query(rooms=("repo-abcd",), threads=("pr-123",)), "events_by_thread"),
        (Query(rooms=("repo-abcd",), search="word"), "VIRTUAL TABLE"),
        (Query(threads=tuple(map(str, range(50)))), "PRIMARY KEY"),
        (Query(search="word", last=20), "VIRTUAL TABLE"),
        (Query(search="word", types=("message",)), "VIRTUAL TABLE"),
    ],
)
def test_query_needs_no_sorting(connection: sqlite3.Connection, query: Query, way: str) -> None:
    found = plan(connection, query)

    assert way in found
    assert "TEMP B-TREE" not in found


@pytest.mark.parametrize(
    "query",
    [
        Query(targets=("nova",), last=20),
        Query(agents=("nova", "luna"), types=("message",), last=20),
        Query(intents=("request",), senders=("luna", "nova"), after=7),
        Query(files=("a.py",), before=90),
        Query(tools=("Bash",), with_imported=True),
    ],
)
def test_indexed_events_are_found_by_their_terms(connection: sqlite3.Connection, query: Query) -> None:
    statements = statements_from(query, last_indexed=100)

    plans = [
        "; ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values))
        for statement, values in statements
    ]
    assert "TEMP B-TREE" not in "".join(plans)
    terms, later = plans if query.last is None else plans[::-1]
    assert terms.startswith("SCAN events_terms VIRTUAL TABLE")
    assert "SEARCH events USING INTEGER PRIMARY KEY (rowid=?)" in terms
    assert "VIRTUAL TABLE" not in later


@pytest.mark.parametrize(
    "query",
    [
        Query(types=("message",)),
        Query(files=("*.py",)),
        Query(targets=("nova",), threads=("pr-123",)),
        Query(targets=("nova",), rooms=("repo",)),
        Query(targets=("nova",), search="word"),
        Query(targets=("nova",), senders=("luna",)),
    ],
)
def test_one_statement_is_enough_without_terms_or_with_a_better_index(query: Query) -> None:
    assert statements_from(query, last_indexed=100) == [statement_from(query)]


def test_only_the_given_seqs_are_read(connection: sqlite3.Connection) -> None:
    statement, values = statement_from(Query(), among=[3, 5])

    assert "seq IN (3, 5)" in statement
    assert connection.execute(statement, values).fetchall() == []


@pytest.mark.parametrize(
    ("query", "number"),
    [(Query(limit=7), 7), (Query(last=3, limit=7), 3), (Query(last=9, limit=7), 7), (Query(last=-1), 0)],
)
def test_smaller_limit_is_used(query: Query, number: int) -> None:
    assert wanted(query) == number
