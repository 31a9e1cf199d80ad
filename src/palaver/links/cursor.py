"""A stored cursor: the seq up to which a consumer has read the log. One small file, outside the log.

The file is created as a whole and synced, so that the first seq is never lost. After that the number in it is
overwritten, in one write of fixed length. So storing a seq is cheap, and it survives the end of any process
at any time. After a power failure the file may contain an older seq: then events are repeated, and none is
skipped.
"""

import os
import re
from pathlib import Path
from typing import Final

from palaver.errors import StorageFailed
from palaver.home import sync
from palaver.log.storage import failure_from

_DIGITS: Final = 20
_WHOLE: Final = re.compile(rb"[0-9]{20}\n")


class Cursor:
    """The file of one consumer. Belongs to the reader of that consumer: two would overwrite each other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def read(self) -> int | None:
        """Return the stored seq, None if there is no file. Raises StorageFailed if it cannot be read."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure_from(error) from error
        if _WHOLE.fullmatch(content) is None:
            raise StorageFailed(f"{self._path} does not contain a seq; continue with --after SEQ")
        return int(content)

    def begin(self, place: int) -> None:
        """Store a seq durably, whatever was stored before, and prepare for `keep`. May wait for the disk."""
        try:
            if not self._holds(place):
                self._make(place)
            self.close()
            self._file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise failure_from(error) from error

    def keep(self, place: int) -> None:
        """Store a seq without a sync. Call it only after `begin`."""
        assert self._file is not None
        try:
            os.pwrite(self._file, _number(place), 0)
        except OSError as error:
            raise failure_from(error) from error

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _holds(self, place: int) -> bool:
        try:
            return self._path.read_bytes() == _number(place)
        except FileNotFoundError:
            return False

    def _make(self, place: int) -> None:
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = folder / f"{self._path.name}~"
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, _number(place))
            os.fsync(file)
        finally:
            os.close(file)
        made.replace(self._path)
        for one in (folder, folder.parent):  # The directory entries must survive a power failure too.
            sync(one)


def _number(place: int) -> bytes:
    return b"%0*d\n" % (_DIGITS, place)
