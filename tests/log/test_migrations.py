"""A file is migrated to the current schema in one transaction."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaver.errors import NewerSchema, StorageFailed
from palaver.log.storage import MIGRATIONS, migrate

ONE = "CREATE TABLE one (x);\n"
TWO = "-- a comment; with a semicolon\nALTER TABLE one ADD COLUMN y;\nINSERT INTO one VALUES (1, ';');\n"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(tmp_path / "file", isolation_level=None)
    yield made
    made.close()


def tables(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]


def test_empty_file_takes_every_step(connection: sqlite3.Connection) -> None:
    assert migrate(connection, [ONE, TWO]) == 2

    assert connection.execute("SELECT x, y FROM one").fetchall() == [(1, ";")]
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_older_file_takes_the_missing_steps(connection: sqlite3.Connection) -> None:
    migrate(connection, [ONE])

    assert migrate(connection, [ONE, TWO]) == 1
    assert migrate(connection, [ONE, TWO]) == 0

    assert connection.execute("SELECT count(*) FROM one").fetchone() == (1,)


def test_failing_step_leaves_the_file_unchanged(connection: sqlite3.Connection) -> None:
    migrate(connection, [ONE])

    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, [ONE, "CREATE TABLE two (x);\nCREATE TABLE one (x);\n"])

    assert tables(connection) == ["one"]
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_newer_file_is_refused_and_unchanged(connection: sqlite3.Connection) -> None:
    migrate(connection, [ONE, TWO])

    with pytest.raises(NewerSchema) as caught:
        migrate(connection, [ONE])

    assert (caught.value.found, caught.value.known) == (2, 1)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_file_of_another_program_is_refused(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE theirs (x)")

    with pytest.raises(StorageFailed, match="another program"):
        migrate(connection, [ONE])

    assert tables(connection) == ["theirs"]


def test_current_schema_can_be_created(connection: sqlite3.Connection) -> None:
    assert migrate(connection) == len(MIGRATIONS)

    assert {"meta", "events", "state", "events_fts"} <= set(tables(connection))


def test_rooms_of_an_older_log_are_found_by_the_new_index(connection: sqlite3.Connection) -> None:
    migrate(connection, MIGRATIONS[:2])
    payloads = ['{"room":"repo"}', '{"room":["a","b"]}', '{"text":"x"}', '{"room":null}', "{}"]
    insert = (
        "INSERT INTO events (id, type, sender, ts, device, payload, blob) VALUES (?, '', '', 0, '', ?, ?)"
    )
    for number, payload in enumerate(payloads):
        connection.execute(insert, (str(number), payload, "hash" if payload == "{}" else None))

    migrate(connection)

    rooms = [room for (room,) in connection.execute("SELECT room FROM events ORDER BY seq")]
    assert rooms == ["repo", "", None, None, ""]


def test_full_text_index_of_an_older_log_is_filled_again(connection: sqlite3.Connection) -> None:
    migrate(connection, MIGRATIONS[:5])
    connection.execute("INSERT INTO events_fts (rowid, text) VALUES (1, '运行测试')")
    connection.execute("INSERT INTO meta (key, value) VALUES ('indexed', '1')")

    migrate(connection)

    found = connection.execute("SELECT count(*) FROM events_fts WHERE events_fts MATCH '运行测试'").fetchone()
    assert found == (0,)
    assert connection.execute("SELECT value FROM meta WHERE key = 'indexed'").fetchall() == []


def test_upgrade_of_an_older_file_is_reported_before_its_first_step(connection: sqlite3.Connection) -> None:
    calls: list[int] = []

    def note() -> None:
        calls.append(connection.execute("PRAGMA user_version").fetchone()[0])

    migrate(connection, [ONE], note)  # a new file
    migrate(connection, [ONE], note)  # nothing to do
    assert calls == []
    migrate(connection, [ONE, TWO], note)

    assert calls == [1]
