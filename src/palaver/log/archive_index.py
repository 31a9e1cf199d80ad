"""The index of archived events that the log keeps: their ids, senders and request keys. Reads only.

An event that is listed here and cannot be read from its file is an error, not a missing event.
"""

import sqlite3
from typing import Final

from palaver.errors import StorageFailed
from palaver.log.archive import Archives
from palaver.model.envelope import Event

_FOUND_AT_MOST: Final = 5

_BY_ID: Final = f"SELECT seq FROM archived WHERE id = ? ORDER BY seq DESC LIMIT {_FOUND_AT_MOST}"  # noqa: S608
_BY_END: Final = (
    "SELECT seq FROM archived WHERE upper(substr(id, -4)) = upper(substr(?1, -4))"  # noqa: S608 - a constant
    f" AND upper(substr(id, -length(?1))) = upper(?1) ORDER BY seq DESC LIMIT {_FOUND_AT_MOST}"
)
_BY_SENDER: Final = "SELECT seq FROM archived WHERE id = ? AND sender = ?"
_BY_REQUEST_KEY: Final = "SELECT seq FROM archived WHERE request_key = ?"
_BY_PLACE: Final = "SELECT seq FROM archived WHERE seq = ?"
_LARGEST_ULID: Final = (
    "SELECT id FROM archived WHERE id < '7ZZZZZZZZZ' AND length(id) = 26"
    " AND id NOT GLOB '*[^0-9A-HJKMNP-TV-Z]*' ORDER BY id DESC LIMIT 1"
)


class ArchiveIndex:
    """Finds archived events by their ids, on one connection and in its thread.

    All methods raise StorageFailed if there was such an event and its file is missing or damaged.
    """

    def __init__(self, connection: sqlite3.Connection, archives: Archives) -> None:
        self._connection = connection
        self._archives = archives

    def by_place(self, seq: int) -> Event | None:
        """Return the event with a seq, or None."""
        # A copy may be in a file before its event has left the log.
        return self._archives.event(seq) or self._one(_BY_PLACE, seq)

    def by_request_key(self, request_key: bytes) -> Event | None:
        """Return the event that a request has written, or None."""
        return self._one(_BY_REQUEST_KEY, request_key)

    def by_id(self, id: str) -> list[Event]:
        """Return events with this id, newest first, at most five."""
        return self._events(_BY_ID, id)

    def by_end(self, end: str) -> list[Event]:
        """Return up to five events whose id ends with this (four characters or more), newest first."""
        return self._events(_BY_END, end)

    def by_sender(self, id: str, sender: str) -> Event | None:
        """Return the event of a sender with this id, or None."""
        return self._one(_BY_SENDER, id, sender)

    def largest_ulid(self) -> str:
        """Return the largest ULID among archived events; empty in an empty archive."""
        row = self._connection.execute(_LARGEST_ULID).fetchone()
        return "" if row is None else row[0]

    def largest_id(self) -> str:
        """Return the largest id of any kind; empty in an empty archive."""
        largest: str = self._connection.execute("SELECT coalesce(max(id), '') FROM archived").fetchone()[0]
        return largest

    def _events(self, statement: str, value: str) -> list[Event]:
        return [self._read(seq) for (seq,) in self._connection.execute(statement, (value,))]

    def _one(self, statement: str, *values: object) -> Event | None:
        row = self._connection.execute(statement, values).fetchone()
        return None if row is None else self._read(row[0])

    def _read(self, seq: int) -> Event:
        event = self._archives.event(seq)
        if event is None:
            raise StorageFailed(
                f"event #{seq} is archived and cannot be read from {self._archives.where(seq)}: "
                "restore the file; if you have no copy, run 'pal down' and then 'pal doctor --repair'"
            )
        return event
