"""Iterate over rows, a page at a time: no query is open while the caller uses the rows."""

from collections.abc import Iterator
from typing import Final

from palaver.log.api import Rows
from palaver.model.mail import place_of_key

PAGE: Final = 1000


def walk(rows: Rows, table: str, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Yield every row of a table whose key begins with `prefix`, in key order."""
    after = ""
    while page := rows.scan(table, prefix, after=after, limit=PAGE):
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1][0]


def places_of_agents(rows: Rows, table: str, agent: str = "") -> list[tuple[str, int]]:
    """Return agent and seq of every row that has both as its key, of one agent or of all."""
    keys = (key for key, _ in walk(rows, table, f"{agent}/" if agent else ""))
    return [(key[: key.rindex("/")], place_of_key(key)) for key in keys]
