"""When to draw a picture: soon after a change, not too often, and never faster than the terminal accepts."""

import asyncio
from collections.abc import Callable
from typing import Final

from palaver.agents.terminal.terminal import Keys, change_keys
from palaver.cli.attach.draw import change_modes, draw
from palaver.cli.attach.own_terminal import OwnTerminal
from palaver.cli.attach.picture import Picture

_FRAME_S: Final = 1 / 60
_HALF_FRAME_LIMIT_S: Final = 0.15
"""Seconds that a picture waits for an agent that is in the middle of drawing one."""


class Painter:
    """Knows what the user's terminal shows, and draws the differences."""

    def __init__(
        self,
        own: OwnTerminal,
        look: Callable[[], tuple[Picture, frozenset[int], Keys]],
        is_half_done: Callable[[], bool],
    ) -> None:
        """`look` returns the wanted picture, modes and keys; `is_half_done`: better not draw now."""
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
        """Draw at the next frame; several calls draw once."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._drawn_at + _FRAME_S, loop.time()), self._draw)

    def forget(self) -> None:
        """Draw everything the next time: the content of the terminal is unknown."""
        self._shown = None

    def give_back(self, words: bytes = b"") -> None:
        """Restore the terminal and its modes; `words` stay on it."""
        before = change_keys(self._keys, Keys()) + change_modes(self._modes, frozenset())
        self._own.give_back(before, words)
        self._shown, self._modes, self._keys = None, frozenset(), Keys()

    def _draw(self) -> None:
        self._timer = None
        now = self._drawn_at = asyncio.get_running_loop().time()
        if self._own.is_busy:
            return  # `on_room` calls this again when there is room
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
