"""Which messages of a room, or of an inbox, were shown to whom: only those can be acknowledged.

Kept in memory, and bounded: forgotten messages, and all messages after a restart, are shown once more or stay
unread. A message that was not shown is never acknowledged.
"""

from collections.abc import Iterable
from typing import Final

LIMIT_READERS: Final = 4096
LIMIT_MESSAGES: Final = 1024
"""Unacknowledged messages per reader; above the limit the oldest are forgotten."""

INBOX: Final = ""
"""Used as the room of an inbox, whose messages may be of any room or of none."""


class Shown:
    """The messages shown to each reader. Belongs to the loop's thread."""

    def __init__(self, *, limit_readers: int = LIMIT_READERS, limit_messages: int = LIMIT_MESSAGES) -> None:
        """When full, the reader that was shown nothing for longest is forgotten first."""
        self._limit_readers = limit_readers
        self._limit_messages = limit_messages
        # Dictionaries, because they keep order; the values are unused.
        self._readers: dict[tuple[str, str], dict[int, None]] = {}

    def add(self, name: str, room: str, seqs: Iterable[int]) -> None:
        """Record that messages of a room, or of the inbox, were shown to a reader."""
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
        """Whether a message was shown to a reader, as far as remembered."""
        return seq in self._readers.get((name, room), ())

    def forget(self, name: str, room: str, seqs: Iterable[int]) -> None:
        """Forget messages that are settled."""
        known = self._readers.get((name, room), {})
        for seq in seqs:
            known.pop(seq, None)
        if not known:
            self._readers.pop((name, room), None)
