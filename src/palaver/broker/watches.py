"""Notify the senders of unanswered requests.

A notice is decided on the single key of its watch, so a watch notifies once.
"""

from palaver.broker.context import Context, Written
from palaver.ids import derived_id
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import AgentState
from palaver.protocol.message import INFORM, MENTIONS, MESSAGE, SYSTEM, build_payload
from palaver.protocol.subscriptions import FireWatch, WatchDue, format_watch_id
from palaver.state.agents import read_agent, read_seen
from palaver.state.rows import Rows
from palaver.state.watches import read_due, read_watch


async def fire_watch(context: Context, caller: Caller, request: FireWatch, key: bytes | None) -> Written:
    """Write that a request is unanswered, once; nothing if it was answered or the watch ended meanwhile."""
    message = context.log.event(request.request) if request.is_waiting else None
    extra: dict[str, object] = {"watch": {"agent": request.agent, "request": request.request}}

    def decide(rows: Rows) -> Draft | None:
        watch = read_watch(rows, request.agent, request.request)
        due = read_due(rows, request.agent, request.request)
        if due is None and message is not None:
            due = _due_by_wait(rows, message, request.agent)
        if watch is None or due is None:
            return None
        text = f"@{watch.sender} {watch.agent} is now {due.state} (request #{watch.request})"
        id_ = derived_id(due.cause, "watch", watch.agent, str(watch.request))
        return notice_draft(context, caller, watch.sender, text, id_, extra)

    watch_key = f"subscription/{format_watch_id(request.agent, request.request)}"
    return Written(event=(await context.log.commit(watch_key, decide, request_key=key)).event)


def _due_by_wait(rows: Rows, message: Event, name: str) -> WatchDue | None:
    """Return that an agent that waits again is idle; None if it has not seen the request, or works.

    A harness reports by itself when its agent works or is idle: it may wait for messages in the background.
    """
    agent = read_agent(rows, name)
    if agent is None or read_seen(rows, message.seq, name) is None:
        return None
    if agent.harness and agent.state != AgentState.IDLE:
        return None
    return WatchDue(state=AgentState.IDLE.value, cause=message.id)


def notice_draft(
    context: Context, caller: Caller, to: str, text: str, id: str, extra: dict[str, object]
) -> Draft:
    """Return a notice of the bus to one recipient. It needs no reply and matches no subscription."""
    payload = build_payload(
        text=text,
        scope=MENTIONS,
        mentions=(to,),
        sender_kind=SYSTEM,
        delivered_to=(to,),
        intent=INFORM,
    )
    return Draft(
        type=MESSAGE,
        sender=caller.name,
        payload=payload | extra,
        to=(to,),
        id=id,
        ts=context.clock.now_ms(),
    )
