"""Consumers: names under which a caller follows the log and resumes where it stopped. One reader at a time.

The current reader is known in memory only and ends with its connection; the seq of each consumer is in a
file.
"""

import asyncio
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

from palaver.errors import BadName, DuplicateListener
from palaver.links.cursor import Cursor

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

    def place(self) -> int | None:
        """Return the stored seq, None if it never began. Raises StorageFailed if it cannot be read."""
        return self._cursor.read()

    async def begin(self, place: int) -> None:
        """Start at a seq. Store it durably before anything is shown, so that no later event is skipped."""
        begun = asyncio.ensure_future(asyncio.to_thread(self._cursor.begin, place))
        try:
            await asyncio.shield(begun)
        finally:
            # The thread uses the cursor until it is done, even if the caller is cancelled.
            await asyncio.wait([begun])

    def keep(self, place: int) -> None:
        """Store the seq up to which everything was flushed. Raises StorageFailed or DiskFull."""
        self._cursor.keep(place)

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
