"""Remove the folders of native integrations whose holder was killed before it could remove them.

A folder is removed only if it names its holder and that same process has ended. A folder that is still being
created names no holder yet. The file system is read in a thread, so a slow disk does not block the event
loop.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from palaver.links.process import Process, read_process
from palaver.log.api import Log
from palaver.log.state import read_agent
from palaver.model.envelope import Event
from palaver.model.life import BYE
from palaver.model.native_place import HOLDER_FILE, NATIVE_FOLDER, Holder, parse_holder

Read = Callable[[int], Process | None]


class DeadPlaces:
    """The reactor that removes these folders: at the start, and each time a held agent has left."""

    def __init__(self, home: Path, log: Log, tasks: asyncio.TaskGroup, read: Read = read_process) -> None:
        """The removal runs in `tasks`."""
        self._folder = home / NATIVE_FOLDER
        self._log = log
        self._tasks = tasks
        self._read = read
        self._removing: asyncio.Task[None] | None = None
        self._is_asked = False
        self._look()
        self._unsubscribe = log.subscribe(self._follow)

    def close(self) -> None:
        """Stop reading the log."""
        self._unsubscribe()

    def _follow(self, events: Sequence[Event]) -> None:
        if any(event.type == BYE and self._is_held(event.sender) for event in events):
            self._look()

    def _is_held(self, name: str) -> bool:
        agent = read_agent(self._log.rows, name)
        return agent is not None and bool(agent.holder)

    def _look(self) -> None:
        """Scan the folders soon. Requests during a scan are combined into one scan after it."""
        self._is_asked = True
        if self._removing is None or self._removing.done():
            self._removing = self._tasks.create_task(self._remove())

    async def _remove(self) -> None:
        while self._is_asked:
            self._is_asked = False
            await asyncio.to_thread(remove_dead, self._folder, self._read)


def remove_dead(above: Path, read: Read) -> None:
    """Remove every subfolder whose holder process has ended."""
    for folder in above.glob("*"):
        try:
            holder = parse_holder((folder / HOLDER_FILE).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if holder is not None and not _is_alive(holder, read):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(holder: Holder, read: Read) -> bool:
    process = read(holder.pid)
    is_same = process is not None and holder.start in (0, process.start)
    return process is not None and is_same and not process.is_zombie
