"""Select a lane and the messages for it. Reads only; claims nothing and offers nothing."""

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
    """The messages that must not use a lane: those it refused, and those a better lane has not refused.

    Messages arrive while the lanes are checked one by one. Without this rule, one could miss a better lane.
    """

    refused: Container[int]
    turned_down: Container[int] | None

    def __contains__(self, seq: object) -> bool:
        return seq in self.refused or (self.turned_down is not None and seq not in self.turned_down)


def pick(
    log: Log, agent: Agent, lanes: Sequence[Lane], mailbox: Mailbox, asking: Lane | None = None
) -> tuple[Lane, list[Event]] | None:
    """Return the best lane of an agent with the messages for it, or with those to hold for a dialog.

    A lane that pulls messages is selected only if it is `asking`.
    """
    if asking is None and (keys := _keys(log, lanes, mailbox)) is not None:
        return keys
    if is_limited(agent):
        return None  # its messages are held until the usage limit ends
    if asking is not None and any(lane.is_overtaken_by(asking) for lane in lanes):
        return None
    if asking is None and (asked := asked_lane(agent, lanes)) is not None:
        return _urgent(log, asked, mailbox)
    idle = agent.state == AgentState.IDLE
    blocked = agent.state == AgentState.BLOCKED or _is_compacting(agent)
    turned_down: set[int] | None = None
    for lane in lanes_in_order(lanes, idle=idle, asking=asking):
        if blocked and lane is not asking and not lane.is_behind_dialog and _has_dialog(lanes):
            # No lane is read before the dialog is answered. The lane with the dialog notifies the senders.
            continue
        if asking is not None and lane is not asking and lane.is_paced:
            continue  # the lane that asks is faster, and the rate limit does not apply to it
        if lane.is_shut or turned_down == set() or (lane.ability.is_pulled and lane is not asking):
            return None
        paused = agent.paused or lane.level.is_paused or lane.is_behind_dialog
        gate = Gate(idle=idle, blocked=blocked, paused=paused)
        not_here = _NotHere(lane.refused, turned_down)
        if seqs := passing(log.rows, mailbox, gate, lane.limit, without=not_here):
            # A queued message may not be readable yet. That is not a failure: an event follows when it is.
            events = list(filter(None, map(log.event, seqs)))
            return (lane, events) if events else None
        turned_down = lane.refused if turned_down is None else turned_down & lane.refused
    return None


def asked_lane(agent: Agent, lanes: Sequence[Lane]) -> Lane | None:
    """Return the lane that waits while the agent asks a person something, according to its stored state.

    None if the agent has a terminal, because its screen shows more reliably whether a dialog is open.
    """
    is_asked = agent.state == AgentState.BLOCKED and agent.detail.startswith((PERMISSION, QUESTION))
    live = [lane for lane in lanes if not lane.is_spent]
    if agent.left or not is_asked or any(lane.is_terminal for lane in live):
        return None
    return min(live, key=lambda lane: lane.ability.kind, default=None)


def _urgent(log: Log, lane: Lane, mailbox: Mailbox) -> tuple[Lane, list[Event]] | None:
    """Return the interrupts that must be held because of a dialog."""
    gate = Gate(idle=False, blocked=True, paused=True)
    seqs = passing(log.rows, mailbox, gate, LIMIT_INJECTION)
    events = list(filter(None, map(log.event, seqs)))
    return (lane, events) if events else None


def _has_dialog(lanes: Sequence[Lane]) -> bool:
    return any(lane.is_behind_dialog for lane in lanes)


def within(events: Sequence[Event], limit_text: int) -> Sequence[Event]:
    """Return the first messages whose texts fit into the limit, at least one; 0 means no limit."""
    if not limit_text:
        return events
    sizes = accumulate(len(readable_text(event)) for event in events)
    fitting = sum(1 for _ in takewhile(lambda size: size <= limit_text, sizes))
    return events[: max(1, fitting)]


def behind_gate(log: Log, agent: Agent, lane: Lane, mailbox: Mailbox) -> list[Event]:
    """Return the first messages that would use a lane if its gate were open, whatever closed it.

    Messages that a pause stops do not count, because they do not wait for the gate.
    """
    paused = agent.paused or lane.level.is_paused
    gate = Gate(idle=agent.state == AgentState.IDLE, blocked=False, paused=paused)
    seqs = passing(log.rows, mailbox, gate, LIMIT_INJECTION, without=lane.refused)
    return list(filter(None, map(log.event, seqs)))


def _is_compacting(agent: Agent) -> bool:
    """Return whether an agent is compacting its context: a message would get lost in between."""
    return agent.state == AgentState.ACTIVE and agent.detail == COMPACTING


def _keys(log: Log, lanes: Sequence[Lane], mailbox: Mailbox) -> tuple[Lane, list[Event]] | None:
    """Return raw keys and a terminal for them. They pass every gate and ignore the composer."""
    free = next((lane for lane in lanes if lane.can_take_keys), None)
    keys = None if free is None else next(mailbox.keys(), None)
    event = None if keys is None else log.event(keys.seq)
    return None if free is None or event is None else (free, [event])
