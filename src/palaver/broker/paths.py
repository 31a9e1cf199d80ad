"""Path subscriptions, sessions and dead letters: rights, limits, and the events that change them.

All subscriptions and sessions of an agent are decided on one key, so that the limit holds and a repeat
writes nothing.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from palaver.broker.context import Context, Written
from palaver.broker.ledger import report
from palaver.domain.rights import can, reaches_others, require, require_mailbox
from palaver.errors import BadRequest, NotFound, NotYou, UnknownRecipient, cut_name
from palaver.log.api import Decide
from palaver.protocol.address import check_path
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Draft
from palaver.protocol.events import (
    DEAD_CLEARED,
    PATH_SUBSCRIBED,
    PATH_UNSUBSCRIBED,
    SESSION_CREATED,
    SESSION_REMOVED,
    DeadLettersCleared,
    DeliveryReport,
    EventBody,
    PathSubscribed,
    PathUnsubscribed,
    SessionCreated,
    SessionRemoved,
    State,
)
from palaver.protocol.message import HUMAN
from palaver.protocol.paths import (
    LIMIT_SUBSCRIPTIONS,
    MAIN,
    REMOVED,
    ClearDeadLetters,
    CreateSession,
    RemoveSession,
    SubscribePath,
    UnsubscribePath,
    check_session,
    mailbox_of,
)
from palaver.protocol.requests import ReportDelivery
from palaver.protocol.text import check_text
from palaver.state.agents import read_mail
from palaver.state.paths import (
    count_path_subscriptions,
    is_subscribed,
    read_agent_session,
)
from palaver.state.rows import Rows

_LIMIT_TITLE_BYTES: Final = 1024
_AT_ONCE: Final = 200


async def subscribe(context: Context, caller: Caller, request: SubscribePath, key: bytes | None) -> Written:
    """Write a path subscription, unless there is one already or it is the agent's own path."""
    _check_owner(context, caller, request.agent)
    pattern = check_path(request.pattern)
    own = _own_paths(context, request.agent)
    if not request.session and pattern in own:
        return Written(event=None)
    if reaches_others(pattern, own):
        require(caller, Standing.OPERATOR, "sub add for the paths of other agents")
    if request.session:
        check_session(request.session)
    mailbox = mailbox_of(request.agent, request.session)
    body = PathSubscribed(agent=request.agent, pattern=pattern, session=request.session)
    draft = _draft(context, caller, PATH_SUBSCRIBED, body)

    def decide(rows: Rows) -> Draft | None:
        if is_subscribed(rows, mailbox, pattern):
            return None
        if count_path_subscriptions(rows, request.agent) >= LIMIT_SUBSCRIPTIONS:
            raise BadRequest(
                f"an agent has at most {LIMIT_SUBSCRIPTIONS} path subscriptions, with those of its sessions; "
                "remove one with 'pal sub rm PATTERN'"
            )
        return draft

    return await _commit(context, request.agent, decide, key)


async def unsubscribe(
    context: Context, caller: Caller, request: UnsubscribePath, key: bytes | None
) -> Written:
    """Write the end of a path subscription, if there is one."""
    _check_owner(context, caller, request.agent)
    pattern = check_path(request.pattern)
    if not request.session and pattern in _own_paths(context, request.agent):
        raise BadRequest("Cannot unsubscribe from auto-subscription")
    mailbox = mailbox_of(request.agent, request.session)
    body = PathUnsubscribed(agent=request.agent, pattern=pattern, session=request.session)
    draft = _draft(context, caller, PATH_UNSUBSCRIBED, body)
    return await _commit(
        context, request.agent, lambda rows: draft if is_subscribed(rows, mailbox, pattern) else None, key
    )


async def create_session(
    context: Context, caller: Caller, request: CreateSession, key: bytes | None
) -> Written:
    """Write a new session, or the changed title or harness session of an existing one."""
    _check_owner(context, caller, request.agent, allows_operator=True)
    check_session(request.session)
    for what, text in (("title", request.title), ("harness session", request.harness_session)):
        check_text(text or "", f"the {what}", _LIMIT_TITLE_BYTES)
    now, id_ = context.clock.now_ms(), context.ids.next()

    def decide(rows: Rows) -> Draft | None:
        known = read_agent_session(rows, request.agent, request.session)
        title = request.title if request.title is not None else known.title if known else ""
        old_harness = (known.harness_session or "") if known else ""
        harness = request.harness_session if request.harness_session is not None else old_harness
        if known is not None and (title, harness) == (known.title, old_harness):
            return None
        body = SessionCreated(
            agent=request.agent, session=request.session, title=title, harness_session=harness
        )
        return _draft(context, caller, SESSION_CREATED, body, id_=id_, now=now)

    return await _commit(context, request.agent, decide, key)


async def remove_session(
    context: Context, caller: Caller, request: RemoveSession, key: bytes | None
) -> Written:
    """Write the end of a session. Its waiting messages become dead: no one can take them any more."""
    _check_owner(context, caller, request.agent, allows_operator=True)
    if request.session == MAIN:
        raise BadRequest("the session main is the default session of its agent, and cannot be removed")
    body = SessionRemoved(agent=request.agent, session=request.session)
    draft = _draft(context, caller, SESSION_REMOVED, body)

    def decide(rows: Rows) -> Draft:
        if read_agent_session(rows, request.agent, request.session) is None:
            raise NotFound(
                f"session {cut_name(request.session)} of {request.agent}",
                f"'pal session list {request.agent}' shows them",
            )
        return draft

    written = await _commit(context, request.agent, decide, key)
    await _end_mail(context, caller, mailbox_of(request.agent, request.session))
    return written


async def _end_mail(context: Context, caller: Caller, mailbox: str) -> None:
    """End the waiting messages. Delivery ends one that a lane carries if it comes back."""
    while seqs := list(islice(_waiting(context.log.rows, mailbox), _AT_ONCE)):
        dead = DeliveryReport(agent=mailbox, messages=tuple(seqs), state=State.DEAD, reason=REMOVED)
        await report(context, caller, ReportDelivery(report=dead), None)


def _waiting(rows: Rows, mailbox: str) -> Iterator[int]:
    return (mail.seq for mail in read_mail(rows, mailbox) if mail.state in (State.QUEUED, State.HELD))


async def clear_dead_letters(
    context: Context, caller: Caller, request: ClearDeadLetters, key: bytes | None
) -> Written:
    """Write that the list of dead letters is empty from now on."""
    body = DeadLettersCleared(up_to=context.log.last())
    draft = _draft(context, caller, DEAD_CLEARED, body)
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)


def _check_owner(context: Context, caller: Caller, agent: str, *, allows_operator: bool = False) -> None:
    """Refuse a caller that is not the agent; an operator may manage the sessions of others."""
    if caller.name == agent:
        require_mailbox(caller)
    elif not (allows_operator and can(caller.standing, Standing.OPERATOR)):
        raise NotYou(agent, caller.name)
    if agent != HUMAN and context.directory.get(agent) is None:
        raise UnknownRecipient({agent: context.directory.nearest(agent)})


def _own_paths(context: Context, agent: str) -> tuple[str, ...]:
    """Return the paths to which an agent is subscribed automatically. The person has none."""
    return () if agent == HUMAN else context.directory.paths_of(agent)


async def _commit(context: Context, agent: str, decide: Decide, key: bytes | None) -> Written:
    return Written(event=(await context.log.commit(f"paths/{agent}", decide, request_key=key)).event)


def _draft(
    context: Context, caller: Caller, type: str, body: EventBody, *, id_: str = "", now: int = 0
) -> Draft:
    return Draft(
        type=type,
        sender=caller.name,
        payload=msgspec.to_builtins(body),
        id=id_ or context.ids.next(),
        ts=now or context.clock.now_ms(),
        by=caller.by,
    )
