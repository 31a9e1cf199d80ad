"""The cells of a screen: pyte's screen, extended for real programs. Does no input or output.

Added to pyte: faint text, the alternate screen, a bounded scroll-back, scrolling by escape sequence, and
drawing in runs. Changed: only one cursor is saved instead of a stack, and a character of zero width does not
hide the characters after it.
"""

import copy
import unicodedata
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from pyte import modes
from pyte.charsets import LAT1_MAP
from pyte.graphics import BG_AIXTERM, BG_ANSI, FG_AIXTERM, FG_ANSI, FG_BG_256, TEXT
from pyte.screens import Char, Cursor, Margins, Savepoint, Screen
from wcwidth import wcwidth

SCROLLBACK_LINES: Final = 1_000

FAINT: Final = "faint "
"""Prefix of the foreground colour of a faint cell, because cells of pyte have no field for it."""

_Line = dict[int, Char]
_AnyLine = TypeVar("_AnyLine", bound=_Line)


class Glass(Screen):
    """A screen with its alternate screen. The scroll-back keeps the last `SCROLLBACK_LINES` lines."""

    def __init__(self, columns: int, lines: int) -> None:
        self.scrollback: deque[str] = deque(maxlen=SCROLLBACK_LINES)
        self.scrolled = 0
        """Total number of lines by which the whole screen has scrolled up."""
        self.is_alternate = False
        self._other: tuple[dict[int, _Line], Cursor] | None = None
        self._saved: Savepoint | None = None
        self._last = " "
        self._beyond: list[_Beyond] = []
        super().__init__(columns, lines)

    def reset(self) -> None:
        super().reset()
        self.is_alternate = False
        self._other = None
        self._saved = None
        self._beyond = []

    def show_alternate(self, *, is_on: bool) -> None:
        """Switch to the alternate screen, which starts empty, or restore the main screen."""
        if is_on == self.is_alternate:
            return
        self.is_alternate = is_on
        if is_on:
            self._other = (dict(self.buffer), copy.copy(self.cursor))
            self.buffer.clear()
            return
        self.buffer.clear()
        if self._other is not None:
            lines, self.cursor = self._other
            self.buffer.update(lines)  # type: ignore[arg-type]  # the same lines that were taken out
            self.ensure_hbounds()
            self.ensure_vbounds()
        self._other = None

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Change the size as terminals do: keep the row of the cursor, and drop rows at the top first.

        Cells beyond the right edge reappear when the screen gets wider again, if their row is unchanged.
        """
        lines, columns = lines or self.lines, columns or self.columns
        if not self.is_alternate:
            for y in range(self.cursor.y - lines + 1):
                self.scrollback.append(self.row_text(y))
        beyond = {id(one.line): one for one in self._beyond}
        self._beyond = _cut(self.buffer, self.cursor, lines, columns, beyond)
        if self._other is not None:
            self._beyond += _cut(*self._other, lines, columns, beyond)
        self.tabstops |= set(range(8, columns, 8)) - set(range(self.columns))
        self.lines, self.columns = lines, columns
        self.margins = None

    def save_cursor(self) -> None:
        has_origin, has_wrap = modes.DECOM in self.mode, modes.DECAWM in self.mode
        self._saved = Savepoint(
            copy.copy(self.cursor), self.g0_charset, self.g1_charset, self.charset, has_origin, has_wrap
        )

    def restore_cursor(self) -> None:
        self.savepoints = [] if self._saved is None else [self._saved]
        super().restore_cursor()
        self.cursor = copy.copy(self.cursor)

    def index(self) -> None:
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y != bottom:
            self.cursor_down()
            return
        buffer = self.buffer
        if top == 0:
            self.scrolled += bottom == self.lines - 1
            if not self.is_alternate:
                self.scrollback.append(self.row_text(0))
        if self.margins is None:
            moved = {y - 1: line for y, line in buffer.items() if y}
        else:
            moved = {y - (top < y <= bottom): line for y, line in buffer.items() if y != top}
        buffer.clear()
        buffer.update(moved)

    def scroll(self, count: int) -> None:
        """Move the lines inside the margins up, or down for a negative count. The cursor does not move."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        x, y = self.cursor.x, self.cursor.y
        move = self.index if count > 0 else self.reverse_index
        self.cursor.y = bottom if count > 0 else top
        for _ in range(min(abs(count), bottom - top + 1)):
            move()
        self.cursor.x, self.cursor.y = x, y

    def draw(self, data: str) -> None:
        if self.charset or self.g0_charset is not LAT1_MAP:
            data = data.translate(self.g1_charset if self.charset else self.g0_charset)
        if data.isascii() and modes.IRM not in self.mode:
            self._draw_narrow(data)
        else:
            for sign in data:
                self._draw_sign(sign)
        self._last = data[-1]

    def repeat(self, count: int) -> None:
        """Draw the last character again."""
        self.draw(self._last * min(count, self.columns * self.lines))

    def _draw_narrow(self, data: str) -> None:
        cursor, columns = self.cursor, self.columns
        cells = _cells_of(cursor.attrs)
        start, end = 0, len(data)
        while start < end:
            if cursor.x >= columns:
                self._wrap(1)
            stop = min(end, start + columns - cursor.x)
            x = cursor.x
            self.buffer[cursor.y].update(zip(range(x, columns), map(cells, data[start:stop]), strict=False))
            cursor.x = x + stop - start
            start = stop

    def _draw_sign(self, sign: str) -> None:
        width = _width_of(sign)
        if width <= 0:
            self._combine(sign)
            return
        cursor = self.cursor
        if cursor.x + width > self.columns:
            self._wrap(width)
        if modes.IRM in self.mode:
            self.insert_characters(width)
        line = self.buffer[cursor.y]
        line[cursor.x] = cursor.attrs._replace(data=sign)
        if width == 2 and cursor.x + 1 < self.columns:
            line[cursor.x + 1] = cursor.attrs._replace(data="")
        cursor.x = min(cursor.x + width, self.columns)

    def _wrap(self, width: int) -> None:
        if modes.DECAWM in self.mode:
            self.carriage_return()
            self.linefeed()
        else:
            self.cursor.x = max(self.columns - width, 0)

    def _combine(self, sign: str) -> None:
        if not unicodedata.combining(sign) or not self.cursor.x:
            return
        line = self.buffer[self.cursor.y]
        last = line[self.cursor.x - 1]
        if last.data:
            data = unicodedata.normalize("NFC", last.data + sign)
            line[self.cursor.x - 1] = last._replace(data=data if len(data) == 1 else last.data)

    def select_graphic_rendition(self, *attrs: int) -> None:
        """Set colours and text attributes. Unknown codes are ignored."""
        char = self.cursor.attrs
        at = 0
        while at < len(attrs) or not attrs:
            code = attrs[at] if attrs else 0
            at += 1
            if code == 0:
                char = self.default_char
                if not attrs:
                    break
            elif code == 2:
                char = char._replace(fg=FAINT + char.fg.removeprefix(FAINT))
            elif code == 22:
                char = char._replace(bold=False, fg=char.fg.removeprefix(FAINT))
            elif code in (38, 48):
                colour, at = _extended_colour(attrs, at)
                if colour:
                    char = _paint_cell(char, colour, is_back=code == 48)
            elif code in _FORE:
                char = _paint_cell(char, _FORE[code], is_back=False)
            elif code in _BACK:
                char = _paint_cell(char, _BACK[code], is_back=True)
            elif code in TEXT:
                word = TEXT[code]
                char = char._replace(**{word[1:]: word[0] == "+"})  # type: ignore[arg-type]  # the flags of pyte
        self.cursor.attrs = char

    def row_text(self, y: int, *, is_bright: bool = False) -> str:
        """Return one row as text, without trailing spaces. `is_bright` omits faint text."""
        line = self.buffer.get(y)
        if not line:
            return ""
        signs = [" "] * self.columns
        for x, cell in line.items():
            if x < self.columns and not (is_bright and cell.fg.startswith(FAINT)):
                signs[x] = cell.data
        if is_bright and y == self.cursor.y and self._is_hint_begin(line):
            signs[self.cursor.x] = " "
        return "".join(signs).rstrip()

    def _is_hint_begin(self, line: _Line) -> bool:
        """Return whether the cursor is on the first character of a hint, drawn as a reversed cell."""
        here, behind = line.get(self.cursor.x), line.get(self.cursor.x + 1)
        return here is not None and here.reverse and behind is not None and behind.fg.startswith(FAINT)


@dataclass(frozen=True, slots=True)
class _Beyond:
    """The cells of a row beyond the right edge of a smaller screen, and the row without them."""

    line: _Line
    shown: dict[int, Char]
    cells: dict[int, Char]


def _cut(
    buffer: dict[int, _AnyLine], cursor: Cursor, lines: int, columns: int, beyond: Mapping[int, _Beyond]
) -> list[_Beyond]:
    """Fit a buffer to this size: restore cells that fit again, and remove and return those that do not."""
    over = max(cursor.y - lines + 1, 0)
    kept = {y - over: line for y, line in buffer.items() if 0 <= y - over < lines}
    buffer.clear()
    buffer.update(kept)
    cursor.y -= over
    taken = []
    for line in buffer.values():
        known = beyond.get(id(line))
        if known is not None and dict(line) == known.shown:
            line.update(known.cells)
        cells = {x: cell for x, cell in line.items() if x >= columns}
        for x in cells:
            del line[x]
        if cells:
            taken.append(_Beyond(line, dict(line), cells))
    return taken


_FORE: Final = {**FG_ANSI, **FG_AIXTERM}
_BACK: Final = {**BG_ANSI, **BG_AIXTERM}


def _paint_cell(char: Char, colour: str, *, is_back: bool) -> Char:
    if is_back:
        return char._replace(bg=colour)
    return char._replace(fg=FAINT + colour if char.fg.startswith(FAINT) else colour)


def _extended_colour(attrs: Sequence[int], at: int) -> tuple[str, int]:
    """Parse the colour after 38 or 48. Return it, or an empty text, and the index after it."""
    kind = attrs[at] if at < len(attrs) else 0
    if kind == 5 and at + 1 < len(attrs):
        number = attrs[at + 1]
        return (FG_BG_256[number] if number < len(FG_BG_256) else ""), at + 2
    if kind == 2 and at + 3 < len(attrs):
        red, green, blue = (min(value, 255) for value in attrs[at + 1 : at + 4])
        return f"{red:02x}{green:02x}{blue:02x}", at + 4
    return "", len(attrs)


@lru_cache(maxsize=4_096)
def _width_of(sign: str) -> int:
    return wcwidth(sign)


@lru_cache(maxsize=256)
def _cells_of(attrs: Char) -> Callable[[str], Char]:
    """Return a function that makes a cell from a character. Equal cells are the same object."""
    return lru_cache(maxsize=128)(lambda sign: attrs._replace(data=sign))
