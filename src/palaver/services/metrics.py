"""Numbers about the bus, for `pal status --stats`, `GET /metrics` and OTLP. No text of a message is in them.

Nothing is counted before a caller asks. Then events are read from the log, and at the next call only those
since the last one: a bus whose numbers no one reads has no cost. Names of agents are included only with the
setting `metrics_names`.
"""

import asyncio
import enum
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from palaver.clock import Clock
from palaver.config import LiveSettings
from palaver.domain.turns import is_failed_reason
from palaver.harness.hooks import USED_UP
from palaver.harness.registry import HOOKED
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event, is_migrated
from palaver.protocol.events import (
    BODIES,
    AutoTurnError,
    AutoTurnResult,
    AutoTurnStarted,
    DeliveryReport,
    Freed,
    Granted,
    MessageSent,
    State,
    TakenOver,
)
from palaver.protocol.message import HUMAN, LOST, PRIORITY_WORDS, Priority
from palaver.protocol.query import Query
from palaver.protocol.requests import DIALOG
from palaver.protocol.views import Attention
from palaver.services.queries import Queries
from palaver.state.agents import read_entry, read_unread_of_all
from palaver.state.rows import MAIL, Rows, answered_seq, decode_mail, deliverable, priority_of_key
from palaver.state.turns import read_turn_stats

# --------------------
# The values.


class MetricKind(enum.StrEnum):
    """Kinds of numbers, with the words of OpenMetrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One number. A histogram has its sum as `value`, and how many values are in each bucket."""

    labels: Mapping[str, str]
    value: float
    buckets: tuple[int, ...] = ()
    """The number of values up to each bound, and at last above all bounds. Not cumulative."""

    @property
    def count(self) -> int:
        """The number of values of a histogram."""
        return sum(self.buckets)


class MetricFamily(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers with one name."""

    name: str = msgspec.field(name="metric")
    kind: MetricKind
    help: str
    samples: tuple[Sample, ...]
    bounds: tuple[float, ...] = ()
    """The upper bounds of the buckets of a histogram."""


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers at one time. Times are Unix milliseconds."""

    since: int
    """Counters and histograms begin here: at the first event, or if the log is too long for that at the start
    of the daemon."""
    now: int
    families: tuple[MetricFamily, ...]


# --------------------
# Labels. A label has few values, and no text that an agent has chosen.

OTHER: Final = "other"
NONE: Final = "none"
_LANES: Final = frozenset(
    {
        *("native", "hook", "terminal"),
        *("recv", "ack", "sdk", "receive", "room", "turn", "irc", "ui", "web"),
    }
)
_HARNESSES: Final = frozenset({*HOOKED, HUMAN})
_GATES: Final = frozenset(
    {
        *("exited", "gone", "shell", "foreground", "tool", "secret", "unreadable", DIALOG, "compacting"),
        *("starting", "deaf", "passthrough", "human", "draft", "composer", "prompt", "native", "asleep"),
    }
)
"""Reasons of a closed gate. Each is its own label."""
# The log stores a reason as a sentence with numbers and names, so its label is found by a fixed part.
_HOPS: Final = " replies between agents without a person in between"
_RATE: Final = " a minute from "
"""Parts of the reasons of `domain/rights.py`."""
DOORS: Final = ("websocket", "irc", "view")
"""The doors that drop a follower that reads too slowly."""


def lane_label(lane: str) -> str:
    """Return the label of a lane."""
    return lane if lane in _LANES else OTHER if lane else NONE


def harness_label(harness: str) -> str:
    """Return the label of a harness. An agent may report any word as its harness."""
    return harness if harness in _HARNESSES else OTHER if harness else NONE


def hold_label(reason: str) -> str:
    """Return the label of the reason of a held message."""
    if reason in _GATES:
        return reason
    if reason.endswith(_HOPS):
        return "brake_hops"
    if _RATE in reason:
        return "brake_rate"
    if reason.startswith(USED_UP):
        return "usage_limit"
    if is_failed_reason(reason):
        return "turn_failed"
    return "lost" if reason.startswith(LOST) else OTHER


# --------------------
# The steps of messages.

LIMIT_ORIGINS: Final = 10_000
"""Messages whose time and priority are remembered; those of others are read from the log again."""


class Origin(NamedTuple):
    """The fields of a message that its steps need."""

    seq: int
    id: str
    ts: int
    priority: str


class MessageStep(NamedTuple):
    """A message has reached a state for one recipient."""

    origin: Origin
    mailbox: str
    state: str
    ts: int
    seq: int
    """The event that reports it."""
    lane: str = ""
    grade: str = ""
    reason: str = ""

    @property
    def seconds(self) -> float:
        """Return how long after the message it happened; 0 if the clock was set back."""
        return max(0, self.ts - self.origin.ts) / 1000


UNCONFIRMED: Final = "unconfirmed"
"""The state of a message that a lane carried without an outcome."""


class Steps:
    """Finds the steps of messages in events, which come in seq order."""

    def __init__(self, rows: Rows, event: Callable[[int], Event | None]) -> None:
        self._rows = rows
        self._event = event
        self._origins: dict[int, Origin] = {}

    def of(self, event: Event) -> Iterator[MessageStep]:
        """Yield the steps of an event: those of a new message, of a report, and of a reply."""
        # The steps of these messages happened in another log, at other times.
        if event.imported or is_migrated(event):
            return
        report = event.body
        if isinstance(report, DeliveryReport):
            yield from self._reported(event, report)
            return
        try:
            found = deliverable(event)
        except (ValueError, KeyError):  # It cannot be read, and is delivered to no agent.
            return
        origin = self._remember(event, found.priority)
        state = State.HELD if found.held else State.QUEUED
        for name in found.delivered_to:
            yield MessageStep(origin, name, state, event.ts, event.seq, reason=found.held)
        answered = answered_seq(event)
        if answered is not None and not found.held:
            yield from self._answered(event, answered, event.sender, event.seq)

    def origin_of(self, seq: int) -> Origin | None:
        """Return a message by its seq, or None."""
        known = self._origins.get(seq)
        if known is None and (event := self._event(seq)) is not None:
            known = self._remember(event, _priority_of(event))
        return known

    def _reported(self, event: Event, report: DeliveryReport) -> Iterator[MessageStep]:
        state = UNCONFIRMED if report.unconfirmed else report.state
        for seq in dict.fromkeys(report.messages):
            if (origin := self.origin_of(seq)) is not None:
                yield MessageStep(
                    origin, report.agent, state, event.ts, event.seq, report.lane, report.grade, report.reason
                )
        if report.author and report.answers and report.messages:
            yield from self._answered(event, report.answers, report.author, report.messages[0])

    def _answered(self, event: Event, seq: int, author: str, reply: int) -> Iterator[MessageStep]:
        """Yield the step of a reply, if it is the first one of this author."""
        # The ledger keeps the first reply only; each later one would count the message as answered again.
        entry = read_entry(self._rows, seq, author)
        if entry is not None and entry.answer == reply and (origin := self.origin_of(seq)) is not None:
            yield MessageStep(origin, author, State.ANSWERED, event.ts, event.seq, entry.lane, entry.grade)

    def _remember(self, event: Event, priority: Priority) -> Origin:
        origin = Origin(event.seq, event.id, event.ts, PRIORITY_WORDS[priority - 1])
        self._origins[event.seq] = origin
        if len(self._origins) > LIMIT_ORIGINS:
            del self._origins[next(iter(self._origins))]
        return origin


def _priority_of(event: Event) -> Priority:
    try:
        return deliverable(event).priority
    except (ValueError, KeyError):
        return Priority.NORMAL


# --------------------
# Counting events.

_SECONDS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0)
"""The bounds of every histogram."""
_Key = TypeVar("_Key", int, str)
_LIMIT_RUNNING: Final = 1_000
"""Automatic turns and sticks whose beginning is remembered."""


class Histogram:
    """Values in buckets."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(_SECONDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one value."""
        self.buckets[bisect_left(_SECONDS, seconds)] += 1
        self.sum += seconds

    def sample(self, labels: Mapping[str, str]) -> Sample:
        """Return the present numbers."""
        return Sample(labels=labels, value=self.sum, buckets=tuple(self.buckets))


class Tally:
    """Counts events, which come in seq order, each once."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._commits: Counter[str] = Counter()
        self._messages: Counter[str] = Counter()
        self._states: Counter[tuple[str, str, str]] = Counter()
        self._holds: Counter[str] = Counter()
        self._seen: dict[str, Histogram] = {}
        self._answered = Histogram()
        self._turns: dict[str, Histogram] = {}
        self._running: dict[int, int] = {}
        self._claims, self._owned = Histogram(), Histogram()
        self._reserved: dict[str, int] = {}
        self._owners: dict[str, int] = {}

    def add(self, event: Event) -> None:
        """Count one event."""
        # Programs can choose the types of their envelopes, and each would become another label.
        self._commits[event.type if event.type in BODIES else OTHER] += 1
        if isinstance(event.body, MessageSent) and not event.imported:
            self._messages[event.body.priority or "normal"] += 1
        for step in self._steps.of(event):
            self._add_step(step)
        self._add_turn(event)
        self._add_stick(event)

    def _add_step(self, step: MessageStep) -> None:
        lane = lane_label(step.lane)
        self._states[step.state, lane, step.origin.priority] += 1
        if step.state == State.HELD:
            self._holds[hold_label(step.reason)] += 1
        elif step.state == State.SEEN:
            self._seen.setdefault(lane, Histogram()).add(step.seconds)
        elif step.state == State.ANSWERED:
            self._answered.add(step.seconds)

    def _add_turn(self, event: Event) -> None:
        match event.body:
            case AutoTurnStarted():
                _put(self._running, event.seq, event.ts)
            case AutoTurnResult(turn=turn):
                self._end_turn(turn, "done", event.ts)
            case AutoTurnError(turn=turn):
                self._end_turn(turn, "failed", event.ts)

    def _end_turn(self, turn: int, result: str, ts: int) -> None:
        started_ms = self._running.pop(turn, ts)
        self._turns.setdefault(result, Histogram()).add(max(0, ts - started_ms) / 1000)

    def _add_stick(self, event: Event) -> None:
        match event.body:
            case Granted(room=room) | TakenOver(room=room):
                self._end_ownership(room, event.ts)
                if (since := self._reserved.pop(room, None)) is not None:
                    self._claims.add(max(0, event.ts - since) / 1000)
                _put(self._owners, room, event.ts)
            case Freed(room=room, reserved_for=name):
                self._end_ownership(room, event.ts)
                self._reserved.pop(room, None)
                if name:
                    _put(self._reserved, room, event.ts)

    def _end_ownership(self, room: str, ts: int) -> None:
        if (since := self._owners.pop(room, None)) is not None:
            self._owned.add(max(0, ts - since) / 1000)

    def families(self) -> Iterator[MetricFamily]:
        """Yield the present numbers."""
        yield _counter("palaver_messages", "Messages by priority.", _by("priority", self._messages))
        yield _counter(
            "palaver_deliveries",
            "How often a message has reached a state for a recipient, by state, lane and priority.",
            (
                Sample(labels={"state": state, "lane": lane, "priority": priority}, value=count)
                for (state, lane, priority), count in sorted(self._states.items())
            ),
        )
        yield _histogram(
            "palaver_seen_seconds",
            "Seconds from a message to the report that its recipient has seen it, by lane.",
            (one.sample({"lane": lane}) for lane, one in sorted(self._seen.items())),
        )
        yield _histogram(
            "palaver_answered_seconds",
            "Seconds from a message to the reply of its recipient.",
            [self._answered.sample({})],
        )
        yield _counter(
            "palaver_holds", "How often a message was held, by reason.", _by("reason", self._holds)
        )
        yield _histogram(
            "palaver_auto_turn_seconds",
            "Seconds that an automatic turn took, by result.",
            (one.sample({"result": result}) for result, one in sorted(self._turns.items())),
        )
        yield _histogram(
            "palaver_stick_claim_seconds",
            "Seconds that a reserved stick waited for its next owner.",
            [self._claims.sample({})],
        )
        yield _histogram(
            "palaver_stick_turn_seconds",
            "Seconds that an owner had the stick.",
            [self._owned.sample({})],
        )
        yield _counter("palaver_commits", "Events stored in the log, by type.", _by("type", self._commits))


def _put(times: dict[_Key, int], key: _Key, ts: int) -> None:
    times[key] = ts
    if len(times) > _LIMIT_RUNNING:
        del times[next(iter(times))]


def _by(label: str, counts: Mapping[str, float]) -> Iterator[Sample]:
    return (Sample(labels={label: word}, value=count) for word, count in sorted(counts.items()))


def _counter(name: str, help: str, samples: Iterable[Sample]) -> MetricFamily:
    return MetricFamily(name=name, kind=MetricKind.COUNTER, help=help, samples=tuple(samples))


def _gauge(name: str, help: str, samples: Iterable[Sample]) -> MetricFamily:
    return MetricFamily(name=name, kind=MetricKind.GAUGE, help=help, samples=tuple(samples))


def _histogram(name: str, help: str, samples: Iterable[Sample]) -> MetricFamily:
    kind = MetricKind.HISTOGRAM
    return MetricFamily(name=name, kind=kind, help=help, samples=tuple(samples), bounds=_SECONDS)


def _one(value: float) -> list[Sample]:
    return [Sample(labels={}, value=value)]


# --------------------
# Reading the rows and books, and everything together.

LIMIT_COUNTED: Final = 200_000
"""Events that the first call reads at most."""
LIMIT_OPEN: Final = 200_000
"""Open messages that are counted at most."""
_AT_ONCE: Final = 100
"""Events or rows that are counted in one step of the event loop: about a millisecond."""
STARTED: Final = "palaver_start_time_seconds"
"""The family with the start of the daemon, which people see in 'pal status'."""
_PROBES: Final = 5
_PROBE_S: Final = 0.01
"""Seconds of each timer that measures the delay of the event loop. All together delay a reply by 50 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """The parts that the numbers come from."""

    queries: Queries
    home: Path
    clock: Clock
    live: LiveSettings
    agents: Callable[[], Iterable[Agent]]
    attention: Callable[[], Awaitable[Iterable[Attention]]]
    """Returns the entries that wait for a person."""
    count_waiting: Callable[[], int]
    """Returns how many members wait for a stick now."""


async def measure_delay() -> float:
    """Return how many seconds late the event loop was at most, of a few timers in a row."""
    loop = asyncio.get_running_loop()
    longest_s = 0.0
    for _ in range(_PROBES):
        began_s = loop.time()
        await asyncio.sleep(_PROBE_S)
        longest_s = max(longest_s, loop.time() - began_s - _PROBE_S)
    return longest_s


class Metrics:
    """All numbers. Creating it costs nothing, and counting a slow step or follower an addition."""

    def __init__(
        self, sources: MetricSources, *, measure_delay: Callable[[], Awaitable[float]] = measure_delay
    ) -> None:
        """Create it when the daemon starts."""
        self._sources = sources
        self._measure_delay = measure_delay
        self._seq = _first_counted(sources.queries)
        self._started_ms = sources.clock.now_ms()
        self._since_ms = 0
        self._tally: Tally | None = None
        self._reading = asyncio.Lock()
        self.export_trouble = ""
        """Why the numbers cannot be sent to a collector, as a sentence; empty if they can or need not."""
        self._slow_steps = 0
        self._slow_followers: Counter[str] = Counter(dict.fromkeys(DOORS, 0))

    def count_slow_step(self) -> None:
        """Count a step that kept the event loop busy for too long."""
        self._slow_steps += 1

    def count_slow_follower(self, door: str) -> None:
        """Count a follower that read too slowly, by one of `DOORS`."""
        self._slow_followers[door] += 1

    async def read(self) -> Numbers:
        """Return all numbers at this time. Calls at the same time wait for each other."""
        # Two callers that catch up at the same time would count the same events twice.
        async with self._reading:
            tally = await self._catch_up()
            families = [
                *tally.families(),
                *await self._open_mail(),
                *await self._present(),
                *await self._storage(),
                *await self._loop(),
                *self._agents(),
            ]
            return Numbers(since=self._since_ms, now=self._sources.clock.now_ms(), families=tuple(families))

    async def _catch_up(self) -> Tally:
        """Count the events since the last call."""
        queries = self._sources.queries
        if self._tally is None:
            self._tally = Tally(Steps(queries.rows, queries.event))
            # The log may have grown since the start, and the first call must stay short.
            self._seq = max(self._seq, queries.last() - LIMIT_COUNTED)
        query = Query(after=self._seq, limit=_AT_ONCE, with_imported=True)
        async for events in queries.pages(query, with_archives=False):
            self._since_ms = self._since_ms or events[0].ts
            # No await between the two: a caller that is cancelled leaves no event counted and not recorded.
            for event in events:
                self._tally.add(event)
            self._seq = events[-1].seq
            await asyncio.sleep(0)
        self._since_ms = self._since_ms or self._sources.clock.now_ms()
        return self._tally

    async def _open_mail(self) -> list[MetricFamily]:
        """Count the messages that wait, and those that are held, from their rows."""
        rows = self._sources.queries.rows
        states: Counter[tuple[str, str]] = Counter()
        held: Counter[str] = Counter()
        after, count = "", 0
        while count < LIMIT_OPEN and (page := rows.scan(MAIL, "", after=after, limit=_AT_ONCE)):
            for key, value in page:
                mail = decode_mail(value)
                states[mail.state, PRIORITY_WORDS[priority_of_key(key) - 1]] += 1
                if mail.state == State.HELD:
                    # From the right: the name of a mailbox may contain a slash, the rest of the key does not.
                    entry = read_entry(rows, mail.seq, key.rpartition("/")[0])
                    held[hold_label("" if entry is None else entry.reason)] += 1
            after, count = page[-1][0], count + len(page)
            await asyncio.sleep(0)
        return [
            _gauge(
                "palaver_open_messages",
                "Messages that wait now, one for each recipient, by state and priority.",
                (
                    Sample(labels={"state": state, "priority": priority}, value=number)
                    for (state, priority), number in sorted(states.items())
                ),
            ),
            _gauge("palaver_held_messages", "Messages that are held now, by reason.", _by("reason", held)),
        ]

    async def _present(self) -> list[MetricFamily]:
        """Count entries that wait for a person, for a stick, and for an automatic turn."""
        turns = read_turn_stats(self._sources.queries.rows)
        attention = Counter(entry.kind for entry in await self._sources.attention())
        sessions = {"running": turns.active_turns, "queued": turns.queued_sessions}
        return [
            _gauge(
                "palaver_attention", "Entries that wait for a person now, by kind.", _by("kind", attention)
            ),
            _gauge(
                "palaver_stick_waiters",
                "Members that wait for a stick now.",
                _one(self._sources.count_waiting()),
            ),
            _gauge(
                "palaver_auto_turn_sessions",
                "Sessions with a running automatic turn, and with messages that wait for one.",
                _by("state", sessions),
            ),
        ]

    async def _storage(self) -> list[MetricFamily]:
        # In a thread: there can be thousands of files, on a slow disk.
        sizes = await asyncio.to_thread(_sizes, self._sources.home)
        return [
            _gauge("palaver_log_bytes", "The size of the log on disk, by part.", _by("part", sizes)),
            _gauge("palaver_log_seq", "The seq of the newest event.", _one(self._sources.queries.last())),
        ]

    async def _loop(self) -> list[MetricFamily]:
        return [
            _gauge(
                "palaver_event_loop_delay_seconds",
                "How late the event loop was at most while these numbers were read.",
                _one(await self._measure_delay()),
            ),
            _counter(
                "palaver_slow_steps",
                "Steps that kept the event loop busy for longer than the setting watchdog_ms.",
                _one(self._slow_steps),
            ),
            _counter(
                "palaver_slow_followers",
                "Followers that read too slowly and lost their place, by door.",
                _by("door", self._slow_followers),
            ),
            _gauge(
                STARTED,
                "When the daemon started, as Unix time.",
                _one(self._started_ms / 1000),
            ),
        ]

    def _agents(self) -> list[MetricFamily]:
        agents = [agent for agent in self._sources.agents() if not agent.left]
        counts = Counter((agent.state, harness_label(agent.harness)) for agent in agents)
        family = _gauge(
            "palaver_agents",
            "Agents that have not left, by state and harness.",
            (
                Sample(labels={"state": state, "harness": harness}, value=count)
                for (state, harness), count in sorted(counts.items())
            ),
        )
        return [family, *(self._named(agents) if self._sources.live.now.metrics_names else ())]

    def _named(self, agents: Sequence[Agent]) -> list[MetricFamily]:
        """Return the numbers of each agent, with its name."""
        unread = read_unread_of_all(self._sources.queries.rows)
        return [
            _gauge(
                "palaver_agent_state",
                "The state of each agent: always 1.",
                (Sample(labels={"agent": agent.name, "state": agent.state}, value=1) for agent in agents),
            ),
            _gauge(
                "palaver_agent_unread_messages",
                "Unread messages of each agent.",
                (Sample(labels={"agent": agent.name}, value=unread.get(agent.name, 0)) for agent in agents),
            ),
        ]


def _first_counted(queries: Queries) -> int:
    """Return the seq after which events count: 0 for the whole log, or the newest if the log is too long.

    If a part of the log counted, a restart would lower the counters without setting them to 0, and monitoring
    would take the rest for new events. So a log that is not complete counts from the start of the daemon.
    """
    last = queries.last()
    # Half of the limit: the log may grow by the other half until the first call, and is still counted whole.
    return last if queries.archived() or last > LIMIT_COUNTED // 2 else 0


_PARTS: Final = {
    "database": ("log.sqlite",),
    "journal": ("log.sqlite-wal",),
    "archives": ("archive/*",),
    "contents": ("blobs/*", "blobs/*/*"),
}
"""The files of each part of the log, as patterns below the home."""


def _sizes(home: Path) -> dict[str, int]:
    """Return the size of each part of the log. A file that vanishes meanwhile counts nothing."""
    return {
        part: sum(_size(path) for one in files for path in home.glob(one)) for part, files in _PARTS.items()
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0
