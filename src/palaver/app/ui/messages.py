"""Messages in a view: their lines, marks and ledger, and the screens that read them page by page."""

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from textual import events, on, work
from textual.content import Content

from palaver.app.ui.app import BusScreen
from palaver.app.ui.composer import MessageComposer, OutgoingText
from palaver.app.ui.rows import RowList
from palaver.app.ui.widgets import Window
from palaver.errors import PalaverError
from palaver.protocol.display import safe
from palaver.protocol.message import HUMAN
from palaver.protocol.paths import mailbox_of, readable_mailbox
from palaver.protocol.query import conversation_of_channel, conversation_of_pair
from palaver.protocol.views import (
    LIMIT_LEDGER,
    AskLedger,
    AskMessages,
    Attention,
    AttentionKind,
    Changes,
    ConversationRow,
    LedgerPage,
    LedgerStep,
    Mark,
    MessageRow,
    MessagesPage,
    Snapshot,
    WaitReason,
)

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp
    from palaver.client.view_link import Record

# --------------------
# Messages as the lines of a list: texts, a mark for each recipient, the ledger. Pure.
#
# All foreign text is made safe here. Nothing depends on colour, and without UTF-8 all drawing is ASCII.

LIMIT_NAMES: Final = 4
"""Recipients that a line names before it counts the others."""
LIMIT_WAITING: Final = 4
"""Recipients whose reason a list shows; the ledger shows all."""
LIMIT_RECIPIENTS: Final = 500
"""Recipients that the ledger of a message shows."""
LIMIT_LOADED: Final = 500
"""Messages of a conversation that are kept; those farthest from the reader are dropped and read again."""

NARROW: Final = 80
"""A terminal with fewer columns shows one part of a screen at a time."""
_INDENT: Final = 2
_LEAST_TEXT: Final = 10


@dataclass(frozen=True, slots=True)
class MarkSign:
    """One state of the ledger: its sign with and without UTF-8, and its word."""

    sign: str
    ascii_sign: str
    word: str


MARKS: Final[Mapping[str, MarkSign]] = {
    "queued": MarkSign("○", "o", "waiting"),
    "held": MarkSign("‖", "=", "held"),
    "submitted": MarkSign("→", ">", "on its way"),
    "seen": MarkSign("✓", "+", "seen"),
    "answered": MarkSign("↩", "<", "answered"),
    "refused": MarkSign("✗", "x", "refused"),
    "expired": MarkSign("✗", "x", "expired"),
    "dead": MarkSign("✗", "x", "no recipient"),
}
"""The states of the ledger, in the order in which a message shows them."""


@dataclass(frozen=True, slots=True)
class Look:
    """How texts are drawn for one reader."""

    me: str
    is_ascii: bool
    clock: Callable[[int], str]
    """Unix milliseconds to a short time."""

    def name(self, name: str) -> str:
        """Return a name; the reader is `you`."""
        return "you" if name.removeprefix("@") == self.me else safe(name)

    def mark(self, state: str) -> str:
        """Return the sign and the word of a state."""
        found = MARKS.get(state)
        if found is None:
            return safe(state)
        return f"{found.ascii_sign if self.is_ascii else found.sign} {found.word}"

    @property
    def arrow(self) -> str:
        """Between sender and recipients."""
        return "->" if self.is_ascii else "→"

    @property
    def bar(self) -> str:
        """Before a quote."""
        return "|" if self.is_ascii else "│"

    @property
    def dots(self) -> str:
        """After a text that was cut."""
        return "..." if self.is_ascii else "…"


def look_of(ui: "PalaverApp") -> Look:
    """Return how texts are drawn in this dashboard."""
    return Look(me=ui.store.me or "human", is_ascii=ui.is_ascii, clock=lambda ms: short_time(ms, ui.now_ms()))


def short_time(ms: int, now_ms: int) -> str:
    """Return a time of day; with the date if that is not today. Local time."""
    then, now = time.localtime(ms / 1000), time.localtime(now_ms / 1000)
    if then[:3] == now[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%m-%d %H:%M" if then[0] == now[0] else "%Y-%m-%d", then)


# --------------------
# One conversation in a list.


def talk_line(row: ConversationRow, look: Look, width: int) -> Content:
    """Return a conversation with its unread messages and the beginning of its newest one."""
    unread = f" ({row.unread:,} new)" if row.unread else ""
    title = Content.styled(f"{safe(row.title)}{unread}", "bold" if row.unread else "")
    newest = f"  {look.name(row.sender)}: {safe(' '.join(row.text.split()))}" if row.sender else ""
    return (title + Content.styled(newest, "dim")).truncate(width, ellipsis=True)


# --------------------
# One message.


def wrapped(text: str, width: int, indent: int = 0, style: str = "") -> list[Content]:
    """Return a text as lines of at most `width` columns, made safe; all lines are indented."""
    indent = indent if width - indent >= _LEAST_TEXT else 0
    content = Content(safe(text, keep_lines=True))
    lines = content.wrap(max(width - indent, 1))
    return [(line.stylize(style) if style else line).pad_left(indent) for line in lines]


def counted_names(names: Sequence[str], look: Look, limit: int = LIMIT_NAMES) -> str:
    """Return names, and how many more there are: `luna, nova and 3 more`."""
    shown = ", ".join(map(look.name, names[:limit]))
    return f"{shown} and {len(names) - limit:,} more" if len(names) > limit else shown


def head_line(row: MessageRow, look: Look) -> Content:
    """Return who wrote a message to whom, when, and what it asks for."""
    to = f" {look.arrow} {counted_names(row.to, look)}" if row.to else ""
    notes = [f"#{row.seq}"]
    if row.type != "message":
        notes.append(safe(row.type))
    words = (safe(row.intent), safe(row.priority))
    notes += [word for word in words if word and word not in ("inform", "normal")]
    if row.thread:
        notes.append(f"thread {safe(row.thread)}")
    who = (f"{look.name(row.sender)}{to}", "bold")
    unread = (" new", "bold reverse") if row.is_unread else ("", "")
    return Content.assemble((f"{look.clock(row.ts)} ", "dim"), who, unread, (f"  {'  '.join(notes)}", "dim"))


def mark_lines(marks: Sequence[Mark], look: Look, width: int, limit: int = LIMIT_WAITING) -> list[Content]:
    """Return the state of a message for each recipient.

    Recipients with the same final state share a line. One that waits has its own line with the reason.
    """
    lines: list[Content] = []
    final: dict[str, list[str]] = {}
    waiting: list[Mark] = []
    for mark in marks:
        if mark.reason is None:
            final.setdefault(mark.state, []).append(mark.name)
        else:
            waiting.append(mark)
    order = list(MARKS)
    for state in sorted(final, key=lambda word: order.index(word) if word in MARKS else len(order)):
        lines += wrapped(f"{look.mark(state)}: {counted_names(final[state], look)}", width, _INDENT, "dim")
    for mark in waiting[:limit]:
        assert mark.reason is not None  # sorted above
        text = f"{look.mark(mark.state)}: {look.name(mark.name)}: {mark.reason.text}"
        lines += wrapped(text, width, _INDENT, "italic")
    if len(waiting) > limit:
        more = f"{len(waiting) - limit:,} more recipients wait; Enter shows each"
        lines += wrapped(more, width, _INDENT, "italic")
    return lines


def message_lines(row: MessageRow, look: Look, width: int) -> list[Content]:
    """Return a message with its quote and marks, and an empty line after it."""
    lines = head_line(row, look).wrap(width)
    if row.reply_to:
        quote = f"{look.bar} #{row.reply_to} {_first_line(row.quote)}".rstrip()
        lines.append(Content(safe(quote)).stylize("dim").pad_left(_INDENT).truncate(width, ellipsis=True))
    lines += wrapped(row.text, width, _INDENT)
    if row.is_cut:
        cut = f"{look.dots} the text is longer; `pal show {row.seq}` prints all of it"
        lines += wrapped(cut, width, _INDENT, "dim")
    lines += mark_lines(row.marks, look, width)
    lines.append(Content(""))
    return lines


def message_text(row: MessageRow, look: Look) -> str:
    """Return a whole message with its marks as a text, which a window wraps."""
    return "\n".join(line.plain for line in message_lines(row, look, _UNWRAPPED)).rstrip()


_UNWRAPPED: Final = 100_000
"""A width at which no line is wrapped: the window does that."""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def quoted(text: str, limit: int = 5) -> str:
    """Return the beginning of a text as a quote for a reply."""
    lines = text.strip().splitlines()
    kept = [f"> {line}" for line in lines[:limit]]
    return "\n".join([*kept, "> ..."] if len(lines) > limit else kept) + "\n"


# --------------------
# The ledger of one message.


def ledger_lines(
    page: LedgerPage, look: Look, exact_clock: Callable[[int], str], width: int
) -> list[Content]:
    """Return a message and each step of its delivery: time, state, lane, evidence and reason.

    `exact_clock` shows milliseconds: steps follow each other fast.
    """
    lines = message_lines(_without_marks(page.message), look, width)
    steps: dict[str, list[LedgerStep]] = {}
    for step in page.steps:
        if step.name:
            steps.setdefault(step.name, []).append(step)
        else:  # the message itself
            lines += wrapped(f"{exact_clock(step.ts)}  stored by {look.name(step.by)}", width)
            lines.append(Content(""))
    receipts = msgspec.json.decode(page.receipts, type=_Receipts).receipts
    for receipt in receipts[:LIMIT_RECIPIENTS]:
        lines += _recipient_lines(receipt, steps.get(receipt.readable, ()), look, exact_clock, width)
    if not receipts:
        lines += wrapped("It has no recipients.", width)
    if (more := len(receipts) - LIMIT_RECIPIENTS) > 0:
        lines += wrapped(f"and {more:,} more; `pal receipts {page.message.seq}` prints all", width)
    return lines


class _Receipt(msgspec.Struct, frozen=True):
    """The parts of a receipt that the ledger draws."""

    name: str
    state: str
    session: str = ""
    reason: str = ""
    wait: WaitReason | None = None

    @property
    def readable(self) -> str:
        return readable_mailbox(mailbox_of(self.name, self.session)) if self.session else self.name


class _Receipts(msgspec.Struct, frozen=True):
    receipts: tuple[_Receipt, ...] = ()


def _recipient_lines(
    receipt: _Receipt,
    steps: Sequence[LedgerStep],
    look: Look,
    exact_clock: Callable[[int], str],
    width: int,
) -> Iterator[Content]:
    head = (look.name(receipt.readable), "bold")
    yield from Content.assemble(head, f"  {look.mark(receipt.state)}").wrap(width)
    for step in steps:
        yield from wrapped(step_text(step, look, exact_clock), width, _INDENT)
    if (wait := receipt.wait) is not None:
        yield from wrapped(f"Why: {wait.text} [{wait.code}]", width, _INDENT, "italic")
        if wait.moves:
            yield from wrapped(f"Next: {wait.moves}", width, _INDENT, "italic")
    elif receipt.reason and not any(step.reason == receipt.reason for step in steps):
        yield from wrapped(f"Why: {receipt.reason}", width, _INDENT, "italic")
    yield Content("")


def step_text(step: LedgerStep, look: Look, exact_clock: Callable[[int], str]) -> str:
    """Return one step of a delivery as a line."""
    found = MARKS.get(step.state)
    parts = [exact_clock(step.ts), found.word if found is not None else step.state]
    if step.lane:
        parts.append(f"lane {step.lane}")
    if step.grade:
        parts.append(f"evidence {step.grade}")
    if step.by:
        parts.append(f"by {look.name(step.by)}")
    text = "  ".join(parts)
    return f"{text}: {step.reason}" if step.reason else text


def _without_marks(row: MessageRow) -> MessageRow:
    return msgspec.structs.replace(row, marks=())


# --------------------
# The loaded messages of a conversation as rows.


@dataclass(slots=True)
class MessageLines:
    """A part of a conversation, in seq order, laid out for one width. A row is one line of a message.

    Both ends may have more messages, which the screen reads when they are needed.
    """

    look: Look
    width: int = 80
    has_older: bool = False
    has_newer: bool = False
    wanted: Callable[[int, int], None] = lambda first, last: None
    """Called with the lines that are about to be shown."""
    rows: list[MessageRow] = field(default_factory=list)
    _lines: list[list[Content]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    """The first line of each message, and the number of lines."""

    @property
    def total(self) -> int:
        """The number of lines."""
        return self._starts[-1]

    def row(self, index: int, width: int) -> Content | None:
        """Return a line."""
        at = self._at(index)
        return None if at is None else self._lines[at][index - self._starts[at]]

    def key(self, index: int) -> str:
        """Return the seq of the message that a line belongs to."""
        at = self._at(index)
        return "" if at is None else str(self.rows[at].seq)

    def want(self, first: int, last: int) -> None:
        """Report the lines that are about to be shown."""
        self.wanted(first, last)

    def find(self, key: str) -> int:
        """Return the first line of a message, or -1."""
        at = self._find(int(key)) if key.isdecimal() else None
        return -1 if at is None else self._starts[at]

    def message(self, key: str) -> MessageRow | None:
        """Return a message."""
        at = self._find(int(key)) if key.isdecimal() else None
        return None if at is None else self.rows[at]

    def between(self, first: int, last: int) -> Sequence[MessageRow]:
        """Return the messages of some lines."""
        low, high = self._at(max(first, 0)), self._at(min(last, self.total - 1))
        return self.rows[low : high + 1] if low is not None and high is not None else ()

    def fit(self, width: int) -> None:
        """Lay everything out again if the width has changed."""
        if width != self.width:
            self.width = width
            self._lines = [self._laid(row) for row in self.rows]
            self._count()

    def replace(self, rows: Iterable[MessageRow], *, has_older: bool, has_newer: bool) -> None:
        """Show other messages."""
        self.rows = list(rows)
        self.has_older, self.has_newer = has_older, has_newer
        self._lines = [self._laid(row) for row in self.rows]
        self._count()

    def prepend(self, rows: Iterable[MessageRow], *, has_older: bool) -> None:
        """Add older messages. The newest ones are dropped if there are too many."""
        first = self.rows[0].seq if self.rows else None
        new = [row for row in rows if first is None or row.seq < first]
        self.rows[:0] = new
        self._lines[:0] = [self._laid(row) for row in new]
        self.has_older = has_older
        if len(self.rows) > LIMIT_LOADED:  # the person reads at the other end
            del self.rows[LIMIT_LOADED:], self._lines[LIMIT_LOADED:]
            self.has_newer = True
        self._count()

    def append(self, rows: Iterable[MessageRow], *, has_newer: bool) -> None:
        """Add newer messages. The oldest ones are dropped if there are too many."""
        last = self.rows[-1].seq if self.rows else 0
        new = [row for row in rows if row.seq > last]
        self.rows += new
        self._lines += [self._laid(row) for row in new]
        self.has_newer = has_newer
        if (extra := len(self.rows) - LIMIT_LOADED) > 0:
            del self.rows[:extra], self._lines[:extra]
            self.has_older = True
        self._count()

    def update(self, rows: Iterable[MessageRow]) -> bool:
        """Replace messages that are loaded, for example because their marks have changed."""
        is_changed = False
        for row in rows:
            at = self._find(row.seq)
            if at is not None and self.rows[at] != row:
                self.rows[at], self._lines[at] = row, self._laid(row)
                is_changed = True
        if is_changed:
            self._count()
        return is_changed

    def _laid(self, row: MessageRow) -> list[Content]:
        return message_lines(row, self.look, self.width)

    def _count(self) -> None:
        self._starts = list(accumulate(map(len, self._lines), initial=0))

    def _at(self, index: int) -> int | None:
        return bisect_right(self._starts, index) - 1 if 0 <= index < self.total else None

    def _find(self, seq: int) -> int | None:
        at = bisect_right(self.rows, seq, key=lambda row: row.seq) - 1
        return at if at >= 0 and self.rows[at].seq == seq else None


# --------------------
# The part of Talk that shows the messages of one conversation, their marks and their ledgers.
#
# It reads pages when they are needed, keeps marks current, and acknowledges messages that are shown.

PAGE: Final = 60
"""Messages that are read at once."""
_NEAR: Final = 30
"""Lines from an end at which more messages are read."""


# --------------------
# The ledger of one message.


class LedgerWindow(Window):
    """A message and every step of its delivery, kept current while it is open."""

    def __init__(self, page: LedgerPage, ui: "PalaverApp") -> None:
        self.seq = page.message.seq
        super().__init__(f"Message #{self.seq}", ledger_text(page, ui), command=f"pal receipts {self.seq}")


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
        self._has_outside = False
        self._jobs: list[tuple[AskMessages, Callable[[MessagesPage], None]]] = []
        self._is_loading = False
        self._stale: set[int] = set()
        """Messages whose marks have changed since they were read."""
        self._is_marking = False
        self._is_reading_end = False
        """Whether a question about the newest messages is open."""
        self._has_missed_messages = False
        """Whether messages may have come during that question."""
        self._seen: set[int] = set()
        self._shown = (0, -1)
        self._was_hidden = False
        self._snapshot: Snapshot | None = None
        self._lines = MessageLines(Look(me="human", is_ascii=True, clock=str))

    # The shown conversation

    def in_view(self, record: "Record") -> Collection[str]:
        """Return the requests of a record that are messages of the open conversation."""
        if not isinstance(record, Changes):
            return ()
        return [entry.key for entry in record.attention if self._opened in _conversations_of(entry)]

    @property
    def messages(self) -> RowList:
        """The list of messages."""
        return self.query_one("#messages", RowList)

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
        self._is_reading_end = bool(key)
        self._has_missed_messages = False
        self._lines = MessageLines(look_of(self.ui))
        self._lines.wanted = self._want
        self.messages.show(self._lines)
        if not key:
            self.messages.say_if_empty("")
            return
        self.messages.say_if_empty("reading ...")
        # `before` is exclusive, and this message must be on the page.
        before = seq + 1 if seq else 0
        self._ask(self._question(before=before), lambda page: self._take_first(page, seq))

    def _question(self, before: int = 0, after: int = 0, limit: int = PAGE) -> AskMessages:
        return AskMessages(
            conversation=self._opened, before=before, after=after, has_outside=self._has_outside, limit=limit
        )

    def _ask(self, question: AskMessages, take: Callable[[MessagesPage], None]) -> None:
        # Drawing asks for missing pages again and again until they are there.
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
                try:
                    page = await self.ui.ask(job[0], MessagesPage)
                except PalaverError as error:
                    if self._jobs[:1] == [job]:  # otherwise it is about a conversation that was left
                        self._jobs.clear()
                        self._is_marking = self._is_reading_end = False
                        self.messages.say_if_empty(f"cannot be read: {error}")
                    continue
                if self._jobs[:1] == [job]:  # otherwise another conversation was opened meanwhile
                    del self._jobs[0]
                    job[1](page)
        finally:
            self._is_loading = False

    def _take_first(self, page: MessagesPage, seq: int) -> None:
        self._lines.replace(page.rows, has_older=page.has_more, has_newer=seq > 0)
        self.messages.say_if_empty(self.NO_MESSAGES)
        self.messages.show(self._lines, str(seq) if seq and self._lines.find(str(seq)) >= 0 else "")
        self._end_reading()

    def _take_older(self, page: MessagesPage) -> None:
        self._lines.prepend(page.rows, has_older=page.has_more)
        self.messages.refresh_rows()

    def _take_newer(self, page: MessagesPage) -> None:
        self._lines.append(page.rows, has_newer=page.has_more)
        self.messages.refresh_rows()
        self._end_reading()

    def _end_reading(self) -> None:
        """Read on if messages came during a question about the end; its answer may not have them."""
        self._is_reading_end = False
        if self._has_missed_messages:
            self._has_missed_messages = False
            self._read_newer()

    def _read_newer(self) -> None:
        """Read messages that came after the loaded ones."""
        # Never after an answer without new messages: a question that repeats itself would not end.
        if self._is_reading_end or self._lines.has_newer:
            self._has_missed_messages = True
            return
        talk = self.store.talks.get(self._opened)
        last = self._lines.rows[-1].seq if self._lines.rows else 0
        # The store knows no messages from outside, and only the newest conversations.
        if not self._opened or not (self._has_outside or talk is None or talk.seq > last):
            return
        self._is_reading_end = True
        if last:
            self._ask(self._question(after=last), self._take_newer)
        else:
            self._ask(self._question(), lambda page: self._take_first(page, 0))

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
        if any(row.key == self._opened for row in record.talks) or (self._has_outside and record.events):
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
        # One question at a time. Marks that change during it are read by the next one, from `take`.
        if not asked or self._is_marking:
            return
        self._is_marking = True
        self._stale -= asked
        # A question asks for a range, so it also reads the messages between the changed ones again.
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
            self._seen.update(seqs)  # before the reply: each drawing until then would send them again
            self._send_seen(seqs)

    @work(group="seen")
    async def _send_seen(self, seqs: Sequence[int]) -> None:
        try:
            await self.ui.link.acknowledge(seqs)
        except PalaverError:
            self._seen.difference_update(seqs)  # again when they are drawn again

    # The ledger and replies

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Show the ledger of a message."""
        if event.rows is self.messages:
            event.stop()
            self.show_ledger(event.key)

    @work(group="ledger", exclusive=True)
    async def show_ledger(self, key: str) -> None:
        """Show each step of the delivery of a message."""
        try:
            page = await self._read_ledger(key)
        except PalaverError as error:
            self.say(str(error), is_error=True)
            return
        if self.can_show_window:
            self.app.push_screen(LedgerWindow(page, self.ui))

    @work(group="ledger", exclusive=True)
    async def _update_ledger(self, window: LedgerWindow) -> None:
        try:
            page = await self._read_ledger(str(window.seq))
        except PalaverError as error:
            self.say(str(error), is_error=True)
            return
        if window is self.app.screen:  # otherwise the person has closed it meanwhile
            window.show_text(ledger_text(page, self.ui))

    async def _read_ledger(self, key: str) -> LedgerPage:
        """Return the ledger of a message with the steps of all recipients that are drawn."""
        page = await self.ui.ask(AskLedger(message=key), LedgerPage)
        steps = list(page.steps)
        # The message itself and its receipts are on the first page.
        for first in range(LIMIT_LEDGER, min(page.recipients, LIMIT_RECIPIENTS), LIMIT_LEDGER):
            more = await self.ui.ask(AskLedger(message=key, first=first), LedgerPage)
            steps += [step for step in more.steps if step.name]
        return msgspec.structs.replace(page, steps=tuple(steps))

    def refresh_ledger(self, record: Changes) -> None:
        """Keep an open ledger current."""
        window = self.app.screen
        if isinstance(window, LedgerWindow) and window.seq in record.moved:
            self._update_ledger(window)

    def open_composer(self, outgoing: OutgoingText, text: str = "") -> None:
        """Start a message. The message that it answers stays visible above it."""
        if self.ui.may_act():
            self.query_one(MessageComposer).open(outgoing, text)
            # The composer takes its lines from the list only with the next layout.
            self.call_after_refresh(self.messages.reveal)


def _waits_for(row: MessageRow, names: set[str]) -> bool:
    return any(mark.reason is not None and mark.name in names for mark in row.marks)


def _conversations_of(entry: Attention) -> tuple[str, ...]:
    """Return the conversations in which a request to the person is shown."""
    if entry.kind != AttentionKind.REQUEST:
        return ()
    room = conversation_of_channel(f"#{entry.room}") if entry.room else ""
    return conversation_of_pair(entry.who, HUMAN), room or conversation_of_pair(entry.who, HUMAN)
