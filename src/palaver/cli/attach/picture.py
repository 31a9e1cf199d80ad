"""The picture that a terminal should show, cell by cell, and rows from text or another screen. Pure."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyte.screens import Char
from wcwidth import wcwidth

from palaver.agents.terminal.glass import Glass
from palaver.doors.argv.style import display_width

BLANK: Final = Char(" ")
REVERSED: Final = Char(" ", reverse=True)
BOLD: Final = Char(" ", bold=True)

Row = tuple[Char, ...]
"""One row. The right half of a wide character is a separate, empty cell."""

_NEAR: Final = (
    ("….·∙", "...."),
    ("•●◦✻✽✳", "******"),
    ("←↑→↓⏎", "<^>v~"),
    ("–—‘’“”", "--''\"\""),
    ("❯›✓✗⎿", ">>vx+"),
)
_SIGNS: Final = {sign: near for signs, nears in _NEAR for sign, near in zip(signs, nears, strict=True)}
_BLOCKS: Final = range(0x2580, 0x25A0)
_BRAILLE: Final = range(0x2800, 0x2900)


@dataclass(frozen=True, slots=True)
class Picture:
    """A whole terminal; every row has its width. Without a cursor it is hidden."""

    rows: tuple[Row, ...]
    cursor: tuple[int, int] | None = None
    """Row and column, from 0."""

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.rows), len(self.rows[0]) if self.rows else 0


def text_row(text: str, width: int, kind: Char = BLANK) -> Row:
    """Make a row from a text that is already safe; it is cut or filled to the width."""
    cells: list[Char] = []
    for sign in text:
        columns = display_width(sign)
        if len(cells) + columns > width:
            break
        if columns:
            cells.append(kind._replace(data=sign))
            cells += [kind._replace(data="")] * (columns - 1)
    cells += [kind] * (width - len(cells))
    return tuple(cells)


def screen_rows(glass: Glass, height: int, width: int) -> tuple[Row, ...]:
    """Return the part of a screen around its cursor that fits; the area outside the screen is blank."""
    top, left = window(glass, height, width)
    blank = glass.default_char
    rows: list[Row] = []
    for y in range(top, top + height):
        line = glass.buffer.get(y) if y < glass.lines else None
        if not line:
            shown = blank if y < glass.lines else BLANK
            rows.append((shown,) * width)
            continue
        end = min(left + width, glass.columns)
        cells = [line.get(x, blank) for x in range(left, end)]
        rows.append(_mend(cells + [BLANK] * (width - len(cells))))
    return tuple(rows)


def window(glass: Glass, height: int, width: int) -> tuple[int, int]:
    """Return the first row and column of the part that is shown."""
    return max(glass.cursor.y - height + 1, 0), max(min(glass.cursor.x, glass.columns - 1) - width + 1, 0)


def cursor_in(glass: Glass, height: int, width: int) -> tuple[int, int] | None:
    """Return the position of the screen's cursor in that part; None if the program hides it."""
    if glass.cursor.hidden:
        return None
    top, left = window(glass, height, width)
    return glass.cursor.y - top, min(glass.cursor.x, glass.columns - 1) - left


def plain(picture: Picture) -> Picture:
    """Return the same in ASCII, for a terminal that shows nothing else."""
    return Picture(tuple(map(_plain_row, picture.rows)), picture.cursor)


def ascii_sign(sign: str) -> str:
    """Return the nearest ASCII character; a question mark if there is no similar one."""
    if sign in _SIGNS:
        return _SIGNS[sign]
    code = ord(sign)
    if code in _BLOCKS or code in _BRAILLE:
        return "#" if code in _BLOCKS else "."
    if 0x2500 <= code < 0x2580:
        name = unicodedata.name(sign)
        if "DIAGONAL" in name:
            return "/"
        is_line = "AND" not in name and "ARC" not in name
        return "-" if is_line and "HORIZONTAL" in name else "|" if is_line and "VERTICAL" in name else "+"
    first = unicodedata.normalize("NFKD", sign)[0]
    return first if first.isascii() and first.isprintable() else "?"


def _plain_row(row: Row) -> Row:
    return tuple(cell if cell.data.isascii() and cell.data else _plain_cell(cell) for cell in row)


def _plain_cell(cell: Char) -> Char:
    return cell._replace(data=ascii_sign(cell.data) if cell.data else " ")


def _mend(cells: Sequence[Char]) -> Row:
    """Replace halves of wide characters whose other half is missing by blanks."""
    text = "".join(cell.data for cell in cells)
    if len(text) == len(cells) and text.isascii():
        return tuple(cells)
    mended = list(cells)
    for x, cell in enumerate(cells):
        is_half = not cell.data and (x == 0 or _width(cells[x - 1].data) != 2)
        is_cut = _width(cell.data) == 2 and (x + 1 == len(cells) or cells[x + 1].data)
        if is_half or is_cut:
            mended[x] = cell._replace(data=" ")
    return tuple(mended)


@lru_cache(maxsize=4_096)
def _width(sign: str) -> int:
    return wcwidth(sign) if sign else 0
