"""Taking mail: one open set for each agent, and the consumers that draw on it.

A taker is a repeatable lane: its consumer drops repeats by id. Mail is handed out for as long as the
connection lives and is written down at the ack; what was not acknowledged goes back into the open set. No
message is in two hands, and nothing here waits on a clock.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import merge
from typing import Final

from palaver.delivery.gate import gate_of_pushed
from palaver.log.api import Log
from palaver.log.state import read_agent
from palaver.model.delivery import State
from palaver.model.envelope import Event
from palaver.model.mail import MAIL, Mail, decode_mail, mail_key, mail_prefix
from palaver.model.message import is_lost
from palaver.model.priority import Priority

_QUEUED: Final[frozenset[str]] = frozenset({State.QUEUED})
_WITH_ANSWERED: Final[frozenset[str]] = frozenset({State.QUEUED, State.ANSWERED})
_PAGE: Final = 200

Passes = Callable[[Event], bool]
HearLost = Callable[[str, Sequence[Event]], None]
"""Is told the agent's name, and what of its mail has lost its content."""


class Mailbox:
    """Who draws on one agent's mail, takers and lanes, and what each of them has in hand."""

    def __init__(
        self,
        log: Log,
        agent: str,
        *,
        now_ms: Callable[[], int],
        put_back: Callable[[str], None],
        lost: HearLost,
    ) -> None:
        """`put_back` is told the agent's name whenever mail is open again, or a consumer has ended."""
        self._log = log
        self._lost = lost
        self._now_ms = now_ms
        self._put_back = put_back
        self.agent = agent
        self._in_hand: dict[int, object] = {}
        self._takers: dict[Taker, None] = {}

    def open(self, *, passes: Passes | None = None, window: int = 0, is_pushed: bool = False) -> "Taker":
        """Let one more consumer draw on this mail; `passes` chooses which of it."""
        taker = Taker(self, self._log, passes, window, is_pushed=is_pushed)
        self._takers[taker] = None
        return taker

    @property
    def is_idle(self) -> bool:
        """Nobody draws on it and nothing is in hand."""
        return not self._takers and not self._in_hand

    def has_in_hand(self, seq: int) -> bool:
        """Tell whether somebody has a message now."""
        return seq in self._in_hand

    def wake(self, *, is_behind: bool = False) -> None:
        """There may be something for everybody who waits; `is_behind` says that it may be old mail."""
        for taker in self._takers:
            taker.wake(is_behind=is_behind)

    def waiting(self, priority: Priority, *, after: int = 0, with_answered: bool = False) -> Iterator[Mail]:
        """Walk the open mail of one priority behind a place, in the order in which it goes, page by page.

        What is in hand, held, on its way through a lane or past its time is passed over; and so is what was
        answered unread or waits behind a gate, unless it is asked for: nobody is woken for it, and whoever
        takes mail gets it.
        """
        states = _WITH_ANSWERED if with_answered else _QUEUED
        lines = [
            self._line(priority, is_quiet, after, states, takes_gated=with_answered)
            for is_quiet in (False, True)
        ]
        return merge(*lines, key=lambda mail: mail.seq, reverse=priority is Priority.IDLE_FIRST)

    def waiting_apart(self, priority: Priority, *, is_quiet: bool) -> Iterator[Mail]:
        """Walk the open mail of one priority that wakes its agent, or that which does not."""
        return self._line(priority, is_quiet, 0, _QUEUED)

    def keys(self) -> Iterator[Mail]:
        """Walk what is to be typed raw: only a terminal takes that, and nobody reads it."""
        return self._line(Priority.INTERRUPT, False, 0, _QUEUED, is_raw=True)

    def _line(
        self,
        priority: Priority,
        is_quiet: bool,
        after: int,
        states: frozenset[str],
        *,
        is_raw: bool = False,
        takes_gated: bool = False,
    ) -> Iterator[Mail]:
        is_newest_first = priority is Priority.IDLE_FIRST
        prefix = mail_prefix(self.agent, priority, is_quiet=is_quiet)
        starts_behind = after and not is_newest_first
        key = mail_key(self.agent, priority, after, is_quiet=is_quiet) if starts_behind else ""
        while page := self._log.rows.scan(MAIL, prefix, after=key, limit=_PAGE):
            for _, value in page:
                mail = decode_mail(value)
                if is_newest_first and mail.seq <= after:
                    return
                is_over = bool(mail.expires) and mail.expires <= self._now_ms()
                is_open = (mail.state in states or (takes_gated and mail.is_gated)) and mail.raw == is_raw
                if is_open and not is_over and mail.seq not in self._in_hand:
                    yield mail
            if len(page) < _PAGE:
                return
            key = page[-1][0]

    def hold(self, owner: object, seqs: Iterable[int]) -> None:
        """Give open messages into one hand."""
        for seq in seqs:
            assert seq not in self._in_hand
            self._in_hand[seq] = owner

    def give_up(self, events: Sequence[Event]) -> None:
        """Nobody takes these, whose content is lost: they are in a hand until that is written down."""
        self.hold(self, [event.seq for event in events])
        self._lost(self.agent, events)

    def settle(self, seqs: Iterable[int]) -> None:
        """These are written down: whoever had them in hand has them no longer."""
        for seq in seqs:
            self._in_hand.pop(seq, None)

    def put_back(self, owner: object, seqs: Iterable[int]) -> None:
        """Give back what an owner still has of these messages, for whoever comes next."""
        mine = [seq for seq in seqs if self._in_hand.get(seq) is owner]
        self.settle(mine)
        if mine:
            self._put_back(self.agent)

    def close(self, taker: "Taker") -> None:
        """A consumer ends; what it had in hand goes back."""
        del self._takers[taker]
        self.settle([seq for seq, owner in self._in_hand.items() if owner is taker])
        self._put_back(self.agent)


class Taker:
    """One consumer of an agent's mail: one that fetches it, or one that is pushed it.

    Whoever fetches gets all that waits; whoever is pushed gets what the agent's state lets pass. It remembers
    how far it has looked, so that neither what it has in hand nor what does not pass is looked at again each
    time something comes.
    """

    def __init__(
        self, mailbox: Mailbox, log: Log, passes: Passes | None, window: int, *, is_pushed: bool
    ) -> None:
        """At most `window` messages are handed out and not settled; 0 is no limit."""
        self._mailbox = mailbox
        self._log = log
        self._is_pushed = is_pushed
        self._passes = passes
        self._window = window
        self._unsettled: set[int] = set()
        self._looked_at: dict[Priority, int] = {}
        self._news = asyncio.Event()
        self._is_closed = False

    def poll(self, limit: int) -> list[Event]:
        """Take what is there now, at most `limit` messages; maybe none."""
        self._news.clear()
        drawn: list[Event] = []
        lost: list[Event] = []
        if self._is_closed:
            return drawn
        if self._window:
            limit = min(limit, self._window - len(self._unsettled))
        for priority in self._open_priorities():
            self._draw(priority, limit, drawn, lost)
        if lost:
            self._mailbox.give_up(lost)
        self._unsettled.update(event.seq for event in drawn)
        return drawn

    async def wait(self, limit: int) -> list[Event]:
        """Take what is there, waiting until there is something. Empty only when the taker was closed."""
        while not self._is_closed:
            if drawn := self.poll(limit):
                return drawn
            await self._news.wait()
        return []

    def settled(self, seqs: Collection[int]) -> None:
        """These were acknowledged. What was not written down as seen, for whatever reason, is open again."""
        self._unsettled.difference_update(seqs)
        self._mailbox.put_back(self, seqs)
        self._news.set()  # there may be room again

    def wake(self, *, is_behind: bool = False) -> None:
        """Look again; `is_behind` says that something may be open where this one has looked already."""
        if is_behind:
            self._looked_at.clear()
        self._news.set()

    def close(self) -> None:
        """End; what was handed out and not acknowledged is open again. Closing twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._mailbox.close(self)
            self._news.set()

    def _open_priorities(self) -> list[Priority]:
        """What waits behind the gate is not looked at, and so it is all found when that opens."""
        if not self._is_pushed:
            return list(Priority)
        gate = gate_of_pushed(read_agent(self._log.rows, self._mailbox.agent))
        return [priority for priority in Priority if gate.can_pass(priority)]

    def _draw(self, priority: Priority, limit: int, drawn: list[Event], lost: list[Event]) -> None:
        last, seen = self._log.last(), self._looked_at.get(priority, 0)
        for mail in self._mailbox.waiting(priority, after=seen, with_answered=True):
            if len(drawn) >= limit:
                return
            if priority is not Priority.IDLE_FIRST:
                self._looked_at[priority] = mail.seq
            event = self._log.event(mail.seq)
            if event is not None and is_lost(event):
                lost += [event] if mail.state == State.QUEUED else []
            elif event is not None and (self._passes is None or self._passes(event)):
                self._mailbox.hold(self, [mail.seq])
                drawn.append(event)
        # All of it was looked at: what is not in hand now does not pass, or will be told of when it opens.
        self._looked_at[priority] = max(last, self._looked_at.get(priority, 0))
