"""Which lane, and what goes through it now. Reads only; it takes nothing into a hand and offers nothing."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

from palaver.delivery.allowances import is_limited
from palaver.delivery.choice import passing
from palaver.delivery.gate import Gate
from palaver.delivery.lane import Lane, lanes_in_order
from palaver.delivery.taker import Mailbox
from palaver.harness.hook_states import COMPACTING, PERMISSION, QUESTION
from palaver.log.api import Log
from palaver.model.agent import Agent
from palaver.model.delivery import AgentState
from palaver.model.envelope import Event
from palaver.model.message import readable_text
from palaver.model.text import LIMIT_INJECTION


@dataclass(frozen=True, slots=True)
class _NotHere:
    """What may not go through a lane: what it refused, and what no better one has turned down.

    Mail comes in while lanes are looked at one by one. Without this it could pass a better lane unseen.
    """

    refused: Container[int]
    turned_down: Container[int] | None

    def __contains__(self, seq: object) -> bool:
        return seq in self.refused or (self.turned_down is not None and seq not in self.turned_down)


def pick(
    log: Log, agent: Agent, lanes: Sequence[Lane], mailbox: Mailbox, asking: Lane | None = None
) -> tuple[Lane, list[Event]] | None:
    """Find the best lane of an agent and what may go through it, or what its dialog must hold back.

    A lane that takes mail in moments of its own is chosen only when it is the one that asks.
    """
    if asking is None and (keys := _keys(log, lanes, mailbox)) is not None:
        return keys
    if is_limited(agent):
        return None  # its mail is held until it has an allowance again
    if asking is not None and any(lane.is_overtaken_by(asking) for lane in lanes):
        return None
    if asking is None and (asked := asked_lane(agent, lanes)) is not None:
        return _urgent(log, asked, mailbox)
    idle = agent.state == AgentState.IDLE
    blocked = agent.state == AgentState.BLOCKED or _is_compacting(agent)
    turned_down: set[int] | None = None
    for lane in lanes_in_order(lanes, idle=idle, asking=asking):
        if blocked and lane is not asking and not lane.is_behind_dialog and _has_dialog(lanes):
            continue  # nothing of it is read before the dialog is answered: who waits behind that is told
        if asking is not None and lane is not asking and lane.is_paced:
            continue  # whoever asks is sooner there, and passes no limit of the harness
        if lane.is_shut or turned_down == set() or (lane.ability.is_pulled and lane is not asking):
            return None
        paused = agent.paused or lane.level.is_paused or lane.is_behind_dialog
        gate = Gate(idle=idle, blocked=blocked, paused=paused)
        not_here = _NotHere(lane.refused, turned_down)
        if seqs := passing(log.rows, mailbox, gate, lane.limit, without=not_here):
            # In line and not yet readable is no failure of the lane: we are told when it is.
            events = list(filter(None, map(log.event, seqs)))
            return (lane, events) if events else None
        turned_down = lane.refused if turned_down is None else turned_down & lane.refused
    return None


def asked_lane(agent: Agent, lanes: Sequence[Lane]) -> Lane | None:
    """Give the lane behind which mail waits while a person is asked something, as only the state tells it.

    Where a terminal is held its screen says better whether a dialog is still open.
    """
    is_asked = agent.state == AgentState.BLOCKED and agent.detail.startswith((PERMISSION, QUESTION))
    live = [lane for lane in lanes if not lane.is_spent]
    if agent.left or not is_asked or any(lane.is_terminal for lane in live):
        return None
    return min(live, key=lambda lane: lane.ability.kind, default=None)


def _urgent(log: Log, lane: Lane, mailbox: Mailbox) -> tuple[Lane, list[Event]] | None:
    """Give the interrupts that a dialog must hold back."""
    gate = Gate(idle=False, blocked=True, paused=True)
    seqs = passing(log.rows, mailbox, gate, LIMIT_INJECTION)
    events = list(filter(None, map(log.event, seqs)))
    return (lane, events) if events else None


def _has_dialog(lanes: Sequence[Lane]) -> bool:
    return any(lane.is_behind_dialog for lane in lanes)


def within(events: Sequence[Event], limit_text: int) -> Sequence[Event]:
    """Give the first of some messages whose texts fit together, one in any case; 0 is no limit."""
    if not limit_text:
        return events
    sizes = accumulate(len(readable_text(event)) for event in events)
    fitting = sum(1 for _ in takewhile(lambda size: size <= limit_text, sizes))
    return events[: max(1, fitting)]


def behind_gate(log: Log, agent: Agent, lane: Lane, mailbox: Mailbox) -> list[Event]:
    """Give the first of what would go through a terminal if its gate were open, whatever closed it.

    What a pause keeps back does not wait for the gate.
    """
    paused = agent.paused or lane.level.is_paused
    gate = Gate(idle=agent.state == AgentState.IDLE, blocked=False, paused=paused)
    seqs = passing(log.rows, mailbox, gate, LIMIT_INJECTION, without=lane.refused)
    return list(filter(None, map(log.event, seqs)))


def _is_compacting(agent: Agent) -> bool:
    """Whether an agent makes its context shorter: what comes now would be in neither of the two."""
    return agent.state == AgentState.ACTIVE and agent.detail == COMPACTING


def _keys(log: Log, lanes: Sequence[Lane], mailbox: Mailbox) -> tuple[Lane, list[Event]] | None:
    """Raw keys go into a terminal past every gate, and beside what stands in its composer."""
    free = next((lane for lane in lanes if lane.can_take_keys), None)
    keys = None if free is None else next(mailbox.keys(), None)
    event = None if keys is None else log.event(keys.seq)
    return None if free is None or event is None else (free, [event])
