"""Control of the user's terminal: every key is read, and it is always restored.

Output is queued here if the terminal does not accept it, so that a slow line delays no key.
"""

import asyncio
import os
import select
import termios
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from typing import Final

IN: Final = 0
OUT: Final = 1

_TAKE: Final = b"\x1b[?1049h\x1b[?7l\x1b[0m\x1b[2J"
_GIVE_BACK: Final = b"\x18\x1b[?2026l\x1b[0m\x1b[r\x1b[?7h\x1b[?1049l\x1b[?25h"
_LIMIT_S: Final = 1.0
"""Seconds to wait at the end for a terminal that accepts nothing."""


class OwnTerminal:
    """Standard input and output."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        """`on_gone`: the terminal was closed."""
        self.on_room: Callable[[], None] = lambda: None
        """Called when queued output has been written."""
        self._on_gone = on_gone
        self._before: list[object] | None = None
        self._out = OUT
        self._waiting = b""
        self._is_watched = False

    @property
    def size(self) -> tuple[int, int]:
        """The current columns and rows; at least one."""
        size = os.get_terminal_size(OUT)
        return max(size.columns, 1), max(size.lines, 1)

    @property
    def is_busy(self) -> bool:
        """Whether output is still queued."""
        return bool(self._waiting)

    def take(self) -> None:
        """Take control. The caller must call `give_back`."""
        self._before = termios.tcgetattr(IN)
        self._out = _open_anew()
        tty.setraw(IN, termios.TCSANOW)
        self.write(_TAKE)

    def give_back(self, modes: bytes = b"", words: bytes = b"") -> None:
        """Restore the terminal, in any state. `words` stay on it; repeats are harmless."""
        if self._before is None:
            return
        before, self._before = self._before, None
        self._unwatch()
        self._waiting = b""
        with suppress(OSError, termios.error):  # it may have been closed
            _write_within(self._out, b"\x18" + modes + _GIVE_BACK + words, _LIMIT_S)
        with suppress(OSError, termios.error):
            termios.tcsetattr(IN, termios.TCSANOW, before)  # type: ignore[arg-type]  # as tcgetattr gave it
        if self._out != OUT:
            os.close(self._out)

    def write(self, data: bytes) -> None:
        """Write after all earlier output."""
        self._waiting += data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._out, self._waiting) :]
        except BlockingIOError:
            if not self._is_watched:
                self._is_watched = True
                asyncio.get_running_loop().add_writer(self._out, self._on_writable)
        except OSError:
            self._waiting = b""
            self._unwatch()
            self._on_gone()

    def _on_writable(self) -> None:
        self._flush()
        if not self._waiting:
            self._unwatch()
            self.on_room()

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            asyncio.get_running_loop().remove_writer(self._out)


def _open_anew() -> int:
    """Open the terminal again: making our descriptor non-blocking must not affect other processes."""
    try:
        return os.open(os.ttyname(OUT), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return OUT


def _write_within(descriptor: int, data: bytes, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while data and (left_s := end - time.monotonic()) > 0:
        if select.select([], [descriptor], [], left_s)[1]:
            data = data[os.write(descriptor, data) :]
