"""Compose the notice that lists an agent's unconfirmed messages for its next session. Writes nothing.

It is for agents in a terminal of a holder. Hooks and native lanes send such a list when a session starts.
"""

from typing import Final

from palaver.log.api import Log
from palaver.log.state import read_agent, read_entry, read_unsure
from palaver.model.message import is_raw
from palaver.model.request import Notify

_LIMIT_NAMED: Final = 20
"""Seqs that are listed; the others are only counted."""


def unsure_notice(log: Log, agent: str) -> Notify | None:
    """Return the notice of unconfirmed messages; None if there are no such messages, or no holder.

    The same messages make the same notice, which is written only once and not for every session. If the
    notice itself is unconfirmed, its seq is part of the next notice.
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
