"""The vocabulary of the ledger: states of a message, grades of evidence, states of an agent.

Pure. Knows which state changes are allowed; stores nothing and calls no lane.
"""

import enum
from typing import Final

from palaver.errors import BadRequest


class State(enum.StrEnum):
    """The state of one message for one recipient."""

    QUEUED = "queued"
    HELD = "held"
    SUBMITTED = "submitted"
    SEEN = "seen"
    ANSWERED = "answered"
    REFUSED = "refused"
    EXPIRED = "expired"
    DEAD = "dead"


ENDS: Final = frozenset({State.REFUSED, State.EXPIRED, State.DEAD})
"""Final states; only an answer still changes them."""

_RANKS: Final[dict[str, int]] = {
    State.QUEUED: 0,
    State.HELD: 1,
    State.SUBMITTED: 2,
    State.SEEN: 3,
    State.ANSWERED: 4,
}
_WAITING: Final[frozenset[str]] = frozenset({State.QUEUED, State.HELD})


def can_rise(old: str, new: str) -> bool:
    """Return whether a ledger entry may go from `old` to `new`. States only rise.

    Waiting mail can end in any way, submitted mail only by a refusal. An answer raises every other state. The
    step back from submitted to queued, after a definite refusal, is not a rise: its writer handles it.
    """
    if new == State.ANSWERED:
        return old in ENDS or (old in _RANKS and old != State.ANSWERED)
    if old in ENDS:
        return False
    if new in ENDS:
        return old in _WAITING or (old == State.SUBMITTED and new == State.REFUSED)
    return old in _RANKS and new in _RANKS and _RANKS[old] < _RANKS[new]


class Grade(enum.StrEnum):
    """How certain it is that a message was seen."""

    HANDED = "handed"
    FLUSHED = "flushed"
    ACKED = "acked"
    CONTEXT = "context"


GRADES: Final[tuple[str, ...]] = tuple(Grade)
"""Every grade, weakest first."""


class AgentState(enum.StrEnum):
    """The activity of an agent."""

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
    """Parse an agent's state; `listening` is accepted for idle and `inactive` for exited."""
    state = _AGENT_STATES.get(word)
    if state is None:
        raise BadRequest(f"invalid state: {word}; the states are {', '.join(AgentState)}")
    return state
