"""Read the user's keys from the terminal. The console interprets them."""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Final

from palaver.cli.attach.console import Console, Meant
from palaver.cli.attach.own_terminal import IN

_READ_BYTES: Final = 65536
_HALF_KEY_S: Final = 0.05
"""Seconds that the rest of a key may take: a lone Escape and a longer key begin alike."""


class KeyReader:
    """Reads only while enabled; unread keys stay in the terminal."""

    def __init__(
        self, console: Console, do: Callable[[Iterable[Meant]], None], on_closed: Callable[[], None]
    ) -> None:
        """`do` carries out the meaning of keys; `on_closed` is called when the terminal was closed."""
        self._console = console
        self._do = do
        self._on_closed = on_closed
        self._half_key: asyncio.TimerHandle | None = None
        self._is_reading = False

    def read(self, *, is_wanted: bool) -> None:
        """Start or stop reading."""
        if is_wanted == self._is_reading:
            return
        self._is_reading = is_wanted
        loop = asyncio.get_running_loop()
        if is_wanted:
            loop.add_reader(IN, self._on_keys)
        else:
            loop.remove_reader(IN)

    def _on_keys(self) -> None:
        try:
            data = os.read(IN, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_closed()
            return
        if self._half_key is not None:
            self._half_key.cancel()
            self._half_key = None
        self._do(self._console.feed(data))
        if self._console.has_half:
            self._half_key = asyncio.get_running_loop().call_later(_HALF_KEY_S, self._settle)

    def _settle(self) -> None:
        self._half_key = None
        self._do(self._console.settle())
