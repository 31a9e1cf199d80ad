"""What a lane's word on its messages comes to. Asks the ledger for the step, and remembers refusals."""

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
    """Have written what a lane says of some messages: seen, in doubt, or in line again.

    Raw keys that are refused are refused for good: they were for this very terminal and moment.
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
    """Remember an offer whose wait is over: a late word on it still counts."""
    lane.late[offer.number] = offer
    while len(lane.late) > _LIMIT_LATE:
        del lane.late[next(iter(lane.late))]


async def take_late_word(
    ledger: Ledger, lane: Lane, number: int, answer: Answer, *, grade: str = "", reason: str = ""
) -> None:
    """Take a lane's word on an offer whose wait was over. An offer that it does not know was answered before.

    What was seen after all is seen. What certainly did not arrive is queued again in its old place, but for
    keys, which were meant for that moment.
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
    lane.late.pop(number, None)  # Only now: an answer that could not be written down can be given again.


def _is_doubted(ledger: Ledger, seq: int, agent: str) -> bool:
    entry = ledger.entry(seq, agent)
    return entry is not None and entry.unconfirmed


async def _queue_again(ledger: Ledger, lane: Lane, doubted: Sequence[Event], reason: str) -> None:
    """Queue what had left the line in its old place, but for keys, which were meant for that moment."""
    for event in doubted:
        if not is_raw(event):
            priority = format_priority(deliverable(event).priority)
            await ledger.report(
                lane.agent, (event.seq,), State.QUEUED, lane=lane.word, reason=reason, priority=priority
            )
