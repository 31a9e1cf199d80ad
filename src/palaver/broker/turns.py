"""Automatic turns: their configuration, start, end and skipping. One decision at a time for each session.

The events of a turn and those of its messages are written together: a message is `submitted` when its turn
starts, and `seen` when the result is stored.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from palaver.broker.context import SYSTEM_CALLER, Context, Written
from palaver.broker.ledger import step_order
from palaver.broker.messages import notify
from palaver.domain.rights import chain_of_batch, require_turns_of
from palaver.domain.turns import check_auto_run, failed_reason, held_notice
from palaver.errors import NotFound, UnknownRecipient, cut_name
from palaver.log.api import Order
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft
from palaver.protocol.events import (
    AUTO_TURN,
    AUTO_TURN_ERROR,
    AUTO_TURN_RESULT,
    SETTING,
    TURN_SKIPPED,
    AutoTurnError,
    AutoTurnResult,
    AutoTurnStarted,
    DeliveryReport,
    EventBody,
    Grade,
    SettingChanged,
    State,
    TurnSkipped,
)
from palaver.protocol.paths import MAIN, check_session, mailbox_of
from palaver.protocol.text import LIMIT_BODY_BYTES, check_text
from palaver.protocol.turns import (
    AUTO_RUN,
    TRIES,
    TURN_LANE,
    BatchMessage,
    FailTurn,
    FinishTurn,
    SetAutoRun,
    SkipTurn,
    StartTurn,
    batch_of_start,
)
from palaver.state.agents import find_mail
from palaver.state.paths import read_agent_session
from palaver.state.rows import Rows
from palaver.state.turns import read_auto_run, read_turn


async def set_auto_run(context: Context, caller: Caller, request: SetAutoRun, key: bytes | None) -> Written:
    """Write the configuration of an agent or session, unless it is the present one."""
    agent = context.directory.get(request.agent)
    if agent is None:
        raise UnknownRecipient({request.agent: context.directory.nearest(request.agent)})
    require_turns_of(caller, agent)
    if request.session:
        check_session(request.session)
    commit = await context.log.commit(*auto_run_order(context, caller, request), request_key=key)
    return Written(event=commit.event)


def auto_run_order(context: Context, caller: Caller, request: SetAutoRun, *, only_new: bool = False) -> Order:
    """Return the commit of a configuration. With `only_new`, one that is here already stays as it is."""
    check_auto_run(request.value)
    id_, now = context.ids.next(), context.clock.now_ms()

    def decide(rows: Rows) -> Draft | None:
        session = request.session
        if session not in ("", MAIN) and read_agent_session(rows, request.agent, session) is None:
            raise NotFound(
                f"session {cut_name(session)} of {request.agent}",
                f"create it with 'pal session create {request.agent} {session}'",
            )
        old = read_auto_run(rows, request.agent, session)
        if (old == request.value and type(old) is type(request.value)) or (only_new and old is not None):
            return None
        body = SettingChanged(
            key=AUTO_RUN, value=request.value, old=old, agent=request.agent, session=session
        )
        payload = {**msgspec.to_builtins(body), "key": AUTO_RUN, "value": request.value, "old": old}
        return Draft(type=SETTING, sender=caller.name, payload=payload, id=id_, ts=now, by=caller.by)

    return f"auto_run/{request.agent}", decide


async def start_turn(context: Context, caller: Caller, request: StartTurn, key: bytes | None) -> Written:
    """Write the start of a turn, unless one runs already or none of its messages waits any more."""
    if request.text:
        check_text(request.text, "the text", LIMIT_BODY_BYTES)
    id_, now = request.id or context.ids.next(), context.clock.now_ms()
    events = {one.seq: context.log.event(one.seq) for one in request.batch}

    def decide(rows: Rows) -> Draft | None:
        known = read_turn(rows, request.agent, request.session)
        batch = tuple(
            one
            for one in request.batch
            if events[one.seq] is not None and (request.started_by or _is_waiting(rows, one))
        )
        if known.active or not (batch or request.started_by):
            return None
        chain = chain_of_batch(event for one in batch if (event := events[one.seq]) is not None)
        seqs = {one.seq for one in batch}
        is_again = bool(known.failed_ms and seqs) and seqs <= {one.seq for one in known.batch}
        body = AutoTurnStarted(
            agent=request.agent,
            session=request.session,
            messages=tuple(one.seq for one in batch),
            mailboxes=tuple(one.mailbox for one in batch),
            attempt=known.attempt + 1 if is_again else 1,
            triage=request.triage,
            text=request.text,
            started_by=request.started_by,
            chain="" if chain is None else chain.id,
            hops=0 if chain is None else chain.hops,
        )
        return _draft(AUTO_TURN, request.agent, body, id_, now)

    def is_started(rows: Rows) -> bool:
        return bool(read_turn(rows, request.agent, request.session).active)

    steps = _steps(context, caller, request.batch, State.SUBMITTED, is_started)
    return await _write(context, request.agent, request.session, decide, steps)


async def finish_turn(context: Context, caller: Caller, request: FinishTurn, key: bytes | None) -> Written:
    """Write the result of a running turn; its messages are seen. A repeat writes nothing."""
    started, batch = _started(context, request.turn)
    id_, now = context.ids.next(), context.clock.now_ms()
    result = AutoTurnResult(
        agent=started.agent, session=started.session, turn=request.turn, text=request.text
    )

    def decide(rows: Rows) -> Draft | None:
        is_running = read_turn(rows, started.agent, started.session).active == request.turn
        return _draft(AUTO_TURN_RESULT, started.agent, result, id_, now) if is_running else None

    steps = _steps(context, caller, batch, State.SEEN, _is_ended(started), grade=Grade.HANDED)
    return await _write(context, started.agent, started.session, decide, steps)


async def fail_turn(context: Context, caller: Caller, request: FailTurn, key: bytes | None) -> Written:
    """Write that a running turn failed. Its messages are queued again; after the last try they are held."""
    started, batch = _started(context, request.turn)
    is_held = started.attempt >= TRIES
    id_, now = context.ids.next(), context.clock.now_ms()
    error = AutoTurnError(
        agent=started.agent,
        session=started.session,
        turn=request.turn,
        error=request.error,
        attempt=started.attempt,
        held=is_held,
    )
    reason = failed_reason(request.turn, request.error)

    def decide(rows: Rows) -> Draft | None:
        is_running = read_turn(rows, started.agent, started.session).active == request.turn
        return _draft(AUTO_TURN_ERROR, started.agent, error, id_, now) if is_running else None

    is_ended = _is_ended(started)
    steps = _steps(context, caller, batch, State.QUEUED, is_ended, reason="the automatic turn failed")
    if is_held:
        steps += _steps(context, caller, batch, State.HELD, is_ended, reason=reason, is_kept=True)
    written = await _write(context, started.agent, started.session, decide, steps)
    if is_held and written.event is not None:
        for one in batch:
            event = context.log.event(one.seq)
            if event is not None and (told := held_notice(event, one.mailbox, reason)) is not None:
                await notify(context, SYSTEM_CALLER, told, None)
    return written


async def skip_turn(context: Context, caller: Caller, request: SkipTurn, key: bytes | None) -> Written:
    """Write that a batch starts no turn. Its messages stay in their mailbox."""
    id_, now = context.ids.next(), context.clock.now_ms()
    body = TurnSkipped(
        agent=request.agent,
        session=request.session,
        messages=tuple(one.seq for one in request.batch),
        reason=request.reason,
        output=request.output,
    )

    def decide(rows: Rows) -> Draft | None:
        is_running = bool(read_turn(rows, request.agent, request.session).active)
        return None if is_running else _draft(TURN_SKIPPED, request.agent, body, id_, now)

    return await _write(context, request.agent, request.session, decide, [])


def _started(context: Context, turn: int) -> tuple[AutoTurnStarted, tuple[BatchMessage, ...]]:
    event = context.log.event(turn)
    if event is None or not isinstance(event.body, AutoTurnStarted):
        raise NotFound(f"automatic turn #{turn}")
    return event.body, batch_of_start(event.body)


def _is_waiting(rows: Rows, message: BatchMessage) -> bool:
    found = find_mail(rows, message.mailbox, message.seq)
    return found is not None and found[1].state == State.QUEUED


def _is_ended(started: AutoTurnStarted) -> Callable[[Rows], bool]:
    return lambda rows: not read_turn(rows, started.agent, started.session).active


_FROM: Final = {State.SUBMITTED: State.QUEUED, State.HELD: State.QUEUED}
"""The state in which a message must be for a step; submitted for every other step."""


def _steps(
    context: Context,
    caller: Caller,
    batch: Sequence[BatchMessage],
    state: State,
    is_due: Callable[[Rows], bool],
    *,
    grade: str = "",
    reason: str = "",
    is_kept: bool = False,
) -> list[Order]:
    """Return one commit for each mailbox, which moves its messages if the turn has started or ended.

    `is_kept`: a person must release them, so no lane holds them.
    """
    orders: list[Order] = []
    for mailbox in dict.fromkeys(one.mailbox for one in batch):
        step = DeliveryReport(
            agent=mailbox,
            messages=tuple(one.seq for one in batch if one.mailbox == mailbox),
            state=state,
            lane="" if is_kept else TURN_LANE,
            grade=grade,
            reason=reason,
        )
        on, decide = step_order(context, caller, step, only_from=_FROM.get(state, State.SUBMITTED))
        orders.append((on, _if_due(is_due, decide)))
    return orders


def _if_due(
    is_due: Callable[[Rows], bool], decide: Callable[[Rows], Draft | None]
) -> Callable[[Rows], Draft | None]:
    return lambda rows: decide(rows) if is_due(rows) else None


async def _write(
    context: Context,
    agent: str,
    session: str,
    decide: Callable[[Rows], Draft | None],
    steps: Sequence[Order],
) -> Written:
    """Write an event of a turn together with the steps of its messages."""
    first, *others = await context.log.commit_all([(f"turn/{mailbox_of(agent, session)}", decide), *steps])
    for one in (first, *others):
        if isinstance(one, Exception):
            raise one
    assert not isinstance(first, Exception)  # raised above
    return Written(event=first.event)


def _draft(type: str, agent: str, body: EventBody, id_: str, now: int) -> Draft:
    return Draft(type=type, sender=agent, payload=msgspec.to_builtins(body), id=id_, ts=now)
