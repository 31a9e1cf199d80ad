"""The files of an open log: whether they are still the ones that were opened. Reads names and sizes only.

If a file of an open log is removed, every later commit is lost with it, without an error. So the writer
checks the files at each commit, and nothing is acknowledged once a file was removed, replaced or truncated.
The highest seq is stored in a separate file, so that a start after a kill detects missing events.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from palaver.errors import StorageFailed

_ENDINGS: Final = ("", "-wal", "-shm")
MARK_NAME: Final = "log.seq"


class LogFiles:
    """The database, its write-ahead log and the index of that. Usable from any thread.

    The first file that is found lost stays lost: only opening the log again helps.
    """

    def __init__(self, path: Path) -> None:
        """Record the identities of the three files of the open log."""
        self._paths: tuple[str, ...] = tuple(f"{path}{ending}" for ending in _ENDINGS)
        self._known = [_identity(file) for file in self._paths]
        self.trouble = ""
        """A sentence that names the lost file; empty if no file is lost."""
        self.is_cut = False
        """True if a file was truncated, so a part of the log is in no file."""
        self._is_being_cut = False
        self._is_closed = False
        self._looking = threading.Lock()

    @property
    def has_database(self) -> bool:
        """Whether the database itself is still at its path."""
        return _identity(self._paths[0])[:2] == self._known[0][:2]

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log."""
        return _identity(self._paths[1])[2]

    def close(self) -> None:
        """Stop checking: the log closes and removes its files."""
        self._is_closed = True

    def check(self) -> None:
        """Check all files; raise StorageFailed if one is not the one that was opened."""
        with self._looking:
            if not self.trouble and not self._is_closed:
                for at, file in enumerate(self._paths):
                    now, known = _identity(file), self._known[at]
                    if now != known:
                        self._compare(at, now, known)
        if self.trouble:
            raise StorageFailed(self.trouble)

    @contextmanager
    def being_cut(self) -> Iterator[None]:
        """Let the log's own writer truncate files within a block; later their sizes are checked again."""
        with self._looking:
            self._is_being_cut = True
        try:
            yield
        finally:
            with self._looking:
                self._is_being_cut = False
                now = [_identity(file) for file in self._paths]
                self._known = [
                    new if new[:2] == old[:2] else old for new, old in zip(now, self._known, strict=True)
                ]

    def _compare(self, at: int, now: "_Identity", known: "_Identity") -> None:
        if now == _NO_FILE:
            what = "removed"
        elif now[:2] != known[:2]:
            what = "replaced"
        elif self._is_being_cut:
            return
        elif now[2] < known[2]:
            what = "cut"
            self.is_cut = True
        else:
            self._known[at] = now  # It has grown.
            return
        name = self._paths[at].rpartition("/")[2]
        self.trouble = (
            f"{name} was {what} while the bus was running, so nothing can be stored or read; "
            "run 'pal down' and then 'pal up'"
        )


_Identity = tuple[int, int, int]
_NO_FILE: Final[_Identity] = (0, 0, 0)


def _identity(path: str) -> _Identity:
    """Return device, inode and size of a file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for every commit; pathlib takes twice the time
    except OSError:
        return _NO_FILE
    return found.st_dev, found.st_ino, found.st_size


class SeqMark:
    """The highest committed seq, in a small file next to the log: `log.seq`.

    It is written after each commit and never synced, so it costs no time. It survives a kill; after a power
    loss it may be too low, never too high. On a full disk there is no such file.
    """

    def __init__(self, directory: Path, device: str) -> None:
        """Open the file, or create it. A file of another device does not count."""
        self._device = device.encode()
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(directory / MARK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        """Return the seq; 0 if the file contains none."""
        if self._file is None:
            return 0
        device, _, digits = os.pread(self._file, 64, 0).strip().partition(b" ")
        return int(digits) if device == self._device and digits.isdigit() else 0

    def write(self, seq: int) -> None:
        """Store a seq; from the writer's thread."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._file, b"%s %020d\n" % (self._device, seq), 0)

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
