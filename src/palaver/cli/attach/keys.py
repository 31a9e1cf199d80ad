"""A person's keys, read from the terminal as they come. What they mean is the console's to say."""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Final

from palaver.cli.attach.console import Console, Meant
from palaver.cli.attach.own_terminal import IN

_READ_BYTES: Final = 65536
_HALF_KEY_S: Final = 0.05
"""So long the rest of a key may take: an Escape alone, and one that begins a longer key, begin alike."""


class KeyReader:
    """Reads while it is wanted to; what is not read waits in the terminal."""

    def __init__(
        self, console: Console, do: Callable[[Iterable[Meant]], None], on_closed: Callable[[], None]
    ) -> None:
        """`do` does what keys mean; `on_closed` is called when the terminal is gone."""
        self._console = console
        self._do = do
        self._on_closed = on_closed
        self._half_key: asyncio.TimerHandle | None = None
        self._is_reading = False

    def read(self, *, is_wanted: bool) -> None:
        """Read from now on, or no more."""
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
