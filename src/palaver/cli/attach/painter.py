"""When a picture is drawn: soon after something changed, not too often, and never faster than it is taken."""

import asyncio
from collections.abc import Callable
from typing import Final

from palaver.agents.terminal.terminal import Keys, change_keys
from palaver.cli.attach.draw import change_modes, draw
from palaver.cli.attach.own_terminal import OwnTerminal
from palaver.cli.attach.picture import Picture

_FRAME_S: Final = 1 / 60
_HALF_FRAME_LIMIT_S: Final = 0.15
"""So long a picture waits for an agent that said it is in the middle of drawing one."""


class Painter:
    """Knows what a person's terminal shows, and draws what is other than that."""

    def __init__(
        self,
        own: OwnTerminal,
        look: Callable[[], tuple[Picture, frozenset[int], Keys]],
        is_half_done: Callable[[], bool],
    ) -> None:
        """`look` gives picture, modes and keys that are wanted; `is_half_done`: better not look now."""
        self._own = own
        self._look = look
        self._is_half_done = is_half_done
        self._shown: Picture | None = None
        self._modes: frozenset[int] = frozenset()
        self._keys = Keys()
        self._timer: asyncio.TimerHandle | None = None
        self._drawn_at = 0.0
        self._waiting_since: float | None = None
        own.on_room = self.soon

    def soon(self) -> None:
        """Draw when it is time; however often this is called, it is drawn once."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._drawn_at + _FRAME_S, loop.time()), self._draw)

    def forget(self) -> None:
        """Draw all of it the next time: the terminal may show anything."""
        self._shown = None

    def give_back(self, words: bytes = b"") -> None:
        """Give the terminal back without its modes; `words` stay on it."""
        before = change_keys(self._keys, Keys()) + change_modes(self._modes, frozenset())
        self._own.give_back(before, words)
        self._shown, self._modes, self._keys = None, frozenset(), Keys()

    def _draw(self) -> None:
        self._timer = None
        now = self._drawn_at = asyncio.get_running_loop().time()
        if self._own.is_busy:
            return  # whoever has the terminal asks again when there is room
        if self._shown is not None and self._is_half_done():
            self._waiting_since = self._waiting_since or now
            if now - self._waiting_since < _HALF_FRAME_LIMIT_S:
                self.soon()
                return
        self._waiting_since = None
        picture, modes, keys = self._look()
        data = change_modes(self._modes, modes) + change_keys(self._keys, keys) + draw(self._shown, picture)
        self._shown, self._modes, self._keys = picture, modes, keys
        if data:
            self._own.write(data)
