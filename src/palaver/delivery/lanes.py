"""Decide when a message may go and on which lane: priorities, gates, and the deadlines of lanes."""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.clock import Clock
from palaver.protocol.agents import Agent
from palaver.protocol.events import AgentState
from palaver.protocol.lanes import IDLE_WAIT_S, Lane
from palaver.protocol.message import Priority
from palaver.state.rows import mail_key, priority_of_key

# --------------------
# A queue with the four priorities: the order of messages, and which may pass now. Pure.
#
# The order: interrupt (FIFO) > normal (FIFO) > idle-first (LIFO) > idle (FIFO)


def can_pass(priority: Priority, *, idle: bool, blocked: bool, paused: bool) -> bool:
    """Return whether messages of a priority may be delivered to an agent in this state.

    Paused or blocked: only interrupts. Otherwise normal messages always, and the two idle priorities if idle.
    """
    if priority is Priority.INTERRUPT:
        return True
    if paused or blocked:
        return False
    return priority is Priority.NORMAL or idle


class Queue:
    """Waiting messages in the order in which they go.

    Level-triggered: adding a message triggers nothing; a call returns the messages that may pass now.
    """

    def __init__(self) -> None:
        self._line: list[tuple[str, int]] = []
        self.is_paused = False

    def __len__(self) -> int:
        return len(self._line)

    def add(self, seq: int, priority: Priority) -> None:
        """Add one message in the order of its priority."""
        # The key of the stored row, so that a queue in memory has the same order as a scan of the rows: the
        # keys of IDLE_FIRST count down.
        insort(self._line, (mail_key("", priority, seq), seq))

    def next(self, *, idle: bool, blocked: bool) -> int | None:
        """Remove and return the first message that may pass, or None."""
        for index, (key, seq) in enumerate(self._line):
            if can_pass(priority_of_key(key), idle=idle, blocked=blocked, paused=self.is_paused):
                del self._line[index]
                return seq
        return None

    def take(self, limit: int, *, idle: bool, blocked: bool) -> list[int]:
        """Remove and return up to `limit` messages that may pass, in order."""
        taken: list[int] = []
        while len(taken) < limit and (seq := self.next(idle=idle, blocked=blocked)) is not None:
            taken.append(seq)
        return taken


# --------------------
# The gate that follows from the state of an agent, for readers to which messages are pushed.

_AT_WORK: Final[frozenset[str]] = frozenset({AgentState.STARTING, AgentState.ACTIVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateGate:
    """The state of an agent, as far as it decides which messages may go."""

    idle: bool
    blocked: bool
    paused: bool

    def can_pass(self, priority: Priority) -> bool:
        """Return whether messages of a priority may go now."""
        return can_pass(priority, idle=self.idle, blocked=self.blocked, paused=self.paused)


def gate_of_pushed(agent: Agent | None) -> StateGate:
    """Return the gate for a reader to which an agent's messages are pushed.

    An agent that never reported its state counts as idle, and so does a person. Otherwise their messages
    would wait indefinitely.
    """
    if agent is None:
        return StateGate(idle=True, blocked=False, paused=False)
    is_blocked = agent.state == AgentState.BLOCKED
    return StateGate(idle=agent.state not in _AT_WORK, blocked=is_blocked, paused=agent.paused)


# --------------------
# The lane of an agent that takes a message now. Pure.


def shut_lane(lanes: Sequence[Lane], *, idle: bool) -> Lane | None:
    """Return the lane that messages wait for: a terminal with a closed gate, if it is the best lane.

    If no lane can wake an idle agent, it is the lane that pulls messages itself.
    """
    best = next(iter(lanes_in_order(lanes, idle=idle)), None)
    if best is None:
        pulled = (lane for lane in lanes if lane.ability.is_pulled and not lane.is_spent)
        # An agent at work requests its messages at its next hook, so they do not wait for this lane.
        return next(pulled, None) if idle else None
    return best if best.is_terminal and not best.level.is_open else None


def lanes_in_order(lanes: Iterable[Lane], *, idle: bool, asking: Lane | None = None) -> list[Lane]:
    """Return the lanes that can reach the agent: best kind first, then in the order of opening.

    The lane that requests messages (`asking`) is always included.
    """
    able = [lane for lane in lanes if lane is asking or lane.can_reach(idle=idle)]
    # The sort is stable: lanes of one kind keep the order in which they were opened.
    return sorted(able, key=lambda lane: lane.ability.kind)


# --------------------
# Deadlines at which a lane is checked again without an event: after a deferral or at a closed gate.
#
# A waiting message and an open gate are enough for delivery, so a deferral must also end by time. Senders
# are notified of messages that wait long at a closed gate. Only the deadlines are kept here: the reactor
# acts on them.

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
"""The pause after a deferral doubles from the first to the longest value."""
_MOST_DOUBLINGS: Final = 4
"""Number of doublings after which the pause is above the longest value."""
SHUT_S: Final = 30.0
"""How long messages may wait at a closed gate before their senders are notified."""
STUCK_S: Final = 2.0
"""How long an offer may be stuck at a dialog before its senders are notified.

Not at once, because the text of a new offer may have opened the dialog itself.
"""


NATIVE_S: Final = 5.0
"""How long a better lane may take to open before the terminal is used. Native ones try every half second."""


class Backoff:
    """The deadlines of all lanes. `changed` is called when the next one may be earlier."""

    def __init__(self, clock: Clock, changed: Callable[[], None], *, native_wait_s: float = NATIVE_S) -> None:
        self._clock = clock
        self._native_wait_s = native_wait_s
        self._changed = changed
        self._deferred: dict[Lane, float] = {}
        self._shut: dict[Lane, float] = {}
        self._stuck: dict[Lane, float] = {}
        self._awaiting: dict[Lane, float] = {}

    def defer(self, lane: Lane, *, is_raw: bool) -> None:
        """Record a deferral. The pause doubles with each deferral in a row."""
        # The exponent is limited too: 2**1024, which a lane reaches within a day, is too large for a float.
        pause_s = min(FIRST_PAUSE_S * 2 ** min(lane.deferrals, _MOST_DOUBLINGS), LONGEST_PAUSE_S)
        lane.deferrals += 1
        # Separately, because keys and texts do not wait for the same things.
        if is_raw:
            lane.are_keys_deferred = True
        else:
            lane.is_deferred = True
        self._set(self._deferred, lane, pause_s)

    def try_again(self, lane: Lane) -> None:
        """Check a lane again after a pause, because a write failed."""
        # An existing pause is kept: repeated failures must not move the next check further away.
        if lane not in self._deferred:
            self._set(self._deferred, lane, FIRST_PAUSE_S)

    def resume(self, lane: Lane) -> None:
        """End a deferral, because something has changed."""
        lane.is_deferred = lane.are_keys_deferred = False
        self._deferred.pop(lane, None)

    def watch(self, lane: Lane, *, is_asleep: bool = False) -> None:
        """Set or clear the deadlines for a closed gate, and for offers that are stuck at a dialog.

        `is_asleep`: the gate is open, but the agent is idle and no lane can wake it.
        """
        if lane.level.is_open and not is_asleep:
            self._shut.pop(lane, None)
        # A known deadline is kept: each look at the agent comes here, and would postpone it.
        elif lane not in self._shut:
            self._set(self._shut, lane, SHUT_S)
        if not (lane.has_dialog and lane.offers):
            self._stuck.pop(lane, None)
        elif lane not in self._stuck:
            self._set(self._stuck, lane, STUCK_S)

    def watch_again(self, lane: Lane, wait_s: float) -> None:
        """Check a closed gate again after `wait_s`, because some messages have not waited long enough."""
        self._set(self._shut, lane, min(wait_s, SHUT_S))

    def await_better(self, lane: Lane) -> None:
        """Keep a terminal closed until the better lane that it awaits opens, for a limited time."""
        lane.is_awaiting = True
        self._set(self._awaiting, lane, self._native_wait_s)

    def stop_awaiting(self, lane: Lane) -> None:
        """Allow the use of a terminal: the better lane is open, or is of no use now, or the time is over."""
        lane.is_awaiting = False
        self._awaiting.pop(lane, None)

    def forget(self, lane: Lane) -> None:
        """Drop all deadlines of a lane."""
        for deadlines in (self._deferred, self._shut, self._stuck, self._awaiting):
            deadlines.pop(lane, None)

    def next_wait_s(self) -> float | None:
        """Return the time until the next deadline, or None if there is no deadline."""
        kinds = (self._deferred, self._shut, self._stuck, self._awaiting)
        deadlines = [deadline_s for kind in kinds for deadline_s in kind.values()]
        return max(0.0, min(deadlines) - self._clock.monotonic_s()) if deadlines else None

    def take_deferred(self) -> list[Lane]:
        """Return, once, the lanes whose pause is over."""
        return self._take(self._deferred)

    def take_shut(self) -> list[Lane]:
        """Return, once, the lanes whose gate has been closed for `SHUT_S`."""
        return self._take(self._shut)

    def take_stuck(self) -> list[Lane]:
        """Return, once, the lanes on which an offer has been stuck at a dialog for `STUCK_S`."""
        return self._take(self._stuck)

    def take_awaiting(self) -> list[Lane]:
        """Return, once, the terminals that have waited long enough for a better lane."""
        return self._take(self._awaiting)

    def _take(self, deadlines: dict[Lane, float]) -> list[Lane]:
        now_s = self._clock.monotonic_s()
        over = [lane for lane, deadline_s in deadlines.items() if deadline_s <= now_s]
        for lane in over:
            del deadlines[lane]
        return over

    def _set(self, deadlines: dict[Lane, float], lane: Lane, wait_s: float) -> None:
        deadlines[lane] = self._clock.monotonic_s() + wait_s
        self._changed()


# --------------------
# Deadlines for lanes that report no outcome. Only the deadlines are kept here: the reactor acts on them.
#
# While its agent is idle, a lane has a limited time to report the outcome of an offer. A submitted message
# that no lane has claimed, because a connection was lost, has a limited time to be claimed by the next
# connection.

CLAIM_S: Final = IDLE_WAIT_S


class SilenceLimits:
    """The ends of all waits. `changed` is called when the next one may be earlier."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._offers: dict[Lane, dict[int, float]] = {}
        """For each open offer of an idle agent, the time at which the wait ends."""
        self._strays: dict[str, float] = {}
        """Agents with submitted messages that no lane has claimed, and the time at which the wait ends."""

    def watch(self, lanes: Sequence[Lane], *, is_idle: bool) -> None:
        """Start the wait for the open offers of an idle agent. Stop it if the agent is not idle."""
        now_s = self._clock.monotonic_s()
        for lane in lanes:
            known = self._offers.pop(lane, {})
            if is_idle and lane.offers:
                end_s = now_s + lane.ability.idle_wait_s
                # A known offer keeps its end: each look at the agent comes here, and would postpone it.
                self._offers[lane] = {number: known.get(number, end_s) for number in lane.offers}
                if not known.keys() >= lane.offers.keys():
                    self._changed()

    def stray(self, agent: str) -> None:
        """Start the wait for a lane that claims the submitted messages of an agent."""
        self._strays[agent] = self._clock.monotonic_s() + CLAIM_S
        self._changed()

    def forget(self, lane: Lane) -> None:
        """Drop the waits of a lane."""
        self._offers.pop(lane, None)

    def next_wait_s(self) -> float | None:
        """Return the time until the next deadline, or None if there is no deadline."""
        deadlines = [*self._strays.values()]
        for offers in self._offers.values():
            deadlines += offers.values()
        return max(0.0, min(deadlines) - self._clock.monotonic_s()) if deadlines else None

    def take_silent(self) -> list[tuple[Lane, int]]:
        """Return the offers whose wait is over. For an offer that stays open, the wait starts again.

        So the outcome is tried again later if the caller could not write it.
        """
        now_s = self._clock.monotonic_s()
        over = [
            (lane, number)
            for lane, offers in self._offers.items()
            for number, end_s in offers.items()
            if end_s <= now_s
        ]
        for lane, number in over:
            self._offers[lane][number] = now_s + lane.ability.idle_wait_s
        return over

    def take_strays(self) -> list[str]:
        """Return, once, the agents whose messages were not claimed in time."""
        now_s = self._clock.monotonic_s()
        over = [agent for agent, end_s in self._strays.items() if end_s <= now_s]
        for agent in over:
            del self._strays[agent]
        return over
