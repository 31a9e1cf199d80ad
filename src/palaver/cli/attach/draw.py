"""The bytes that turn one picture on a terminal into another: only changes are drawn. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from palaver.agents.terminal.redraw import KEPT_MODES, graphics
from palaver.agents.terminal.terminal import MODE_KEYPAD
from palaver.cli.attach.picture import BLANK, Picture, Row

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
