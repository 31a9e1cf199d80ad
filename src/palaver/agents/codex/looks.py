"""Queries about threads that are new to us: one at a time per thread, however often it is mentioned."""

from collections.abc import Awaitable, Callable
from typing import Final

from palaver.agents.work import Spawn
from palaver.errors import PalaverError

_LOOKS: Final = 2


class Looks:
    """The queries in progress. `look` queries a thread and raises PalaverError if there is no reply."""

    def __init__(self, look: Callable[[str], Awaitable[None]], spawn: Spawn) -> None:
        self._look = look
        self._spawn = spawn
        self._under_way: dict[str, bool] = {}
        """Whether a thread was mentioned again since its query began."""

    def at(self, thread: str) -> None:
        """Query a thread, and once more if it is mentioned meanwhile: the first result may be outdated."""
        if thread in self._under_way:
            self._under_way[thread] = True
        else:
            self._under_way[thread] = False
            self._spawn(self._run(thread))

    async def _run(self, thread: str) -> None:
        try:
            for _ in range(_LOOKS):
                self._under_way[thread] = False
                await self._look(thread)
                if not self._under_way[thread]:
                    return
        except PalaverError:
            return
        finally:
            del self._under_way[thread]
