"""The folders in which a holder kept its harness's way in, once it was killed and could not take them away.

Only a folder that names its holder goes, and only when that very process has ended. One that is just being
made names none yet. It is looked at in a thread: a file system that is slow holds nobody up.
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
    """Takes them away: those of before at the start, and the others when a held agent is found gone."""

    def __init__(self, home: Path, log: Log, tasks: asyncio.TaskGroup, read: Read = read_process) -> None:
        """They are taken away in `tasks`."""
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
        """Look once more, and not twice at once: who asks meanwhile is served by one look afterwards."""
        self._is_asked = True
        if self._removing is None or self._removing.done():
            self._removing = self._tasks.create_task(self._remove())

    async def _remove(self) -> None:
        while self._is_asked:
            self._is_asked = False
            await asyncio.to_thread(remove_dead, self._folder, self._read)


def remove_dead(above: Path, read: Read) -> None:
    """Take away every folder in one that a process had which has ended."""
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
