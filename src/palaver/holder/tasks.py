"""The tasks of a holder, the commands that it runs for itself, and its descendants.

Each background coroutine runs in its own task, owned by the object that started it.
"""

import asyncio
import ctypes
import logging
import os
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from palaver.terminal.pty import Exit

_logger: Final = logging.getLogger("palaver.holder")


class Work:
    """The running tasks. An error in one is logged and does not affect the others."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        # The loop keeps only weak references to tasks: without this one, a task could be collected while it
        # waits.
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("an internal error", exc_info=error)

    async def settle(self) -> None:
        """Wait until all tasks have ended, including those that start meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Cancel all tasks; `settle` waits until they have ended."""
        for task in list(self._tasks):
            task.cancel()


# --------------------
# Commands that a holder runs for itself. Started here; the holder collects them with its orphans.


class Subprocesses:
    """The running commands. Nothing here waits for a process: the holder reports the exit statuses."""

    def __init__(self) -> None:
        self._awaited: dict[int, asyncio.Future[int]] = {}

    async def run(self, command: list[str]) -> int:
        """Run a command and return its exit status after it was collected."""
        # Not a subprocess of asyncio, which waits for its child itself: `collect_orphans` may be first.
        # No await between here and the entry: the process may end at once.
        pid = os.posix_spawnp(command[0], command, os.environ)  # noqa: ASYNC221 - it is not waited for here
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._awaited[pid] = ended
        return await ended

    def collected(self, statuses: Mapping[int, int]) -> None:
        """Take the exit statuses of ended processes by pid; unknown pids are ignored."""
        for pid, status in statuses.items():
            ended = self._awaited.pop(pid, None)
            # The caller may have been cancelled; its command is collected all the same.
            if ended is not None and not ended.done():
                ended.set_result(status)


# --------------------
# The descendants of a holder: it adopts the agent's orphans and collects ended processes.

_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its parent.

    Does nothing on systems other than Linux.
    """
    if sys.platform == "linux":
        # Without it orphans would go to init: their processes would no longer count as the agent's.
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def exit_of(child: int) -> Exit | None:
    """Return the exit of a child without collecting it; None while it runs.

    Until it is collected, its pid cannot be reused, and a lookup of its seat still finds it.
    """
    try:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return Exit(None, 0)  # Another process collected it, so its exit status is lost.
    if ended is None:
        return None
    return Exit(ended.si_status) if ended.si_code == os.CLD_EXITED else Exit(None, ended.si_status)


def collect_orphans(agent: int) -> dict[int, int]:
    """Collect every ended child except the agent itself; return exit codes by pid."""
    # Imported late, so that the start of a harness does not wait for it.
    from palaver.terminal.processes import children

    collected: dict[int, int] = {}
    # One by one, and not `waitpid(-1)`: that would collect the agent too.
    for pid in children(os.getpid()):
        if pid != agent:
            with suppress(ChildProcessError):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    collected[found] = os.waitstatus_to_exitcode(status)
    return collected
