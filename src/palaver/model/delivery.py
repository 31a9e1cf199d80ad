"""The words of the ledger: states of a message, grades of evidence, states of an agent.

Pure. Knows which step is a rise; writes nothing down and asks no lane.
"""

import enum
from typing import Final

from palaver.errors import BadRequest


class State(enum.StrEnum):
    """What became of one message for one recipient."""

    QUEUED = "queued"
    HELD = "held"
    SUBMITTED = "submitted"
    SEEN = "seen"
    ANSWERED = "answered"
    REFUSED = "refused"
    EXPIRED = "expired"
    DEAD = "dead"


ENDS: Final = frozenset({State.REFUSED, State.EXPIRED, State.DEAD})
"""Where a message stops; only an answer still lifts it from there."""

_RANKS: Final[dict[str, int]] = {
    State.QUEUED: 0,
    State.HELD: 1,
    State.SUBMITTED: 2,
    State.SEEN: 3,
    State.ANSWERED: 4,
}
_WAITING: Final[frozenset[str]] = frozenset({State.QUEUED, State.HELD})


def can_rise(old: str, new: str) -> bool:
    """Tell whether a ledger line may go from `old` to `new`. States only rise.

    Mail that waits can end in any way, submitted mail only by a refusal. An answer lifts all but itself.
    The way back, submitted to queued after a definite refusal, is no rise: whoever writes it says so.
    """
    if new == State.ANSWERED:
        return old in ENDS or (old in _RANKS and old != State.ANSWERED)
    if old in ENDS:
        return False
    if new in ENDS:
        return old in _WAITING or (old == State.SUBMITTED and new == State.REFUSED)
    return old in _RANKS and new in _RANKS and _RANKS[old] < _RANKS[new]


class Grade(enum.StrEnum):
    """How well it is known that a message was seen."""

    HANDED = "handed"
    FLUSHED = "flushed"
    ACKED = "acked"
    CONTEXT = "context"


GRADES: Final[tuple[str, ...]] = tuple(Grade)
"""Every grade, weakest first."""


class AgentState(enum.StrEnum):
    """What an agent is doing."""

    STARTING = "starting"
    ACTIVE = "active"
    IDLE = "idle"
    BLOCKED = "blocked"
    EXITED = "exited"


_AGENT_STATES: Final = {
    **{state.value: state for state in AgentState},
    "listening": AgentState.IDLE,
    "inactive": AgentState.EXITED,
}


def parse_state(word: str) -> AgentState:
    """Read an agent's state; `listening` is accepted for idle and `inactive` for exited."""
    state = _AGENT_STATES.get(word)
    if state is None:
        raise BadRequest(f"invalid state: {word}; the states are {', '.join(AgentState)}")
    return state
