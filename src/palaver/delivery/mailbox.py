"""Mailboxes and their readers: one set of open messages per agent or session, and the readers of each.

A reader may receive a message more than once; its client drops repeats by id. Messages are claimed while the
connection lives and recorded as seen at the acknowledgement; unacknowledged ones are released. A message has
at most one claim at a time. Nothing here depends on a clock.
"""

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Final, TypeAlias

from palaver.delivery.lanes import Queue, StateGate, gate_of_pushed
from palaver.log.api import Log
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.events import State
from palaver.protocol.message import Priority, is_lost
from palaver.protocol.paths import PLUS, mailbox_of, split_mailbox
from palaver.protocol.query import Passes
from palaver.state.agents import find_mail, read_agent, read_carried, read_entry
from palaver.state.paths import read_agent_sessions, session_of_harness
from palaver.state.rows import (
    MAIL,
    PUSHED,
    LedgerEntry,
    MailKind,
    OpenMessage,
    Rows,
    decode_mail,
    mail_key,
    mail_prefix,
    priority_of_key,
)

_QUEUED: Final[frozenset[str]] = frozenset({State.QUEUED})
_WITH_ANSWERED: Final[frozenset[str]] = frozenset({State.QUEUED, State.ANSWERED})
_PAGE: Final = 200
_FEW: Final = 50
"""Most mailboxes have fewer messages than this: one query is cheaper than two for each priority.

A mailbox with this many or more is read page by page, so that the cost of a look is bounded.
"""

_ALL_PRIORITIES: Final = tuple(Priority)
_ALL_KINDS: Final = tuple(MailKind)
_seq_of: Final[Callable[[OpenMessage], int]] = attrgetter("seq")

MailRow: TypeAlias = tuple[str, bytes]
"""The key and the value of an open message in the state."""

HearPutBack = Callable[[str, bool], None]
"""Called with the agent's name when claims or a reader end, and whether messages were released."""

HearLost = Callable[[str, Sequence[Event]], None]
"""Called with the agent's name and the messages whose content is lost."""

HearWait = Callable[[str, bool], None]
"""Called with the agent's name when a reader begins to wait, and whether that reader is pushed."""


def _no_wait(agent: str, is_pushed: bool) -> None:
    """Ignore a reader that waits."""


class Mailbox:
    """The open messages of one agent or session, its readers, and the claims of readers and lanes.

    `agent` is the name of the mailbox, and for a session `agent+session`.
    """

    def __init__(
        self,
        log: Log,
        agent: str,
        *,
        now_ms: Callable[[], int],
        put_back: HearPutBack,
        lost: HearLost,
        waits: HearWait,
    ) -> None:
        """Create the mailbox without readers."""
        self._log = log
        self._waits = waits
        self._lost = lost
        self._now_ms = now_ms
        self._put_back = put_back
        self.agent = agent
        self._in_hand: dict[int, object] = {}
        """The owner of the claim to each claimed message.

        In memory only: a claim ends with its connection.
        """
        self._readers: dict[QueueReader, None] = {}
        """In the order of opening, which is the order in which they are woken."""

    def open(
        self, *, passes: Passes | None = None, window: int = 0, is_pushed: bool = False
    ) -> "QueueReader":
        """Add a reader. `passes` selects its messages."""
        reader = QueueReader(self, self._log, passes, window, is_pushed=is_pushed)
        self._readers[reader] = None
        return reader

    @property
    def is_idle(self) -> bool:
        """Whether it has no readers and no claims."""
        return not self._readers and not self._in_hand

    @property
    def is_awaited(self) -> bool:
        """Whether a reader waits for messages."""
        return any(reader.is_waiting for reader in self._readers)

    def has_in_hand(self, seq: int) -> bool:
        """Return whether a reader or lane has claimed a message."""
        return seq in self._in_hand

    def begin_wait(self, *, is_pushed: bool) -> None:
        """Report that a reader has no message and waits for one."""
        self._waits(self.agent, is_pushed)

    def wake(self, *, is_earlier: bool = False) -> None:
        """Wake all readers. `is_earlier`: a message may be open that they have passed already."""
        for reader in self._readers:
            reader.wake(is_earlier=is_earlier)

    def read_few(self) -> list[MailRow] | None:
        """Return all rows of open messages with one query; None if there are many."""
        rows = self._log.rows.scan(MAIL, mail_prefix(self.agent), limit=_FEW)
        return rows if len(rows) < _FEW else None

    def waiting(
        self,
        priority: Priority,
        *,
        kinds: Sequence[MailKind] = _ALL_KINDS,
        after: int = 0,
        with_answered: bool = False,
        few: Sequence[MailRow] | None = None,
    ) -> Iterator[OpenMessage]:
        """Yield the open messages of one priority after a seq, in the order of delivery, page by page.

        Messages that are claimed, held, submitted on a lane or expired are skipped. With `with_answered`,
        messages that were answered unread or are held at a gate are included: they wake no agent, but a
        reader receives them. With `few`, the result of `read_few`, nothing is read.
        """
        states = _WITH_ANSWERED if with_answered else _QUEUED
        is_newest_first = priority is Priority.IDLE_FIRST
        if few is None:
            # Each kind has its own range of keys, so the lines are merged by seq.
            lines = [self._line(priority, kind, after, states, takes_gated=with_answered) for kind in kinds]
            return merge(*lines, key=_seq_of, reverse=is_newest_first)
        prefixes = tuple(mail_prefix(self.agent, priority, kind) for kind in kinds)
        found = (decode_mail(value) for key, value in few if key.startswith(prefixes))
        chosen = [
            mail
            for mail in found
            if mail.seq > after and self._is_open(mail, states, takes_gated=with_answered)
        ]
        return iter(sorted(chosen, key=_seq_of, reverse=is_newest_first))

    def waiting_apart(self, priority: Priority, kind: MailKind) -> Iterator[OpenMessage]:
        """Yield the open messages of one priority and kind."""
        return self._line(priority, kind, 0, _QUEUED)

    def keys(self) -> Iterator[OpenMessage]:
        """Yield open raw keys. Only a terminal accepts them; readers do not receive them."""
        return self._line(Priority.INTERRUPT, MailKind.WAKING, 0, _QUEUED, is_raw=True)

    def _line(
        self,
        priority: Priority,
        kind: MailKind,
        after: int,
        states: frozenset[str],
        *,
        is_raw: bool = False,
        takes_gated: bool = False,
    ) -> Iterator[OpenMessage]:
        is_newest_first = priority is Priority.IDLE_FIRST
        prefix = mail_prefix(self.agent, priority, kind)
        starts_after = after and not is_newest_first
        key = mail_key(self.agent, priority, after, kind) if starts_after else ""
        while page := self._log.rows.scan(MAIL, prefix, after=key, limit=_PAGE):
            for _, value in page:
                mail = decode_mail(value)
                # The key counts downwards for this priority, so the query could not begin after the seq.
                if is_newest_first and mail.seq <= after:
                    return
                if self._is_open(mail, states, is_raw=is_raw, takes_gated=takes_gated):
                    yield mail
            if len(page) < _PAGE:
                return
            key = page[-1][0]

    def _is_open(
        self, mail: OpenMessage, states: frozenset[str], *, is_raw: bool = False, takes_gated: bool = False
    ) -> bool:
        # By the clock too: a timer writes the expiry later, and an expired message must not be delivered
        # before that.
        is_over = bool(mail.expires) and mail.expires <= self._now_ms()
        is_wanted = mail.state in states or (takes_gated and mail.is_gated)
        return is_wanted and mail.raw == is_raw and not is_over and mail.seq not in self._in_hand

    def hold(self, owner: object, seqs: Iterable[int]) -> None:
        """Claim open messages for one owner. There must be no await between their selection and this call."""
        for seq in seqs:
            # A message with two claims would be delivered twice.
            assert seq not in self._in_hand
            self._in_hand[seq] = owner

    def give_up(self, events: Sequence[Event]) -> None:
        """Claim messages whose content is lost until that is recorded, so that no reader takes them."""
        self.hold(self, [event.seq for event in events])
        self._lost(self.agent, events)

    def settle(self, seqs: Iterable[int]) -> None:
        """Drop the claims to these messages, because their state was written."""
        for seq in seqs:
            self._in_hand.pop(seq, None)

    def put_back(self, owner: object, seqs: Iterable[int]) -> None:
        """Release those of the messages that the owner still claims.

        The others have an outcome meanwhile, or another owner, whose claim must stay.
        """
        mine = [seq for seq in seqs if self._in_hand.get(seq) is owner]
        self.settle(mine)
        if mine:
            self._put_back(self.agent, True)

    def close(self, reader: "QueueReader") -> None:
        """Remove a reader and release its messages."""
        del self._readers[reader]
        mine = [seq for seq, owner in self._in_hand.items() if owner is reader]
        self.settle(mine)
        # Also without messages: a mailbox that is not in use any more is dropped then.
        self._put_back(self.agent, bool(mine))


class QueueReader:
    """One reader of a mailbox, which either fetches messages or has them pushed.

    A reader that fetches receives all open messages; with push it receives those that the agent's state
    allows, and no handled copies. It remembers the last seq that it has checked, so that a new message does
    not cause a new check of all earlier ones.
    """

    def __init__(
        self, mailbox: Mailbox, log: Log, passes: Passes | None, window: int, *, is_pushed: bool
    ) -> None:
        """At most `window` messages are handed out and not settled; 0 means no limit."""
        self._mailbox = mailbox
        self._log = log
        self._is_pushed = is_pushed
        self._passes = passes
        self._window = window
        self._unsettled: set[int] = set()
        self._looked_at: dict[Priority, int] = {}
        self._news = asyncio.Event()
        self._is_closed = False
        self.is_waiting = False
        self.has_all = False
        """Whether the last `poll` returned every open message of the mailbox."""

    def poll(self, limit: int) -> list[Event]:
        """Claim and return the messages available now, at most `limit`."""
        # Before the look: a message that comes later sets the signal, so `wait` does not miss it.
        self._news.clear()
        drawn: list[Event] = []
        lost: list[Event] = []
        if self._is_closed:
            return drawn
        if self._window:
            limit = min(limit, self._window - len(self._unsettled))
        few = self._mailbox.read_few()
        # The rows of a small mailbox show which priorities have messages, so the others need no look.
        present = _ALL_PRIORITIES if few is None else {priority_of_key(key) for key, _ in few}
        for priority in self._open_priorities():
            if priority in present:
                self._draw(priority, few, limit, drawn, lost)
        if lost:
            self._mailbox.give_up(lost)
        self._unsettled.update(event.seq for event in drawn)
        self.has_all = few is not None and len(few) == len(drawn)
        return drawn

    async def wait(self, limit: int) -> list[Event]:
        """Like `poll`, but wait for at least one message. Returns no message only if the reader is closed."""
        while not self._is_closed:
            if drawn := self.poll(limit):
                return drawn
            # No await between the look and the wait: news in between would be missed.
            self.is_waiting = True
            try:
                self._mailbox.begin_wait(is_pushed=self._is_pushed)
                await self._news.wait()
            finally:
                self.is_waiting = False
        return []

    def settled(self, seqs: Collection[int]) -> None:
        """End the claims to acknowledged messages. Those not recorded as seen are open again."""
        self._unsettled.difference_update(seqs)
        # The report of the acknowledgement has dropped the claims of the messages that it changed.
        self._mailbox.put_back(self, seqs)
        self._news.set()  # the window may have room again

    def wake(self, *, is_earlier: bool = False) -> None:
        """Check again. `is_earlier`: a message may be open that this reader has passed already."""
        if is_earlier:
            self._looked_at.clear()
        self._news.set()

    def close(self) -> None:
        """Close, and release unacknowledged messages. A second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._mailbox.close(self)
            # The task in `wait` returns then.
            self._news.set()

    def _open_priorities(self) -> Sequence[Priority]:
        """Return the priorities that may pass. Others stay unchecked, so their messages are found later."""
        if not self._is_pushed:
            return _ALL_PRIORITIES
        gate = gate_of_pushed(read_agent(self._log.rows, split_mailbox(self._mailbox.agent)[0]))
        return [priority for priority in _ALL_PRIORITIES if gate.can_pass(priority)]

    def _draw(
        self,
        priority: Priority,
        few: Sequence[MailRow] | None,
        limit: int,
        drawn: list[Event],
        lost: list[Event],
    ) -> None:
        last, seen = self._log.last(), self._looked_at.get(priority, 0)
        kinds = PUSHED if self._is_pushed else _ALL_KINDS
        for mail in self._mailbox.waiting(priority, kinds=kinds, after=seen, with_answered=True, few=few):
            if len(drawn) >= limit:
                return
            # Not where the newest come first: older messages follow, which have not been checked yet.
            if priority is not Priority.IDLE_FIRST:
                self._looked_at[priority] = mail.seq
            event = self._event(mail.seq)
            # Only a queued one becomes held: one that is answered or held already keeps its state.
            if event is not None and is_lost(event):
                lost += [event] if mail.state == State.QUEUED else []
            elif event is not None and (self._passes is None or self._passes(event)):
                self._mailbox.hold(self, [mail.seq])
                drawn.append(event)
        # All messages were checked. The remaining ones are filtered out, or `wake` follows when they open.
        self._looked_at[priority] = max(last, self._looked_at.get(priority, 0))

    def _event(self, seq: int) -> Event | None:
        # A reader that waits takes the newest message, which is still in memory. A large one is read, because
        # its content is in a file: if that file is lost, the message must be held and not delivered.
        for newest in self._log.tail(seq - 1, 1) or ():
            if newest.seq == seq and newest.has_small_payload:
                return newest
        return self._log.event(seq)


# --------------------
# The mailboxes in use, one per agent or session. An unused mailbox is dropped: the log has all messages.


def mailboxes_of_lanes(rows: Rows, agent: Agent) -> tuple[str, ...]:
    """Return the mailboxes whose messages the lanes of an agent carry: its own, and that of its session."""
    # Most agents have no mail for sessions: one query is then enough, for every look at an agent.
    if not _has_session_mail(rows, agent.name):
        return (agent.name,)
    return agent.name, mailbox_of(agent.name, session_of_harness(rows, agent.name, agent.session))


def mailboxes_of_agent(rows: Rows, agent: str) -> tuple[str, ...]:
    """Return the mailboxes of an agent and of its sessions, as far as they can have messages."""
    sessions = read_agent_sessions(rows, agent) if _has_session_mail(rows, agent) else ()
    return agent, *(mailbox_of(agent, session.id) for session in sessions)


def _has_session_mail(rows: Rows, agent: str) -> bool:
    return bool(rows.scan(MAIL, f"{agent}{PLUS}", limit=1))


def by_mailbox(copies: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Return the seqs of each mailbox, from pairs of both."""
    found: dict[str, tuple[int, ...]] = {}
    for mailbox, seq in copies:
        found[mailbox] = (*found.get(mailbox, ()), seq)
    return found


class Mailboxes:
    """Every mailbox in use. `put_back` is called with the agent's name when messages are released."""

    def __init__(
        self,
        log: Log,
        *,
        now_ms: Callable[[], int],
        put_back: HearPutBack,
        lost: HearLost,
        waits: HearWait = _no_wait,
    ) -> None:
        """`lost` is called with messages whose content is lost. They stay claimed until they are settled."""
        self._log = log
        self._waits = waits
        self._now_ms = now_ms
        self._put_back = put_back
        self._lost = lost
        self._mailboxes: dict[str, Mailbox] = {}

    def get(self, agent: str) -> Mailbox:
        """Return the mailbox of an agent. It is created if needed."""
        mailbox = self._mailboxes.get(agent)
        if mailbox is None:
            mailbox = Mailbox(
                self._log,
                agent,
                now_ms=self._now_ms,
                put_back=self._put_back,
                lost=self._lost,
                waits=self._waits,
            )
            self._mailboxes[agent] = mailbox
        return mailbox

    def is_in_hand(self, agent: str, seq: int) -> bool:
        """Return whether a reader or lane has claimed a message."""
        mailbox = self._mailboxes.get(agent)
        return mailbox is not None and mailbox.has_in_hand(seq)

    def is_awaited(self, agent: str) -> bool:
        """Return whether a reader of an agent waits for messages."""
        mailbox = self._mailboxes.get(agent)
        return mailbox is not None and mailbox.is_awaited

    def settle(self, agent: str, seqs: Sequence[int]) -> None:
        """Drop all claims to these messages: the ledger says that they no longer wait."""
        if (mailbox := self._mailboxes.get(agent)) is not None:
            mailbox.settle(seqs)

    def wake(self, agent: str, *, is_earlier: bool) -> None:
        """Wake all readers of an agent. `is_earlier`: a message may be open that they have passed already."""
        if (mailbox := self._mailboxes.get(agent)) is not None:
            mailbox.wake(is_earlier=is_earlier)

    def unclaimed(self, agent: str, lane: str = "", *, since_ms: int = 0) -> list[int]:
        """Return the messages that are submitted according to the ledger, but claimed by no lane.

        They are from an earlier daemon or connection, whose lane has not reported their outcome.

        `lane` restricts them to one kind of lane, and `since_ms` to those submitted after that Unix time.
        """
        rows = self._log.rows
        lost = [seq for seq in read_carried(rows, agent) if not self.is_in_hand(agent, seq)]
        if lane:
            lost = [
                seq
                for seq in lost
                if (entry := read_entry(rows, seq, agent)) and _is_of(entry, lane, since_ms)
            ]
        return lost

    def forget_idle(self, agent: str) -> None:
        """Drop the mailbox of an agent if it has no readers and no claims."""
        mailbox = self._mailboxes.get(agent)
        if mailbox is not None and mailbox.is_idle:
            del self._mailboxes[agent]


def _is_of(entry: LedgerEntry, lane: str, since_ms: int) -> bool:
    return entry.lane == lane and entry.submitted > since_ms


# --------------------
# Select the open messages that may go to an agent now. Reads only; claims nothing.
#
# Quiet messages do not wake an idle agent. They are delivered together with other messages, or while the
# agent works. Handled copies are not delivered this way at all: only readers that fetch get them.


def passing(
    rows: Rows, mailbox: Mailbox, gate: StateGate, limit: int, *, without: Container[int] = ()
) -> list[int]:
    """Return the seqs of the messages that may go now, in order, at most `limit`."""
    # Waking messages first, so that one is in the batch however much older quiet mail there is.
    loud = _head(mailbox, gate, limit, MailKind.WAKING, without=without)
    if gate.idle and not loud:
        return []
    quiet = _head(mailbox, gate, limit - len(loud), MailKind.QUIET, without=without)
    return _in_order(rows, mailbox.agent, loud + quiet) if loud and quiet else loud or quiet


def _head(
    mailbox: Mailbox, gate: StateGate, limit: int, kind: MailKind, *, without: Container[int]
) -> list[int]:
    """Load the first messages of each priority, at most `limit` of each, and return those that may pass.

    More of one priority could not be among the first `limit` messages of all.
    """
    queue = Queue()
    queue.is_paused = gate.paused
    for priority in Priority:
        line = mailbox.waiting_apart(priority, kind)
        open_mail = (mail.seq for mail in line if mail.seq not in without)
        for seq in islice(open_mail, limit):
            queue.add(seq, priority)
    return queue.take(limit, idle=gate.idle, blocked=gate.blocked)


def _in_order(rows: Rows, agent: str, seqs: Sequence[int]) -> list[int]:
    queue = Queue()
    for seq in seqs:
        found = find_mail(rows, agent, seq)
        assert found is not None  # it was queued before, and nothing was awaited since
        queue.add(seq, priority_of_key(found[0]))
    # All of them may pass, so only their order is decided here.
    return queue.take(len(seqs), idle=True, blocked=False)
