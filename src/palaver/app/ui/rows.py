"""The list widget of the dashboard: draws only the visible rows, however many there are.

A source supplies rows by index. The widget keeps its own offset, so a growing list causes no layout.
"""

from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import ClassVar, Final, Protocol, runtime_checkable

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

_WHEEL_ROWS: Final = 3
_GUTTER: Final = 2
"""Columns for the cursor and the mark."""


class RowSource(Protocol):
    """RowList by index. Adjacent rows with the same key belong together, such as the lines of a message."""

    @property
    def total(self) -> int:
        """Return the number of rows."""

    def row(self, index: int, width: int) -> Content | None:
        """Return one row of one line; None if it is not there yet."""

    def want(self, first: int, last: int) -> None:
        """Prepare for showing these rows: fetch missing ones, then call `RowList.refresh_rows`."""

    def key(self, index: int) -> str:
        """Return what identifies a row; empty if it is not there yet."""

    def find(self, key: str) -> int:
        """Return the first index of a key, or -1."""


@runtime_checkable
class WrappedSource(RowSource, Protocol):
    """A source whose number of rows depends on their width."""

    def fit(self, width: int) -> None:
        """Wrap the rows to a width, if that has changed."""


class RowList(Widget, can_focus=True):
    """A list with a cursor. The cursor stays on its row when others come and go."""

    DEFAULT_CSS = "RowList { width: 1fr; height: 1fr; }"
    ALLOW_SELECT: ClassVar[bool] = False

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "Up", show=False),
        Binding("down,j", "step(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "First", show=False),
        Binding("end,G", "last", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
        Binding("space", "mark", "Select", show=False),
    ]

    class RowEvent(Message):
        """Base of the messages of a list."""

        def __init__(self, rows: "RowList", key: str) -> None:
            super().__init__()
            self.rows = rows
            self.key = key

        @property
        def control(self) -> "RowList":
            """The list that sends it."""
            return self.rows

    class Chosen(RowEvent):
        """A row was opened, by Enter or a double click."""

    class CursorMoved(RowEvent):
        """The cursor is on another row."""

    class Marked(RowEvent):
        """Space was pressed on a row. The receiver decides what that means."""

    def __init__(
        self,
        source: RowSource | None = None,
        *,
        follows: bool = False,
        has_cursor: bool = True,
        empty: str = "",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """With `follows`, a cursor on the last row stays on the last row. `empty` is shown without rows."""
        super().__init__(id=id, classes=classes)
        self._source = source
        self._follows = follows
        self._has_cursor = has_cursor
        self._empty = empty
        self._top = 0
        self._cursor = 0
        self._key = ""
        self._is_at_end = follows
        self._is_settling = False
        self.marked: Callable[[str], bool] = lambda key: False
        """Returns whether a row is marked."""

    # The shown rows

    @property
    def source(self) -> RowSource | None:
        """The source of the rows."""
        return self._source

    @property
    def total(self) -> int:
        """The number of rows."""
        return self._source.total if self._source is not None else 0

    @property
    def cursor(self) -> int:
        """The index of the row with the cursor."""
        return self._cursor

    @property
    def cursor_key(self) -> str:
        """The key of the row with the cursor; empty without rows."""
        return self._key

    @property
    def top(self) -> int:
        """The index of the first visible row."""
        return self._top

    def show(self, source: RowSource, key: str = "") -> None:
        """Show another source, with the cursor on a key; without one at the start, or the followed end."""
        self._source = source
        self._top = self._cursor = 0
        self._key = key
        self._is_at_end = self._follows and not key
        self.refresh_rows()

    def say_if_empty(self, text: str) -> None:
        """Change the text that is shown without rows."""
        self._empty = text
        self.refresh()

    def refresh_rows(self) -> None:
        """Draw again after the source has changed. The cursor stays on its key, or goes to its neighbour."""
        if self._is_settling:  # `want` has changed the source; `_settle` goes on and draws
            return
        if isinstance(self._source, WrappedSource) and self.size.width:
            self._source.fit(max(self.size.width - (_GUTTER if self._has_cursor else 0), 1))
        total = self.total
        at = self._source.find(self._key) if self._source is not None and self._key else -1
        if self._is_at_end:
            self._cursor = total - 1
        elif at >= 0:
            distance = self._cursor - self._top
            # An entry of several rows keeps the cursor in its row. One that has moved keeps its place on the
            # screen, so that the text under the person's eyes stays where it is.
            if self._key != self._key_at(self._cursor):
                self._cursor = at
                self._top = at - max(0, min(distance, self.size.height - 1))
        self._settle()

    def move_to(self, index: int) -> None:
        """Put the cursor on a row."""
        self._cursor = index
        self._is_at_end = self._follows and index >= self.total - 1
        self._settle()

    def reveal(self) -> None:
        """Scroll so that the whole entry with the cursor is visible, or its start if it is too long."""
        if not self._key:
            return
        first = last = self._cursor
        while first > 0 and self._key_at(first - 1) == self._key:
            first -= 1
        while self._key_at(last + 1) == self._key:
            last += 1
        self._top = min(first, max(self._top, last - max(self.size.height, 1) + 1))
        self._cursor = max(first, min(self._cursor, self._top + max(self.size.height, 1) - 1))
        self._is_at_end = self._follows and self._cursor >= self.total - 1
        self._settle()

    def scroll_rows(self, count: int) -> None:
        """Move the visible part; the cursor stays in it."""
        height = max(self.size.height, 1)
        self._top = max(0, min(self._top + count, self.total - height))
        if self._has_cursor:
            self._cursor = max(self._top, min(self._cursor, self._top + height - 1))
        else:
            self._cursor = self._top
        self._is_at_end = self._follows and self._top >= self.total - height
        if self._is_at_end:
            self._cursor = self.total - 1
        self._settle()

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        width = self.size.width
        index = self._top + y
        base = self.visual_style
        if self._source is None or index >= self.total:
            lines = [] if self.total else wrap(self._empty, max(width, 1))
            return _strip(Content(lines[y] if y < len(lines) else ""), base, width)
        gutter = _GUTTER if self._has_cursor else 0
        content = self._source.row(index, max(width - gutter, 1))
        if content is None:
            content = Content("...", [])
        if not self._has_cursor:
            return _strip(content, base, width)
        key = self._source.key(index)
        is_here = index == self._cursor or (key != "" and key == self._key)
        mark = "*" if self.marked(key) else " "
        is_first = index == 0 or key == "" or self._key_at(index - 1) != key
        gutter_text = (">" if is_here and is_first else " ") + (mark if is_first else " ")
        style = base if not is_here else base + (_REVERSE if self.has_focus else _BOLD)
        return _strip(Content(gutter_text) + content, style, width)

    # Keys and the mouse

    def action_step(self, direction: int) -> None:
        """Go to the next or the previous entry; inside an entry that is longer than the page, one line."""
        if not self._has_cursor:
            self.scroll_rows(direction)
            return
        at = self._cursor + direction
        # Not further than a page: in a longer entry the person must be able to read each line.
        for _ in range(self.size.height):
            if not 0 <= at < self.total or self._key_at(at) != self._key or not self._key:
                break
            at += direction
        else:
            at = self._cursor + direction
        if not 0 <= at < self.total:  # the rest of the last entry
            at = max(0, min(self._cursor + direction, self.total - 1))
        elif direction < 0:
            at = self._first_of(at)
        self.move_to(at)

    def action_page(self, direction: int) -> None:
        """Go one page up or down."""
        page = max(self.size.height - 1, 1)
        if self._has_cursor:
            self._top += direction * page  # the cursor keeps its place on the screen
            self.move_to(self._cursor + direction * page)
        else:
            self.scroll_rows(direction * page)

    def action_first(self) -> None:
        """Go to the first row."""
        self._top = 0
        self.move_to(0)

    def action_last(self) -> None:
        """Go to the last row, and follow new ones if the list does that."""
        self.move_to(self.total - 1)

    def action_choose(self) -> None:
        """Open the row with the cursor."""
        if self._key:
            self.post_message(self.Chosen(self, self._key))

    def action_mark(self) -> None:
        """Report Space on the row with the cursor."""
        if self._key:
            self.post_message(self.Marked(self, self._key))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll by the wheel."""
        event.stop()
        self.scroll_rows(_WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll by the wheel."""
        event.stop()
        self.scroll_rows(-_WHEEL_ROWS)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor; a double click opens the row, a click on the mark selects it."""
        event.stop()
        index = self._top + event.y
        if index >= self.total or not self._has_cursor:
            return
        self.move_to(index)
        if event.x < _GUTTER:
            self.action_mark()
        elif event.chain > 1:
            self.action_choose()

    def on_resize(self) -> None:
        """Keep the cursor visible."""
        self.refresh_rows()

    def on_focus(self) -> None:
        """Draw the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Draw the cursor of a list without the focus."""
        self.refresh()

    # Inside

    def _key_at(self, index: int) -> str:
        return self._source.key(index) if self._source is not None and 0 <= index < self.total else ""

    def _first_of(self, index: int) -> int:
        key = self._key_at(index)
        for _ in range(self.size.height):
            if not key or index == 0 or self._key_at(index - 1) != key:
                break
            index -= 1
        return index

    def _settle(self) -> None:
        """Keep cursor and offset in bounds, have the visible rows fetched, and draw."""
        total, height = self.total, max(self.size.height, 1)
        self._cursor = max(0, min(self._cursor, total - 1))
        self._top = max(0, min(self._top, total - height))
        # Without a cursor the person scrolls freely, except in a list that follows its end.
        if self._has_cursor or self._is_at_end:
            self._top = max(min(self._top, self._cursor), self._cursor - height + 1, 0)
        if self._source is not None and total:
            self._is_settling = True
            try:
                self._source.want(self._top, min(self._top + height, total) - 1)
            finally:
                self._is_settling = False
        # By the key, because rows before the cursor change its index without moving it.
        key = self._key_at(self._cursor)
        if key != self._key:
            self._key = key
            self.post_message(self.CursorMoved(self, key))
        self.refresh()


_REVERSE: Final = Style(reverse=True)
_BOLD: Final = Style(bold=True)


def _strip(content: Content, base: Style, width: int) -> Strip:
    return Strip(content.render_segments(base)).adjust_cell_length(width, base.rich_style)


class Lines:
    """A source of lines that are all there, such as the lines of a text."""

    def __init__(self, lines: Sequence[Content | str] = ()) -> None:
        self.lines = [Content(line) if isinstance(line, str) else line for line in lines]

    @property
    def total(self) -> int:
        """Return the number of lines."""
        return len(self.lines)

    def row(self, index: int, width: int) -> Content | None:
        """Return one line."""
        return self.lines[index]

    def want(self, first: int, last: int) -> None:
        """Do nothing: all lines are there."""

    def key(self, index: int) -> str:
        """Return the number of the line."""
        return str(index)

    def find(self, key: str) -> int:
        """Return the line with this number, or -1."""
        return int(key) if key.isdecimal() and int(key) < len(self.lines) else -1
