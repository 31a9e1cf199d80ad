"""Turn the outcome that a lane reports into a ledger step, and remember refusals."""

from collections.abc import Sequence
from typing import Final

from palaver.delivery.lane import Answer, Lane, Offer
from palaver.delivery.ledger import Ledger
from palaver.log.api import Log
from palaver.model.delivery import Grade, State
from palaver.model.envelope import Event
from palaver.model.mail import deliverable
from palaver.model.message import is_raw
from palaver.model.priority import format_priority

_LIMIT_LATE: Final = 100
"""Offers per lane for which a late outcome is still accepted; the oldest is dropped."""


async def take_word(
    log: Log,
    ledger: Ledger,
    lane: Lane,
    seqs: Sequence[int],
    answer: Answer,
    *,
    grade: str = "",
    reason: str = "",
    evidence: str = "",
) -> None:
    """Write the outcome of some messages: seen, unconfirmed, refused, or queued again.

    Refused raw keys stay refused, because they were meant for this terminal at that time. Other refused
    messages are queued again for another lane.
    """
    if answer is Answer.SEEN:
        grade = grade or Grade.HANDED
        await ledger.report(lane.agent, seqs, State.SEEN, lane=lane.word, grade=grade, evidence=evidence)
        return
    if answer is Answer.UNCONFIRMED:
        await ledger.unconfirmed(lane.agent, seqs, lane=lane.word)
        return
    if answer is Answer.REFUSED:
        if keys := [event for event in map(log.event, seqs) if event is not None and is_raw(event)]:
            await ledger.refused(lane.agent, keys, lane=lane.word, reason=reason, evidence=evidence)
        lane.refused.update(seqs)
    doubted = [seq for seq in seqs if _is_doubted(ledger, seq, lane.agent)]
    await _queue_again(ledger, lane, list(filter(None, map(log.event, doubted))), reason)
    on_their_way = [seq for seq in seqs if seq not in doubted]
    await ledger.report(lane.agent, on_their_way, State.QUEUED, lane=lane.word, reason=reason)


def keep_late(lane: Lane, offer: Offer) -> None:
    """Remember an offer whose wait has ended, because a late outcome still counts."""
    lane.late[offer.number] = offer
    while len(lane.late) > _LIMIT_LATE:
        del lane.late[next(iter(lane.late))]


async def take_late_word(
    ledger: Ledger, lane: Lane, number: int, answer: Answer, *, grade: str = "", reason: str = ""
) -> None:
    """Write a late outcome of an offer. An offer that is not remembered has an outcome already: do nothing.

    A message that was seen is recorded as seen. A message that certainly did not arrive is queued again with
    its old priority and order, except raw keys, which were meant for that time only.
    """
    offer = lane.late.get(number)
    if offer is None:
        return
    if answer is Answer.SEEN:
        grade = grade or Grade.HANDED
        await ledger.report(lane.agent, offer.seqs, State.SEEN, lane=lane.word, grade=grade)
    elif answer is not Answer.UNCONFIRMED:
        doubted = [event for event in offer.events if _is_doubted(ledger, event.seq, lane.agent)]
        await _queue_again(ledger, lane, doubted, reason)
    # Only after the write: if it fails, the same outcome can be reported again.
    lane.late.pop(number, None)


def _is_doubted(ledger: Ledger, seq: int, agent: str) -> bool:
    entry = ledger.entry(seq, agent)
    return entry is not None and entry.unconfirmed


async def _queue_again(ledger: Ledger, lane: Lane, doubted: Sequence[Event], reason: str) -> None:
    """Queue unconfirmed messages again with their old priority and order, except raw keys."""
    for event in doubted:
        if not is_raw(event):
            priority = format_priority(deliverable(event).priority)
            await ledger.report(
                lane.agent, (event.seq,), State.QUEUED, lane=lane.word, reason=reason, priority=priority
            )
