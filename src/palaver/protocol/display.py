"""Format text for terminals: colours, display width, tables, and escaping of foreign text. Pure.

The caller says whether there is a terminal, how wide it is, and what time it is.
Text from another party must go through `Paint.safe` or `Paint.name` before it is printed.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache
from itertools import accumulate
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from palaver.protocol.agent_text import escape_body, is_system_name
from palaver.protocol.text import escaped

_ELLIPSIS: Final = "…"
_GAP: Final = "  "

_UNSEEN: Final = (
    "\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
"""Characters that change the reading direction, break lines or are invisible. Joiners are not included,
because emoji and some scripts need them."""
_UNSAFE: Final = re.compile(f"[\x00-\x1f\x7f-\x9f{_UNSEEN}]")
_UNSAFE_IN_LINES: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_UNSEEN}]")

_UNSAFE_BYTES: Final = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xaf]"
    rb"|\xf3\xa0[\x80\x81][\x80-\xbf]"
)
"""In UTF-8: DEL, C1, all direction controls, the other line ends, and tags."""


def wants_colour(environment: Mapping[str, str]) -> bool:
    """Return whether a terminal with this environment should get colours."""
    # By its convention an empty NO_COLOR has no effect.
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


class Safe(str):
    """Text that is safe to print for its reader. A cell of this type is not escaped again."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Paint:
    """The style of text for one reader: functions for colours, and for escaping foreign text.

    Without `colour`, each function for a colour returns its text unchanged.
    """

    colour: bool
    is_for_person: bool = False
    """A person reads this at a terminal. Every other reader may be an agent."""

    def safe(self, text: str, *, keep_lines: bool = False) -> Safe:
        """Escape foreign text: for a person with `safe`, for an agent with `safe_for_agent`."""
        made = safe if self.is_for_person else safe_for_agent
        return Safe(made(text, keep_lines=keep_lines))

    def name(self, name: str) -> Safe:
        """Escape the name of a sender. The bus's own names, such as `[pal-events]`, stay unchanged."""
        return Safe(name) if is_system_name(name) else self.safe(name)

    def names(self, names: Iterable[str]) -> Safe:
        """Join names of senders and recipients with commas."""
        return Safe(", ".join(map(self.name, names)))

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def red(self, text: str) -> str:
        return self._wrap("31", text)

    def green(self, text: str) -> str:
        return self._wrap("32", text)

    def yellow(self, text: str) -> str:
        return self._wrap("33", text)

    def blue(self, text: str) -> str:
        return self._wrap("34", text)

    def cyan(self, text: str) -> str:
        return self._wrap("36", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


def paint_for(environment: Mapping[str, str], *, is_terminal: bool, harness: str | None) -> Paint:
    """Return the style for the reader of a stream: a person if it is a terminal outside any harness.

    `harness` is the harness that the reader runs in, such as one whose marks are set; None or empty outside.
    """
    return Paint(is_terminal and wants_colour(environment), is_for_person=is_terminal and not harness)


def safe(text: str, *, keep_lines: bool = False) -> str:
    """Make visible every character that could control a terminal, change the reading direction or hide.

    For texts that people read, and for logs. For a text that people base a decision on, use
    `palaver.protocol.text.exact`, which shows every character.
    Control characters become their pictures (ESC is ␛), the others their number (`\\x9b`, `\\u202e`).
    With `keep_lines`, tab and line feed stay, and CR LF is one line end; a single CR would overwrite its
    line, so it is made visible.
    """
    if not keep_lines:
        return _UNSAFE.sub(_visible, text)
    # The end of a line in a file of Windows is harmless. A single CR is not, and stays for the pattern below.
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    return _UNSAFE_IN_LINES.sub(_visible, text)


def safe_for_agent(text: str, *, keep_lines: bool = False) -> str:
    """Also escape heads, fences, control tags and their look-alikes, as in every text for agents."""
    return safe(escape_body(text), keep_lines=keep_lines)


def safe_bytes(data: bytes) -> bytes:
    r"""Escape DEL, C1, direction controls and Unicode tags as JSON does, `\u009b`: the data may be JSON.

    Colours and line ends stay. For everything that is written to a terminal.
    """
    return data if data.isascii() and b"\x7f" not in data else _UNSAFE_BYTES.sub(_json_escaped, data)


def _json_escaped(found: re.Match[bytes]) -> bytes:
    units = found[0].decode().encode("utf-16-be")
    return b"".join(b"\\u%02x%02x" % (units[at], units[at + 1]) for at in range(0, len(units), 2))


def _visible(found: re.Match[str]) -> str:
    return escaped(found[0])


def zone_from(name: str) -> tzinfo | None:
    """Return the time zone that a value of `TZ` names: None for that of the machine, UTC if it is unknown."""
    # POSIX allows a colon before the name.
    name = name.lstrip(":")
    if not name:
        return None
    # The variable can have any value, and the library raises a different error for a folder, a path and a
    # wrong name.
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def format_time(ts_ms: int, zone: tzinfo | None, pattern: str) -> str:
    """Format a stored time with a pattern of `strftime`; `?` for a year that Python cannot represent.

    The time zone None is that of the machine.
    """
    # A foreign envelope can have any 64-bit time, and `datetime` only knows the years 1 to 9999. One such
    # event must not break the list that it is in.
    try:
        return datetime.fromtimestamp(ts_ms / 1000, UTC).astimezone(zone).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return "?"


def need_words(attention: int) -> str:
    """Return how many entries wait for the person; empty for none."""
    return f"{attention} need{'s' if attention == 1 else ''} you" if attention else ""


def ago(ms: int) -> str:
    """Format a span of time in its largest whole unit: 12s, 2m, 3h, 4d, 5y. A negative span is 0s."""
    seconds = max(ms, 0) // 1000
    for unit, size in (("y", 31_536_000), ("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def display_width(text: str) -> int:
    """Return the columns of a text: East Asian wide characters take 2, combining and invisible ones 0."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    # Below this character none is wide or combines with another, so the slow tables are not needed.
    if char < "\u0300":
        return 1
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def truncate(text: str, columns: int) -> str:
    """Shorten a text to at most `columns`, with … at the end if it was cut. Never splits a character."""
    if display_width(text) <= columns:
        return text
    if columns <= 0:
        return ""
    # One column is for the ellipsis.
    room = columns - 1
    for index, char in enumerate(text):
        room -= _char_width(char)
        if room < 0:
            return text[:index] + _ELLIPSIS
    raise AssertionError("a text wider than its limit has a character that crosses it")  # pragma: no cover


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table. `least` is its minimum width while other columns can still be shortened."""

    title: str = ""
    is_right: bool = False
    least: int = 4
    paint: Callable[[str], str] | None = None


def lay_out(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None,
    paint: Paint | None = None,
    kept: int | None = None,
) -> list[str]:
    """Lay rows out in columns, as lines of at most `width` display columns (None: as wide as needed).

    Each cell is on one line and is made safe for the reader of `paint`, unless it is `Safe` already. Without
    `paint` the reader may be an agent. Cells that do not fit are shortened, the widest column first; colours
    are added afterwards and do not count. A row of titles comes first if any column has one.

    `kept`: instead of shortening columns below their minimum width, drop the last ones, but keep this many.
    """
    reader = paint or Paint(colour=False)
    escaped_once = cache(reader.safe)  # many cells of a long table are equal
    cells: list[list[str]] = [
        [cell if isinstance(cell, Safe) else escaped_once(cell) for cell in row] for row in rows
    ]
    titles = [column.title for column in columns]
    has_titles = any(titles)
    widths = [
        max((display_width(row[index]) for row in ([titles, *cells] if has_titles else cells)), default=0)
        for index in range(len(columns))
    ]
    if width is not None and kept is not None:
        count = max(kept, _count_fitting(columns, widths, width))
        columns, titles, widths = columns[:count], titles[:count], widths[:count]
        cells = [row[:count] for row in cells]
    if width is not None:
        widths = _shrink(widths, [column.least for column in columns], width - len(_GAP) * (len(columns) - 1))
    heading = paint.dim if paint is not None else None
    lines = [_line(columns, titles, widths, width, [heading] * len(columns))] if has_titles else []
    paints = [column.paint for column in columns]
    return lines + [_line(columns, row, widths, width, paints) for row in cells]


def _count_fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> int:
    """Return how many of the first columns fit with their minimum widths, and with their titles."""
    needed = (
        min(size, max(column.least, display_width(column.title)))
        for column, size in zip(columns, widths, strict=True)
    )
    ends = accumulate(size + len(_GAP) for size in needed)
    return sum(end - len(_GAP) <= room for end in ends)


def _shrink(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Limit all columns to one width, the largest that fits; keep each at its `least` while that fits."""

    def capped(cap: int, floors: Sequence[int]) -> list[int]:
        return [min(size, max(cap, floor)) for size, floor in zip(widths, floors, strict=True)]

    floors = least if sum(capped(0, least)) <= room else [1] * len(widths)
    caps = range(max(widths, default=0) + 1)
    # The sum grows with the cap, so the largest one that fits is found in a few steps.
    cap = max(bisect_right(caps, room, key=lambda cap: sum(capped(cap, floors))) - 1, 0)
    fitted = capped(cap, floors)
    # One column wider would be too wide for all cut columns together: the rest is given to the first ones.
    for index, size in enumerate(widths):
        if size > fitted[index] >= cap and sum(fitted) < room:
            fitted[index] += 1
    return fitted


def _line(
    columns: Sequence[Column],
    row: Sequence[str],
    widths: Sequence[int],
    width: int | None,
    paints: Sequence[Callable[[str], str] | None],
) -> str:
    parts: list[str] = []
    room = width
    for index, (column, cell, size, paint) in enumerate(zip(columns, row, widths, paints, strict=True)):
        gap = _GAP if index else ""
        if room is not None:
            room -= len(gap)
            if room <= 0:
                break
            size = min(size, room)  # noqa: PLW2901 - the last columns of a very narrow terminal
            room -= size
        text = truncate(cell, size)
        fill = " " * (size - display_width(text))
        painted = paint(text) if paint is not None and text else text
        parts.append(gap + (fill + painted if column.is_right else painted + fill))
    return "".join(parts).rstrip(" ")
