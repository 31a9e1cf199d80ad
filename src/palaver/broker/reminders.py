"""Reminders: a recipient that does not reply is reminded up to three times; then its sender is notified."""

from palaver.broker.context import Context, Written
from palaver.ids import derived_id
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft
from palaver.protocol.events import AgentState
from palaver.protocol.message import (
    INFORM,
    MENTIONS,
    MESSAGE,
    SYSTEM,
    Priority,
    build_payload,
    format_priority,
)
from palaver.protocol.requests import FireNag
from palaver.state.agents import read_agent
from palaver.state.reminders import LIMIT_NAGS, Nag, NagDue, read_nag, read_nag_due
from palaver.state.rows import Rows


async def fire_nag(context: Context, caller: Caller, request: FireNag, key: bytes | None) -> Written:
    """Write a reminder, or the final notice to the sender, once; nothing if it was answered meanwhile.

    An agent that is active again is not reminded: it is checked when it becomes idle the next time.
    """

    def decide(rows: Rows) -> Draft | None:
        nag = read_nag(rows, request.agent, request.request)
        due = read_nag_due(rows, request.agent, request.request)
        if nag is None or due is None or (due.state == AgentState.IDLE and not _is_idle(rows, request.agent)):
            return None
        return _word(context, caller, nag, due)

    nag_key = f"nag/{request.agent}/{request.request}"
    return Written(event=(await context.log.commit(nag_key, decide, request_key=key)).event)


def _is_idle(rows: Rows, agent: str) -> bool:
    known = read_agent(rows, agent)
    return known is not None and known.state == AgentState.IDLE


def _word(context: Context, caller: Caller, nag: Nag, due: NagDue) -> Draft:
    is_reminder = due.state == AgentState.IDLE and nag.nags < LIMIT_NAGS
    to = nag.agent if is_reminder else nag.sender
    count = nag.nags + 1 if is_reminder else 0
    payload = build_payload(
        text=_text(nag, due, count),
        scope=MENTIONS,
        mentions=(to,),
        sender_kind=SYSTEM,
        delivered_to=(to,),
        intent=INFORM,
        # A reminder is delivered when its agent is idle; the sender is notified at once.
        priority=format_priority(Priority.IDLE) if is_reminder else None,
    )
    nagged = {"agent": nag.agent, "request": nag.request, "count": count}
    return Draft(
        type=MESSAGE,
        sender=caller.name,
        payload=payload | {"nag": nagged},
        to=(to,),
        id=derived_id(due.cause, "nag", nag.agent, str(nag.request), str(count)),
        ts=context.clock.now_ms(),
    )


def _text(nag: Nag, due: NagDue, count: int) -> str:
    if count:
        answer = f"pal send @{nag.sender} --reply-to {nag.request} -- TEXT"
        return (
            f"@{nag.agent} {nag.sender} waits for your answer to #{nag.request} "
            f"(reminder {count} of {LIMIT_NAGS}): {answer}"
        )
    if due.state == AgentState.IDLE:
        return (
            f"@{nag.sender} {nag.agent} has not answered #{nag.request} after {nag.nags} reminders: "
            "no more reminders are sent"
        )
    return f"@{nag.sender} {nag.agent} has stopped without answering #{nag.request}"
