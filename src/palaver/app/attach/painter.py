"""Draw the attach screen: when to draw, and the bytes that turn one picture into the next.

A separate module from `session.py`, because drawing is tested without a terminal or an agent.
"""

import asyncio
import os
import select
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from palaver.app.attach.screen import BLANK, Picture, Row
from palaver.terminal.emulator import KEPT_MODES, MODE_KEYPAD, Keys, change_keys, graphics

# --------------------
# The bytes that turn one picture on a terminal into another: only changes are drawn. Pure.

_GAP: Final = 6
"""Up to this many unchanged cells are drawn again instead of skipped: moving the cursor costs as much."""
_PLAIN: Final = b"\x1b[0m"


def draw(before: Picture | None, after: Picture) -> bytes:
    """Return the bytes that change a terminal that shows `before`; None: one with unknown content.

    The terminal must not wrap at its right edge. If nothing has changed the result is empty.
    """
    if before is None or before.size != after.size:
        blank = (BLANK,) * after.size[1]
        start, old = _PLAIN + b"\x1b[2J", Picture((blank,) * after.size[0])
    elif before == after:
        return b""
    else:
        start, old = b"", before
    parts = [b"\x1b[?2026h\x1b[?25l", start]
    for y, (was, row) in enumerate(zip(old.rows, after.rows, strict=True)):
        if was != row:
            parts += _draw_row(y, was, row)
    parts.append(_PLAIN)
    if after.cursor is not None:
        parts.append(b"\x1b[%d;%dH\x1b[?25h" % (after.cursor[0] + 1, after.cursor[1] + 1))
    parts.append(b"\x1b[?2026l")
    return b"".join(parts)


def print_rows(rows: Iterable[Row]) -> bytes:
    """Return rows as permanent lines, from the cursor on."""
    return b"".join(b"".join(_write(row, 0, _end_of(row))[0]) + _PLAIN + b"\r\n" for row in rows)


def change_modes(before: frozenset[int], after: frozenset[int]) -> bytes:
    """Return the bytes that switch a terminal between sets of modes, of those that a program relies on."""
    changed = sorted((before ^ after) & set(KEPT_MODES))
    return b"".join(_set_mode(mode, is_on=mode in after) for mode in changed)


def _set_mode(mode: int, *, is_on: bool) -> bytes:
    if mode == MODE_KEYPAD:
        return b"\x1b=" if is_on else b"\x1b>"
    return b"\x1b[?%d%s" % (mode, b"h" if is_on else b"l")


def _draw_row(y: int, was: Row, row: Row) -> Iterator[bytes]:
    end = _end_of(row)
    is_cleared = was[end:] != row[end:]
    for first, last in _changes(was, row, end):
        yield b"\x1b[%d;%dH" % (y + 1, first + 1)
        pieces, is_lost = _write(row, first, last, y)
        yield from pieces
        if is_lost:
            yield b"\x1b[%d;%dH" % (y + 1, last + 1)
    if is_cleared:
        yield b"\x1b[%d;%dH%s\x1b[K" % (y + 1, end + 1, _PLAIN)


def _end_of(row: Row) -> int:
    """Return the position after the last cell that is not blank."""
    end = len(row)
    while end and row[end - 1] == BLANK:
        end -= 1
    return end


def _changes(was: Row, row: Row, end: int) -> list[tuple[int, int]]:
    """Return the spans before `end` to draw; none begins or ends inside a wide character."""
    spans: list[tuple[int, int]] = []
    for x in range(end):
        if was[x] != row[x]:
            if spans and x - spans[-1][1] <= _GAP:
                spans[-1] = spans[-1][0], x + 1
            else:
                spans.append((x, x + 1))
    return [_whole(was, row, *span) for span in spans]


def _whole(was: Row, row: Row, first: int, last: int) -> tuple[int, int]:
    # A wide character that disappears clears both its cells, so the old row counts too.
    while first and not (row[first].data and was[first].data):
        first -= 1
    while last < len(row) and not (row[last].data and was[last].data):
        last += 1
    return first, last


def _write(row: Row, first: int, last: int, y: int | None = None) -> tuple[list[bytes], bool]:
    """Return the bytes of some cells, and whether terminals may differ on the cursor position after them.

    With `y` the cursor is set explicitly after every such character.
    """
    pieces: list[bytes] = []
    kind, is_lost = None, False
    for x in range(first, last):
        cell = row[x]
        if not cell.data:
            continue
        if is_lost and y is not None:
            pieces.append(b"\x1b[%d;%dH" % (y + 1, x + 1))
        if (look := cell._replace(data=" ")) != kind:
            kind = look
            pieces.append(graphics(look))
        pieces.append(cell.data.encode("utf-8", "replace"))
        is_lost = not _is_surely_narrow(cell.data)
    return pieces, is_lost


def _is_surely_narrow(sign: str) -> bool:
    return sign < "\u0300" or "\u2500" <= sign < "\u25a0"


# --------------------
# Control of the user's terminal: every key is read, and it is always restored.
#
# Output is queued here if the terminal does not accept it, so that a slow line delays no key.

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


# --------------------
# When to draw a picture: soon after a change, not too often, and never faster than the terminal accepts.

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
