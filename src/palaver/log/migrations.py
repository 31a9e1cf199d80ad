"""The numbered steps from an empty file to the current schema. A step never changes once it is released."""

import sqlite3
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Final

from palaver.errors import NewerSchema, StorageFailed

APPLICATION_ID: Final = 0x50616C21
"""Identifies the file in its header: `Pal!`."""

MIGRATIONS: Final[tuple[str, ...]] = tuple(
    resources.files("palaver.log").joinpath(name).read_text(encoding="utf-8")
    for name in ("schema.sql", "archived.sql", "rooms.sql")
)
"""Step n leads from schema n to schema n + 1."""


def migrate(connection: sqlite3.Connection, steps: Sequence[str] = MIGRATIONS) -> int:
    """Bring the file to the newest schema. Return the number of steps.

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
            if _number(connection, "SELECT count(*) FROM sqlite_schema"):
                raise StorageFailed("the log's file belongs to another program")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
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
