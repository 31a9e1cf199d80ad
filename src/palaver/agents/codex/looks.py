"""Looks at threads of a Codex that are new to us: one look at a time, however much is said of a thread."""

from collections.abc import Awaitable, Callable
from typing import Final

from palaver.agents.work import Spawn
from palaver.errors import PalaverError

_LOOKS: Final = 2


class Looks:
    """Those that are under way. `look` asks about a thread, and raises PalaverError when nobody answers."""

    def __init__(self, look: Callable[[str], Awaitable[None]], spawn: Spawn) -> None:
        self._look = look
        self._spawn = spawn
        self._under_way: dict[str, bool] = {}
        """Whether something was said of a thread since the look at it began."""

    def at(self, thread: str) -> None:
        """Look at a thread, and once more if it is named again meanwhile: the look may have missed that."""
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
