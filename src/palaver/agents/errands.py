"""Commands that a holder runs for itself. Started here; the holder collects them with its orphans."""

import asyncio
import os
from collections.abc import Mapping


class Errands:
    """The running commands. Nothing here waits for a process: the holder reports the exit statuses."""

    def __init__(self) -> None:
        self._awaited: dict[int, asyncio.Future[int]] = {}

    async def run(self, command: list[str]) -> int:
        """Run a command and return its exit status after it was collected."""
        # No await between here and the entry: the process may end at once.
        pid = os.posix_spawnp(command[0], command, os.environ)  # noqa: ASYNC221 - it is not waited for here
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._awaited[pid] = ended
        return await ended

    def collected(self, statuses: Mapping[int, int]) -> None:
        """Take the exit statuses of ended processes by pid; unknown pids are ignored."""
        for pid, status in statuses.items():
            ended = self._awaited.pop(pid, None)
            if ended is not None and not ended.done():
                ended.set_result(status)
