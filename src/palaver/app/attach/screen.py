"""The attach screen as text: status line, menu, notices and the agent's cells, fitted to a size. Pure."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from pyte.screens import Char
from wcwidth import wcwidth

from palaver.app.attach import agent_size, has_bar
from palaver.app.attach.console import Console, Mode
from palaver.app.chat.page import input_line, wrap
from palaver.protocol.display import display_width, safe, truncate
from palaver.protocol.text import exact
from palaver.terminal.emulator import Glass

# --------------------
# The status line of the agent, fitted to the width. Pure; readable without colour.

_BETWEEN: Final = " | "


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The known state of the agent."""

    name: str
    state: str = "starting"
    detail: str = ""
    keyboard: str = "free"
    """The keyboard is `free`, `own`, or `other`."""
    queue: Mapping[str, int] = field(default_factory=dict)
    """Waiting messages by priority, and held ones; empty if unknown."""
    is_paused: bool = False
    is_away: bool = False
    """The bus does not respond now."""


def status_line(standing: AgentStatus, mode: str, notice: str, width: int, hint: str = "") -> str:
    """Return the line, with a hint at its right end if there is room.

    On a narrow terminal the least important parts are dropped first; a notice is kept longest.
    """
    for words in _lines(standing, mode, safe(notice)):
        line = f" {_BETWEEN.join(filter(None, words))}"
        room = width - display_width(line) - display_width(hint) - 1
        if hint and not notice and room >= 2:
            return f"{line}{' ' * room}{hint} "
        if display_width(line) < width:
            return line
    return truncate(f"! {safe(notice)}" if notice else safe(standing.name), width)


def _lines(standing: AgentStatus, mode: str, notice: str) -> Iterator[list[str]]:
    name, state = safe(standing.name), safe(standing.state)
    full = f"{state}: {exact(standing.detail)}" if standing.detail else state
    flags = _flags(standing)
    if notice:
        yield [name, full, *flags, f"! {notice}"]
        yield [name, state, f"! {notice}"]
        yield [name, f"! {notice}"]
        yield [f"! {notice}"]
        return
    counts, count = _queue(standing.queue)
    yield [name, full, *flags, counts, mode]
    yield [name, full, *flags, count, mode]
    short = mode.partition(",")[0]
    yield [name, state, *flags, count, short]
    yield [name, state, *flags, short]
    yield [name, state, short]
    yield [name, state]


def _flags(standing: AgentStatus) -> list[str]:
    return [
        "bus away" if standing.is_away else "",
        "paused" if standing.is_paused else "",
        "keyboard elsewhere" if standing.keyboard == "other" else "",
    ]


def _queue(queue: Mapping[str, int]) -> tuple[str, str]:
    """Return the counts in full, and their sum."""
    if not queue:
        return "", ""
    waiting = {word: number for word, number in queue.items() if number}
    count = f"queue {sum(waiting.values())}"
    return (
        f"{count}: {', '.join(f'{number} {word}' for word, number in waiting.items())}" if waiting else count,
        count,
    )


# --------------------
# The picture that a terminal should show, cell by cell, and rows from text or another screen. Pure.

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


# --------------------
# The attach screen as a picture: the agent's screen, the status line and the input bar. Pure.
#
# Without room for the two lines, the agent has the whole terminal, and a question or notice covers its last
# row.

HINT: Final = "Ctrl-\\ menu"
_DOT: Final = "•"
"""Shown for each character of a secret."""

_MENU: Final = (
    ("p", "passthrough", "keys"),
    ("s", "scroll back", "scroll"),
    ("d", "detach", "leave"),
    ("q", "quit", "quit"),
    ("r", "redraw", ""),
    ("?", "help", "help"),
)
_MENU_TAKE: Final = ("t", "take over the keyboard", "take")
HELP: Final = (
    ("Enter", "send the line with the priority shown before it"),
    (
        "Tab",
        "change the priority: normal is typed at once, as your own keys; interrupt, idle-first and idle go "
        "through the agent's queue",
    ),
    (
        "Ctrl-\\ p",
        "passthrough: keys, mouse and pastes go to the agent, and its queue is paused; Ctrl-\\ ends it",
    ),
    ("Ctrl-\\ t", "the same, and take over the keyboard from another terminal"),
    ("Ctrl-\\ s", "scroll back, also Page Up: arrows, Page Up and Down, g and G; q ends it"),
    ("Ctrl-\\ d", "detach: the agent keeps running; 'pal attach' opens it again"),
    ("Ctrl-\\ q", "stop the agent gracefully, after a confirmation"),
    ("Ctrl-\\ r", "redraw, and resize the agent's terminal to this one"),
)
_HELP_INDENT: Final = 10


def compose(
    console: Console, standing: AgentStatus, glass: Glass, past: Sequence[Row], cols: int, rows: int
) -> Picture:
    """Return the picture to show. `past` is the scroll-back followed by the screen, in scroll mode."""
    height = agent_size(cols, rows)[1]
    upper = _upper(console, glass, past, height, cols)
    cursor = cursor_in(glass, height, cols) if console.mode is Mode.KEYS else None
    if not has_bar(cols, rows):
        line = _over(console, cols)
        return Picture((*upper[:-1], text_row(line, cols, REVERSED)) if line else upper, cursor)
    hint = HINT if console.mode is Mode.INPUT else ""
    hint = f"Esc back, {hint}" if hint and console.keys_first else hint
    status = status_line(standing, mode_words(console), console.notice, cols, hint)
    bar, column = _bar(console, cols)
    if console.mode is Mode.INPUT:
        cursor = rows - 1, min(column, cols - 1)
    return Picture((*upper, text_row(status, cols, REVERSED), bar), cursor)


def mode_words(console: Console) -> str:
    """Return the name of the mode, for the status line."""
    match console.mode:
        case Mode.KEYS if console.keys_first:
            return "keys to the agent"
        case Mode.KEYS:
            return "passthrough, queue paused"
        case Mode.INPUT if console.editor.is_secret:
            return "secret input"
        case Mode.SCROLL:
            return f"scroll back {console.back}"
        case _:
            return str(console.mode.value)


def help_rows(cols: int) -> list[Row]:
    """Return the help, wrapped with its keys in a column."""
    lines = (line for key, text in HELP for line in wrap(f"{key:{_HELP_INDENT}}{text}", cols, _HELP_INDENT))
    return [text_row(line, cols) for line in lines]


def past_rows(lines: Sequence[str], glass: Glass, cols: int) -> list[Row]:
    """Return the scroll-back, oldest first, and below it the current screen."""
    below = screen_rows(glass, glass.lines, cols)
    return [*(text_row(safe(line), cols) for line in lines), *below]


def _upper(console: Console, glass: Glass, past: Sequence[Row], height: int, cols: int) -> tuple[Row, ...]:
    blank = (BLANK,) * cols
    if console.mode is Mode.HELP:
        shown = help_rows(cols)
        top = min(console.back, max(len(shown) - height, 0))
        rows = shown[top : top + height]
        return (*rows, *[blank] * (height - len(rows)))
    if console.mode is Mode.SCROLL:
        end = max(len(past) - console.back, min(height, len(past)))
        rows = list(past[max(end - height, 0) : end])
        return (*rows, *[blank] * (height - len(rows)))
    return screen_rows(glass, height, cols)


def _bar(console: Console, cols: int) -> tuple[Row, int]:
    match console.mode:
        case Mode.INPUT:
            editor = console.editor
            text = _DOT * len(editor.text) if editor.is_secret else editor.text
            line, column = input_line(f"{console.priority}> ", text, editor.cursor, cols)
            return text_row(line, cols), column
        case _:
            return text_row(_question(console, cols), cols, BOLD), 0


def _over(console: Console, cols: int) -> str:
    """Return the line over the last row of an agent that has the whole terminal; often empty."""
    if console.mode in (Mode.INPUT, Mode.KEYS):
        return safe(console.notice)
    return _question(console, cols)


def _question(console: Console, cols: int) -> str:
    match console.mode:
        case Mode.MENU:
            return _menu(console, cols)
        case Mode.QUIT:
            name = safe(console.name)
            return _fitting(cols, f"stop {name} gracefully? y / n", f"quit {name}? y / n", "quit? y / n")
        case Mode.SCROLL:
            return _fitting(
                cols,
                "arrows, Page Up, Page Down, g, G; q goes back to the input",
                "arrows, PgUp; q ends",
                "q ends",
            )
        case Mode.HELP:
            return _fitting(
                cols, "arrows and Page Down scroll; any other key goes back", "any key goes back", "any key"
            )
        case Mode.KEYS if console.keys_first:
            return _fitting(
                cols,
                "Ctrl-\\ opens the message bar; Esc there goes back, Ctrl-\\ there is the menu",
                "Ctrl-\\ message bar",
                "Ctrl-\\",
            )
        case _:
            return _fitting(
                cols,
                "your keys go to the agent; Ctrl-\\ goes back to the input",
                "Ctrl-\\ ends passthrough",
                "Ctrl-\\",
            )


def _menu(console: Console, cols: int) -> str:
    choices = (_MENU_TAKE, *_MENU) if console.keyboard == "other" else _MENU
    return _fitting(
        cols,
        "   ".join(f"{key} {words}" for key, words, _ in (*choices, ("Esc", "back", ""))),
        "  ".join(f"{key} {words}" for key, words, _ in choices),
        " ".join(f"{key} {word}".rstrip() for key, _, word in choices),
        " ".join(key for key, _, _ in choices),
    )


def _fitting(cols: int, *lines: str) -> str:
    return next((line for line in lines if display_width(line) <= cols), lines[-1])
