"""The parts that screens of the dashboard share: lines at the edges, windows, lines for typing."""

import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Vertical
from textual.content import Content
from textual.filter import LineFilter
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Input, Static

from palaver.app.ui.rows import Lines, RowList
from palaver.protocol.display import need_words, safe, truncate

if TYPE_CHECKING:
    from rich.segment import Segment

    from palaver.app.ui.store import Store

BOLD: Final = Style(bold=True)
DIM: Final = Style(dim=True)
RED: Final = Style(foreground=Color.parse("ansi_red"))
GREEN: Final = Style(foreground=Color.parse("ansi_green"))
YELLOW: Final = Style(foreground=Color.parse("ansi_yellow"))
CYAN: Final = Style(foreground=Color.parse("ansi_cyan"))

_LINE_CHARACTERS: Final = 2_000
"""Characters of a text that are looked at for one line of the screen."""


def now_ms() -> int:
    """Return the time now."""
    return int(time.time() * 1000)


# --------------------
# Text of others on the screen.


def safe_content(text: str, style: Style | None = None, *, is_ascii: bool = False) -> Content:
    """Return a text of others as one line: never markup, with every control character visible."""
    plain = safe_line(text, is_ascii=is_ascii)
    return Content.styled(plain, style) if style is not None else Content(plain)


def safe_line(text: str, *, is_ascii: bool = False) -> str:
    """Return a text of others as one line without control characters."""
    # Cut first, because a text can have a megabyte and a line is drawn often.
    line = safe(text[:_LINE_CHARACTERS].replace("\n", " "))
    return _in_ascii(line) if is_ascii else line


def safe_lines(text: str, *, is_ascii: bool = False) -> list[str]:
    """Return a whole text of others as lines without control characters."""
    lines = safe(text, keep_lines=True).expandtabs().split("\n")
    return [_in_ascii(line) for line in lines] if is_ascii else lines


def _in_ascii(text: str) -> str:
    return text if text.isascii() else text.encode("ascii", "backslashreplace").decode()


def fold_text(text: str, width: int, *, is_ascii: bool = False, hang: int = 0) -> list[Content]:
    """Return a whole text of others as lines of at most `width` columns, cut between words if possible.

    The rest of a long line begins below its first word; with `hang` at that column.
    """
    lines: list[Content] = []
    for line in safe_lines(text, is_ascii=is_ascii):
        # Most lines: each ASCII character takes one column, so nothing must be wrapped.
        if len(line) < width and line.isascii():
            lines.append(Content(line))
        elif len(line) > _LINE_CHARACTERS:  # wrapping by words would take long
            lines.extend(Content(line).fold(max(width, 2)))
        else:
            lines.extend(_wrap(line, width, hang or len(line) - len(line.lstrip(" "))))
    return lines


_LEAST_WRAPPED: Final = 16
"""Columns that must be left for an indented text; otherwise it is not indented."""


def _wrap(line: str, width: int, indent: int) -> list[Content]:
    if not indent or width - indent < _LEAST_WRAPPED or len(line) <= indent:
        return Content(line).wrap(max(width, 2))
    rest = Content(line[indent:]).wrap(width - indent)
    return [Content(line[:indent]) + rest[0], *(one.pad_left(indent) for one in rest[1:])]


class AsciiOnly(LineFilter):
    """A filter that replaces each non-ASCII character by ASCII of the same width."""

    def apply(self, segments: "list[Segment]", background: Color) -> "list[Segment]":
        """Return segments of the same width in ASCII."""
        return [
            segment if segment.text.isascii() else segment._replace(text=_same_width(segment.text))
            for segment in segments
        ]


def _same_width(text: str) -> str:
    return "".join(
        char if char.isascii() else _ASCII.get(char, "?" * Content(char).cell_length) for char in text
    )


_ASCII: Final = {"…": "~", "─": "-", "│": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "·": "."}


# --------------------
# The lines at the edges of every screen.

_STATES: Final = ("blocked", "active", "idle", "starting", "exited")


def top_text(store: "Store", width: int) -> str:
    """Return the top line: agents by state, attention, unread messages and the bus, as fully as it fits."""
    counts = store.counts
    states = [
        *(name for name in _STATES if name in counts.agents),
        *sorted(set(counts.agents) - set(_STATES)),
    ]
    found = [(counts.agents[name], name) for name in states if counts.agents[name]]
    total = sum(count for count, _ in found)
    bus = store.bus_text
    names = ", ".join(f"{count} {name}" for count, name in found)
    letters = " ".join(f"{count}{name[0]}" for count, name in found)
    agents = f"{total} agent{'' if total == 1 else 's'}"
    needs = need_words(counts.attention) or "0 need you"
    forms = (
        f"{agents}{names and ': '}{names} | {needs} | {counts.unread} unread | {bus}",
        f"{names or 'no agents'} | !{counts.attention} | {counts.unread} unread | {bus}",
        f"{letters or '0'} !{counts.attention} u{counts.unread} {bus}",
        f"{bus.removeprefix('bus ')} !{counts.attention} u{counts.unread} {letters}",
    )
    text = next((form for form in forms if len(form) <= width), forms[-1])
    newest = _newest(store)
    return truncate(f"{text} | {newest}", width) if newest and width - len(text) >= _LEAST_NEWEST else text


_LEAST_NEWEST: Final = 18
"""Columns that the newest entry needs to say anything."""


def _newest(store: "Store") -> str:
    """Return the newest entry that waits for the person, so that it is seen on every screen."""
    if store.at or store.is_away or not len(store.attention_list):
        return ""
    entry = store.attention[store.attention_list.key(len(store.attention_list) - 1)]
    return safe_line(f"{entry.who}: {entry.what}")


class TopLine(Widget):
    """The first line of every screen."""

    DEFAULT_CSS = "TopLine { height: 1; width: 1fr; text-style: reverse; }"
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, store: "Callable[[], Store]") -> None:
        super().__init__()
        self._store = store
        self._shown = ""

    def refresh_counts(self) -> None:
        """Draw again if a number has changed."""
        if top_text(self._store(), self.size.width) != self._shown:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw the line."""
        self._shown = top_text(self._store(), self.size.width)
        strip = Strip(Content(self._shown).render_segments(self.visual_style))
        return strip.adjust_cell_length(self.size.width, self.visual_style.rich_style)


class ScreenNames(Widget):
    """The line with the screens and their keys. A click on one opens it."""

    DEFAULT_CSS = "ScreenNames { height: 1; width: 1fr; }"
    ALLOW_SELECT: ClassVar[bool] = False

    class Picked(Message):
        """A screen was clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, names: Sequence[tuple[str, str]], current: str) -> None:
        super().__init__()
        self._names = names
        self._current = current

    def render_line(self, y: int) -> Strip:
        """Draw the names; the current one is in brackets."""
        content = Content.empty()
        for key, label in self._labels():
            content += Content.styled(label, BOLD if key == self._current else DIM)
        strip = Strip(content.render_segments(self.visual_style))
        return strip.adjust_cell_length(self.size.width, self.visual_style.rich_style)

    def on_click(self, event: events.Click) -> None:
        """Open the screen whose name was clicked."""
        at = 0
        for key, label in self._labels():
            at += len(label)
            if event.x < at:
                self.post_message(self.Picked(key))
                return

    def _labels(self) -> list[tuple[str, str]]:
        """Return the key and the text of each screen. Narrow terminals name only the current one."""
        has_names = sum(len(name) + 4 for _, name in self._names) <= self.size.width
        return [
            (
                key,
                f"[{key} {name}]" if key == self._current else f" {key} {name} " if has_names else f" {key} ",
            )
            for key, name in self._names
        ]


def fitting_keys(keys: str, width: int) -> str:
    """Return the keys that fit into a line, each complete. The one that shows all keys is never left out."""
    if len(keys) <= width:
        return keys
    found = keys.split("  ")
    kept = [HELP_KEY] if HELP_KEY in found else []
    for at, key in enumerate(one for one in found if one != HELP_KEY):
        if len("  ".join([*kept, key])) > width:
            break
        kept.insert(at, key)
    return "  ".join(kept)


HELP_KEY: Final = "? keys"


class StatusLine(Widget):
    """The last line of every screen: the result of the last command, otherwise the keys."""

    DEFAULT_CSS = "StatusLine { height: 1; width: 1fr; dock: bottom; }"
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, keys: str) -> None:
        super().__init__()
        self._keys = keys
        self._typing_keys = ""
        self._sentence: Content | None = None

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a sentence until a key is pressed. An error is marked by its first word too."""
        self._sentence = safe_content(f"error: {text}" if is_error else text, RED if is_error else BOLD)
        self.refresh()

    def set_keys(self, keys: str) -> None:
        """Change the keys. A sentence stays until a key is pressed."""
        if keys != self._keys:
            self._keys = keys
            self.refresh()

    def set_typing_keys(self, keys: str) -> None:
        """Show these keys in place of the others while the person writes; empty at the end."""
        if keys != self._typing_keys:
            self._typing_keys = keys
            self._sentence = None if keys else self._sentence
            self.refresh()

    def show_keys(self) -> None:
        """Show the keys again."""
        if self._sentence is not None:
            self._sentence = None
            self.refresh()

    @property
    def text(self) -> str:
        """The shown text."""
        return self._sentence.plain if self._sentence is not None else self._typing_keys or self._keys

    def render_line(self, y: int) -> Strip:
        """Draw the line."""
        width = self.size.width
        keys = fitting_keys(self._typing_keys or self._keys, width)
        content = self._sentence if self._sentence is not None else Content.styled(keys, DIM)
        if content.cell_length > width:
            content = content.truncate(width, ellipsis=True)
        strip = Strip(content.render_segments(self.visual_style))
        return strip.adjust_cell_length(width, self.visual_style.rich_style)


# --------------------
# Windows above a screen.


class TextRows(RowList):
    """A text of any length that can be scrolled. It is wrapped to the width, and never markup."""

    def __init__(
        self, text: str = "", *, is_ascii: bool = False, hang: int = 0, id: str | None = None
    ) -> None:
        """`hang` is the column at which the rest of a long line begins."""
        super().__init__(has_cursor=False, id=id)
        self._text = text
        self._hang = hang
        self._is_ascii = is_ascii
        self._folded = 0

    @property
    def text(self) -> str:
        """The whole text."""
        return self._text

    def show_text(self, text: str, *, keep: bool = False) -> None:
        """Show another text from its start, or with `keep` from the line that is shown now."""
        top = self.top if keep else 0
        self._text = text
        # So that `on_resize` wraps again: it does nothing for the same width.
        self._folded = 0
        self.on_resize()
        if self.styles.is_auto_height:
            self.refresh(layout=True)
        if keep:
            self.scroll_rows(top)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the lines of the text, for a height that fits it."""
        return len(self._fold(width))

    def on_resize(self) -> None:
        """Wrap the text to the new width."""
        width = self.size.width
        if width and width != self._folded:
            self._folded = width
            self.show(Lines(self._fold(width)))

    def _fold(self, width: int) -> list[Content]:
        return fold_text(self._text, width, is_ascii=self._is_ascii, hang=self._hang)


_SMALL: Final = (50, 14)
"""A terminal with fewer columns or lines has windows without a frame."""


class Window(ModalScreen[bool]):
    """A window with a title, a text that can be scrolled, and a line of keys. Escape closes it."""

    # Classes of windows inherit it: the name also selects them.
    DEFAULT_CSS = """
    Window { align: center middle; }
    Window > Vertical { width: 90%; max-width: 120; height: auto; max-height: 100%;
        border: round ansi_default; padding: 0 1; }
    Window TextRows { height: auto; margin: 1 0; }
    Window.-small TextRows { margin: 0; }
    Window.-ascii > Vertical { border: ascii ansi_default; }
    Window.-small > Vertical { width: 100%; height: 100%; border: none; padding: 0; }
    Window Static { width: 1fr; height: auto; max-height: 3; }
    Window.-small Static { max-height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "close", "Close", show=False),
    ]

    def __init__(
        self, title: str, text: str, *, keys: str = "Esc closes", command: str = "", hang: int = 0
    ) -> None:
        """`command` is the `pal` command of the window, `hang` where the rest of a long line begins."""
        super().__init__()
        self._title = title
        self._text = text
        self._keys = keys
        self._command = command
        self._hang = hang

    @property
    def is_ascii(self) -> bool:
        """Whether the terminal has only ASCII."""
        return bool(getattr(self.app, "is_ascii", False))

    def compose(self) -> ComposeResult:
        """Build the window."""
        with Vertical():
            yield Static(safe_content(self._title, BOLD, is_ascii=self.is_ascii), markup=False)
            if self._command:
                yield Static(safe_content(f"$ {self._command}", CYAN, is_ascii=self.is_ascii), markup=False)
            yield TextRows(self._text, is_ascii=self.is_ascii, hang=self._hang)
            yield Static(safe_content(self._keys, DIM), markup=False)

    def on_mount(self) -> None:
        """Choose the frame, and let the text be scrolled."""
        self.set_class(self.is_ascii, "-ascii")
        for rows in self.query(TextRows):
            if rows.text != self._text:  # it has changed since the parts were built
                rows.show_text(self._text)
        self.query_one(RowList).focus()

    def on_resize(self, event: events.Resize) -> None:
        """Drop the frame in a small terminal."""
        is_small = event.size.width < _SMALL[0] or event.size.height < _SMALL[1]
        self.set_class(is_small, "-small")
        # The lines of the window that are not the text: the title and the keys; with a frame also its two
        # lines, the two margins, and two more, because the title or the command may wrap.
        edges = (2 if is_small else 8) + bool(self._command)
        for rows in self.query(TextRows):
            rows.styles.max_height = max(event.size.height - edges, 1)

    def show_text(self, text: str) -> None:
        """Show another text."""
        self._text = text
        for rows in self.query(TextRows):
            rows.show_text(text)

    def action_close(self) -> None:
        """Close it without doing anything."""
        self.dismiss(False)


class Question(Window):
    """Shows a whole text and the command that follows, and asks yes or no. Only `y` means yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "agree", "Yes", show=False),
        Binding("n,escape,q", "close", "No", show=False),
        Binding("enter", "ignore", show=False),
    ]

    def __init__(self, title: str, text: str, command: str) -> None:
        super().__init__(title, text, keys="y yes   n no", command=command)

    def warn(self, text: str) -> None:
        """Show above the text that something has changed since the question was asked."""
        if not self._text.startswith(text):
            self.show_text(f"{text}\n\n{self._text}")

    def action_agree(self) -> None:
        """Answer yes."""
        self.dismiss(True)

    def action_ignore(self) -> None:
        """Do nothing: Enter must not approve anything by accident."""


class KeysHelp(Window):
    """The keys of a screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "close", show=False)]

    def __init__(self, title: str, keys: Iterable[tuple[str, str]]) -> None:
        rows = [*keys]
        wide = max((len(key) for key, _ in rows), default=0)
        text = "\n".join(f"{key:<{wide}}  {meaning}" for key, meaning in rows)
        super().__init__(title, text, hang=wide + 2)


# --------------------
# Lines in which a person types.
#
# Textual inserts a typed character at once, but runs the action of a key such as Backspace only after the
# keys that were typed with it. So both kinds of input run these actions themselves, in the order of typing.


def actions_by_key(bindings: Iterable[BindingType]) -> dict[str, str]:
    """Return the action of each key that moves the cursor, or changes or enters the text."""
    known = [binding for binding in bindings if isinstance(binding, Binding)]
    return {key: binding.action for binding in known for key in binding.key.split(",")}


_LINE_KEYS: Final = actions_by_key(Input.BINDINGS)


class LineInput(Input):
    """One line of input at the bottom of a screen."""

    DEFAULT_CSS = "LineInput, LineInput:focus { border: none; height: 1; padding: 0; }"

    def __init__(self, placeholder: str, id: str | None = None) -> None:
        super().__init__(placeholder=placeholder, id=id, select_on_focus=False, compact=True)
        self.cursor_blink = False  # it would draw all the time

    async def on_key(self, event: events.Key) -> None:
        """Act on keys in the order of typing."""
        if event.key in _LINE_KEYS:
            await self.run_action(_LINE_KEYS[event.key])
            event.stop()
            event.prevent_default()


class PromptLine(Widget):
    """A labelled line at the bottom: a filter, a command, a value. Escape cancels it."""

    DEFAULT_CSS = """
    PromptLine { height: 1; width: 1fr; layout: horizontal; dock: bottom; }
    PromptLine > Static { width: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]

    class Edited(Message):
        """The text has changed."""

        def __init__(self, prompt: "PromptLine", text: str) -> None:
            super().__init__()
            self.prompt = prompt
            self.text = text

    class Entered(Edited):
        """Enter was pressed."""

    class Cancelled(Edited):
        """Escape was pressed."""

    def __init__(self, label: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self.display = False
        self._label = label
        self._focused_before: Widget | None = None

    def compose(self) -> ComposeResult:
        """Build the label and the input."""
        yield Static(Content(self._label), markup=False)
        yield LineInput("")

    @property
    def input(self) -> LineInput:
        """The line itself."""
        return self.query_one(LineInput)

    @property
    def is_open(self) -> bool:
        """Whether the line is shown."""
        return self.display

    def open(self, text: str = "", label: str | None = None) -> None:
        """Show the line and let the person type."""
        if label is not None:
            self.query_one(Static).update(Content(label))
        self._focused_before = self.screen.focused
        self.display = True
        with self.prevent(Input.Changed):  # the person has not typed this
            self.input.value = text
        self.input.cursor_position = len(text)
        self.screen.set_focus(self.input)  # at once: the next key belongs to this line

    def close(self) -> None:
        """Hide the line and return the focus."""
        before, self.display = self._focused_before, False
        # The widget may have been removed while the line was open.
        self.screen.set_focus(before if before is not None and before.is_attached else None)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Report typed text."""
        event.stop()
        self.post_message(self.Edited(self, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Report Enter."""
        event.stop()
        self.close()
        self.post_message(self.Entered(self, event.value))

    def action_cancel(self) -> None:
        """Close the line."""
        self.close()
        self.post_message(self.Cancelled(self, self.input.value))


class CommandLine(PromptLine):
    """The line of `:`, which runs any `pal` command."""

    def __init__(self) -> None:
        super().__init__("pal ", id="command-line")


def command_words(text: str) -> list[str]:
    """Return the words of a typed command, with `pal` first. Raises ValueError if a quote is not closed."""
    words = shlex.split(text)
    return words if words[:1] == ["pal"] else ["pal", *words]
