"""Consumers: names under which a caller follows the log, and goes on where it stopped. One reader at a time.

Who reads is known in memory only and ends with the connection; up to which place lies in a file each.
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
"""One that is just ending (killed, asked to stop, cut off) is gone within this, and the next one waits."""


class Consumer:
    """One consumer in somebody's hand. Release it, whatever happens: until then nobody else gets it."""

    def __init__(self, consumers: "Consumers", owner: str, name: str, pid: int, cursor: Cursor) -> None:
        self.owner = owner
        self.name = name
        self.pid = pid
        self.released = asyncio.Event()
        self._consumers = consumers
        self._cursor = cursor

    def place(self) -> int | None:
        """Give the kept place, None for one that never began; raises StorageFailed when it cannot be told."""
        return self._cursor.read()

    async def begin(self, place: int) -> None:
        """Start at a place, and keep it before anything is shown: whatever comes then is not left out."""
        begun = asyncio.ensure_future(asyncio.to_thread(self._cursor.begin, place))
        try:
            await asyncio.shield(begun)
        finally:
            await asyncio.wait([begun])  # The thread has the cursor until it is done, whoever waits.

    def keep(self, place: int) -> None:
        """Keep a place up to which everything was flushed; raises StorageFailed or DiskFull."""
        self._cursor.keep(place)

    def release(self) -> None:
        """Let the next one have it."""
        self._cursor.close()
        self._consumers.forget(self)
        self.released.set()


class Consumers:
    """The consumers of one home. Belongs to the loop's thread."""

    def __init__(self, folder: Path, *, grace_s: float = _GRACE_S) -> None:
        """`folder` is made when the first place is kept."""
        self._folder = folder
        self._grace_s = grace_s
        self._held: dict[tuple[str, str], Consumer] = {}

    async def take(self, owner: str, name: str, *, pid: int) -> Consumer:
        """Take a consumer of one owner for a process; DuplicateListener when another has it and keeps it."""
        if _NAME.fullmatch(name) is None:
            raise BadName(name, "a consumer's name has letters, digits and _.- in it, and at most 64 of them")
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
        """It was released."""
        del self._held[consumer.owner, consumer.name]
