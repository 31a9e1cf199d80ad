"""Requests about delivery: acknowledge, report, queue again. Each one is a step of the ledger.

The ledger has the delivery state of each message for each recipient. A step that changes no state writes
nothing, so a repeat is harmless.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from palaver.broker.context import Context, Written
from palaver.broker.messages import find_message
from palaver.domain.rights import require_mailbox, require_own_mail
from palaver.errors import BadRequest
from palaver.log.api import Order
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import GRADES, DeliveryReport, State
from palaver.protocol.message import SYSTEM, format_priority, is_raw
from palaver.protocol.paths import mailbox_of, readable_mailbox, split_mailbox
from palaver.protocol.requests import Acknowledge, Redeliver, Release, ReportDelivery
from palaver.state.agents import can_step, read_line
from palaver.state.rows import Rows, answered_seq, deliverable


async def acknowledge(context: Context, caller: Caller, request: Acknowledge, key: bytes | None) -> Written:
    """Write that the caller has seen its own messages. Only their recipient can acknowledge them."""
    require_mailbox(caller)
    require_own_mail(caller)
    if request.grade not in GRADES:
        raise BadRequest(f"the grade of evidence must be one of {', '.join(GRADES)}")
    mailbox = mailbox_of(caller.name, request.session)
    # Only for a person or agent that names the messages itself: a program may acknowledge a message that has
    # gone another way meanwhile, which is not an error.
    if request.must_be_own:
        _check_own(context, mailbox, request.messages)
    seen = DeliveryReport(
        agent=mailbox,
        messages=request.messages,
        state=State.SEEN,
        lane=request.lane,
        grade=request.grade,
        tips=request.tips,
    )
    return await _write(context, caller, seen, key)


def _check_own(context: Context, mailbox: str, seqs: Sequence[int]) -> None:
    others = [seq for seq in seqs if read_line(context.log.rows, seq, mailbox) is None]
    if others:
        numbers = ", ".join(f"#{seq}" for seq in others)
        raise BadRequest(
            f"{numbers} {'was' if len(others) == 1 else 'were'} not sent to {readable_mailbox(mailbox)}; "
            f"nothing was marked as read. 'pal receipts {others[0]}' shows the recipients"
        )


async def report(context: Context, caller: Caller, request: ReportDelivery, key: bytes | None) -> Written:
    """Write a step that delivery has observed or decided."""
    return await _write(context, caller, request.report, key)


async def redeliver(context: Context, caller: Caller, request: Redeliver, key: bytes | None) -> Written:
    """Queue a message again for every recipient whose copy was submitted and not confirmed."""
    event = _find_whole(context, request.message)
    # Keys were meant for the screen at that time: later they may confirm something else.
    if is_raw(event):
        raise BadRequest(
            f"#{event.seq} contains raw keys, which are never typed again automatically; send them again"
        )
    written = await _requeue(context, caller, event, State.SUBMITTED, f"redelivered by {caller.name}", key)
    if written.event is None:
        raise BadRequest(
            f"#{event.seq} has no unconfirmed delivery; 'pal receipts {event.seq}' shows its deliveries"
        )
    return written


async def release(context: Context, caller: Caller, request: Release, key: bytes | None) -> Written:
    """Queue a message for every recipient whose copy is held."""
    event = _find_whole(context, request.message)
    written = await _requeue(context, caller, event, State.HELD, f"released by {caller.name}", key)
    if written.event is None:
        raise BadRequest(f"#{event.seq} is not held; 'pal receipts {event.seq}' shows its deliveries")
    return written


def _find_whole(context: Context, reference: str) -> Event:
    event = find_message(context.log, reference)
    if (blob := event.missing_blob) is not None:
        raise BadRequest(f"the content of #{event.seq} is lost: restore {blob} in blobs/ and try again")
    return event


async def _requeue(
    context: Context, caller: Caller, message: Event, state: State, reason: str, key: bytes | None
) -> Written:
    """Queue every copy of a message that is in one state: one event each; the last one is returned."""
    mail = deliverable(message)
    # A held reply answers nothing until it is released, so its release must say what it answers.
    answers = (answered_seq(message) or 0) if state is State.HELD else 0
    last = Written(event=None)
    for name in mail.delivered_to:
        again = DeliveryReport(
            agent=name,
            messages=(message.seq,),
            state=State.QUEUED,
            reason=reason,
            priority=format_priority(mail.priority),
            author=message.sender if answers else "",
            answers=answers,
        )
        # `only_from` is checked inside the commit: a copy may have been taken after the request was checked.
        written = await _write(context, caller, again, _key_for(key, name), only_from=state)
        last = last if written.event is None else written
    return last


def _key_for(key: bytes | None, name: str) -> bytes | None:
    """Return a separate request key for each event that a request writes.

    With one key, the second event would count as a repeat of the first one. A repeat of the request derives
    the same keys.
    """
    return None if key is None else hashlib.sha256(key + name.encode()).digest()[: len(key)]


async def _write(
    context: Context, caller: Caller, step: DeliveryReport, key: bytes | None, *, only_from: str = ""
) -> Written:
    """Write the part of a step that is news; the event names only the messages that it changes."""
    on, decide = step_order(context, caller, step, only_from=only_from)
    return Written(event=(await context.log.commit(on, decide, request_key=key)).event)


def step_order(context: Context, caller: Caller, step: DeliveryReport, *, only_from: str = "") -> Order:
    """Return the commit of a step, for a handler that makes several commits together.

    `only_from` limits it to messages in this state. The sender of a step of a session's mailbox is its agent.
    """
    # Drawn here: the ids belong to the event loop, and `decide` may be called again in the writer's thread.
    id_, now = context.ids.next(), context.clock.now_ms()
    agent = split_mailbox(step.agent)[0]
    is_own = caller.name == agent or caller.kind == SYSTEM

    def decide(rows: Rows) -> Draft | None:
        # Each message separately: some of a batch may have been seen or answered in another way meanwhile.
        moved = [seq for seq in dict.fromkeys(step.messages) if can_step(rows, step, seq)]
        if only_from:
            lines = {seq: read_line(rows, seq, step.agent) for seq in moved}
            moved = [seq for seq, line in lines.items() if line is not None and line.state == only_from]
        if not moved:
            return None
        # A dead letter has no mailbox, and a path may contain the `+` that separates an agent from its
        # session.
        is_path = read_line(rows, moved[0], step.agent) is None
        return Draft(
            type="delivery",
            sender=step.agent if is_path else agent,
            payload={**msgspec.to_builtins(step), "messages": moved},
            id=id_,
            ts=now,
            by=caller.by or (None if is_own else caller.name),
        )

    return f"ledger/{step.agent}", decide
