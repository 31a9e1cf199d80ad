"""Find large contents that are lost and events that cannot be read. Changes nothing."""

from contextlib import closing
from pathlib import Path
from typing import Final

from palaver.log.api import BlobCount
from palaver.log.blobs import Blobs
from palaver.log.records import COLUMNS, readable_events
from palaver.log.storage import connect_reader

_NAMES: Final = "SELECT DISTINCT blob FROM events WHERE blob IS NOT NULL ORDER BY seq"
_AFTER: Final = f"SELECT {COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT 256"  # noqa: S608 - a constant


def count_blobs(path: Path, blobs: Blobs) -> BlobCount:
    """Read every blob of the log. Return how many there are, and which are lost. Call it in a thread."""
    with closing(connect_reader(path)) as connection:
        names = [name for (name,) in connection.execute(_NAMES).fetchall()]
    return BlobCount(len(names), [name for name in names if blobs.read(name) is None])


def count_unreadable(path: Path, blobs: Blobs) -> int:
    """Read the log and return how many events cannot be read. Call it in a thread."""
    count = seq = 0
    with closing(connect_reader(path)) as connection:
        while records := connection.execute(_AFTER, (seq,)).fetchall():
            count += len(records) - sum(1 for _ in readable_events(records, blobs))
            seq = records[-1][0]
    return count
