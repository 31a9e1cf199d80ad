"""Clean up after agents: folders of killed holders, ended sessions, and old message files."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from palaver.harness.base import HOLDER_FILE, NATIVE_FOLDER, EndpointOwner, parse_holder
from palaver.home import connect_socket
from palaver.log.api import Log
from palaver.protocol.envelope import Event
from palaver.protocol.events import BYE
from palaver.state.agents import read_agent

# --------------------
# Remove the folders of native integrations whose holder was killed before it could remove them.
#
# A folder is removed only if it names its holder and that same process has ended. A folder that is still
# being created names no holder yet. The file system is read in a thread, so a slow disk does not block the
# event loop.


class RunningProcess(Protocol):
    """The facts about a process that tell whether it is a certain holder, and whether it still runs."""

    @property
    def start(self) -> int:
        """Ticks from boot to its start."""
        ...

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended, and only its exit status is left."""
        ...


Read = Callable[[int], RunningProcess | None]
"""Reads the process with a pid; None if there is no such process."""


class WorkspaceCleanup:
    """The reactor that removes these folders: at the start, and each time a held agent has left."""

    def __init__(self, home: Path, log: Log, tasks: asyncio.TaskGroup, read: Read) -> None:
        """The removal runs in `tasks`."""
        self._folder = home / NATIVE_FOLDER
        self._log = log
        self._tasks = tasks
        self._read = read
        self._removing: asyncio.Task[None] | None = None
        self._is_asked = False
        self._look()
        self._unsubscribe = log.subscribe(self._follow, (BYE,))

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


def _is_alive(holder: EndpointOwner, read: Read) -> bool:
    process = read(holder.pid)
    is_same = process is not None and holder.start in (0, process.start)
    return process is not None and is_same and not process.is_zombie


# --------------------
# Remove the sockets of agents whose holder was killed before it could remove them.
#
# A socket is removed only if its agent has left and no process listens on it. A holder opens its socket after
# the daemon has accepted it, and check and removal happen without an await, so no new socket is removed.

_FOLDER: Final = "agents"
_ENDING: Final = ".sock"


class DeadSockets:
    """The reactor that removes these sockets: all at the start, and each one when its agent has left."""

    def __init__(self, home: Path, log: Log) -> None:
        self._folder = home / _FOLDER
        self._log = log
        for path in self._folder.glob(f"*{_ENDING}"):
            self._remove(path.stem)
        self._unsubscribe = log.subscribe(self._follow, (BYE,))

    def close(self) -> None:
        """Stop reading the log."""
        self._unsubscribe()

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == BYE:
                self._remove(event.sender)

    def _remove(self, name: str) -> None:
        agent = read_agent(self._log.rows, name)
        if agent is None or not agent.left or not agent.holder:
            return
        path = self._folder / f"{name}{_ENDING}"
        try:
            if path.is_socket():
                connect_socket(path, can_wait=False).close()
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(OSError):
                path.unlink()
        except OSError:
            return  # a process listens there, or its state is unknown
