"""The screen Talk: conversations on the left, messages on the right. Also the chat of one room."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.suggester import Suggester
from textual.timer import Timer
from textual.widgets import Static

from palaver.app.chat import HELP, LATELY, ChatCommand, ChatText, no_command, parse_line
from palaver.app.ui.app import letter_key
from palaver.app.ui.composer import MessageArea, MessageComposer, OutgoingText
from palaver.app.ui.messages import NARROW, MessagesScreen, look_of, quoted, talk_line
from palaver.app.ui.rooms import member_line, stick_text
from palaver.app.ui.rows import RowList
from palaver.app.ui.store import SortedKeys
from palaver.app.ui.widgets import PromptLine, Window, safe_line
from palaver.errors import PalaverError
from palaver.protocol.agent_text import is_system_name
from palaver.protocol.query import GENERAL
from palaver.protocol.views import (
    AskConversations,
    AskRoom,
    Changes,
    ConversationKind,
    ConversationRow,
    ConversationsPage,
    MessageRow,
    RoomPage,
)

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp
    from palaver.client.view_link import Record


# --------------------
# Conversations.


class TalkRows:
    """The conversations, newest first, or those that were found. Further pages are read at the end."""

    def __init__(self, ui: "PalaverApp", ask: Callable[[AskConversations], None]) -> None:
        self._ui = ui
        self._ask = ask
        self.find_text = ""
        self._found: dict[str, ConversationRow] = {}
        self._found_order = SortedKeys()
        self._has_more = True
        self._is_asking = False

    @property
    def _order(self) -> SortedKeys:
        return self._found_order if self.find_text else self._ui.store.talk_list

    @property
    def total(self) -> int:
        """The number of conversations that are known."""
        return len(self._order)

    def conversation(self, key: str) -> ConversationRow | None:
        """Return a conversation."""
        return self._ui.store.talks.get(key) or self._found.get(key)

    def row(self, index: int, width: int) -> Content | None:
        """Return a conversation in one line."""
        found = self.conversation(self._order.key(index))
        return None if found is None else talk_line(found, look_of(self._ui), width)

    def key(self, index: int) -> str:
        """Return the key of a conversation."""
        return self._order.key(index)

    def find(self, key: str) -> int:
        """Return where a conversation is, or -1."""
        return self._order.find(key)

    def want(self, first: int, last: int) -> None:
        """Read further conversations near the end."""
        if self._has_more and not self._is_asking and last >= self.total - 10:
            oldest = self.conversation(self._order.key(self.total - 1)) if self.total else None
            self._is_asking = True
            self._ask(AskConversations(before=oldest.seq if oldest is not None else 0, find=self.find_text))

    def search(self, text: str) -> None:
        """Show only conversations with this text; all without one."""
        self.find_text = text.strip()
        self._found.clear()
        self._found_order.fill(())
        # Without a text no question is open: `want` asks for more of the conversations that are known.
        self._has_more, self._is_asking = True, bool(self.find_text)
        if self.find_text:
            self._ask(AskConversations(find=self.find_text))

    def restart(self) -> None:
        """Forget that everything was read: there is a new snapshot."""
        self._has_more, self._is_asking = True, False

    def take(self, question: AskConversations, page: ConversationsPage) -> None:
        """Add a page."""
        if question.find != self.find_text:  # the answer to an earlier search
            return
        self._is_asking = False
        self._has_more = page.has_more and bool(page.rows)
        for row in page.rows:
            if self.find_text:
                self._found[row.key] = row
                self._found_order.put(row.key, (-row.seq,))
            else:
                self._ui.store.add_talk(row)

    def fail(self) -> None:
        """Allow the question again."""
        self._is_asking = False


def message_to(row: ConversationRow, me: str) -> OutgoingText:
    """Return a new message to everyone in a conversation."""
    if row.key == GENERAL:
        return OutgoingText(targets=("@all",))
    if row.kind == ConversationKind.THREAD:
        return OutgoingText(thread=row.key.removeprefix("thread/"))
    if row.kind == ConversationKind.PAIR:
        # The key has the names of both. In a conversation of the person with themselves both are `me`.
        names = [name for name in row.key.split("@") if name and name != me]
        return OutgoingText(targets=tuple(f"@{name}" for name in names or [me]))
    return OutgoingText(room=row.key.removeprefix("#"))


def reply_to(row: MessageRow, me: str) -> OutgoingText:
    """Return a reply to a message: to its sender, or if the person wrote it, to its recipients."""
    if row.sender == me:
        targets = row.to
    else:
        # A message of the bus itself has no sender that could read a reply.
        targets = () if is_system_name(row.sender) else (f"@{row.sender.removeprefix('@')}",)
    quote = row.text.strip().partition("\n")[0]
    return OutgoingText(targets=targets, room=row.room, thread=row.thread, reply_to=row.seq, quote=quote)


class TargetSuggester(Suggester):
    """Completes the last word of a line to the name of an agent, a group or a room."""

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        super().__init__(use_cache=False)  # agents join and leave
        self._words = words

    async def get_suggestion(self, value: str) -> str | None:
        """Return the line with its last word completed."""
        head, _, last = value.rpartition(" ")
        if not last:
            return None
        fitting = (word for word in self._words() if word.startswith(last.lower()) and word != last)
        best = min(fitting, key=len, default=None)
        return None if best is None else f"{head} {best}".lstrip()


# --------------------
# The screen of all conversations.


class TalkScreen(MessagesScreen):
    """All conversations."""

    REST_S: ClassVar[float] = 0.15
    """Seconds that the cursor must rest on a conversation to show it: passing over one does not read it."""
    KEY = "3"
    AUTO_FOCUS = "#talks"
    KEYS_LINE = "Enter open  r reply  Q quote  n message  N new  / find  ? keys  q quit"
    KEYS = (
        ("Enter", "open the conversation; on a message, show each step of its delivery"),
        ("Tab", "go to the messages, and back to the conversations"),
        ("Esc", "back to the conversations"),
        ("r", "reply to the message"),
        ("Q", "reply and quote the message"),
        ("n", "write to everyone in this conversation"),
        ("N", "write to others: asks for the recipients"),
        ("a", "in a room: also show what its members write elsewhere, or no longer"),
        ("/", "find conversations by a text"),
        ("Ctrl+P, Ctrl+T", "while writing: the next priority, the next intent"),
        ("Tab", "while writing: complete an @name"),
        ("Ctrl+J", "while writing: start a new line; Enter sends"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        letter_key("r", "reply(False)"),
        letter_key("Q", "reply(True)"),
        letter_key("n", "write"),
        letter_key("N", "write_new"),
        letter_key("a", "outside"),
        letter_key("slash", "find"),
        Binding("escape", "back", show=False),
    ]
    DEFAULT_CSS = """
    TalkScreen #talks { width: 32%; min-width: 26; max-width: 50; margin: 0 1 0 0; }
    TalkScreen #talk { width: 1fr; height: 1fr; padding: 0 0 0 1; }
    TalkScreen #talk-title { height: 1; width: 1fr; text-style: bold; }
    TalkScreen.-low #talk-title { display: none; }
    TalkScreen.-narrow #talks { width: 1fr; max-width: 100%; }
    TalkScreen.-narrow #talk { display: none; padding: 0; }
    TalkScreen.-narrow.-reading #talks { display: none; }
    TalkScreen.-narrow.-reading #talk { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._resting: Timer | None = None

    def compose_content(self) -> ComposeResult:
        """Build the conversations, the messages and the composer."""
        with Horizontal():
            yield RowList(TalkRows(self.ui, self._ask_talks), id="talks", empty="no conversations yet")
            with Vertical(id="talk"):
                yield Static("", markup=False, id="talk-title")
                yield RowList(self._lines, follows=True, id="messages")
        yield PromptLine("find: ", id="find")
        yield PromptLine("to: ", id="recipients")
        yield self.new_composer()

    def opened(self) -> None:
        """Let the person choose a conversation."""
        self.query_one("#recipients", PromptLine).input.suggester = TargetSuggester(self._targets)

    @property
    def talks(self) -> RowList:
        """The list of conversations."""
        return self.query_one("#talks", RowList)

    @property
    def talk_rows(self) -> TalkRows:
        """The conversations."""
        source = self.talks.source
        assert isinstance(source, TalkRows)
        return source

    def changed(self, record: "Record") -> None:
        """Draw what has changed."""
        if self.is_new(record):
            self.talk_rows.restart()
            self.talks.refresh_rows()
            if self._opened:
                self._reopen()
            else:
                self._show_first()
        elif isinstance(record, Changes):
            self.talks.refresh_rows()
            self._show_first()
            self.take_changes(record)
            self.refresh_ledger(record)

    def on_resize(self, event: events.Resize) -> None:
        """Show one part at a time in a narrow terminal."""
        self.set_class(event.size.width < NARROW, "-narrow")

    def open_conversation(self, key: str, seq: int = 0) -> None:
        """Show a conversation, at one message, and let the person move in it."""
        self._show(key, seq)
        self._read()

    def _reopen(self) -> None:
        row = self.message
        # After a new snapshot a reader at the end sees the newest messages; any other stays at its message.
        is_at_end = row is None or not self._lines.rows or row.seq == self._lines.rows[-1].seq
        self.show_conversation(self._opened, 0 if is_at_end or row is None else row.seq)

    def _show_first(self) -> None:
        if not self._opened and self.talks.cursor_key and not self.has_class("-narrow"):
            self._show(self.talks.cursor_key)

    def _show(self, key: str, seq: int = 0) -> None:
        if key != self._opened:
            self._has_outside = False
        self.show_conversation(key, seq)
        self._draw_title()

    def _draw_title(self) -> None:
        row = self.talk_rows.conversation(self._opened)
        outside = "  with what members write elsewhere" if self._has_outside else ""
        title = safe_line(
            f"{row.title if row is not None else self._opened}{outside}", is_ascii=self.is_ascii
        )
        self.query_one("#talk-title", Static).update(Content(title))

    # Conversations

    def _ask_talks(self, question: AskConversations) -> None:
        self._load_talks(question)

    @work(group="talks")
    async def _load_talks(self, question: AskConversations) -> None:
        store = self.store
        try:
            page = await self.ui.ask(question, ConversationsPage)
        except PalaverError as error:
            if store is self.store:
                self.talk_rows.fail()
                self.say(str(error), is_error=True)
            return
        if store is not self.store:  # the person has gone to the past, or back, during the question
            return
        self.talk_rows.take(question, page)
        self.talks.refresh_rows()

    def on_row_list_cursor_moved(self, event: RowList.CursorMoved) -> None:
        """Show the conversation on which the cursor rests."""
        if event.rows is not self.talks or self.has_class("-narrow") or event.key in ("", self._opened):
            return
        if self._resting is not None:  # the cursor has moved on: the time begins again
            self._resting.stop()
        self._resting = self.set_timer(self.REST_S, self._rest)

    def _rest(self) -> None:
        self._resting = None
        if self.talks.cursor_key not in ("", self._opened):
            self._show(self.talks.cursor_key)

    def _show_chosen(self) -> None:
        """Show the conversation with the cursor at once if the person is in the list."""
        if self.focused is self.talks:
            self._rest()

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Go to the messages of a conversation. The ledger of a message is opened by the base."""
        if event.rows is self.talks:
            event.stop()
            if event.key != self._opened:
                self._show(event.key)
            self._read()

    def _read(self) -> None:
        self.add_class("-reading")
        self.set_focus(self.messages)
        # In a narrow terminal the messages are hidden until the next layout, and hidden ones do not count as
        # seen.
        self.call_after_refresh(self._acknowledge)

    def action_back(self) -> None:
        """Return to the conversations; there, to all of them after a search."""
        if self.focused is not self.talks:
            self.remove_class("-reading")
            self.set_focus(self.talks)
        elif self.talk_rows.find_text:
            self.talk_rows.search("")
            self.talks.refresh_rows()
        else:
            self.ui.action_leave_past()

    def action_find(self) -> None:
        """Find conversations by a text."""
        self.remove_class("-reading")
        if self.has_class("-narrow"):  # the messages are hidden now; the focus must not return to them
            self.set_focus(self.talks)
        self.query_one("#find", PromptLine).open(self.talk_rows.find_text)

    def action_outside(self) -> None:
        """Also show what the members of a room write elsewhere, or no longer."""
        row = self.talk_rows.conversation(self._opened)
        if row is None or row.kind != ConversationKind.ROOM:
            self.say("only a room has members that write elsewhere", is_error=True)
            return
        self._has_outside = not self._has_outside
        self.show_conversation(self._opened)
        self._draw_title()

    def on_prompt_line_entered(self, event: PromptLine.Entered) -> None:
        """Find conversations, or start a message to the typed recipients."""
        if event.prompt.id == "find":
            event.stop()
            self.talk_rows.search(event.text)
            self.talks.refresh_rows()
            self.set_focus(self.talks)
        elif event.prompt.id == "recipients":
            event.stop()
            targets = tuple(event.text.replace(",", " ").split())
            if targets:
                self.open_composer(OutgoingText(targets=targets))

    # Writing

    def action_reply(self, is_quoting: bool) -> None:
        """Reply to the message with the cursor."""
        self._show_chosen()
        row = self.message
        if row is None:
            self.say("choose a message first", is_error=True)
            return
        self.add_class("-reading")
        self.set_focus(self.messages)  # the focus returns there
        self.open_composer(reply_to(row, self.store.me), quoted(row.text) if is_quoting else "")

    def action_write(self) -> None:
        """Write to everyone in the conversation."""
        self._show_chosen()
        row = self.talk_rows.conversation(self._opened or self.talks.cursor_key)
        if row is None:
            self.action_write_new()
        else:
            self.open_composer(message_to(row, self.store.me))

    def action_write_new(self) -> None:
        """Ask for recipients, then write to them."""
        if self.ui.may_act():
            self.query_one("#recipients", PromptLine).open("@")

    def _targets(self) -> Iterable[str]:
        yield from (f"@{name}" for name in ("all", "workers", *self.store.names()))
        yield from (row.key for row in self.store.talks.values() if row.kind == ConversationKind.ROOM)


# --------------------
# `pal chat`: the messages of one room, with a line that is always open.

CHAT_KEYS: Final = (
    ("Enter", "send the line; in the messages: show each step of a delivery"),
    ("Esc", "go to the messages, to read, choose and answer one; Esc or Tab returns"),
    ("r, Q", "in the messages: reply, or reply with a quote"),
    ("Up, Down", "in the line: bring back earlier lines"),
    ("Tab", "in the line: complete an @name"),
    ("Ctrl+J", "start a new line in the text"),
    ("Ctrl+P, Ctrl+T", "the next priority, the next intent"),
    ("Ctrl+D", "in an empty line: leave the chat"),
)


class ChatComposer(MessageComposer):
    """The line of a chat: it stays open, and knows the lines that were sent before."""

    TYPING_KEYS = ""
    DEFAULT_CSS = "ChatComposer { display: block; padding: 0; }"
    # With priority: the editor of the text uses these keys itself.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "earlier(-1)", show=False, priority=True),
        Binding("down", "earlier(1)", show=False, priority=True),
        Binding("ctrl+d", "leave", show=False, priority=True),
    ]

    class LineTyped(Message):
        """A line was entered. The receiver sends it, or carries it out and calls `sent`."""

        def __init__(self, text: str, outgoing: OutgoingText) -> None:
            super().__init__()
            self.text = text
            self.outgoing = outgoing

    def __init__(self, names: Callable[[], Sequence[str]], room: str) -> None:
        super().__init__(names)
        self._room = room
        self._lines: list[str] = []
        self._position = 0
        self._edited: dict[int, str] = {}
        """Texts that the person left with the arrow keys, by position; after the last line, the new one."""

    def on_mount(self) -> None:
        """Write to the room."""
        self.open(OutgoingText(room=self._room))

    def finish(self) -> None:
        """Write to the room again."""
        self.write_to(OutgoingText(room=self._room))

    def action_cancel(self) -> None:
        """Leave a reply, or go to the messages."""
        if self.outgoing.reply_to:
            self.open(OutgoingText(room=self._room))
        else:
            self.post_message(self.Left())

    def action_earlier(self, step: int) -> None:
        """Bring back an earlier line; in a text of several lines, move the cursor."""
        if "\n" in self.area.text:
            self.area.move_cursor_relative(rows=step)
        elif self._lines:
            if self.area.text.strip():
                self._edited[self._position] = self.area.text
            self._position = max(0, min(self._position + step, len(self._lines)))
            known = self._lines[self._position] if self._position < len(self._lines) else ""
            self.area.load_text(self._edited.get(self._position, known))
            self.area.move_cursor(self.area.document.end)

    def action_leave(self) -> None:
        """Leave the chat if nothing is typed, otherwise delete a character."""
        if self.area.text:
            self.area.action_delete_right()
        else:
            self.app.exit(0)

    def on_message_area_submitted(self, event: MessageArea.Submitted) -> None:
        """Report the line."""
        event.stop()
        event.prevent_default()  # the base would send it as it is
        if self.submit(event.text):
            text = event.text.strip()
            begun = "" if self._position == len(self._lines) else self._edited.get(len(self._lines), "")
            if self._lines[-1:] != [text]:
                self._lines = [*self._lines, text][-_LIMIT_LINES:]
            self._position = len(self._lines)
            self._edited = {self._position: begun} if begun else {}  # Down brings it back
            self.post_message(self.LineTyped(text, self.outgoing))


_LIMIT_LINES: Final = 200


class RoomTalk(MessagesScreen):
    """The chat of one room."""

    NAME = "Chat"
    AUTO_FOCUS = "MessageArea"
    NO_MESSAGES = "no messages yet; /help shows the commands"
    KEYS_LINE = "Enter send  Esc messages  /help commands  Ctrl+D leave"
    KEYS = CHAT_KEYS
    BINDINGS: ClassVar[list[BindingType]] = [
        letter_key("r", "reply(False)"),
        letter_key("Q", "reply(True)"),
        Binding("tab,shift+tab,escape", "write", show=False),
        letter_key("slash", "command_line"),
    ]
    DEFAULT_CSS = """
    RoomTalk ScreenNames { display: none; }
    RoomTalk #room-title { height: 1; width: 1fr; text-style: bold; }
    RoomTalk.-low #room-title { display: none; }
    RoomTalk.-low StatusLine { display: none; }
    """

    def __init__(self, room: str) -> None:
        super().__init__()
        self._room = room
        self._page: RoomPage | None = None

    def compose_content(self) -> ComposeResult:
        """Build the messages and the line."""
        yield Static("", markup=False, id="room-title")
        yield RowList(self._lines, follows=True, id="messages")
        yield ChatComposer(self._names, self._room)

    def changed(self, record: "Record") -> None:
        """Draw what has changed."""
        if self.is_new(record) or not self._opened:
            self.show_conversation(f"#{self._room}")
            self._read_room()
        elif isinstance(record, Changes):
            self.take_changes(record)
            self.refresh_ledger(record)
            if self._room in record.rooms or self._has_member(record):
                self._read_room()

    def _has_member(self, record: Changes) -> bool:
        members = {member.name for member in self._page.members} if self._page is not None else set()
        return any(row.name in members for row in record.agents)

    def _names(self) -> list[str]:
        return [member.name for member in self._page.members] if self._page is not None else []

    @work(group="room", exclusive=True)
    async def _read_room(self) -> None:
        try:
            self._page = await self.ui.ask(AskRoom(id=self._room), RoomPage)
        except PalaverError as error:
            self.say(str(error), is_error=True)
            return
        row, look = self._page.row, look_of(self.ui)
        outside = "  with what members write elsewhere (/all)" if self._has_outside else ""
        stick = stick_text(row, look, self.ui.now_ms(), with_time=False)
        title = f"{row.name or row.id}  {stick}  {row.present:,} of {row.members:,} here{outside}"
        self.query_one("#room-title", Static).update(Content(safe_line(title, is_ascii=self.is_ascii)))

    # Lines

    def on_message_composer_left(self, event: MessageComposer.Left) -> None:
        """Go to the messages."""
        event.stop()
        self.set_focus(self.messages)

    def action_write(self) -> None:
        """Return to the line."""
        self.set_focus(self.query_one(ChatComposer).area)

    def action_command_line(self) -> None:
        """Return to the line and begin a command."""
        composer = self.query_one(ChatComposer)
        composer.area.insert("/")
        self.set_focus(composer.area)

    def action_reply(self, is_quoting: bool) -> None:
        """Reply to the message with the cursor."""
        if (row := self.message) is not None:
            self.open_composer(reply_to(row, self.store.me), quoted(row.text) if is_quoting else "")

    def on_chat_composer_line_typed(self, event: ChatComposer.LineTyped) -> None:
        """Send a line, or carry out a command."""
        event.stop()
        composer = self.query_one(ChatComposer)
        match parse_line(event.text):
            case ChatText() as text:
                self.ui.send_composed(self, composer, self._argv(text, event.outgoing))
            case ChatCommand(word=word):
                # A command is not a message, so there is no result of the bus to wait for.
                composer.is_sending = False
                composer.sent()
                self._do(word)

    def _argv(self, text: ChatText, outgoing: OutgoingText) -> list[str]:
        targets = tuple(f"@{name}" for name in text.to) or outgoing.targets
        priority = "interrupt" if text.is_interrupt else outgoing.priority
        return replace(outgoing, targets=targets, room=self._room, priority=priority).argv(text.text)

    def _do(self, word: str) -> None:
        if word == "/quit":
            self.app.exit(0)
        elif word == "/who":
            members = self._page.members if self._page is not None else ()
            look = look_of(self.ui)
            text = "\n".join(member_line(one, look, 200).plain.strip() for one in members)
            self.app.push_screen(Window(f"Members of {self._room}", text or "The room has no members."))
        elif word == "/events":
            self.ui.show_output(["pal", "events", "--room", self._room, "--last", str(LATELY)])
        elif word == "/all":
            self._has_outside = not self._has_outside
            self.show_conversation(f"#{self._room}")
            self._read_room()
        elif word == "/help":
            keys = "\n".join(f"{key:<15} {meaning}" for key, meaning in CHAT_KEYS)
            self.app.push_screen(Window("Chat", "\n".join((*HELP, "", keys))))
        else:
            self.say(no_command(word), is_error=True)
