"""Make the bytes that draw the screen of a terminal on another terminal. Pure.

They contain the cells with their colours, the cursor, the title, and the modes that the program relies on.
They do not contain the scroll-back.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from pyte import modes
from pyte.graphics import BG_AIXTERM, BG_ANSI, FG_AIXTERM, FG_ANSI, FG_BG_256
from pyte.screens import Char

from palaver.agents.terminal.glass import FAINT, Glass
from palaver.agents.terminal.terminal import MODE_KEYPAD, Keys, Terminal, change_keys

KEPT_MODES: Final = (1, 9, MODE_KEYPAD, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004, 2031)
"""Modes for keys, mouse, focus and paste, which the person's terminal must have too."""

_UNKNOWN_KEYS: Final = Keys(-1, -1, -1)
_FORE: Final = {name: code for code, name in {**FG_AIXTERM, **FG_ANSI}.items()}
_BACK: Final = {name: code for code, name in {**BG_AIXTERM, **BG_ANSI}.items()}
_PALETTE: Final = {colour: number for number, colour in reversed(list(enumerate(FG_BG_256)))}
"""The numbers of the 256 standard colours by their RGB value; the lowest number of equal ones."""


def redraw(terminal: Terminal) -> bytes:
    """Return the bytes that make another terminal of the same size look and behave like this one."""
    glass = terminal.glass
    parts = [b"\x1b[?1049h" if glass.is_alternate else b"\x1b[?1049l", b"\x1b[r\x1b[0m\x1b[?7h\x1b[2J"]
    for y in range(glass.lines):
        parts += _draw_row(glass, y)
    title = "".join(sign for sign in terminal.title if sign.isprintable())
    parts.append(f"\x1b]2;{title}\x07".encode("utf-8", "replace"))
    if glass.margins is not None:
        parts.append(b"\x1b[%d;%dr" % (glass.margins.top + 1, glass.margins.bottom + 1))
    parts += (b"\x1b[?%d%s" % (mode, b"h" if mode in terminal.modes else b"l") for mode in KEPT_MODES)
    parts.append(change_keys(_UNKNOWN_KEYS, terminal.keys))
    if modes.DECAWM not in glass.mode:
        parts.append(b"\x1b[?7l")
    cursor = glass.cursor
    parts.append(b"\x1b[%d;%dH" % (cursor.y + 1, min(cursor.x, glass.columns - 1) + 1))
    parts.append(graphics(cursor.attrs._replace(data=" ")))
    parts.append(b"\x1b[?25l" if cursor.hidden else b"\x1b[?25h")
    return b"".join(parts)


def _draw_row(glass: Glass, y: int) -> Iterator[bytes]:
    line = glass.buffer.get(y)
    if not line:
        return
    blank = glass.default_char
    end = max((x for x in line if x < glass.columns and line[x] != blank), default=-1) + 1
    if end:
        yield b"\x1b[%d;1H" % (y + 1)
    last = None
    for x in range(end):
        # The right half of a wide character is a separate, empty cell.
        cell = line.get(x, blank)
        kind = cell._replace(data=" ")
        if kind != last:
            yield graphics(kind)
            last = kind
        yield cell.data.encode("utf-8", "replace")


@lru_cache(maxsize=512)
def graphics(cell: Char) -> bytes:
    """Return the sequence that sets all attributes of a cell, starting with a reset."""
    words = ["0"]
    flags = (cell.bold, cell.italics, cell.underscore, cell.blink, cell.reverse, cell.strikethrough)
    words += [word for is_set, word in zip(flags, ("1", "3", "4", "5", "7", "9"), strict=True) if is_set]
    if cell.fg.startswith(FAINT):
        words.append("2")
    words += _colour(cell.fg.removeprefix(FAINT), _FORE, "38")
    words += _colour(cell.bg, _BACK, "48")
    return f"\x1b[{';'.join(words)}m".encode()


def _colour(name: str, codes: dict[str, int], extended: str) -> list[str]:
    if name == "default":
        return []
    if name in codes:
        return [str(codes[name])]
    if name in _PALETTE:
        return [extended, "5", str(_PALETTE[name])]
    return [extended, "2", *(str(int(name[place : place + 2], 16)) for place in (0, 2, 4))]
