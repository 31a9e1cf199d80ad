"""Brakes: messages that look like agents writing in circles are held until a person releases them.

Only messages of agents under a harness count; programs and people do not. Pure except for its own counters:
the time is passed in, and the counters start empty.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from palaver.protocol.agents import SCRIPT_NAME, Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import MessageSent
from palaver.protocol.message import HUMAN

_MINUTE_MS: Final = 60_000
_LIMIT_PAIRS: Final = 10_000
_LIMIT_UNTOLD: Final = 1_000
_NOT_COUNTED: Final = frozenset({HUMAN, SCRIPT_NAME})
"""Senders that are not counted, also when they speak as an agent under a harness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The conversation of a message, and the number of agent replies before it."""

    id: str
    hops: int


def is_counted(caller: Caller) -> bool:
    """Return whether a caller is an agent under a harness that speaks for itself or its own child.

    In an automatic turn every agent counts, also one that a configured command runs.
    """
    is_agent = bool(caller.harness) or bool(caller.turn)
    return is_agent and (caller.is_marked or caller.by not in _NOT_COUNTED)


def chain_of(caller: Caller, answered: Event | None, turn: Chain | None = None) -> Chain | None:
    """Return the chain of a reply; None if it is not counted.

    A message of a human restarts the chain. `turn` is the chain of the automatic turn that the caller is part
    of: every message of that turn continues it, so that two agents cannot start each other indefinitely.
    """
    if not is_counted(caller):
        return None
    chains = [] if answered is None else [_chain_at(answered)]
    chains += [] if turn is None else [turn]
    longest = max(chains, key=lambda chain: chain.hops, default=None)
    return None if longest is None else Chain(id=longest.id, hops=longest.hops + 1)


def chain_of_batch(events: Iterable[Event]) -> Chain | None:
    """Return the longest chain that some messages belong to; None without messages."""
    return max(map(_chain_at, events), key=lambda chain: chain.hops, default=None)


def _chain_at(event: Event) -> Chain:
    message = event.body
    if not isinstance(message, MessageSent) or HUMAN in (message.sender_kind, event.by):
        return Chain(id=event.id, hops=0)
    return Chain(id=message.chain or event.id, hops=message.hops)


class _HeldNotice:
    """When a person was notified of a sender, with which message, and the messages held since."""

    def __init__(self, sent_ms: int, seq: int) -> None:
        self.sent_ms = sent_ms
        self.seq = seq
        self.untold: deque[int] = deque(maxlen=_LIMIT_UNTOLD)


class Brakes:
    """Count the messages between each pair of agents in the last minute, and remember notices to a person.

    Above its limit of pairs or senders it forgets the ones that were quiet longest.
    """

    def __init__(self, *, limit_hops: int, limit_a_minute: int) -> None:
        """Set the limits; 0 disables a limit."""
        self._sent: dict[tuple[str, str], deque[int]] = {}
        self.set_limits(limit_hops=limit_hops, limit_a_minute=limit_a_minute)
        self._notices: dict[str, _HeldNotice] = {}

    def set_limits(self, *, limit_hops: int, limit_a_minute: int) -> None:
        """Set the limits; 0 disables a limit. With another limit, the last minute is counted anew."""
        self._limit_hops = limit_hops
        self._limit_a_minute = limit_a_minute
        self._sent.clear()  # each count has the length of its limit

    def check(
        self, caller: Caller, recipients: tuple[str, ...], chain: Chain | None, now_ms: int
    ) -> str | None:
        """Count one message and return why it must be held, or None. Held messages count too."""
        if not is_counted(caller):
            return None
        fastest = max((self._count(caller.name, name, now_ms) for name in recipients), default=0)
        if self._limit_hops and chain is not None and chain.hops > self._limit_hops:
            return f"{chain.hops} replies between agents without a person in between"
        if self._limit_a_minute and fastest > self._limit_a_minute:
            return f"more than {self._limit_a_minute} messages a minute from {caller.name} to one agent"
        return None

    def untold(self, sender: str, seq: int, now_ms: int) -> tuple[int, ...] | None:
        """Record a held message; return None if no person is notified now.

        A person is notified of a sender at most once a minute. Then the result contains the other messages
        held since the last notice: their seqs, up to the newest `_LIMIT_UNTOLD`.
        """
        notice = self._notices.get(sender)
        if notice is not None and now_ms - notice.sent_ms < _MINUTE_MS:
            if seq not in (notice.seq, *notice.untold):  # otherwise it is a repeated request
                notice.untold.append(seq)
            return None
        self._notices.pop(sender, None)
        self._notices[sender] = _HeldNotice(now_ms, seq)  # moved to the end, as in `_count`
        if len(self._notices) > _LIMIT_PAIRS:
            del self._notices[next(iter(self._notices))]
        return () if notice is None else tuple(other for other in notice.untold if other != seq)

    def _count(self, sender: str, recipient: str, now_ms: int) -> int:
        sent = self._sent.pop((sender, recipient), None)
        if sent is None:
            sent = deque(maxlen=self._limit_a_minute + 1)
        while sent and sent[0] <= now_ms - _MINUTE_MS:
            sent.popleft()
        sent.append(now_ms)
        self._sent[sender, recipient] = sent  # moved to the end: the first ones were quiet longest
        if len(self._sent) > _LIMIT_PAIRS:
            del self._sent[next(iter(self._sent))]
        return len(sent)
