"""The numbers of what was handed to an agent and never confirmed, for its next session. Words only.

For agents that a holder has in a terminal: where hooks or a lane of the harness's own begin a session, these
say it there.
"""

from typing import Final

from palaver.log.api import Log
from palaver.log.state import read_agent, read_entry, read_unsure
from palaver.model.message import is_raw
from palaver.model.request import Notify

_LIMIT_NAMED: Final = 20


def unsure_notice(log: Log, agent: str) -> Notify | None:
    """Word which messages an agent may or may not have read; None when it is in no terminal, or has read all.

    The same messages again are the same notice, which is written once: whoever was given a number is not told
    in every session. When nobody knows whether the notice was read, its own number is among the next ones.
    """
    known = read_agent(log.rows, agent)
    if known is None or not known.holder:
        return None
    unsure = [
        (event, entry)
        for seq in read_unsure(log.rows, agent)
        if (event := log.event(seq)) and not is_raw(event) and (entry := read_entry(log.rows, seq, agent))
    ]
    if not unsure:
        return None
    attempts = ",".join(f"{event.seq}@{entry.submitted}" for event, entry in unsure)
    named = ", ".join(f"#{event.seq}" for event, _ in unsure[:_LIMIT_NAMED])
    more = f" and {len(unsure) - _LIMIT_NAMED} more" if len(unsure) > _LIMIT_NAMED else ""
    return Notify(
        to=agent,
        text=f"handed to you before, and maybe never read: {named}{more} ('pal show NUMBER' shows one)",
        cause=unsure[-1][0].id,
        kind=f"unsure {attempts}",
    )
