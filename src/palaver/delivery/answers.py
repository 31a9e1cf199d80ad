"""What a lane's word on its messages comes to. Asks the ledger for the step, and remembers refusals."""

from collections.abc import Sequence

from palaver.delivery.lane import Answer, Lane
from palaver.delivery.ledger import Ledger
from palaver.log.api import Log
from palaver.model.delivery import Grade, State
from palaver.model.message import is_raw


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
    await ledger.report(lane.agent, seqs, State.QUEUED, lane=lane.word, reason=reason)
