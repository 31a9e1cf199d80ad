"""A terminal emulator: pyte's screen, extended for real programs. Does no input or output."""

import base64
import binascii
import codecs
import copy
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from pyte import modes
from pyte.charsets import LAT1_MAP
from pyte.graphics import BG_AIXTERM, BG_ANSI, FG_AIXTERM, FG_ANSI, FG_BG_256, TEXT
from pyte.screens import Char, Cursor, Margins, Savepoint, Screen
from wcwidth import wcwidth

# --------------------
# The cells of a screen: pyte's screen, extended for real programs. Does no input or output.
#
# Added to pyte: faint text, the alternate screen, a bounded scroll-back, scrolling by escape sequence, and
# drawing in runs. Changed: only one cursor is saved instead of a stack, and a character of zero width does
# not hide the characters after it.

SCROLLBACK_LINES: Final = 1_000

FAINT: Final = "faint "
"""Prefix of the foreground colour of a faint cell, because cells of pyte have no field for it."""

_Line = dict[int, Char]
_AnyLine = TypeVar("_AnyLine", bound=_Line)


class Grid(Screen):
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
        # A full reset ends the alternate screen too, and the main screen is as empty as this one.
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
            # Only the lines are taken out: the mapping itself belongs to pyte and is used again.
            self._other = (dict(self.buffer), copy.copy(self.cursor))
            self.buffer.clear()
            return
        self.buffer.clear()
        if self._other is not None:
            lines, self.cursor = self._other
            self.buffer.update(lines)  # type: ignore[arg-type]  # the same lines that were taken out
            # The size may have changed while the other screen was shown.
            self.ensure_hbounds()
            self.ensure_vbounds()
        self._other = None

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Change the size as terminals do: keep the row of the cursor, and drop rows at the top first.

        Cells beyond the right edge reappear when the screen gets wider again, if their row is unchanged.
        """
        lines, columns = lines or self.lines, columns or self.columns
        if not self.is_alternate:
            # Before `_cut`, which removes these rows.
            for y in range(self.cursor.y - lines + 1):
                self.scrollback.append(self.row_text(y))
        # An id is safe here: each entry keeps its row alive, so no new row can get the same id.
        beyond = {id(one.line): one for one in self._beyond}
        self._beyond = _cut(self.buffer, self.cursor, lines, columns, beyond)
        if self._other is not None:
            self._beyond += _cut(*self._other, lines, columns, beyond)
        # Only in the new columns: in the old ones the program may have changed the tab stops.
        self.tabstops |= set(range(8, columns, 8)) - set(range(self.columns))
        self.lines, self.columns = lines, columns
        self.margins = None

    def save_cursor(self) -> None:
        has_origin, has_wrap = modes.DECOM in self.mode, modes.DECAWM in self.mode
        self._saved = Savepoint(
            copy.copy(self.cursor), self.g0_charset, self.g1_charset, self.charset, has_origin, has_wrap
        )

    def restore_cursor(self) -> None:
        # A terminal can restore its saved cursor again and again. The stack of pyte would be empty after the
        # first time.
        self.savepoints = [] if self._saved is None else [self._saved]
        super().restore_cursor()
        # A copy: otherwise later movements would change the saved cursor, which can be restored again.
        self.cursor = copy.copy(self.cursor)

    def index(self) -> None:
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y != bottom:
            self.cursor_down()
            return
        buffer = self.buffer
        # Only lines that leave the screen at its top are history. The whole screen has scrolled only if the
        # margins include its last row.
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
        # Further steps would move only empty lines, and a huge count must not keep the event loop busy.
        for _ in range(min(abs(count), bottom - top + 1)):
            move()
        self.cursor.x, self.cursor.y = x, y

    def draw(self, data: str) -> None:
        # LAT1_MAP translates each character to itself, so the usual case needs no translation.
        if self.charset or self.g0_charset is not LAT1_MAP:
            data = data.translate(self.g1_charset if self.charset else self.g0_charset)
        # Most output is ASCII: all its characters have one cell, so whole runs are drawn at once.
        if data.isascii() and modes.IRM not in self.mode:
            self._draw_narrow(data)
        else:
            for sign in data:
                self._draw_sign(sign)
        self._last = data[-1]

    def repeat(self, count: int) -> None:
        """Draw the last character again."""
        # A huge count must not cost more than a full screen.
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
        width = width_of(sign)
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
        # A screen of one column has no room for the right half.
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
            # A cell has one character. `squeeze` drops the same accents from our own text, so it still
            # matches the screen.
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
                # One code ends both bold and faint.
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
        # The program draws its own cursor over the first character of a hint, which is not faint there.
        if is_bright and y == self.cursor.y and self._is_hint_begin(line):
            signs[self.cursor.x] = " "
        return "".join(signs).rstrip()

    def _is_hint_begin(self, line: _Line) -> bool:
        """Return whether the cursor is on the first character of a hint, drawn as a reversed cell."""
        here, following = line.get(self.cursor.x), line.get(self.cursor.x + 1)
        return here is not None and here.reverse and following is not None and following.fg.startswith(FAINT)


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
    # In an incomplete colour, its numbers cannot be distinguished from the next attributes: skip all of them.
    return "", len(attrs)


@lru_cache(maxsize=4_096)
def width_of(sign: str) -> int:
    """Return the columns of a character: 2 for a wide one, 0 or less if it has no cell."""
    return wcwidth(sign)


@lru_cache(maxsize=256)
def _cells_of(attrs: Char) -> Callable[[str], Char]:
    """Return a function that makes a cell from a character. Equal cells are the same object."""
    # 128 is all of ASCII, the only text drawn with it: no cell is ever dropped from this cache.
    return lru_cache(maxsize=128)(lambda sign: attrs._replace(data=sign))


# --------------------
# The effect of control characters and escape sequences on a screen, as three tables. Pure.

_PARAM_MOST: Final = 9_999


def read_numbers(params: str) -> tuple[int, ...]:
    """Parse the numbers of a control sequence. A missing one is 0; subparameters after a colon are ignored.

    Colours written with colons are converted to the form with semicolons.
    """
    if not params:
        return ()
    if ":" in params:
        params = _COLON_COLOUR.sub(r"\1;2;\2;\3;\4", params)
        params = _COLON_INDEXED.sub(r"\1;5;\2", params)
    return tuple(_number(part.partition(":")[0]) for part in params.split(";"))


_COLON_COLOUR: Final = re.compile(r"\b([345]8):2:(?:\d*:)?(\d+):(\d+):(\d+)[\d:]*")
_COLON_INDEXED: Final = re.compile(r"\b([345]8):5:(\d+)")


def _number(part: str) -> int:
    # Python refuses to convert very long numbers, and a sequence may contain any digits.
    return min(int(part[:6]), _PARAM_MOST) if part.isascii() and part.isdigit() else 0


def _first(numbers: tuple[int, ...]) -> int:
    return numbers[0] if numbers else 0


def _erase_display(grid: Grid, numbers: tuple[int, ...]) -> None:
    how = _first(numbers)
    # Not passed on to pyte, which would clear the screen too. Terminals clear only the scroll-back.
    if how == 3:
        grid.scrollback.clear()
    elif how in (0, 1, 2):
        grid.erase_in_display(how)


def _erase_line(grid: Grid, numbers: tuple[int, ...]) -> None:
    if (how := _first(numbers)) in (0, 1, 2):
        grid.erase_in_line(how)


def _move(grid: Grid, numbers: tuple[int, ...]) -> None:
    grid.cursor_position(*numbers[:2])


def _set_margins(grid: Grid, numbers: tuple[int, ...]) -> None:
    top, bottom = (*numbers, 0, 0)[:2]
    if top or bottom:
        # pyte would keep the earlier margin for a number that is left out; terminals use the whole screen's.
        grid.set_margins(top or 1, bottom or grid.lines)
    else:
        grid.set_margins()
    # Each change of the margins moves the cursor home. pyte does not move it when they are removed.
    grid.cursor_position()


def _set_plain_modes(grid: Grid, numbers: tuple[int, ...], *, is_on: bool) -> None:
    # Other numbers are dropped, because pyte keeps private modes in the same set, shifted by 5 bits: mode 800
    # would be private mode 25, the cursor.
    known = [number for number in numbers if number in (modes.IRM, modes.LNM)]
    change = grid.set_mode if is_on else grid.reset_mode
    change(*known)


def _counted(method: Callable[[Grid, int], None]) -> Callable[[Grid, tuple[int, ...]], None]:
    return lambda grid, numbers: method(grid, _first(numbers) or 1)


def _next_line(grid: Grid) -> None:
    grid.carriage_return()
    grid.index()


def _tab_forward(grid: Grid, count: int) -> None:
    for _ in range(min(count, grid.columns)):
        grid.tab()


def _tab_back(grid: Grid, count: int) -> None:
    for _ in range(min(count, grid.columns)):
        grid.cursor.x = max((stop for stop in grid.tabstops if stop < grid.cursor.x), default=0)


CONTROLS: Final[Mapping[str, Callable[[Grid], None]]] = {
    "\x08": Grid.backspace,
    "\x09": Grid.tab,
    "\x0a": Grid.linefeed,
    "\x0b": Grid.linefeed,
    "\x0c": Grid.linefeed,
    "\x0d": Grid.carriage_return,
    "\x0e": Grid.shift_out,
    "\x0f": Grid.shift_in,
}

ESCAPES: Final[Mapping[str, Callable[[Grid], None]]] = {
    "7": Grid.save_cursor,
    "8": Grid.restore_cursor,
    "D": Grid.index,
    "E": _next_line,
    "H": Grid.set_tab_stop,
    "M": Grid.reverse_index,
    "#8": Grid.alignment_display,
}

SEQUENCES: Final[Mapping[str, Callable[[Grid, tuple[int, ...]], None]]] = {
    "@": _counted(Grid.insert_characters),
    "A": _counted(Grid.cursor_up),
    "B": _counted(Grid.cursor_down),
    "C": _counted(Grid.cursor_forward),
    "D": _counted(Grid.cursor_back),
    "E": _counted(Grid.cursor_down1),
    "F": _counted(Grid.cursor_up1),
    "G": _counted(Grid.cursor_to_column),
    "H": _move,
    "I": _counted(_tab_forward),
    "J": _erase_display,
    "K": _erase_line,
    "L": _counted(Grid.insert_lines),
    "M": _counted(Grid.delete_lines),
    "P": _counted(Grid.delete_characters),
    "S": _counted(Grid.scroll),
    "T": _counted(lambda grid, count: grid.scroll(-count)),
    "X": _counted(Grid.erase_characters),
    "Z": _counted(_tab_back),
    "`": _counted(Grid.cursor_to_column),
    "a": _counted(Grid.cursor_forward),
    "b": _counted(Grid.repeat),
    "d": _counted(Grid.cursor_to_line),
    "e": _counted(Grid.cursor_down),
    "f": _move,
    "g": lambda grid, numbers: grid.clear_tab_stop(_first(numbers)),
    "h": lambda grid, numbers: _set_plain_modes(grid, numbers, is_on=True),
    "l": lambda grid, numbers: _set_plain_modes(grid, numbers, is_on=False),
    "r": _set_margins,
    "s": lambda grid, _numbers: grid.save_cursor(),
    "u": lambda grid, _numbers: grid.restore_cursor(),
}

# --------------------
# Split terminal output into text, control characters and escape sequences. Pure.
#
# An incomplete sequence at the end is kept until its rest arrives, so the result does not depend on where the
# bytes are cut. Strings (OSC, DCS, APC and similar) over the limit are skipped, so a picture or a clipboard
# uses no memory. Nothing here raises, whatever the bytes.

STRING_LIMIT: Final = 8_192
PARAMS_LIMIT: Final = 256

# The terminator ST is not part of a string here, because its ESC may also cancel the string and begin another
# sequence. Alone, ST is an escape without an effect.
_TOKEN: Final = re.compile(
    "(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    "|(?:\x1b\\[|\x9b)(?P<params>[0-?]*)(?P<final>[ -/]*[@-~])"
    "|(?:\x1b\\]|\x9d)(?P<osc>[^\x07\x18\x1a\x1b\x9c]*)"
    "(?:(?P<osc_end>[\x07\x9c]|(?=\x1b\\\\))|[\x18\x1a]|(?=\x1b[^\\\\]))"
    "|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])(?P<string>[^\x18\x1a\x1b\x9c]*)(?:[\x18\x1a\x9c]|(?=\x1b[\\s\\S]))"
    "|\x1b(?P<escape>[ -/]+[0-~]|[0-OQ-WYZ\\\\`-~])"
    "|(?P<control>[\x00-\x1a\x1c-\x1f\x7f])"
)
_UNFINISHED: Final = re.compile(
    "(?:\x1b[ -/]*|(?P<params>(?:\x1b\\[|\x9b)[0-?]*[ -/]*))\\Z"
    "|(?P<osc>(?:\x1b\\]|\x9d)[^\x07\x18\x1a\x1b\x9c]*)\x1b?\\Z"
    "|(?P<string>(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x18\x1a\x1b\x9c]*)\x1b?\\Z"
)
# The last alternative matches any character, so that `split` always moves on.
_BROKEN: Final = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*|[\\s\\S]")
_REST: Final = {
    "params": re.compile("[ -?]*(?P<end>[@-~]|(?=[^ -~]))?"),
    "osc": re.compile("[^\x07\x18\x1a\x1b\x9c]*(?P<end>[\x07\x18\x1a\x9c]|(?=\x1b))?"),
    "string": re.compile("[^\x18\x1a\x1b\x9c]*(?P<end>[\x18\x1a\x9c]|(?=\x1b))?"),
}
"""Patterns for the rest of a sequence that is too long, by its kind."""


class Sequences:
    """Splits output piece by piece. Keeps at most one incomplete sequence of limited length."""

    def __init__(self) -> None:
        # Incremental, because a character may be cut by the end of a piece.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = ""
        self._skipping: re.Pattern[str] | None = None

    @property
    def tail(self) -> str:
        """The incomplete sequence at the end."""
        return self._tail

    @property
    def is_complete(self) -> bool:
        """Whether the output ends neither within a sequence nor within a character."""
        return not self._tail and self._skipping is None and not self._decoder.getstate()[0]

    def split(self, data: bytes) -> Iterator[re.Match[str]]:
        """Yield the matches in order. The name of the last matching group is the kind.

        `text`, `control`, `escape`; `final` with `params` for a control sequence; `osc_end` with `osc` for a
        complete operating system command. An `osc` without `osc_end` was cancelled; ignore `string`.
        """
        text = self._tail + self._decoder.decode(data)
        self._tail = ""
        at = self._skip(text)
        while at < len(text):
            if found := _TOKEN.match(text, at):
                at = found.end()
                # The same limit as for a string in several pieces: the result must not depend on the
                # pieces.
                if found.end() - found.start() <= STRING_LIMIT or found.lastgroup == "text":
                    yield found
            elif unfinished := _UNFINISHED.match(text, at):
                self._keep(text[at:], unfinished.lastgroup)
                return
            else:
                broken = _BROKEN.match(text, at)
                at = broken.end() if broken else len(text)

    def _skip(self, text: str) -> int:
        if self._skipping is None:
            return 0
        rest = self._skipping.match(text)
        if rest is None or rest["end"] is None:
            return len(text)
        self._skipping = None
        return rest.end()

    def _keep(self, tail: str, kind: str | None) -> None:
        if kind is not None and len(tail) > (PARAMS_LIMIT if kind == "params" else STRING_LIMIT):
            self._skipping = _REST[kind]
            # An escape at the end may be the start of the string terminator.
            self._tail = "\x1b" if tail.endswith("\x1b") else ""
        else:
            self._tail = tail


# --------------------
# Emulate a terminal: its cells and modes, the queries of its program and the status that it reports.
#
# Does no input or output and reads no clock. Never raises, whatever the bytes: a sequence that fails makes
# the screen unreadable until the program redraws it.

TITLE_LIMIT: Final = 1_024
ANSWER_LIMIT: Final = 64
"""Replies that may wait. Further queries get no reply."""

MODE_KEYPAD: Final = 66
"""Application keypad mode. Set by this number or by an escape sequence."""

_KEY_FLAGS: Final = 0b11111
# A program may push flags and never pop them: over the limit the oldest are dropped.
_LIMIT_KEY_FLAGS: Final = 16
_MODE_PASTE: Final = 2004
_MODE_FOCUS: Final = 1004
_WORKING: Final = "working"
_LIMIT_WORKERS: Final = 1000
_MODE_FRAME: Final = 2026
_MODES_ALTERNATE: Final = frozenset({47, 1047, 1049})
# Not 3 (132 columns): pyte would change the size of the screen, and the real terminal keeps its size.
_MODES_PYTE: Final = frozenset({6, 7, 25})


@dataclass(frozen=True, slots=True)
class Status:
    """The status that a program reports with OSC 7501."""

    state: str
    kind: str = ""
    message: str = ""
    about: str = ""
    """The sub-agent that it describes; empty for the program itself."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The key encoding and cursor shape that a program has requested."""

    flags: int = 0
    """Flags of the kitty protocol."""
    other: int = 0
    """The level of modifyOtherKeys."""
    style: int = 0
    """The shape of the cursor."""


def change_keys(before: Keys, after: Keys) -> bytes:
    """Return the sequences that change the key encoding and cursor shape of another terminal."""
    parts = []
    if before.flags != after.flags:
        # Set the flags instead of pushing them, so that the stack does not grow if this is sent again.
        parts.append(b"\x1b[=%d;1u" % after.flags)
    if before.other != after.other:
        parts.append(b"\x1b[>4;%dm" % after.other)
    if before.style != after.style:
        parts.append(b"\x1b[%d q" % after.style)
    return b"".join(parts)


class Emulator:
    """One emulated terminal. Titles, replies and sub-agents are limited in number and size."""

    def __init__(self, columns: int, rows: int) -> None:
        self._sequences = Sequences()
        self.grid = Grid(columns, rows)
        self.is_readable = True
        self._readable_at = 0
        """The number of scrolled lines after which no line of the unreadable screen is left."""
        self._is_main_readable = True
        """Whether the main screen is known, which returns after the alternate one."""
        self.modes: set[int] = set()
        self._key_flags: list[int] = []
        self._other_keys = 0
        self._cursor_style = 0
        self.title = ""
        self.status: Status | None = None
        self.workers: set[str] = set()
        """Sub-agents of the program that are working."""
        self._reports: dict[type, str | Status] = {}
        self._answers: list[tuple[bool, bytes]] = []

    @property
    def keys(self) -> Keys:
        """The current key encoding and cursor shape."""
        flags = self._key_flags[-1] if self._key_flags else 0
        return Keys(flags, self._other_keys, self._cursor_style)

    @property
    def has_paste_mode(self) -> bool:
        return _MODE_PASTE in self.modes

    @property
    def has_focus_mode(self) -> bool:
        return _MODE_FOCUS in self.modes

    @property
    def is_mid_frame(self) -> bool:
        """Whether the program has announced the start of a frame and not yet its end."""
        return _MODE_FRAME in self.modes

    @property
    def is_mid_sequence(self) -> bool:
        """Whether the output so far ends within a sequence or a character: nothing may be written there."""
        return not self._sequences.is_complete

    def feed(self, data: bytes) -> None:
        """Process output. Never raises."""
        for found in self._sequences.split(data):
            try:
                self._carry_out(found)
            except Exception:  # pyte fails on some real output, so the screen is no longer known
                self.spoil()
        # Every line that could be wrong has left the screen.
        if not self.is_readable and self.grid.scrolled >= self._readable_at:
            self.is_readable = True

    def spoil(self) -> None:
        """Mark both screens as unreadable, each until it is cleared or reset, or has scrolled away."""
        self._is_main_readable = False
        self._mark_unreadable()

    def _mark_unreadable(self) -> None:
        self.is_readable = False
        # The size of now counts: a screen that is made smaller may keep its oldest lines.
        self._readable_at = self.grid.scrolled + self.grid.lines

    def resize(self, columns: int, rows: int) -> None:
        """Change the size. Programs redraw their screen afterwards."""
        try:
            self.grid.resize(rows, columns)
            self.grid.ensure_hbounds()
            self.grid.ensure_vbounds()
        except Exception:  # as in feed
            self.spoil()

    def take_answers(self, *, is_attended: bool) -> bytes:
        """Return, and remove, the replies to queries of the program.

        `is_attended`: a person's terminal receives the queries too and answers them, except the one for
        OSC 7501, which terminals do not know.
        """
        answers = b"".join(data for is_ours, data in self._answers if is_ours or not is_attended)
        self._answers.clear()
        return answers

    def take_reports(self) -> list[str | Status]:
        """Return the newest title and the newest status since the last call, in order of arrival."""
        reports = list(self._reports.values())
        self._reports.clear()
        return reports

    def _carry_out(self, found: re.Match[str]) -> None:
        match found.lastgroup:
            case "text":
                self.grid.draw(found[0])
            case "final":
                self._control_sequence(found["params"], found["final"])
            case "control":
                if action := CONTROLS.get(found[0]):
                    action(self.grid)
            case "escape":
                self._escape(found["escape"])
            case "osc_end":
                self._command(found["osc"])

    def _escape(self, word: str) -> None:
        if word == "c":
            self.grid.reset()
            self.modes.clear()
            self._key_flags.clear()
            self._other_keys = self._cursor_style = 0
            self.is_readable = True
        elif word[0] in "()" and len(word) == 2:
            self.grid.define_charset(word[1], word[0])
        elif word in "=>":
            self._set_modes((MODE_KEYPAD,), is_on=word == "=")
        elif action := ESCAPES.get(word):
            action(self.grid)

    def _control_sequence(self, params: str, final: str) -> None:
        private = params[:1] if params[:1] in ("?", ">", "<", "=") else ""
        numbers = read_numbers(params[len(private) :])
        if private == "?" and final in "hl":
            self._set_modes(numbers, is_on=final == "h")
        elif private in (">", "<", "=") and final == "u":
            self._set_key_flags(private, numbers)
        elif private == ">" and final == "m" and numbers[:1] == (4,):
            self._other_keys = min(numbers[1], 9) if len(numbers) > 1 else 0
        elif private:
            self._ask_private(private, numbers, final)
        elif final == "m":
            self.grid.select_graphic_rendition(*numbers)
        elif final == " q":
            self._cursor_style = min(numbers[0], 9) if numbers else 0
        elif action := SEQUENCES.get(final):
            action(self.grid, numbers)
            # The program has cleared the whole screen, so its content is known again. Some terminal types,
            # such as those of tmux, clear it from the first cell on.
            is_home = self.grid.cursor.x == self.grid.cursor.y == 0
            if final == "J" and (numbers[:1] == (2,) or (is_home and numbers[:1] in ((), (0,)))):
                self.is_readable = True
        else:
            self._ask(numbers, final)

    def _set_modes(self, numbers: tuple[int, ...], *, is_on: bool) -> None:
        for number in numbers:
            # A program may request the alternate screen twice: the second time it shows nothing new.
            if number in _MODES_ALTERNATE and is_on is not self.grid.is_alternate:
                self._show_alternate(is_on=is_on)
            if number in _MODES_PYTE:
                change = self.grid.set_mode if is_on else self.grid.reset_mode
                change(number, private=True)
            if is_on:
                self.modes.add(number)
            else:
                self.modes.discard(number)

    def _show_alternate(self, *, is_on: bool) -> None:
        self.grid.show_alternate(is_on=is_on)
        if is_on:
            # The alternate screen starts empty, so its content is known. The main screen stays as it was.
            self._is_main_readable, self.is_readable = self.is_readable, True
        elif self._is_main_readable:
            self.is_readable = True
        else:
            self._mark_unreadable()

    def _set_key_flags(self, private: str, numbers: tuple[int, ...]) -> None:
        """Handle the key flags of the kitty protocol: push, pop or change the topmost."""
        first = numbers[0] if numbers else 0
        if private == ">":
            self._key_flags = [*self._key_flags, first & _KEY_FLAGS][-_LIMIT_KEY_FLAGS:]
        elif private == "<":
            del self._key_flags[-max(first, 1) :]
        else:
            before = self._key_flags.pop() if self._key_flags else 0
            how = numbers[1] if len(numbers) > 1 else 1
            changed = {1: first, 2: before | first, 3: before & ~first}.get(how, before)
            self._key_flags.append(changed & _KEY_FLAGS)

    def _ask(self, numbers: tuple[int, ...], final: str) -> None:
        grid = self.grid
        match final, numbers[:1]:
            case "c", () | (0,):
                self._answer(b"\x1b[?62;22c")
            case "n", (5,):
                self._answer(b"\x1b[0n")
            case "n", (6,):
                self._answer(b"\x1b[%d;%dR" % (grid.cursor.y + 1, min(grid.cursor.x + 1, grid.columns)))
            case "t", (18,):
                self._answer(b"\x1b[8;%d;%dt" % (grid.lines, grid.columns))
            case _:
                pass

    def _ask_private(self, private: str, numbers: tuple[int, ...], final: str) -> None:
        match private, final:
            case ">", "q":
                self._answer(b"\x1bP>|palaver\x1b\\")
            case ">", "c":
                self._answer(b"\x1b[>0;0;0c")
            case "?", "$p" if numbers:
                known = numbers[0] in (_MODE_PASTE, _MODE_FOCUS, _MODE_FRAME)
                # 0 means unknown: the program then does not use a mode that is not followed here.
                value = 0 if not known else 1 if numbers[0] in self.modes else 2
                self._answer(b"\x1b[?%d;%d$y" % (numbers[0], value))
            case _:
                pass

    def _command(self, text: str) -> None:
        number, _, rest = text.partition(";")
        match number:
            # Not 1, which names only the icon of a window.
            case "0" | "2":
                self.title = rest[:TITLE_LIMIT]
                self._say(self.title)
            # Programs choose their colours by this. Without a viewer's terminal the colours are not known, so
            # a dark one is reported.
            case "10" | "11" if rest == "?":
                colour = b"ffff/ffff/ffff" if number == "10" else b"0000/0000/0000"
                self._answer(b"\x1b]%s;rgb:%s\x1b\\" % (number.encode(), colour))
            # Claude Code reports its state only to a terminal that replies to this probe.
            case "7501" if rest.startswith("?"):
                self._answer(b"\x1b]7501;?ok\x1b\\", is_ours=True)
            case "7501":
                status = parse_status(rest)
                if status is not None and status.about:
                    self._hear_of(status)
                elif status is not None:
                    self.status = status
                    self._say(status)
            case _:
                pass

    def _hear_of(self, status: Status) -> None:
        if status.state != _WORKING:
            self.workers.discard(status.about)
        elif len(self.workers) < _LIMIT_WORKERS:
            self.workers.add(status.about)

    def _say(self, report: str | Status) -> None:
        # Removed first, so that the newest report is the last one in the order.
        self._reports.pop(type(report), None)
        self._reports[type(report)] = report

    def _answer(self, data: bytes, *, is_ours: bool = False) -> None:
        if len(self._answers) < ANSWER_LIMIT:
            self._answers.append((is_ours, data))


def parse_status(text: str) -> Status | None:
    """Parse the fields of OSC 7501, `state=blocked:kind=permission:msg=<base64>`; None without a state."""
    fields = dict(part.partition("=")[::2] for part in text.split(":"))
    state = fields.get("state", "")
    if not state:
        return None
    try:
        message = base64.b64decode(fields.get("msg", ""), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        message = ""
    return Status(state, fields.get("kind", ""), message, fields.get("id", ""))


# --------------------
# Make the bytes that draw the screen of a terminal on another terminal. Pure.
#
# They contain the cells with their colours, the cursor, the title, and the modes that the program relies on.
# They do not contain the scroll-back.

KEPT_MODES: Final = (1, 9, MODE_KEYPAD, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004, 2031)
"""Modes for keys, mouse, focus and paste, which the person's terminal must have too."""

_UNKNOWN_KEYS: Final = Keys(-1, -1, -1)
_SGR_FORE: Final = {name: code for code, name in {**FG_AIXTERM, **FG_ANSI}.items()}
_SGR_BACK: Final = {name: code for code, name in {**BG_AIXTERM, **BG_ANSI}.items()}
_PALETTE: Final = {colour: number for number, colour in reversed(list(enumerate(FG_BG_256)))}
"""The numbers of the 256 standard colours by their RGB value; the lowest number of equal ones."""


def redraw(terminal: Emulator) -> bytes:
    """Return the bytes that make another terminal of the same size look and behave like this one."""
    grid = terminal.grid
    # Colours are reset before the screen is cleared, because terminals fill cleared cells with the current
    # background. Wrapping and margins get their real values below, after the cells.
    parts = [b"\x1b[?1049h" if grid.is_alternate else b"\x1b[?1049l", b"\x1b[r\x1b[0m\x1b[?7h\x1b[2J"]
    for y in range(grid.lines):
        parts += _draw_row(grid, y)
    # A control character in the title could end the sequence and begin another one.
    title = "".join(sign for sign in terminal.title if sign.isprintable())
    parts.append(f"\x1b]2;{title}\x07".encode("utf-8", "replace"))
    if grid.margins is not None:
        parts.append(b"\x1b[%d;%dr" % (grid.margins.top + 1, grid.margins.bottom + 1))
    # Modes that are off are written too: the other terminal may still have them from an earlier screen.
    parts += (b"\x1b[?%d%s" % (mode, b"h" if mode in terminal.modes else b"l") for mode in KEPT_MODES)
    # The state of the other terminal is not known, so all values are written.
    parts.append(change_keys(_UNKNOWN_KEYS, terminal.keys))
    if modes.DECAWM not in grid.mode:
        parts.append(b"\x1b[?7l")
    # Last, because margins and drawn cells move the cursor.
    cursor = grid.cursor
    # After the last column of a row, the cursor is beyond the edge until the next character wraps.
    parts.append(b"\x1b[%d;%dH" % (cursor.y + 1, min(cursor.x, grid.columns - 1) + 1))
    parts.append(graphics(cursor.attrs._replace(data=" ")))
    parts.append(b"\x1b[?25l" if cursor.hidden else b"\x1b[?25h")
    return b"".join(parts)


def _draw_row(grid: Grid, y: int) -> Iterator[bytes]:
    line = grid.buffer.get(y)
    if not line:
        return
    blank = grid.default_char
    end = max((x for x in line if x < grid.columns and line[x] != blank), default=-1) + 1
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
    words += _colour(cell.fg.removeprefix(FAINT), _SGR_FORE, "38")
    words += _colour(cell.bg, _SGR_BACK, "48")
    return f"\x1b[{';'.join(words)}m".encode()


def _colour(name: str, codes: dict[str, int], extended: str) -> list[str]:
    if name == "default":
        return []
    if name in codes:
        return [str(codes[name])]
    if name in _PALETTE:
        return [extended, "5", str(_PALETTE[name])]
    return [extended, "2", *(str(int(name[start : start + 2], 16)) for start in (0, 2, 4))]


# --------------------
# Find an incomplete sequence or character at the end of output. Pure.

LIMIT_TAIL_BYTES: Final = 8192
"""A longer sequence counts as one that never ends."""

_UNFINISHED_END: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x18\x1a\x1b]*\x1b?|[ -/]+)?"
    rb"|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)


def unfinished(seen: bytes) -> bytes:
    """Return the incomplete sequence at the end, or nothing if the output is complete.

    A viewer that receives the screen after `seen` must receive these bytes too. Otherwise it would show the
    rest of the sequence as text.
    """
    last = seen[-LIMIT_TAIL_BYTES:]
    escape = last.rfind(b"\x1b")
    # The last escape may be the terminator of a string that began with the escape before it.
    starts = [last.rfind(b"\x1b", 0, escape) if escape > 0 else -1, escape]
    # A character has at most four bytes, so one that is cut begins in the last three.
    starts += range(len(last) - 3, len(last))
    for start in starts:
        if start >= 0 and (found := _UNFINISHED_END.match(last, start)):
            return found[0]
    return b""
