"""Looks whether every content that lies beside the log is still what it was. Changes nothing."""

from contextlib import closing
from pathlib import Path
from typing import Final

from palaver.log.api import BlobCount
from palaver.log.blobs import Blobs
from palaver.log.storage import connect_reader

_NAMES: Final = "SELECT DISTINCT blob FROM events WHERE blob IS NOT NULL ORDER BY seq"


def count_blobs(path: Path, blobs: Blobs) -> BlobCount:
    """Read every blob of the log through: how many there are, and which are lost. For a thread of its own."""
    with closing(connect_reader(path)) as connection:
        names = [name for (name,) in connection.execute(_NAMES).fetchall()]
    return BlobCount(len(names), [name for name in names if blobs.read(name) is None])
