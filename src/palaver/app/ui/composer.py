"""The composer: writes a message below a list, and keeps every text that was not sent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeAlias

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static, TextArea

from palaver.app.ui.widgets import BOLD, DIM, YELLOW, StatusLine, actions_by_key, safe_content

PRIORITIES: Final = ("normal", "interrupt", "idle-first", "idle")
INTENTS: Final = ("", "request", "inform", "ack")

Destination: TypeAlias = tuple[tuple[str, ...], str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingText:
    """A message that is being written: where it goes, and what it answers."""

    targets: tuple[str, ...] = ()
    """Addresses as `pal send` takes them, such as `@luna`."""
    room: str = ""
    thread: str = ""
    reply_to: int = 0
    quote: str = ""
    """The beginning of the message that it answers, shown above the text."""
    priority: str = ""
    intent: str = ""

    @property
    def destination(self) -> Destination:
        """Where the message goes, and what it answers. An unsent text belongs to one destination."""
        return self.targets, self.room, self.thread, self.reply_to

    def argv(self, text: str) -> list[str]:
        """Return the `pal` command that sends a text."""
        words = ["pal", "send", *self.targets]
        for option, value in (
            ("--room", self.room),
            ("--thread", self.thread),
            ("--reply-to", str(self.reply_to) if self.reply_to else ""),
            ("--priority", self.priority),
            ("--intent", self.intent),
        ):
            words += [option, value] if value else []
        return [*words, "--", text]  # the text may begin with a dash


def complete_name(text: str, names: Sequence[str]) -> tuple[str, list[str]]:
    """Complete the `@name` at the end of a text; return the longer text and all names that fit."""
    head, at, begun = text.rpartition("@")
    if not at or any(char.isspace() for char in begun):
        return text, []
    fitting = [name for name in names if name.startswith(begun.lower())]
    if not fitting:
        return text, []
    if len(fitting) == 1:
        return f"{head}@{fitting[0]} ", fitting
    common = fitting[0]
    while not all(name.startswith(common) for name in fitting):
        common = common[:-1]
    return f"{head}@{common}", fitting


_AREA_KEYS: Final = actions_by_key(TextArea.BINDINGS)


class MessageArea(TextArea):
    """The text of a message: Enter sends, Ctrl+J or Alt+Enter starts a new line."""

    DEFAULT_CSS = """
    MessageArea, MessageArea:focus { border: none; height: auto; min-height: 1; max-height: 6; padding: 0;
        scrollbar-size: 0 0; }
    """

    class Submitted(Message):
        """Enter was pressed after a text. The keys after it may have changed the area already."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Completing(Message):
        """Tab was pressed."""

    def __init__(self) -> None:
        super().__init__(soft_wrap=True, show_line_numbers=False, compact=True, highlight_cursor_line=False)
        self.cursor_blink = False  # it would draw all the time

    async def on_key(self, event: events.Key) -> None:
        """Take Enter, new lines and Tab before the editor does, and all keys in the order of typing."""
        if event.key == "enter":
            self.post_message(self.Submitted(self.text))
        elif event.key in ("ctrl+j", "alt+enter", "shift+enter"):
            self.insert("\n")
        elif event.key == "tab":
            self.post_message(self.Completing())
        elif event.key in _AREA_KEYS:
            await self.run_action(_AREA_KEYS[event.key])
        else:
            return
        event.stop()
        event.prevent_default()


class MessageComposer(Widget):
    """Writes a message below the list, so that the message it answers stays visible."""

    TYPING_KEYS: ClassVar[str] = "Enter send  Esc close  Ctrl+J new line  Tab complete @name"
    """The keys in the last line while a message is written."""
    DEFAULT_CSS = """
    MessageComposer { height: auto; width: 1fr; dock: bottom; layout: vertical; padding: 0 0 1 0; }
    MessageComposer > Static { height: auto; max-height: 3; width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("ctrl+p", "priority", show=False, priority=True),
        Binding("ctrl+t", "intent", show=False, priority=True),
    ]

    class Ready(Message):
        """A message is to be sent. The receiver runs `argv` and calls `sent` or `keep`."""

        def __init__(self, composer: "MessageComposer", argv: list[str]) -> None:
            super().__init__()
            self.composer = composer
            self.argv = argv

    class Left(Message):
        """The composer was closed without sending."""

    def __init__(
        self,
        names: Callable[[], Sequence[str]],
        asked: Callable[[str], int] = lambda name: 0,
        unsent: dict[Destination, str] | None = None,
        id: str | None = None,
    ) -> None:
        """`names` returns the names that can be completed, `asked` the open request of an agent to you.

        `unsent` has the texts that were not sent yet, of all composers that share it.
        """
        super().__init__(id=id)
        self.display = False
        # Kept here: the text must still be found when the composer has no widgets any more.
        self.area = MessageArea()
        """The text."""
        self._names = names
        self._asked = asked
        self._outgoing = OutgoingText()
        self._hint = ""
        self._focused_before: Widget | None = None
        self.is_sending = False
        """Whether a message was given away and its result is not known yet."""
        self._submitted = ("", self._outgoing.destination)
        """The text of that message, as it was in the area, and where it goes."""
        self._typed_after: str | None = None
        """The text after it, if it left the area before its result was known."""
        self._unsent: dict[Destination, str] = {} if unsent is None else unsent
        """The texts that were not sent yet, without the one in the area."""

    @property
    def outgoing(self) -> OutgoingText:
        """Where the message goes, and what it answers."""
        return self._outgoing

    @property
    def unsent(self) -> list[str]:
        """Every text that was not sent yet, or may still be refused."""
        sending = self._submitted[0] if self.is_sending and self._typed_after is not None else ""
        return [text for text in (*self._unsent.values(), sending, self.area.text) if text.strip()]

    def compose(self) -> ComposeResult:
        """Build the head and the text."""
        yield Static("", markup=False)
        yield self.area

    @property
    def is_open(self) -> bool:
        """Whether a message is being written."""
        return self.display

    def open(self, outgoing: OutgoingText, text: str = "") -> None:
        """Start a message, with the unsent text to its destination if there is one, and `text` after it."""
        if not self.is_open:  # otherwise the focus would return to the composer itself
            self._focused_before = self.screen.focused
        self.display = True
        self.write_to(outgoing, text)
        self._show_keys(self.TYPING_KEYS)
        self.screen.set_focus(self.area)  # at once: the next key belongs to the message

    def write_to(self, outgoing: OutgoingText, text: str = "") -> None:
        """Change where the message goes, without opening the composer."""
        if outgoing.destination != self._outgoing.destination:
            self._put_away()
        unsent = self.area.text if self.area.text.strip() else self._unsent.pop(outgoing.destination, "")
        # After the unsent text, not before it: `sent` removes a text that is being sent from the start.
        if text not in unsent:
            unsent = f"{unsent}\n{text}" if unsent.strip() else text
        if unsent != self.area.text:
            self.area.load_text(unsent)
            self.area.move_cursor(self.area.document.end)  # the person writes after a quote
        self._outgoing = outgoing
        self._hint = "" if outgoing.reply_to else self._unanswered()
        self._draw_head()

    def sent(self) -> None:
        """Forget the sent text, and close if that is all. Text that was typed after it stays."""
        text, destination = self._submitted
        # It was closed, or another message was started in the meantime: that has removed the text already.
        is_here = self._typed_after is None and self._outgoing.destination == destination
        if not is_here or not self.area.text.startswith(text):
            return
        if self.area.text == text:
            self.area.load_text("")
            self.finish()
        else:
            lines = text.split("\n")
            self.area.delete((0, 0), (len(lines) - 1, len(lines[-1])))
            self._hint = ""  # it may be about an earlier refusal
            self._draw_head()

    def finish(self) -> None:
        """Close after the whole text was sent."""
        if self.is_open:
            self._close()

    def keep(self, why: str) -> None:
        """Keep the text after a refusal, and say why above it.

        If the composer was closed or another message was started in the meantime, say nothing.
        """
        text, destination = self._submitted
        if self._typed_after is not None:
            is_here = self.is_attached and self.is_open and self._outgoing.destination == destination
            known = self.area.text if is_here else self._unsent.get(destination, "")
            is_next = bool(self._typed_after) and known.startswith(self._typed_after)
            text += known if is_next or not known.strip() else f"\n{known}"
            if is_here:
                self.area.load_text(text)
                self.area.move_cursor(self.area.document.end)
            else:
                self._unsent[destination] = text
        if self.is_attached and self.is_open and self._outgoing.destination == self._submitted[1]:
            self._hint = f"not sent: {why}"
            self._draw_head()

    def action_cancel(self) -> None:
        """Close; the text is kept for the next message to the same destination."""
        self._close()
        self.post_message(self.Left())

    def action_priority(self) -> None:
        """Choose the next priority."""
        priority = _next(PRIORITIES, self._outgoing.priority or PRIORITIES[0])
        self._outgoing = replace(self._outgoing, priority=priority)
        self._draw_head()

    def action_intent(self) -> None:
        """Choose the next intent."""
        self._outgoing = replace(self._outgoing, intent=_next(INTENTS, self._outgoing.intent))
        self._draw_head()

    def on_message_area_submitted(self, event: MessageArea.Submitted) -> None:
        """Have the message sent, if there is a text."""
        event.stop()
        if self.submit(event.text):
            self.post_message(self.Ready(self, self._outgoing.argv(event.text.strip("\n"))))

    def submit(self, text: str) -> bool:
        """Note the text that is to be sent. Return False if it is empty, or another one is being sent."""
        if self.is_sending or not text.strip():
            return False
        self.is_sending = True  # until the result is known, a second Enter must not send it again
        self._submitted = (text, self._outgoing.destination)
        self._typed_after = None
        return True

    def on_message_area_completing(self, event: MessageArea.Completing) -> None:
        """Complete the name before the cursor."""
        event.stop()
        row, column = self.area.cursor_location
        before = self.area.get_text_range((row, 0), (row, column))
        completed, fitting = complete_name(before, self._names())
        if completed != before:
            self.area.replace(completed, (row, 0), (row, column))
        self._hint = " ".join(f"@{name}" for name in fitting[:20]) if len(fitting) != 1 else ""
        if not fitting:
            self._hint = "no name fits"
        self._draw_head()

    def _unanswered(self) -> str:
        """Say that a recipient waits for an answer, which this message is not."""
        names = [target.removeprefix("@") for target in self._outgoing.targets]
        waiting = [f"{name} waits for an answer to #{seq}" for name in names if (seq := self._asked(name))]
        return f"{', '.join(waiting)}; this is not a reply (r on the request is one)" if waiting else ""

    def on_unmount(self) -> None:
        """Keep the text although the screen is removed, such as that of one agent."""
        self._note_unsent()

    def _put_away(self) -> None:
        """Keep the text for the next message to its destination, and empty the area."""
        self._note_unsent()
        self.area.load_text("")

    def _note_unsent(self) -> None:
        text, destination = self.area.text, self._outgoing.destination
        submitted, to = self._submitted
        if self.is_sending and self._typed_after is None and to == destination and text.startswith(submitted):
            # Any composer may take up an unsent text, and would send this one a second time.
            text = self._typed_after = text[len(submitted) :]
        if text.strip():
            # Another screen may have left one there since this one was begun.
            known = self._unsent.get(destination, "")
            self._unsent[destination] = f"{known}\n{text}" if known.strip() else text

    def _close(self) -> None:
        self._put_away()
        before, self.display = self._focused_before, False
        self._show_keys("")
        # The person may have gone to another part while the message was sent. No part has the focus while
        # the terminal itself has none.
        if self.screen.focused in (self.area, None):
            self.screen.set_focus(before if before is not None and before.is_attached else None)

    def _show_keys(self, keys: str) -> None:
        for line in self.screen.query(StatusLine):
            line.set_typing_keys(keys)

    def _draw_head(self) -> None:
        outgoing, is_ascii = self._outgoing, bool(getattr(self.app, "is_ascii", False))
        everyone = "all participants" if outgoing.thread else "everyone"
        room = (f"room {outgoing.room}",) if outgoing.room else ()
        parts = [f"to {' '.join((*outgoing.targets, *room)) or everyone}"]
        parts += [f"thread {outgoing.thread}"] if outgoing.thread else []
        parts += [f"reply to #{outgoing.reply_to}"] if outgoing.reply_to else []
        parts.append(f"priority {outgoing.priority or 'normal'} (Ctrl+P)")
        parts.append(f"intent {outgoing.intent or 'none'} (Ctrl+T)")
        content = safe_content(", ".join(parts), BOLD, is_ascii=is_ascii)
        if self._hint:
            content += Content("\n") + safe_content(self._hint, YELLOW, is_ascii=is_ascii)
        elif outgoing.quote:
            content += Content("\n") + safe_content(f"| {outgoing.quote}", DIM, is_ascii=is_ascii)
        self.query_one(Static).update(content)


def _next(values: Sequence[str], current: str) -> str:
    return values[(values.index(current) + 1) % len(values)] if current in values else values[0]
