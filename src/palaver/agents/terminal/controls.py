"""The effect of control characters and escape sequences on a screen, as three tables. Pure."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from pyte import modes

from palaver.agents.terminal.glass import Glass

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
    return min(int(part[:6]), _PARAM_MOST) if part.isascii() and part.isdigit() else 0


def _first(numbers: tuple[int, ...]) -> int:
    return numbers[0] if numbers else 0


def _erase_display(glass: Glass, numbers: tuple[int, ...]) -> None:
    how = _first(numbers)
    if how == 3:
        glass.scrollback.clear()
    elif how in (0, 1, 2):
        glass.erase_in_display(how)


def _erase_line(glass: Glass, numbers: tuple[int, ...]) -> None:
    if (how := _first(numbers)) in (0, 1, 2):
        glass.erase_in_line(how)


def _move(glass: Glass, numbers: tuple[int, ...]) -> None:
    glass.cursor_position(*numbers[:2])


def _set_margins(glass: Glass, numbers: tuple[int, ...]) -> None:
    top, bottom = (*numbers, 0, 0)[:2]
    glass.set_margins(top or None, bottom or None)
    glass.cursor_position()


def _set_plain_modes(glass: Glass, numbers: tuple[int, ...], *, is_on: bool) -> None:
    known = [number for number in numbers if number in (modes.IRM, modes.LNM)]
    change = glass.set_mode if is_on else glass.reset_mode
    change(*known)


def _counted(method: Callable[[Glass, int], None]) -> Callable[[Glass, tuple[int, ...]], None]:
    return lambda glass, numbers: method(glass, _first(numbers) or 1)


def _next_line(glass: Glass) -> None:
    glass.carriage_return()
    glass.index()


def _tab_forward(glass: Glass, count: int) -> None:
    for _ in range(min(count, glass.columns)):
        glass.tab()


def _tab_back(glass: Glass, count: int) -> None:
    for _ in range(min(count, glass.columns)):
        glass.cursor.x = max((stop for stop in glass.tabstops if stop < glass.cursor.x), default=0)


CONTROLS: Final[Mapping[str, Callable[[Glass], None]]] = {
    "\x08": Glass.backspace,
    "\x09": Glass.tab,
    "\x0a": Glass.linefeed,
    "\x0b": Glass.linefeed,
    "\x0c": Glass.linefeed,
    "\x0d": Glass.carriage_return,
    "\x0e": Glass.shift_out,
    "\x0f": Glass.shift_in,
}

ESCAPES: Final[Mapping[str, Callable[[Glass], None]]] = {
    "7": Glass.save_cursor,
    "8": Glass.restore_cursor,
    "D": Glass.index,
    "E": _next_line,
    "H": Glass.set_tab_stop,
    "M": Glass.reverse_index,
    "#8": Glass.alignment_display,
}

SEQUENCES: Final[Mapping[str, Callable[[Glass, tuple[int, ...]], None]]] = {
    "@": _counted(Glass.insert_characters),
    "A": _counted(Glass.cursor_up),
    "B": _counted(Glass.cursor_down),
    "C": _counted(Glass.cursor_forward),
    "D": _counted(Glass.cursor_back),
    "E": _counted(Glass.cursor_down1),
    "F": _counted(Glass.cursor_up1),
    "G": _counted(Glass.cursor_to_column),
    "H": _move,
    "I": _counted(_tab_forward),
    "J": _erase_display,
    "K": _erase_line,
    "L": _counted(Glass.insert_lines),
    "M": _counted(Glass.delete_lines),
    "P": _counted(Glass.delete_characters),
    "S": _counted(Glass.scroll),
    "T": _counted(lambda glass, count: glass.scroll(-count)),
    "X": _counted(Glass.erase_characters),
    "Z": _counted(_tab_back),
    "`": _counted(Glass.cursor_to_column),
    "a": _counted(Glass.cursor_forward),
    "b": _counted(Glass.repeat),
    "d": _counted(Glass.cursor_to_line),
    "e": _counted(Glass.cursor_down),
    "f": _move,
    "g": lambda glass, numbers: glass.clear_tab_stop(_first(numbers)),
    "h": lambda glass, numbers: _set_plain_modes(glass, numbers, is_on=True),
    "l": lambda glass, numbers: _set_plain_modes(glass, numbers, is_on=False),
    "r": _set_margins,
    "s": lambda glass, _numbers: glass.save_cursor(),
    "u": lambda glass, _numbers: glass.restore_cursor(),
}
