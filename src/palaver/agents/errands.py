"""Commands that a holder runs for itself: started here, and collected where all that ends below it is."""

import asyncio
import os
from collections.abc import Mapping


class Errands:
    """What is under way. Nothing in here waits for a process: whoever collects them says how they ended."""

    def __init__(self) -> None:
        self._awaited: dict[int, asyncio.Future[int]] = {}

    async def run(self, command: list[str]) -> int:
        """Run a command and give its status once it was collected."""
        # No await between here and the entry: it may end at once.
        pid = os.posix_spawnp(command[0], command, os.environ)  # noqa: ASYNC221 - it is not waited for here
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._awaited[pid] = ended
        return await ended

    def collected(self, statuses: Mapping[int, int]) -> None:
        """Say which processes have ended, and how."""
        for pid, status in statuses.items():
            ended = self._awaited.pop(pid, None)
            if ended is not None and not ended.done():
                ended.set_result(status)
