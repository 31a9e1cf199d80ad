"""The screen of 'pal attach': the agent's picture with our lines below it, and the bytes that draw it."""

import asyncio
import os
import select
import termios
import time
import tty
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from pyte.screens import Char
from wcwidth import wcwidth

from palaver.app.attach import agent_size, has_bar
from palaver.app.attach.console import AgentChoice, Console, LookBack, Mode
from palaver.app.attach.editor import input_line, wrap
from palaver.protocol.display import display_width, need_words, safe, truncate
from palaver.protocol.text import exact
from palaver.terminal.emulator import KEPT_MODES, MODE_KEYPAD, Grid, Keys, change_keys, graphics

# --------------------
# The status line of the agent, fitted to the width. Pure; readable without colour.

_BETWEEN: Final = " | "
_LIMIT_FOLDER: Final = 28
"""Columns of a folder; of a longer one only the end is shown."""
_IDLE: Final = "idle"

WAITS: Final = {
    "exited": "the program has ended",
    "gone": "no process reads the terminal",
    "shell": "a shell would run it",
    "foreground": "another program is in the foreground",
    "tool": "a tool that it started reads the terminal",
    "secret": "it asks for a secret",
    "unreadable": "the screen cannot be read",
    "dialog": "a dialog is open",
    "compacting": "it is compacting its context",
    "starting": "it is starting",
    "deaf": "it does not read its input",
    "passthrough": "a person has the keyboard",
    "human": "a key was just pressed",
    "draft": "its input has a draft",
    "composer": "no input line is visible",
    "prompt": "no known prompt is visible",
    "native": "its own lane is not open",
}
"""Why messages wait, by the reason of the closed gate."""


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
    gate: str = ""
    """Why nothing can be typed into the terminal now; empty if it can, or if that is unknown."""
    lanes: Mapping[str, str] = field(default_factory=dict)
    """The other lanes of the agent: why each is closed; empty if it is open."""
    role_and_folder: str = ""
    """Its role and folder."""
    attention: int = 0
    """The number of entries of `pal pending`, which wait for the person on the whole bus."""


def role_and_folder(role: str, folder: str, home: str) -> str:
    """Return the role and the folder of an agent; `home` is the user's own folder."""
    if folder and (folder == home or folder.startswith(f"{home}/")):
        folder = f"~{folder[len(home) :]}"
    folder = safe(folder)
    while display_width(folder) > _LIMIT_FOLDER and "/" in folder[2:]:
        folder = f"…/{folder.removeprefix('…/').partition('/')[2]}"
    return " in ".join(filter(None, (safe(role), folder)))


def why_waiting(standing: AgentStatus) -> str:
    """Return why messages wait; empty if none does, or if nothing is known to hold them back."""
    queue = {word: number for word, number in standing.queue.items() if number}
    if not queue or standing.is_away or standing.is_paused:
        return ""  # The line has a separate word for the last two.
    native = standing.lanes.get("native")
    if native == "" or (native is None and not standing.gate):
        if set(queue) == {"held"}:
            return "'pal receipts' says why"
        is_for_idle = not queue.keys() & {"interrupt", "normal"}
        return "until it is idle" if is_for_idle and standing.state != _IDLE else ""
    reason = native if native and standing.gate in ("", "native") else standing.gate
    if reason == "passthrough" and standing.keyboard == "own":
        return "you have the keyboard"
    return WAITS.get(reason, safe(reason))


def status_line(standing: AgentStatus, mode: str, notice: str, width: int, hint: str = "") -> str:
    """Return the line, with a hint at its right end if there is room.

    On a narrow terminal the least important parts are dropped first; a notice is kept longest. The role and
    the folder never take the room of the hint.
    """
    for words in _lines(standing, mode, safe(notice)):
        line = f" {_BETWEEN.join(filter(None, words))}"
        room = width - display_width(line) - display_width(hint) - 1
        if hint and not notice and room >= 2:
            return f"{line}{' ' * room}{hint} "
        has_folder = bool(standing.role_and_folder) and words[-1] == standing.role_and_folder
        if display_width(line) < width and not (hint and has_folder):
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
    why = why_waiting(standing)
    why = f" (waits: {why})" if why else ""
    if standing.role_and_folder:
        yield [name, full, *flags, counts + why, mode, standing.role_and_folder]
        yield [name, full, *flags, count + why, mode, standing.role_and_folder]
    yield [name, full, *flags, counts + why, mode]
    yield [name, full, *flags, count + why, mode]
    short = mode.partition(",")[0]
    yield [name, state, *flags, count + why, short]
    yield [name, state, *flags, count, short]
    yield [name, state, *flags, short]
    yield [name, state, short]
    yield [name, state]


def _flags(standing: AgentStatus) -> list[str]:
    return [
        "bus away" if standing.is_away else "",
        "paused" if standing.is_paused else "",
        "keyboard elsewhere" if standing.keyboard == "other" else "",
        need_words(standing.attention) if not standing.is_away else "",
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
    """A whole terminal; every row has its width. `cursor` is None if the cursor is hidden."""

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


def screen_rows(grid: Grid, height: int, width: int) -> tuple[Row, ...]:
    """Return the part of a screen around its cursor that fits; the area outside the screen is blank."""
    top, left = window(grid, height, width)
    blank = grid.default_char
    rows: list[Row] = []
    for y in range(top, top + height):
        line = grid.buffer.get(y) if y < grid.lines else None
        if not line:
            shown = blank if y < grid.lines else BLANK
            rows.append((shown,) * width)
            continue
        end = min(left + width, grid.columns)
        cells = [line.get(x, blank) for x in range(left, end)]
        rows.append(_mend(cells + [BLANK] * (width - len(cells))))
    return tuple(rows)


def window(grid: Grid, height: int, width: int) -> tuple[int, int]:
    """Return the first row and column of the part that is shown."""
    return max(grid.cursor.y - height + 1, 0), max(min(grid.cursor.x, grid.columns - 1) - width + 1, 0)


def cursor_in(grid: Grid, height: int, width: int) -> tuple[int, int] | None:
    """Return the position of the screen's cursor in that part; None if the program hides it."""
    if grid.cursor.hidden:
        return None
    top, left = window(grid, height, width)
    return grid.cursor.y - top, min(grid.cursor.x, grid.columns - 1) - left


def plain(picture: Picture) -> Picture:
    """Return the picture in ASCII, for a terminal that shows nothing else."""
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
    # Most rows: a wide character is not ASCII, and the empty cell of its right half makes the text shorter.
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
    ("n", "agents", ""),
    ("?", "help", ""),
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
    (
        "Ctrl-\\ s",
        "scroll back, also Page Up: arrows, Page Up and Down, g and G; / searches, n and N go to the next "
        "match; v marks lines, y copies them to your clipboard; q ends it",
    ),
    ("Ctrl-\\ n", "the other agents: arrows and Enter show another one here"),
    ("Ctrl-\\ d", "detach: the agent keeps running; 'pal attach' opens it again"),
    ("Ctrl-\\ q", "stop the agent gracefully, after a confirmation"),
    ("Ctrl-\\ r", "redraw, and resize the agent's terminal to this one"),
)
_HELP_INDENT: Final = 10


def compose(
    console: Console, standing: AgentStatus, grid: Grid, past: Sequence[Row], cols: int, rows: int
) -> Picture:
    """Return the picture to show. `past` is the scroll-back followed by the screen, in scroll mode.

    Its rows are those of `console.past.lines`.
    """
    height = agent_size(cols, rows)[1]
    upper = _upper(console, grid, past, height, cols)
    cursor = cursor_in(grid, height, cols) if console.mode is Mode.KEYS else None
    if not has_bar(cols, rows):
        line = _over(console, cols)
        return Picture((*upper[:-1], text_row(line, cols, REVERSED)) if line else upper, cursor)
    hint = HINT if console.mode is Mode.INPUT else ""
    hint = f"Esc back, {hint}" if hint and console.keys_first else hint
    status = status_line(standing, mode_words(console), console.notice, cols, hint)
    bar, column = _bar(console, cols)
    if console.mode in (Mode.INPUT, Mode.SEARCH):
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
        case Mode.SCROLL | Mode.SEARCH:
            return _scroll_words(console.past)
        case _:
            return str(console.mode.value)


def _scroll_words(past: LookBack) -> str:
    words = [f"scroll back {past.back}"]
    if past.found is not None:
        matches = past.matches()
        words.append(f"match {len(matches) - matches.index(past.found)} of {len(matches)}")
    if past.mark is not None:
        count = len(past.selected)
        words.append("1 line marked" if count == 1 else f"{count} lines marked")
    return ", ".join(words)


def help_rows(cols: int) -> list[Row]:
    """Return the help, wrapped with its keys in a column."""
    lines = (line for key, text in HELP for line in wrap(f"{key:{_HELP_INDENT}}{text}", cols, _HELP_INDENT))
    return [text_row(line, cols) for line in lines]


def past_rows(lines: Sequence[str], grid: Grid, cols: int) -> list[Row]:
    """Return the scroll-back, oldest first, and below it the current screen."""
    below = screen_rows(grid, grid.lines, cols)
    return [*(text_row(safe(line), cols) for line in lines), *below]


def past_lines(lines: Sequence[str], grid: Grid) -> list[str]:
    """Return the text of the rows of `past_rows`, in full width, for a search and for the clipboard."""
    return [*map(safe, lines), *(safe(grid.row_text(y)) for y in range(grid.lines))]


def _past_window(past: LookBack, rows: Sequence[Row], height: int) -> list[Row]:
    """Return the shown rows of the scroll-back; matches of a search and selected lines are reversed."""
    end = max(len(rows) - past.back, min(height, len(rows)))
    first = max(end - height, 0)
    selected = past.selected if past.mark is not None else range(0)
    matching = frozenset(past.matches())
    shown: list[Row] = []
    for index in range(first, end):
        at, row = len(rows) - 1 - index, rows[index]
        if at in selected:
            row = tuple(cell._replace(reverse=not cell.reverse) for cell in row)
        elif at in matching:
            row = _show_matches(row, past.needle)
        shown.append(row)
    return shown


def _show_matches(row: Row, needle: str) -> Row:
    is_exact = needle != needle.lower()
    # The right half of a wide character has no text; each other cell has one character.
    kept = [index for index, cell in enumerate(row) if cell.data]
    # Some letters have two characters in lower case, but each cell must count once.
    line = "".join(row[index].data[0] if is_exact else row[index].data.lower()[0] for index in kept)
    cells = list(row)
    at = line.find(needle)
    while at >= 0:
        for index in kept[at : at + len(needle)]:
            cells[index] = cells[index]._replace(reverse=not cells[index].reverse)
        at = line.find(needle, at + len(needle))
    return tuple(cells)


def agent_rows(agents: Sequence[AgentChoice] | None, choice: int, height: int, cols: int) -> list[Row]:
    """Return the list of the other agents, with the chosen one reversed."""
    if agents is None:
        return [text_row("asking the bus for the other agents ...", cols)]
    if not agents:
        return [text_row("there is no other agent", cols)]
    width = max(display_width(safe(one.name)) for one in agents)
    first = max(min(choice - height // 2, len(agents) - height), 0)
    rows: list[Row] = []
    for index, one in enumerate(agents[first : first + height], first):
        name = safe(one.name)
        state = f"{safe(one.state)}: {exact(one.detail)}" if one.detail else safe(one.state)
        notes = [f"{one.unread} unread" if one.unread else "", "" if one.has_terminal else "no terminal"]
        words = "  ".join(filter(None, (name + " " * (width - display_width(name)), state, *notes)))
        line = truncate(f"{'>' if index == choice else ' '} {words}", cols)
        rows.append(text_row(line, cols, REVERSED if index == choice else BLANK))
    return rows


def _upper(console: Console, grid: Grid, past: Sequence[Row], height: int, cols: int) -> tuple[Row, ...]:
    blank = (BLANK,) * cols
    if console.mode is Mode.HELP:
        shown = help_rows(cols)
        top = min(console.back, max(len(shown) - height, 0))
        rows = shown[top : top + height]
        return (*rows, *[blank] * (height - len(rows)))
    if console.mode in (Mode.SCROLL, Mode.SEARCH):
        rows = _past_window(console.past, past, height)
        return (*rows, *[blank] * (height - len(rows)))
    if console.mode is Mode.AGENTS:
        rows = agent_rows(console.agents, console.choice, height, cols)
        return (*rows, *[blank] * (height - len(rows)))
    return screen_rows(grid, height, cols)


def _bar(console: Console, cols: int) -> tuple[Row, int]:
    match console.mode:
        case Mode.INPUT:
            editor = console.editor
            text = _DOT * len(editor.text) if editor.is_secret else editor.text
            line, column = input_line(f"{console.priority}> ", text, editor.cursor, cols)
            return text_row(line, cols), column
        case Mode.SEARCH:
            finder = console.finder
            line, column = input_line("search> ", finder.text, finder.cursor, cols)
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
            return _scroll_help(console.past, cols)
        case Mode.SEARCH:
            return truncate(safe(f"search> {console.finder.text}"), cols)
        case Mode.AGENTS:
            return _fitting(
                cols,
                "arrows choose, Enter shows that agent here, r asks again; q goes back",
                "arrows; Enter shows it; q ends",
                "Enter; q ends",
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


def _scroll_help(past: LookBack, cols: int) -> str:
    if past.mark is not None:
        return _fitting(
            cols,
            "arrows, Page Up, Page Down, g, G mark more lines; y copies them; Esc ends the marking",
            "arrows; y copies; Esc ends it",
            "y copies",
        )
    return _fitting(
        cols,
        "arrows, Page Up, Page Down, g, G; / search, n, N; v mark, y copy; q goes back",
        "arrows, PgUp; / search; y copy; q ends",
        "arrows, PgUp; q ends",
        "q ends",
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
    # Between the two marks of mode 2026 a terminal shows nothing; one without that mode must not show the
    # cursor jump over the changed cells.
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
        # In plain colours, because a terminal fills the cleared part with the current background.
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
    """Return whether every terminal draws it in one column; they differ on emoji and combining characters."""
    return sign < "\u0300" or "\u2500" <= sign < "\u25a0"


# --------------------
# Control of the user's terminal: every key is read, and it is always restored.
#
# Output is queued here if the terminal does not accept it, so that a slow line delays no key.

IN: Final = 0
OUT: Final = 1

_TAKE: Final = b"\x1b[?1049h\x1b[?7l\x1b[0m\x1b[2J"
_GIVE_BACK: Final = b"\x18\x1b[?2026l\x1b[0m\x1b[r\x1b[?7h\x1b[?1049l\x1b[?25h"
"""CAN (0x18) first: it cancels a sequence of which the terminal has only a part."""
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
        # Not the default TCSAFLUSH, which would drop keys that were typed already.
        tty.setraw(IN, termios.TCSANOW)
        self.write(_TAKE)

    def give_back(self, modes: bytes = b"", words: bytes = b"") -> None:
        """Restore the terminal, in any state. `words` stay on it; repeats are harmless."""
        if self._before is None:
            return
        before, self._before = self._before, None
        self._unwatch()
        self._waiting = b""  # It would be drawn on the screen that is left here.
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
"""Seconds between two pictures: drawing more often costs time and shows nothing more."""
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
            # A picture that the agent has half drawn would flicker; but an agent that never completes one
            # must be shown too.
            self._waiting_since = self._waiting_since or now
            if now - self._waiting_since < _HALF_FRAME_LIMIT_S:
                self.soon()
                return
        self._waiting_since = None
        picture, modes, keys = self._look()
        data = change_modes(self._modes, modes) + change_keys(self._keys, keys) + draw(self._shown, picture)
        # Recorded before the write is complete: output is never dropped, and no picture is drawn until it is
        # written.
        self._shown, self._modes, self._keys = picture, modes, keys
        if data:
            self._own.write(data)
