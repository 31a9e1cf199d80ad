"""The screen Talk: conversations on the left, messages on the right. Also the chat of one room."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.suggester import Suggester
from textual.timer import Timer
from textual.widgets import Static

from palaver.app.ui.app import BusScreen
from palaver.app.ui.messages import (
    NARROW,
    LaidLines,
    Look,
    MessageLines,
    ledger_lines,
    look_of,
    quoted,
    talk_line,
)
from palaver.app.ui.rows import Rows
from palaver.app.ui.store import SortedKeys
from palaver.app.ui.widgets import Composer, OutgoingText, Prompt, Window, safe_line
from palaver.errors import PalaverError
from palaver.protocol.agent_text import is_system_name
from palaver.protocol.query import GENERAL
from palaver.protocol.views import (
    AskConversations,
    AskLedger,
    AskMessages,
    Changes,
    ConversationKind,
    ConversationRow,
    ConversationsPage,
    LedgerPage,
    MessageRow,
    MessagesPage,
    Snapshot,
)

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp
    from palaver.client.view_link import Record

PAGE: Final = 60
"""Messages that are read at once."""
_NEAR: Final = 30
"""Lines from an end at which more messages are read."""
_PAUSE_S: Final = 0.15
"""How long the cursor must rest on a conversation before it is shown: passing over one does not read it."""


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
        self._has_more, self._is_asking = True, bool(self.find_text)
        if self.find_text:
            self._ask(AskConversations(find=self.find_text))

    def restart(self) -> None:
        """Forget that everything was read: there is a new snapshot."""
        self._has_more, self._is_asking = True, False

    def take(self, question: AskConversations, page: ConversationsPage) -> None:
        """Add a page."""
        if question.find != self.find_text:
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


def draft_for(row: ConversationRow, me: str) -> OutgoingText:
    """Return a new message to everyone in a conversation."""
    if row.key == GENERAL:
        return OutgoingText(targets=("@all",))
    if row.kind == ConversationKind.THREAD:
        return OutgoingText(thread=row.key.removeprefix("thread/"))
    if row.kind == ConversationKind.PAIR:
        names = [name for name in row.key.split("@") if name and name != me]
        return OutgoingText(targets=tuple(f"@{name}" for name in names or [me]))
    return OutgoingText(room=row.key.removeprefix("#"))


def reply_to(row: MessageRow, me: str) -> OutgoingText:
    """Return a reply to a message: to its sender, or to the recipients of one's own message."""
    if row.sender == me:
        targets = row.to
    else:
        targets = () if is_system_name(row.sender) else (f"@{row.sender.removeprefix('@')}",)
    quote = row.text.strip().partition("\n")[0]
    return OutgoingText(targets=targets, room=row.room, thread=row.thread, reply_to=row.seq, quote=quote)


class TargetSuggester(Suggester):
    """Completes the last word of a line to the name of an agent, a group or a room."""

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        super().__init__(use_cache=False)
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
# The ledger of one message.


class LedgerWindow(Window):
    """A message and every step of its delivery, kept current while it is open."""

    def __init__(self, page: LedgerPage, ui: "PalaverApp") -> None:
        super().__init__(f"Message #{page.message.seq}", "", line=f"pal receipts {page.message.seq}")
        self._page = page
        self._ui = ui

    @property
    def seq(self) -> int:
        """The message."""
        return self._page.message.seq

    def compose(self) -> ComposeResult:
        """Build the window."""
        with Vertical():
            yield Static(safe_line(f"{self._title}   {self._line}"), markup=False)
            yield Rows(LaidLines(self._lines), has_cursor=False)
            yield Static(self._keys, markup=False)

    def update_page(self, page: LedgerPage) -> None:
        """Show a newer state."""
        self._page = page
        rows = self.query_one(Rows)
        assert isinstance(rows.source, LaidLines)
        rows.source.forget()
        rows.refresh_rows()

    def _lines(self, width: int) -> list[Content]:
        return ledger_lines(self._page, look_of(self._ui), exact_time, width)


def exact_time(ms: int) -> str:
    """Return a time with milliseconds, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000)) + f".{ms % 1000:03}"


# --------------------
# Messages of one conversation. The screen of all conversations and the chat of one room use it.


class MessagesScreen(BusScreen):
    """Base of the screens that show messages: reads pages, keeps marks current, acknowledges."""

    def __init__(self) -> None:
        super().__init__()
        self._opened = ""
        self._has_beside = False
        self._jobs: list[tuple[AskMessages, Callable[[MessagesPage], None]]] = []
        self._is_loading = False
        self._stale: set[int] = set()
        """Messages whose marks have changed since they were read."""
        self._is_marking = False
        self._seen: set[int] = set()
        self._shown = (0, -1)
        self._lines = MessageLines(Look(me="human", is_ascii=True, clock=str))

    # What is shown

    @property
    def messages(self) -> Rows:
        """The list of messages."""
        return self.query_one("#messages", Rows)

    @property
    def message(self) -> MessageRow | None:
        """The message with the cursor."""
        return self._lines.message(self.messages.cursor_key)

    def show_conversation(self, key: str, seq: int = 0) -> None:
        """Show the newest messages of a conversation, or those around one message."""
        self._opened = key
        self._jobs.clear()
        self._stale.clear()
        self._is_marking = False
        self._lines = MessageLines(look_of(self.ui), max(self.messages.size.width - 2, 20))
        self._lines.wanted = self._want
        self.messages.show(self._lines)
        if not key:
            self.messages.say_if_empty("")
            return
        self.messages.say_if_empty("reading ...")
        before = seq + 1 if seq else 0
        self._ask(self._question(before=before), lambda page: self._take_first(page, seq))

    def _question(self, before: int = 0, after: int = 0, limit: int = PAGE) -> AskMessages:
        return AskMessages(
            conversation=self._opened, before=before, after=after, beside=self._has_beside, limit=limit
        )

    def _ask(self, question: AskMessages, take: Callable[[MessagesPage], None]) -> None:
        if all(question != waiting for waiting, _ in self._jobs):
            self._jobs.append((question, take))
            if not self._is_loading:
                self._is_loading = True
                self._load()

    @work(group="messages")
    async def _load(self) -> None:
        """Ask one question after the other. Answers about a conversation that was left are dropped."""
        try:
            while self._jobs:
                job = self._jobs[0]
                page = await self.ui.ask(job[0], MessagesPage)
                if self._jobs[:1] == [job]:
                    del self._jobs[0]
                    job[1](page)
        except PalaverError as error:
            self._jobs.clear()
            self._is_marking = False
            self.messages.say_if_empty(f"cannot be read: {error}")
        finally:
            self._is_loading = False

    def _take_first(self, page: MessagesPage, seq: int) -> None:
        self._lines.replace(page.rows, has_older=page.has_more, has_newer=seq > 0)
        self.messages.say_if_empty("no messages yet")
        self.messages.show(self._lines, str(seq) if seq and self._lines.find(str(seq)) >= 0 else "")

    def _take_older(self, page: MessagesPage) -> None:
        self._lines.prepend(page.rows, has_older=page.has_more)
        self.messages.refresh_rows()

    def _take_newer(self, page: MessagesPage) -> None:
        self._lines.append(page.rows, has_newer=page.has_more)
        self.messages.refresh_rows()
        self._read_newer()

    def _read_newer(self) -> None:
        """Read messages that came after the loaded ones."""
        talk = self.store.talks.get(self._opened)
        last = self._lines.rows[-1].seq if self._lines.rows else 0
        if (
            self._opened
            and not self._lines.has_newer
            and (self._has_beside or talk is None or talk.seq > last)
        ):
            self._ask(self._question(after=last) if last else self._question(), self._take_newer)

    # Changes

    def catch_up(self) -> None:
        """Read what has changed while this screen was not shown."""
        self._stale.update(row.seq for row in self._lines.rows)
        self._read_newer()
        self.messages.refresh_rows()

    def take_changes(self, record: Changes) -> None:
        """Read what a record has changed in the shown conversation."""
        if any(row.key == self._opened for row in record.talks) or (self._has_beside and record.events):
            self._read_newer()
        if record.moved or record.agents:
            names = {row.name for row in record.agents}
            first, last = self._shown
            self._stale.update(record.moved)
            self._stale.update(row.seq for row in self._lines.between(first, last) if _waits_for(row, names))
            self._refresh_marks()

    def _refresh_marks(self) -> None:
        """Read visible messages again whose marks have changed. Others are read when they are shown."""
        first, last = self._shown
        visible = [row.seq for row in self._lines.between(first, last)]
        asked = self._stale.intersection(visible)
        if not asked or self._is_marking:
            return
        self._is_marking = True
        self._stale -= asked
        low, high = min(asked), max(asked)
        count = sum(low <= seq <= high for seq in visible)

        def take(page: MessagesPage) -> None:
            self._is_marking = False
            if self._lines.update(page.rows):
                self.messages.refresh_rows()
            self._refresh_marks()

        self._ask(self._question(after=low - 1, limit=count), take)

    def _want(self, first: int, last: int) -> None:
        """Read more near an end, refresh marks, and acknowledge what is shown."""
        self._shown = (first, last)
        if self._lines.has_older and first < _NEAR:
            self._ask(self._question(before=self._lines.rows[0].seq), self._take_older)
        if self._lines.has_newer and last > self._lines.total - _NEAR:
            self._ask(self._question(after=self._lines.rows[-1].seq), self._take_newer)
        self._refresh_marks()
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Mark messages to the person that are on the screen as seen; never in the past."""
        if self.store.at or not self.is_current or not self.messages.size.height or not self.messages.display:
            return
        shown = self._lines.between(*self._shown)
        seqs = [row.seq for row in shown if row.is_unread and row.seq not in self._seen]
        if seqs:
            self._seen.update(seqs)
            self._send_seen(seqs)

    @work(group="seen")
    async def _send_seen(self, seqs: Sequence[int]) -> None:
        try:
            await self.ui.link.acknowledge(seqs)
        except PalaverError:
            self._seen.difference_update(seqs)  # again when they are drawn again

    # The ledger and replies

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Show the ledger of a message."""
        if event.rows is self.messages:
            event.stop()
            self.show_ledger(event.key)

    @work(group="ledger", exclusive=True)
    async def show_ledger(self, key: str) -> None:
        """Show each step of the delivery of a message."""
        try:
            page = await self.ui.ask(AskLedger(message=key), LedgerPage)
        except PalaverError as error:
            self.say(str(error), is_error=True)
            return
        window = self.app.screen
        if isinstance(window, LedgerWindow):
            window.update_page(page)
        else:
            self.app.push_screen(LedgerWindow(page, self.ui))

    def refresh_ledger(self, record: Changes) -> None:
        """Keep an open ledger current."""
        window = self.app.screen
        if isinstance(window, LedgerWindow) and window.seq in record.moved:
            self.show_ledger(str(window.seq))

    def open_composer(self, draft: OutgoingText, text: str = "") -> None:
        """Start a message. The message that it answers stays visible above it."""
        if self.ui.may_act():
            self.query_one(Composer).open(draft, text)
            self.call_after_refresh(self.messages.reveal)


def _waits_for(row: MessageRow, names: set[str]) -> bool:
    return any(mark.reason is not None and mark.name in names for mark in row.marks)


class TalkScreen(MessagesScreen):
    """All conversations."""

    KEY = "3"
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
        Binding("r", "reply(False)", show=False),
        Binding("Q", "reply(True)", show=False),
        Binding("n", "write", show=False),
        Binding("N", "write_new", show=False),
        Binding("a", "beside", show=False),
        Binding("slash", "find", show=False),
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
            yield Rows(TalkRows(self.ui, self._ask_talks), id="talks", empty="no conversations yet")
            with Vertical(id="talk"):
                yield Static("", markup=False, id="talk-title")
                yield Rows(self._lines, follows=True, id="messages")
        yield Prompt("find: ", id="find")
        yield Prompt("to: ", id="recipients")
        yield Composer(self.store.names)

    def opened(self) -> None:
        """Let the person choose a conversation."""
        self.query_one("#recipients", Prompt).input.suggester = TargetSuggester(self._targets)
        self.talks.focus()

    @property
    def talks(self) -> Rows:
        """The list of conversations."""
        return self.query_one("#talks", Rows)

    @property
    def talk_rows(self) -> TalkRows:
        """The conversations."""
        source = self.talks.source
        assert isinstance(source, TalkRows)
        return source

    def changed(self, record: "Record") -> None:
        """Draw what has changed."""
        if isinstance(record, Snapshot):
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

    @on(events.ScreenResume)
    def _resumed(self) -> None:
        """Read what has changed while another screen or window was shown."""
        if self.is_ready and self._opened:
            self.catch_up()

    def on_resize(self, event: events.Resize) -> None:
        """Show one part at a time in a narrow terminal."""
        self.set_class(event.size.width < NARROW, "-narrow")

    def open_conversation(self, key: str, seq: int = 0) -> None:
        """Show a conversation, at one message, and let the person move in it."""
        self._show(key, seq)
        self._read()

    def _reopen(self) -> None:
        row = self.message
        is_at_end = row is None or not self._lines.rows or row.seq == self._lines.rows[-1].seq
        self.show_conversation(self._opened, 0 if is_at_end or row is None else row.seq)

    def _show_first(self) -> None:
        if not self._opened and self.talks.cursor_key and not self.has_class("-narrow"):
            self._show(self.talks.cursor_key)

    def _show(self, key: str, seq: int = 0) -> None:
        if key != self._opened:
            self._has_beside = False
        self.show_conversation(key, seq)
        self._draw_title()

    def _draw_title(self) -> None:
        row = self.talk_rows.conversation(self._opened)
        beside = "  with what members write elsewhere" if self._has_beside else ""
        title = safe_line(f"{row.title if row is not None else self._opened}{beside}", is_ascii=self.is_ascii)
        self.query_one("#talk-title", Static).update(Content(title))

    # Conversations

    def _ask_talks(self, question: AskConversations) -> None:
        self._load_talks(question)

    @work(group="talks")
    async def _load_talks(self, question: AskConversations) -> None:
        try:
            page = await self.ui.ask(question, ConversationsPage)
        except PalaverError as error:
            self.talk_rows.fail()
            self.say(str(error), is_error=True)
            return
        self.talk_rows.take(question, page)
        self.talks.refresh_rows()

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show the conversation on which the cursor rests."""
        if event.rows is not self.talks or self.has_class("-narrow") or event.key in ("", self._opened):
            return
        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(_PAUSE_S, self._rest)

    def _rest(self) -> None:
        self._resting = None
        if self.talks.cursor_key not in ("", self._opened):
            self._show(self.talks.cursor_key)

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Go to the messages of a conversation. The ledger of a message is opened by the base."""
        if event.rows is self.talks:
            event.stop()
            if event.key != self._opened:
                self._show(event.key)
            self._read()

    def _read(self) -> None:
        self.add_class("-reading")
        self.messages.focus()
        self.call_after_refresh(self._acknowledge)

    def action_back(self) -> None:
        """Return to the conversations; there, to all of them after a search."""
        if self.focused is not self.talks:
            self.remove_class("-reading")
            self.talks.focus()
        elif self.talk_rows.find_text:
            self.talk_rows.search("")
            self.talks.refresh_rows()
        else:
            self.ui.action_leave_past()

    def action_find(self) -> None:
        """Find conversations by a text."""
        self.remove_class("-reading")
        self.query_one("#find", Prompt).open(self.talk_rows.find_text)

    def action_beside(self) -> None:
        """Also show what the members of a room write elsewhere, or no longer."""
        row = self.talk_rows.conversation(self._opened)
        if row is None or row.kind != ConversationKind.ROOM:
            self.say("only a room has members that write elsewhere", is_error=True)
            return
        self._has_beside = not self._has_beside
        self.show_conversation(self._opened)
        self._draw_title()

    def on_prompt_entered(self, event: Prompt.Entered) -> None:
        """Find conversations, or start a message to the typed recipients."""
        if event.prompt.id == "find":
            event.stop()
            self.talk_rows.search(event.text)
            self.talks.refresh_rows()
            self.talks.focus()
        elif event.prompt.id == "recipients":
            event.stop()
            targets = tuple(event.text.replace(",", " ").split())
            if targets:
                self.open_composer(OutgoingText(targets=targets))

    # Writing

    def action_reply(self, is_quoting: bool) -> None:
        """Reply to the message with the cursor."""
        row = self.message
        if row is None:
            self.say("choose a message first", is_error=True)
            return
        self.add_class("-reading")
        self.open_composer(reply_to(row, self.store.me), quoted(row.text) if is_quoting else "")

    def action_write(self) -> None:
        """Write to everyone in the conversation."""
        row = self.talk_rows.conversation(self._opened or self.talks.cursor_key)
        if row is None:
            self.action_write_new()
        else:
            self.open_composer(draft_for(row, self.store.me))

    def action_write_new(self) -> None:
        """Ask for recipients, then write to them."""
        if self.ui.may_act():
            self.query_one("#recipients", Prompt).open("@")

    def _targets(self) -> Iterable[str]:
        yield from (f"@{name}" for name in ("all", "workers", *self.store.names()))
        yield from (row.key for row in self.store.talks.values() if row.kind == ConversationKind.ROOM)
