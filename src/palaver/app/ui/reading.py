"""The part of Talk that shows the messages of one conversation, their marks and their ledgers.

It reads pages when they are needed, keeps marks current, and acknowledges messages that are shown.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events, on, work

from palaver.app.ui.app import BusScreen
from palaver.app.ui.messages import Look, MessageLines, ledger_lines, look_of
from palaver.app.ui.rows import Rows
from palaver.app.ui.widgets import Composer, OutgoingText, Window
from palaver.errors import PalaverError
from palaver.protocol.views import (
    AskLedger,
    AskMessages,
    Changes,
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
_UNWRAPPED: Final = 100_000
"""A width at which no line is wrapped: the window does that."""
_NEAR: Final = 30
"""Lines from an end at which more messages are read."""


# --------------------
# The ledger of one message.


class LedgerWindow(Window):
    """A message and every step of its delivery, kept current while it is open."""

    def __init__(self, page: LedgerPage, ui: "PalaverApp") -> None:
        self.seq = page.message.seq
        super().__init__(f"Message #{self.seq}", ledger_text(page, ui), line=f"pal receipts {self.seq}")


def ledger_text(page: LedgerPage, ui: "PalaverApp") -> str:
    """Return a message and every step of its delivery as a text."""
    lines = ledger_lines(page, look_of(ui), exact_time, _UNWRAPPED)
    return "\n".join(line.plain for line in lines).rstrip()


def exact_time(ms: int) -> str:
    """Return a time with milliseconds, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000)) + f".{ms % 1000:03}"


# --------------------
# Messages of one conversation. The screen of all conversations and the chat of one room use it.


class MessagesScreen(BusScreen):
    """Base of the screens that show messages: reads pages, keeps marks current, acknowledges."""

    NO_MESSAGES: ClassVar[str] = "no messages yet"

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
        self._was_hidden = False
        self._snapshot: Snapshot | None = None
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
        self._lines = MessageLines(look_of(self.ui))
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
        self.messages.say_if_empty(self.NO_MESSAGES)
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

    def is_new(self, record: "Record") -> bool:
        """Return whether a record is a snapshot that is not drawn yet; resuming shows the last one again."""
        is_new = isinstance(record, Snapshot) and record is not self._snapshot
        if isinstance(record, Snapshot):
            self._snapshot = record
        return is_new

    @on(events.ScreenSuspend)
    def _suspended(self) -> None:
        self._was_hidden = True

    @on(events.ScreenResume)
    def _resumed(self) -> None:
        """Read what has changed while another screen or window was shown."""
        if self.is_ready and self._opened and self._was_hidden:
            self._was_hidden = False
            self._catch_up()

    def _catch_up(self) -> None:
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
            window.show_text(ledger_text(page, self.ui))
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
