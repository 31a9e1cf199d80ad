"""Consumers: names under which a caller follows the log and resumes where it stopped. One reader at a time.

The current reader is known in memory only and ends with its connection; the seq of each consumer is in a
file.
"""

import asyncio
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

from palaver.errors import BadName, DuplicateListener, StorageFailed
from palaver.home import sync
from palaver.log.storage import failure_from

# --------------------
# A stored cursor: the seq up to which a consumer has read the log. One small file, outside the log.
#
# The file is created as a whole and synced, so that the first seq is never lost. After that the number in
# it is overwritten, in one write of fixed length. So storing a seq is cheap, and it survives the end of any
# process at any time. After a power failure the file may contain an older seq: then events are repeated,
# and none is skipped.

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

    def begin(self, seq: int) -> None:
        """Store a seq durably, whatever was stored before, and prepare for `keep`. May wait for the disk."""
        try:
            if not self._holds(seq):
                self._make(seq)
            self.close()
            self._file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise failure_from(error) from error

    def keep(self, seq: int) -> None:
        """Store a seq without a sync. Call it only after `begin`."""
        assert self._file is not None
        try:
            os.pwrite(self._file, _number(seq), 0)
        except OSError as error:
            raise failure_from(error) from error

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _holds(self, seq: int) -> bool:
        try:
            return self._path.read_bytes() == _number(seq)
        except FileNotFoundError:
            return False

    def _make(self, seq: int) -> None:
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = folder / f"{self._path.name}~"
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, _number(seq))
            os.fsync(file)
        finally:
            os.close(file)
        made.replace(self._path)
        for one in (folder, folder.parent):  # The directory entries must survive a power failure too.
            sync(one)


def _number(seq: int) -> bytes:
    return b"%0*d\n" % (_DIGITS, seq)


# --------------------
# Consumers in use, and the reader of each.

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

_GRACE_S: Final = 0.5
"""Seconds.

A reader that is ending (killed, stopped, disconnected) is removed within this time; the next one waits.
"""


class Consumer:
    """One consumer that is in use. Always release it: until then no other caller gets it."""

    def __init__(self, consumers: "Consumers", owner: str, name: str, pid: int, cursor: Cursor) -> None:
        self.owner = owner
        self.name = name
        self.pid = pid
        self.released = asyncio.Event()
        self._consumers = consumers
        self._cursor = cursor

    def seq(self) -> int | None:
        """Return the stored seq, None if it never began. Raises StorageFailed if it cannot be read."""
        return self._cursor.read()

    async def begin(self, seq: int) -> None:
        """Start at a seq. Store it durably before anything is shown, so that no later event is skipped."""
        begun = asyncio.ensure_future(asyncio.to_thread(self._cursor.begin, seq))
        try:
            await asyncio.shield(begun)
        finally:
            # The thread uses the cursor until it is done, even if the caller is cancelled.
            await asyncio.wait([begun])

    def keep(self, seq: int) -> None:
        """Store the seq up to which everything was flushed. Raises StorageFailed or DiskFull."""
        self._cursor.keep(seq)

    def release(self) -> None:
        """Free the consumer for the next reader."""
        self._cursor.close()
        self._consumers.forget(self)
        self.released.set()


class Consumers:
    """The consumers of one home. Belongs to the loop's thread."""

    def __init__(self, folder: Path, *, grace_s: float = _GRACE_S) -> None:
        """`folder` is created when the first seq is stored."""
        self._folder = folder
        self._grace_s = grace_s
        self._held: dict[tuple[str, str], Consumer] = {}

    async def take(self, owner: str, name: str, *, pid: int) -> Consumer:
        """Take a consumer for a process. Raises DuplicateListener if another process keeps it."""
        if _NAME.fullmatch(name) is None:
            raise BadName(name, "a consumer name has up to 64 letters, digits, and the characters _ . -")
        try:
            async with asyncio.timeout(self._grace_s):
                while (held := self._held.get((owner, name))) is not None:
                    await held.released.wait()
        except TimeoutError:
            assert held is not None
            raise DuplicateListener(name, owner, held.pid) from None
        path = self._folder / quote(owner, safe="") / name
        taken = self._held[owner, name] = Consumer(self, owner, name, pid, Cursor(path))
        return taken

    def forget(self, consumer: Consumer) -> None:
        """Remove a consumer that was released."""
        del self._held[consumer.owner, consumer.name]
