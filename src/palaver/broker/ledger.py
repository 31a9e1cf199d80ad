"""Steps of the ledger: what became of a message for one recipient. States only rise; a repeat writes nothing."""

import msgspec

from palaver.broker.context import Context
from palaver.broker.lookup import find_message
from palaver.broker.messages import recipients_of
from palaver.broker.outcome import Written
from palaver.errors import BadRequest, WhoAreYou
from palaver.log.api import Rows
from palaver.log.fold import read_entry
from palaver.model.agent import Caller
from palaver.model.delivery import GRADES, State, can_rise
from palaver.model.envelope import Draft
from palaver.model.mail import DeliveryReport, Entry
from palaver.model.message import EXTERNAL
from palaver.model.request import Acknowledge, Redeliver, Report


async def acknowledge(context: Context, caller: Caller, request: Acknowledge, key: bytes | None) -> Written:
    """Write that the caller's own mail was seen. Taking mail is its owner's alone."""
    if caller.kind == EXTERNAL:
        raise WhoAreYou("a script has no mail of its own; join with 'pal join', or say whose with --as NAME")
    if request.grade not in GRADES:
        raise BadRequest(f"the grades of evidence are {', '.join(GRADES)}")
    report_ = DeliveryReport(
        agent=caller.name,
        messages=request.messages,
        state=State.SEEN,
        lane=request.lane,
        grade=request.grade,
    )
    return await _write(context, caller, report_, key)


async def report(context: Context, caller: Caller, request: Report, key: bytes | None) -> Written:
    """Write a step that delivery has learned or decided."""
    return await _write(context, caller, request.report, key)


async def redeliver(context: Context, caller: Caller, request: Redeliver, key: bytes | None) -> Written:
    """Put a message in line again for everyone whose copy was submitted and never confirmed."""
    event = find_message(context.log, request.message)
    last = Written(event=None)
    for name in recipients_of(event):
        entry = read_entry(context.log.rows, event.seq, name)
        if entry is not None and entry.state in (State.SUBMITTED, State.HELD):
            report_ = DeliveryReport(
                agent=name,
                messages=(event.seq,),
                state=State.QUEUED,
                reason=f"redelivered by {caller.name}",
                priority=str(event.payload.get("priority") or ""),
            )
            last = await _write(context, caller, report_, None)
    if last.event is None:
        raise BadRequest(f"nothing of #{event.seq} is unconfirmed or held; 'pal receipts {event.seq}' shows it")
    return last


async def _write(context: Context, caller: Caller, step: DeliveryReport, key: bytes | None) -> Written:
    """Write the part of a step that is news; the event names only the messages it moves."""
    id_, now = context.ids.next(), context.clock.now_ms()

    def decide(rows: Rows) -> Draft | None:
        moved = tuple(seq for seq in step.messages if _moves(read_entry(rows, seq, step.agent), step))
        if not moved:
            return None
        return Draft(
            type="delivery",
            sender=step.agent,
            payload=msgspec.to_builtins(msgspec.structs.replace(step, messages=moved)),
            id=id_,
            ts=now,
            by=caller.by or (caller.name if caller.name != step.agent else None),
        )

    commit = await context.log.commit(f"ledger/{step.agent}", decide, request_key=key)
    return Written(event=commit.event)


def _moves(entry: Entry | None, step: DeliveryReport) -> bool:
    old = State.QUEUED if entry is None else entry.state
    if step.state == State.QUEUED:
        return old in (State.SUBMITTED, State.HELD)
    if step.unconfirmed:
        return entry is not None and old == State.SUBMITTED and not entry.unconfirmed
    return can_rise(old, step.state)
