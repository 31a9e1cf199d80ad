"""Brakes: what looks like agents writing to each other in circles is held until a person lets it through.

Counts only what agents under a harness write; programs and people are not counted. Pure but for its own
memory: the time is handed in, and a new start begins to count anew.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from palaver.model.agent import Caller
from palaver.model.envelope import Event
from palaver.model.message import HUMAN
from palaver.model.names import SCRIPT_NAME

_MINUTE_MS: Final = 60_000
_LIMIT_PAIRS: Final = 10_000
_LIMIT_UNTOLD: Final = 1_000
_NOT_COUNTED: Final = frozenset({HUMAN, SCRIPT_NAME})
"""Who is not counted, also when it speaks in the name of an agent under a harness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Which conversation a message belongs to, and how many agents' answers came before it."""

    id: str
    hops: int


def is_counted(caller: Caller) -> bool:
    """Tell whether a caller is an agent under a harness, speaking for itself or its own child."""
    return bool(caller.harness) and (caller.is_marked or caller.by not in _NOT_COUNTED)


def chain_of(caller: Caller, answered: Event | None) -> Chain | None:
    """Give the chain of a message that answers another; None when nothing is counted.

    A human in between begins it anew.
    """
    if not is_counted(caller) or answered is None:
        return None
    payload = answered.payload
    if HUMAN in (payload.get("sender_kind"), answered.by):
        return Chain(id=answered.id, hops=1)
    chain, hops = payload.get("chain"), payload.get("hops")
    return Chain(
        id=chain if isinstance(chain, str) else answered.id,
        hops=(hops if isinstance(hops, int) else 0) + 1,
    )


class _Told:
    """When a person was told of a sender, with which message, and what was held since."""

    def __init__(self, moment_ms: int, seq: int) -> None:
        self.moment_ms = moment_ms
        self.seq = seq
        self.untold: deque[int] = deque(maxlen=_LIMIT_UNTOLD)


class Brakes:
    """Remembers how often each agent wrote to each other within the last minute, and when a person was told.

    At its limit of pairs, and of senders, it forgets those that have been quiet longest.
    """

    def __init__(self, *, limit_hops: int, limit_a_minute: int) -> None:
        """A limit of 0 is no limit."""
        self._limit_hops = limit_hops
        self._limit_a_minute = limit_a_minute
        self._sent: dict[tuple[str, str], deque[int]] = {}
        self._told: dict[str, _Told] = {}

    def check(
        self, caller: Caller, recipients: tuple[str, ...], chain: Chain | None, now_ms: int
    ) -> str | None:
        """Count one message and say why it must be held, or None. What is held counts too."""
        if not is_counted(caller):
            return None
        fastest = max((self._count(caller.name, name, now_ms) for name in recipients), default=0)
        if self._limit_hops and chain is not None and chain.hops > self._limit_hops:
            return f"{chain.hops} answers of agents to agents with no person in between"
        if self._limit_a_minute and fastest > self._limit_a_minute:
            return f"more than {self._limit_a_minute} messages a minute from {caller.name} to one other"
        return None

    def untold(self, sender: str, seq: int, now_ms: int) -> tuple[int, ...] | None:
        """Take in that a message is held; None when nobody is to hear of it now.

        A person hears of a sender once a minute, however much it writes. Then the answer is what else was
        held of it since the last time: the places, the newest so many.
        """
        told = self._told.get(sender)
        if told is not None and now_ms - told.moment_ms < _MINUTE_MS:
            if seq not in (told.seq, *told.untold):  # else it is a request that was repeated
                told.untold.append(seq)
            return None
        self._told.pop(sender, None)
        self._told[sender] = _Told(now_ms, seq)  # last, as below
        if len(self._told) > _LIMIT_PAIRS:
            del self._told[next(iter(self._told))]
        return () if told is None else tuple(place for place in told.untold if place != seq)

    def _count(self, sender: str, recipient: str, now_ms: int) -> int:
        sent = self._sent.pop((sender, recipient), None)
        if sent is None:
            sent = deque(maxlen=self._limit_a_minute + 1)
        while sent and sent[0] <= now_ms - _MINUTE_MS:
            sent.popleft()
        sent.append(now_ms)
        self._sent[sender, recipient] = sent  # put back last: the first ones have been quiet longest
        if len(self._sent) > _LIMIT_PAIRS:
            del self._sent[next(iter(self._sent))]
        return len(sent)
