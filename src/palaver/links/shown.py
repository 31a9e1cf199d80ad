"""Which messages of a room, or of an inbox, were handed to whom: a cursor acknowledges those and no others.

Kept in memory, and bounded: what is forgotten, and everything after a restart, is shown once more, or stays
unread. Nothing is acknowledged that was not shown.
"""

from collections.abc import Iterable
from typing import Final

LIMIT_READERS: Final = 4096
LIMIT_MESSAGES: Final = 1024
"""For one reader: of more that it has not acknowledged, the oldest are forgotten."""

INBOX: Final = ""
"""Stands for a room where mail is handed out that may be of any, or of none."""


class Shown:
    """Belongs to the loop's thread."""

    def __init__(self, *, limit_readers: int = LIMIT_READERS, limit_messages: int = LIMIT_MESSAGES) -> None:
        """When a limit is reached, whoever was shown nothing for longest is forgotten first."""
        self._limit_readers = limit_readers
        self._limit_messages = limit_messages
        # Dictionaries, for their order: the values say nothing.
        self._readers: dict[tuple[str, str], dict[int, None]] = {}

    def add(self, name: str, room: str, seqs: Iterable[int]) -> None:
        """These messages of a room, or of its inbox, were handed to somebody."""
        new = dict.fromkeys(seqs)
        if not new:
            return
        known = self._readers.pop((name, room), {})
        for seq in new:
            known.pop(seq, None)
        known |= new
        while len(known) > self._limit_messages:
            del known[next(iter(known))]
        self._readers[name, room] = known
        if len(self._readers) > self._limit_readers:
            del self._readers[next(iter(self._readers))]

    def has(self, name: str, room: str, seq: int) -> bool:
        """Tell whether a message was handed to somebody, as far as is remembered."""
        return seq in self._readers.get((name, room), ())

    def forget(self, name: str, room: str, seqs: Iterable[int]) -> None:
        """These are settled, and need not be remembered."""
        known = self._readers.get((name, room), {})
        for seq in seqs:
            known.pop(seq, None)
        if not known:
            self._readers.pop((name, room), None)
