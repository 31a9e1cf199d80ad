"""The screens Log and Past: every event, filters, search with marked hits, jumps to a time or a seq."""

import re
import shlex
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from palaver.app.ui.app import BusScreen, letter_key
from palaver.app.ui.messages import Look, counted_names, look_of
from palaver.app.ui.rows import RowList
from palaver.app.ui.widgets import PromptLine, safe_line
from palaver.errors import PalaverError
from palaver.protocol.display import safe
from palaver.protocol.views import AskLog, AskSeq, Changes, EventRow, LogPage, SeqPage, Snapshot

if TYPE_CHECKING:
    from palaver.app.ui.app import PalaverApp
    from palaver.client.view_link import Record

# --------------------
# Typed lines: filters, and where to jump. Pure.

FILTERS: Final = {
    "type": "types",
    "agent": "agents",
    "from": "senders",
    "to": "to",
    "participant": "participants",
    "mention": "mentions",
    "target": "targets",
    "thread": "threads",
    "room": "rooms",
    "intent": "intents",
    "reply-to": "replies_to",
    "tool": "tools",
    "file": "files",
    "status": "statuses",
}
"""The filters of `pal events` without dashes, and their fields in the question."""

_WORD: Final = re.compile(r"([a-z][a-z-]*):(?!//)(.*)", re.DOTALL)
"""A word with a filter. A URL is not one, so that it can be searched without quotes."""
_AGE: Final = re.compile(r"([0-9]{1,9})(s|m|h|d|w)")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_TIME_OF_DAY: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
LIMIT_SEQ: Final = 2**53


class UnclearLine(ValueError):
    """A typed line that means nothing, with the reason."""


def parse_filters(line: str, now_ms: int) -> AskLog:
    """Parse a line of filters: `type:message from:luna,nova since:2h words`. Other words are searched.

    Words in quotes are one word. A word with an unknown filter is refused; in quotes it is searched.
    """
    fields: dict[str, tuple[str, ...]] = {}
    times: dict[str, int] = {}
    words: list[str] = []
    for word, is_quoted in _words(line):
        found = None if is_quoted else _WORD.fullmatch(word)
        if found is None:
            words.append(word)
            continue
        name, value = found[1], found[2]
        if not value:
            raise UnclearLine(f"{name}: needs a value, for example {name}:luna")
        if name in ("since", "until"):
            times[name] = parse_time(value, now_ms)
        elif name in FILTERS:
            values = tuple(filter(None, value.split(",")))
            fields[FILTERS[name]] = fields.get(FILTERS[name], ()) + values
        else:
            known = ", ".join([*FILTERS, "since", "until"])
            raise UnclearLine(
                f"no such filter: {name}; the filters are {known}. Put quotes around a text with a colon"
            )
    return msgspec.convert({**fields, **times, "search": " ".join(words), "what": "log"}, AskLog)


def _words(line: str) -> Iterable[tuple[str, bool]]:
    """Split a line; also return whether a word began with a quote."""
    lexer = shlex.shlex(line, posix=False, punctuation_chars="")
    lexer.whitespace_split = True
    lexer.commenters = ""  # `#412` and `#room` are words
    lexer.quotes = '"'  # an apostrophe is a part of a word
    try:
        for word in lexer:
            is_quoted = word.startswith('"')
            yield word.replace('"', ""), is_quoted
    except ValueError:
        raise UnclearLine('a quote (") is not closed') from None


def parse_time(text: str, now_ms: int) -> int:
    """Return a time: an age (10m), a time of day (09:30), or a date with or without a time, in local time."""
    text = text.strip()
    if (found := _AGE.fullmatch(text)) is not None:
        return max(now_ms - int(found[1]) * _UNIT_MS[found[2]], 0)
    try:
        if (found := _TIME_OF_DAY.fullmatch(text)) is not None:
            now = datetime.fromtimestamp(now_ms / 1000).astimezone()
            hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
            time = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
            # A time that is still to come today was meant for yesterday: the log has no future.
            time = time if time <= now else time - timedelta(days=1)
        else:
            time = datetime.fromisoformat(text).astimezone()
        return max(int(time.timestamp() * 1000), 0)
    except (ValueError, OverflowError, OSError):
        raise UnclearLine(
            f"not a time: {safe(text)}; write 10m (ago), 09:30, 2026-03-01 or 2026-03-01T09:00"
        ) from None


@dataclass(frozen=True, slots=True)
class Jump:
    """A target: a seq, or a time in Unix milliseconds."""

    seq: int = 0
    ts: int = 0


def parse_jump(text: str, now_ms: int) -> Jump:
    """Parse a seq (`412`, `#412`) or a time."""
    text = text.strip()
    number = text.removeprefix("#")
    if number.isascii() and number.isdigit():
        if not 0 < int(number) < LIMIT_SEQ:
            raise UnclearLine(f"not a seq: {safe(text)}; the first one is 1")
        return Jump(seq=int(number))
    if not text:
        raise UnclearLine("write a seq (#412) or a time (10m, 09:30, 2026-03-01T09:00)")
    return Jump(ts=parse_time(text, now_ms))


# --------------------
# Events as rows. Pure.


def event_line(row: EventRow, look: Look, width: int) -> Content:
    """Return an event in one line, with the hits of a search marked. Narrow lists omit the type and time."""
    head = [(f"#{row.seq} ", "dim")]
    if width >= _WIDTH_TIME:
        head.append((f"{look.clock(row.ts)} ", "dim"))
    if width >= _WIDTH_TYPE and row.type != "message":
        head.append((f"{safe(row.type)} ", ""))
    to = f" {look.arrow} {counted_names(row.to, look, 2)}" if row.to else ""
    head.append((f"{look.name(row.sender)}{to}", "bold"))
    text = marked_text(row.text, row.hits)
    return Content.assemble(*head, ": " if row.text else "", text).truncate(width, ellipsis=True)


_WIDTH_TIME: Final = 40
_WIDTH_TYPE: Final = 60
MARKED: Final = "bold underline"
"""The style of a hit. It is visible without colour, and in the row with the cursor."""


def marked_text(text: str, hits: Sequence[tuple[int, int]]) -> Content:
    """Return a text on one line, made safe, with its hits marked. Hits outside the text are ignored."""
    parts: list[tuple[str, str]] = []
    end = 0
    for begins, ends in sorted(hits):
        start, stop = max(begins, end), min(ends, len(text))
        if start < stop:
            parts += [(safe(text[end:start]), ""), (safe(text[start:stop]), MARKED)]
            end = stop
    parts.append((safe(text[end:]), ""))
    return Content.assemble(*parts)


CHUNK: Final = 100
"""Events that are read at once."""
LIMIT_CHUNKS: Final = 60
"""Chunks that are kept; the one that was used longest ago is dropped."""


class WholeLog:
    """The log without filters: one row for each seq. Only chunks near the visible rows are kept."""

    def __init__(self, look: Look, ask: Callable[[AskLog], None]) -> None:
        """`ask` sends a question; its answer comes to `take`."""
        self.look = look
        self._ask = ask
        self.first = 1
        self.last = 0
        self._chunks: dict[int, dict[int, EventRow]] = {}
        self._asked: set[int] = set()

    @property
    def total(self) -> int:
        """The number of seqs."""
        return max(self.last - self.first + 1, 0)

    def row(self, index: int, width: int) -> Content | None:
        """Return an event; None if it is not read yet. A seq without an event says so."""
        seq = self.first + index
        chunk = self._chunks.get(seq // CHUNK)
        if chunk is None:
            return None
        found = chunk.get(seq)
        if found is None:
            # Not every seq has an event. But in the newest chunk it may only not be read yet.
            return None if self._is_open(seq // CHUNK) else Content.styled(f"#{seq} (no event)", "dim")
        return event_line(found, self.look, width)

    def key(self, index: int) -> str:
        """Return the seq of a row."""
        return str(self.first + index)

    def find(self, key: str) -> int:
        """Return the row of a seq, or -1."""
        seq = int(key) if key.isdecimal() else 0
        return seq - self.first if self.first <= seq <= self.last else -1

    def event(self, key: str) -> EventRow | None:
        """Return the event of a row."""
        seq = int(key) if key.isdecimal() else 0
        return self._chunks.get(seq // CHUNK, {}).get(seq)

    def want(self, first: int, last: int) -> None:
        """Ask for the missing chunks of these rows, and of a page before and after them.

        A page that is there is drawn with the key. One that is read first is drawn up to two frames later.
        """
        page = last - first + 1
        low, high = (self.first + first - page) // CHUNK, (self.first + last + page) // CHUNK
        for number in range(max(low, self.first // CHUNK), high + 1):
            if number in self._chunks and not self._is_open(number):
                self._chunks[number] = self._chunks.pop(number)  # used last
            elif number not in self._asked and self._needs(number):  # drawing calls this often
                self._asked.add(number)
                self._ask(AskLog(before=(number + 1) * CHUNK, limit=CHUNK))

    def take(self, question: AskLog, page: LogPage) -> None:
        """Keep the rows of an answer."""
        number = (question.before - 1) // CHUNK
        self._asked.discard(number)
        self.first = max(page.first, 1)
        self.last = max(self.last, page.seq)
        kept = self._chunks.setdefault(number, {})
        kept.update((row.seq, row) for row in page.rows if row.seq // CHUNK == number)
        self._drop()

    def add(self, events: Iterable[EventRow], seq: int) -> None:
        """Add new events: all above the last one, up to `seq`."""
        for row in events:
            # A chunk of which older events are missing is read when it is shown. The first seq of a chunk
            # starts a new one, of which nothing is missing.
            number = row.seq // CHUNK
            if number in self._chunks or row.seq % CHUNK == 0:
                self._chunks.setdefault(number, {})[row.seq] = row
        self.last = max(self.last, seq)
        self._drop()

    def fail(self, question: AskLog) -> None:
        """Allow a question that had no answer to be asked again."""
        self._asked.discard((question.before - 1) // CHUNK)

    def _is_open(self, number: int) -> bool:
        """Whether the newest events of a chunk may be missing."""
        chunk = self._chunks[number]
        return number == self.last // CHUNK and self.last not in chunk

    def _needs(self, number: int) -> bool:
        return number * CHUNK <= self.last

    def _drop(self) -> None:
        while len(self._chunks) > LIMIT_CHUNKS:
            # The first one was used longest ago: `want` moves each chunk that is used to the end.
            del self._chunks[next(iter(self._chunks))]


LIMIT_FOUND: Final = 5_000
"""Found events that are kept; those farthest from the reader are dropped and read again."""


@dataclass(slots=True)
class FoundEvents:
    """The events that pass filters, in seq order. Both ends may have more, which are read when needed."""

    look: Look
    query: AskLog
    ask: Callable[[AskLog], None]
    rows: list[EventRow] = field(default_factory=list)
    has_older: bool = True
    has_newer: bool = False
    seq: int = 0
    """The seq up to which new events were searched."""
    _asked: AskLog | None = None
    _has_missed_events: bool = False

    @property
    def total(self) -> int:
        """The number of events that are read."""
        return len(self.rows)

    def row(self, index: int, width: int) -> Content | None:
        """Return an event."""
        return event_line(self.rows[index], self.look, width) if 0 <= index < len(self.rows) else None

    def key(self, index: int) -> str:
        """Return the seq of a row."""
        return str(self.rows[index].seq) if 0 <= index < len(self.rows) else ""

    def event(self, key: str) -> EventRow | None:
        """Return the event of a row."""
        index = self.find(key)
        return self.rows[index] if index >= 0 else None

    def find(self, key: str) -> int:
        """Return the row of a seq, or -1."""
        seq = int(key) if key.isdecimal() else 0
        at = bisect_right(self.rows, seq, key=lambda row: row.seq) - 1
        return at if at >= 0 and self.rows[at].seq == seq else -1

    def start(self, before: int = 0) -> None:
        """Read the newest events, or those around a seq: that one and the ones before it."""
        self.rows, self.has_older, self.has_newer = [], True, before > 0
        self._asked = None
        self._send(before=before)

    def want(self, first: int, last: int) -> None:
        """Ask for older or newer events if these rows are near an end."""
        if not self.rows:
            return
        if self.has_older and first < CHUNK // 2:
            self._send(before=self.rows[0].seq)
        elif self.has_newer and last > len(self.rows) - CHUNK // 2:
            self._send(after=self.rows[-1].seq)

    def grow(self) -> None:
        """Ask for new events, unless the end is not loaded."""
        if self._asked is not None:
            self._has_missed_events = True
        elif not self.has_newer:
            self._send(after=max(self.seq, self.rows[-1].seq if self.rows else 0))

    def take(self, question: AskLog, page: LogPage) -> None:
        """Keep the rows of the answer to the last question."""
        if question != self._asked:
            return
        self._asked = None
        if question.after:
            self.rows += [row for row in page.rows if not self.rows or row.seq > self.rows[-1].seq]
            self.has_newer = page.has_more
            if len(self.rows) > LIMIT_FOUND:
                del self.rows[: len(self.rows) - LIMIT_FOUND]
                self.has_older = True
        else:
            self.rows[:0] = [row for row in page.rows if not self.rows or row.seq < self.rows[0].seq]
            self.has_older = page.has_more
            if len(self.rows) > LIMIT_FOUND:
                del self.rows[LIMIT_FOUND:]
                self.has_newer = True
        # Only an answer that reaches the end of the log shows that nothing newer passes the filters.
        if not self.has_newer:
            self.seq = max(self.seq, page.seq) if question.after or not question.before else self.seq
        if self._has_missed_events:  # events came during the question, which may not have them
            self._has_missed_events = False
            self.grow()

    def fail(self, question: AskLog) -> None:
        """Allow a question that had no answer to be asked again."""
        if question == self._asked:
            self._asked = None

    def _send(self, before: int = 0, after: int = 0) -> None:
        if self._asked is not None:
            return
        self._asked = msgspec.structs.replace(self.query, before=before, after=after, limit=CHUNK)
        self.ask(self._asked)


# --------------------
# The screen Log.


class EventRows(RowList):
    """A list of events, which reads its pages through the dashboard."""

    def __init__(self, *, is_present: bool = False, id: str | None = None) -> None:
        """With `is_present` the list shows the log of now, also while the screens show the past."""
        super().__init__(follows=True, empty="no events", id=id)
        self._is_present = is_present

    @property
    def ui(self) -> "PalaverApp":
        """The dashboard."""
        screen = self.screen
        assert isinstance(screen, BusScreen)
        return screen.ui

    def show_whole(self, seq: int = 0) -> None:
        """Show every event, at a seq or at the end."""
        log = WholeLog(look_of(self.ui), self._ask)
        log.add((), self._last)
        self.show(log, str(seq) if log.find(str(seq)) >= 0 else "")

    def go_to(self, seq: int) -> None:
        """Put the cursor on an event of the whole log."""
        if self.source is not None and (at := self.source.find(str(seq))) >= 0:
            self.move_to(at)

    def grow(self) -> None:
        """Add the events that came while the list was not shown."""
        if isinstance(self.source, WholeLog):
            self.source.add((), self._last)
            self.refresh_rows()
        elif isinstance(self.source, FoundEvents):
            self.source.grow()

    @property
    def _last(self) -> int:
        store = self.ui.present if self._is_present else self.ui.store
        return store.at or store.seq

    def show_found(self, query: AskLog, before: int = 0) -> None:
        """Show events that pass filters: the newest ones, or those up to a seq."""
        found = FoundEvents(look_of(self.ui), query, self._ask)
        self.say_if_empty("searching ...")
        self.show(found)
        found.start(before)

    def take_changes(self, record: Changes) -> None:
        """Add new events."""
        if isinstance(self.source, WholeLog):
            self.source.add(record.events, record.seq)
            self.refresh_rows()
        elif isinstance(self.source, FoundEvents) and record.events:
            self.source.grow()

    def _ask(self, question: AskLog) -> None:
        self._answer(question)

    @work(group="log")
    async def _answer(self, question: AskLog) -> None:
        source = self.source
        if not isinstance(source, WholeLog | FoundEvents):
            return
        try:
            asking = self.ui.link if self._is_present else self.ui
            page = await asking.ask(question, LogPage)
        except PalaverError as error:
            source.fail(question)
            if source is self.source:
                self.say_if_empty(f"cannot be read: {safe(str(error))}")
            return
        if source is self.source:  # otherwise the person has changed the filters meanwhile
            source.take(question, page)
            self.say_if_empty("no events")
            self.refresh_rows()


class LogScreen(BusScreen):
    """Every event of the bus."""

    KEY = "5"
    AUTO_FOCUS = "#events"
    KEYS_LINE = "/ filter  t go to  Enter show  Esc all  ? keys  : command  q quit"
    KEYS = (
        ("/", "filter and search: type:message from:luna words; the names are the options of pal events"),
        ("t", "go to a seq (#412) or a time (10m, 09:30, 2026-03-01T09:00)"),
        ("Enter", "show the whole event"),
        ("Esc", "show all events again"),
        ("End, G", "go to the newest event and follow new ones"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        letter_key("slash", "filter"),
        letter_key("t", "go"),
        Binding("escape", "all", show=False),
    ]
    DEFAULT_CSS = (
        "LogScreen #filter-text { height: 1; width: 1fr; } LogScreen.-low #filter-text { display: none; }"
    )

    def __init__(self) -> None:
        super().__init__()
        self._filter = ""
        self._query = AskLog()
        self._snapshot: Snapshot | None = None

    def compose_content(self) -> ComposeResult:
        """Build the list and its lines for typing."""
        yield Static("", markup=False, id="filter-text")
        yield EventRows(id="events")
        yield PromptLine("filter: ", id="filter")
        yield PromptLine("go to: ", id="go")

    @property
    def event_rows(self) -> EventRows:
        """The list."""
        return self.query_one("#events", EventRows)

    def changed(self, record: "Record") -> None:
        """Add new events."""
        is_new = isinstance(record, Snapshot) and record is not self._snapshot
        if isinstance(record, Snapshot):
            self._snapshot = record
        if is_new or self.event_rows.source is None:  # changes may be the first record that is seen here
            self._show()
        elif isinstance(record, Changes):
            self.event_rows.take_changes(record)

    @on(events.ScreenResume)
    def _resumed(self) -> None:
        """Add the events that came while another screen was shown."""
        if self.is_ready:
            self.event_rows.grow()

    def _show(self, seq: int = 0) -> None:
        """Show the events that pass the filter, at a seq or at the end."""
        if self._filter:
            # The limit is exclusive, and this event must be among the found ones.
            self.event_rows.show_found(self._query, seq + 1 if seq else 0)
        else:
            self.event_rows.show_whole(seq)
        text = f"filter: {self._filter}" if self._filter else "all events"
        self.query_one("#filter-text", Static).update(
            Content.styled(safe_line(text, is_ascii=self.is_ascii), "dim")
        )

    def action_filter(self) -> None:
        """Type filters."""
        self.query_one("#filter", PromptLine).open(self._filter)

    def action_go(self) -> None:
        """Type a seq or a time."""
        self.query_one("#go", PromptLine).open()

    def action_all(self) -> None:
        """Show all events again; without a filter, return from the past."""
        self.workers.cancel_group(self, "go")
        if self._filter:
            seq = int(self.event_rows.cursor_key or 0)
            self._filter, self._query = "", AskLog()
            self._show(seq)
        else:
            self.ui.action_leave_past()

    def on_prompt_line_entered(self, event: PromptLine.Entered) -> None:
        """Filter, or go to the typed seq or time."""
        try:
            if event.prompt.id == "filter":
                event.stop()
                self._query = parse_filters(event.text, self.ui.now_ms())
                self.workers.cancel_group(self, "go")
                self._filter = event.text.strip()
                self._show()
            elif event.prompt.id == "go":
                event.stop()
                self._go(parse_jump(event.text, self.ui.now_ms()))
        except UnclearLine as error:
            self.say(str(error), is_error=True)

    @work(group="go", exclusive=True)
    async def _go(self, jump: Jump) -> None:
        seq = await seq_of(self.ui, jump, self.store.at or self.store.seq)
        if seq:
            self._show(seq)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Show a whole event."""
        event.stop()
        seq = int(event.key)
        # Both limits are exclusive, so this is one event.
        between = ["--after", str(seq - 1), "--before", str(seq + 1)]
        self.ui.show_output(["pal", "events", *between, "--archived", "--json"])


async def seq_of(ui: "PalaverApp", jump: Jump, last: int) -> int:
    """Return the seq of a target, within a log that ends at `last`; 0 if it cannot be found."""
    seq = jump.seq
    if not seq:
        try:
            seq = (await ui.link.ask(AskSeq(ts=jump.ts), SeqPage)).found
        except PalaverError as error:
            ui.say(str(error), is_error=True)
            return 0
    if not 0 < seq <= last:
        ui.say(f"the log ends at #{last}")
    return max(1, min(seq or last, last))


# --------------------
# The screen Past: the same log, from which a moment is chosen for every screen.

_NOW = (
    "This is the bus now. Press t and type a seq or a time, or Enter on an event, to see the bus as it was."
)
_THEN = (
    "This is the bus as it was. Left and Right step one event, 1 to 5 show the screens, Esc returns to now."
)


class PastScreen(BusScreen):
    """The whole log, from which a moment is chosen. It shows later events too, so that one can go forward."""

    KEY = "6"
    AUTO_FOCUS = "#events"
    KEYS_LINE = "t go to  Enter see the bus then  Left, Right step  Esc now  ? keys  q quit"
    KEYS = (
        ("t", "type a seq (#412) or a time (10m, 09:30, 2026-03-01T09:00)"),
        ("Enter", "see the bus as it was after this event"),
        ("Left, Right", "on every screen: one event back, one forward"),
        ("[, ]", "on every screen: 100 events back, 100 forward"),
        ("Esc", "on every screen: back to now"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        letter_key("t", "go"),
        Binding("escape", "stop", show=False),
    ]
    DEFAULT_CSS = """
    PastScreen #past-hint { height: auto; width: 1fr; text-style: bold; }
    PastScreen.-low #past-hint { display: none; }
    """

    def compose_content(self) -> ComposeResult:
        """Build the list of events and the line for a time."""
        yield Static("", markup=False, id="past-hint")
        yield EventRows(is_present=True, id="events")
        yield PromptLine("see the bus at (seq or time): ", id="when")

    @property
    def event_rows(self) -> EventRows:
        """The list."""
        return self.query_one("#events", EventRows)

    def opened(self) -> None:
        """Show the log of now."""
        self.event_rows.show_whole()

    def changed(self, record: "Record") -> None:
        """Mark the chosen event."""
        self.query_one("#past-hint", Static).update(Content(_THEN if self.store.at else _NOW))
        self.event_rows.grow()
        if self.store.at and self.event_rows.cursor_key != str(self.store.at):
            self.event_rows.go_to(self.store.at)

    def action_go(self) -> None:
        """Type a seq or a time."""
        self.query_one("#when", PromptLine).open()

    def action_stop(self) -> None:
        """Return to now, also while the seq of a time is still being read."""
        self.workers.cancel_group(self, "go")
        self.ui.action_leave_past()

    def on_prompt_line_entered(self, event: PromptLine.Entered) -> None:
        """Go to the typed moment."""
        if event.prompt.id == "when":
            event.stop()
            try:
                self._go(parse_jump(event.text, self.ui.now_ms()))
            except UnclearLine as error:
                self.say(str(error), is_error=True)

    @work(group="go", exclusive=True)
    async def _go(self, jump: Jump) -> None:
        if seq := await seq_of(self.ui, jump, self.ui.present.seq):
            self.ui.show_past(seq)

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Show the bus as it was after an event."""
        event.stop()
        self.ui.show_past(int(event.key))
