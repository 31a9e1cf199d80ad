r"""The attach screen as a picture: the agent's screen, the status line and the input bar. Pure.

Without room for the two lines, the agent has the whole terminal, and a question or notice covers its last
row.
"""

from collections.abc import Sequence
from typing import Final

from palaver.agents.terminal.glass import Glass
from palaver.cli.attach.console import Console, Mode
from palaver.cli.attach.picture import (
    BLANK,
    BOLD,
    REVERSED,
    Picture,
    Row,
    cursor_in,
    screen_rows,
    text_row,
)
from palaver.cli.attach.room import agent_size, has_bar
from palaver.cli.attach.status_line import Standing, status_line
from palaver.cli.chat.page import input_line, wrap
from palaver.doors.argv.style import display_width, safe

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
_MENU_TAKE: Final = ("t", "take the keyboard over", "take")
HELP: Final = (
    ("Enter", "sends the line with the priority in front of it"),
    (
        "Tab",
        "changes the priority: normal is typed at once, as your own keys; interrupt, idle-first and idle go "
        "through the agent's queue",
    ),
    (
        "Ctrl-\\ p",
        "passthrough: keys, mouse and pastes go to the agent, and its queue is paused; Ctrl-\\ ends it",
    ),
    ("Ctrl-\\ t", "the same when another terminal has the keyboard: takes it over"),
    ("Ctrl-\\ s", "scroll back, also Page Up: arrows, Page Up and Down, g and G; q ends it"),
    ("Ctrl-\\ d", "detach: the agent runs on, and 'pal attach' comes back"),
    ("Ctrl-\\ q", "quit the agent, politely; you are asked once"),
    ("Ctrl-\\ r", "draw everything anew, and give the agent the size of this terminal"),
)
_HELP_INDENT: Final = 10


def compose(
    console: Console, standing: Standing, glass: Glass, past: Sequence[Row], cols: int, rows: int
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
            return _fitting(
                cols, f"quit {name}? It is asked to end. y / n", f"quit {name}? y / n", "quit? y / n"
            )
        case Mode.SCROLL:
            return _fitting(
                cols,
                "arrows, Page Up, Page Down, g, G; q goes back to the input",
                "arrows, PgUp; q ends",
                "q ends",
            )
        case Mode.HELP:
            return _fitting(
                cols, "arrows and Page Down read on; any other key goes back", "any key goes back", "any key"
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
