"""Messages as the lines of a list: texts, a mark for each recipient, the ledger. Pure.

All foreign text is made safe here. Nothing depends on colour, and without UTF-8 all drawing is ASCII.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec
from textual.content import Content

from palaver.protocol.display import safe
from palaver.protocol.views import ConversationRow, LedgerPage, LedgerStep, Mark, MessageRow

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp

LIMIT_NAMES: Final = 4
"""Recipients that a line names before it counts the others."""
LIMIT_WAITING: Final = 4
"""Recipients whose reason a list shows; the ledger shows all."""
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
    "held": MarkSign("⏸", "=", "held"),
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
    marks = {mark.name: mark for mark in page.message.marks}
    for name in dict.fromkeys([*marks, *steps]):
        lines += _recipient_lines(name, marks.get(name), steps.get(name, ()), look, exact_clock, width)
    if not marks and not steps:
        lines += wrapped("It has no recipients.", width)
    return lines


def _recipient_lines(
    name: str,
    mark: Mark | None,
    steps: Sequence[LedgerStep],
    look: Look,
    exact_clock: Callable[[int], str],
    width: int,
) -> Iterator[Content]:
    state = mark.state if mark is not None else steps[-1].state
    yield from Content.assemble((look.name(name), "bold"), f"  {look.mark(state)}").wrap(width)
    for step in steps:
        yield from wrapped(step_text(step, look, exact_clock), width, _INDENT)
    if mark is not None and mark.reason is not None:
        yield from wrapped(f"Why: {mark.reason.text} [{mark.reason.code}]", width, _INDENT, "italic")
        if mark.reason.moves:
            yield from wrapped(f"Next: {mark.reason.moves}", width, _INDENT, "italic")
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
        if len(self.rows) > LIMIT_LOADED:
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
