"""Handle requests about subscriptions and reminders: rights, and the notices to their owners.

A notice is decided on the single key of its subscription. So a subscription with `once` notifies once.
"""

from dataclasses import replace

import msgspec

from palaver.broker.context import Context, Written
from palaver.broker.messages import notice_draft, send
from palaver.errors import BadRequest, NotAllowed, NotFound, NotPerson, RequestError, WhoAreYou, cut_name
from palaver.ids import derived_id
from palaver.log.api import Decide
from palaver.protocol.address import find_mentions
from palaver.protocol.agents import GUEST_ROLE, INSTANCE, Caller, Standing, caller_for, standing_of_role
from palaver.protocol.envelope import Draft
from palaver.protocol.events import AgentState, SubscriptionAdded, SubscriptionRemoved
from palaver.protocol.message import (
    EXTERNAL,
    HUMAN,
    INFORM,
    MENTIONS,
    MESSAGE,
    SYSTEM,
    Priority,
    build_payload,
    format_priority,
)
from palaver.protocol.requests import FireReminder, Send
from palaver.protocol.subscriptions import (
    COLLISION,
    LIMIT_FILTER_WORDS,
    LIMIT_SAY_BYTES,
    PRESETS,
    SUB_ADDED,
    SUB_REMOVED,
    FireSubscription,
    Retire,
    Subscribe,
    Subscription,
    Unsubscribe,
    filter_values,
    filter_words,
    format_watch_id,
    parse_watch_id,
    subscription_id,
)
from palaver.protocol.text import check_text
from palaver.state.agents import read_agent
from palaver.state.rows import Rows
from palaver.state.watches import (
    LIMIT_REMINDERS,
    Reminder,
    ReminderDue,
    read_reminder,
    read_reminder_due,
    read_subscription,
    read_subscriptions,
    read_watch,
)

_LIMIT_WORD_BYTES = 1024
_PERSON = Caller(name=HUMAN, standing=Standing.HUMAN, kind=HUMAN)


async def subscribe(context: Context, caller: Caller, request: Subscribe, key: bytes | None) -> Written:
    """Store a subscription. The event has the id by which it can be ended.

    If its owner has the same subscription already, return that one.
    """
    owner = _owner(context, caller, request.owner)
    _check(request)
    while True:
        id_ = context.ids.next()
        made = _made(caller, request, owner, id_)
        draft = _added(context, caller, made, id_)
        # All subscriptions of an owner are decided on one key, so that two equal ones are one.
        commit = await context.log.commit(
            f"subscriptions/{owner}", _unless_known(made, draft), request_key=key
        )
        if commit.event is not None:
            return Written(event=commit.event)
        if (known := _same(context.log.rows, made)) is not None:
            return Written(event=await context.log.fetch(known.seq))
        # Another subscription has that short id: the next event id results in another one.


def _made(caller: Caller, request: Subscribe, owner: str, id_: str) -> Subscription:
    return Subscription(
        id=subscription_id(id_),
        owner=owner,
        filter=request.filter,
        once=request.once,
        preset=request.preset,
        text=request.text,
        send=request.send,
        by="" if owner == caller.name else caller.name,
    )


def _added(context: Context, caller: Caller, made: Subscription, id_: str) -> Draft:
    return Draft(
        type=SUB_ADDED,
        sender=caller.name,
        payload=msgspec.json.decode(msgspec.json.encode(made)),
        id=id_,
        ts=context.clock.now_ms(),
        by=caller.by,
    )


def _key(draft: Draft) -> str:
    return f"subscription/{_id(draft)}"


def _unless_known(made: Subscription, draft: Draft) -> Decide:
    return lambda rows: None if read_subscription(rows, made.id) or _same(rows, made) else draft


def _same(rows: Rows, made: Subscription) -> Subscription | None:
    """Return the owner's active subscription that is the same: its id, time and creator may differ.

    The order of the values of a filter makes no difference either.
    """
    # With these fields replaced, the rest can be compared as a whole: a new field is then compared too.
    fields = {"id": made.id, "seq": made.seq, "ts": made.ts, "by": made.by, "filter": made.filter}
    wanted = filter_values(made.filter)
    own = (one for one in read_subscriptions(rows) if one.owner == made.owner)
    same = (one for one in own if filter_values(one.filter) == wanted)
    return next((one for one in same if msgspec.structs.replace(one, **fields) == made), None)


def _id(draft: Draft) -> str:
    body = draft.body
    assert isinstance(body, SubscriptionAdded | SubscriptionRemoved)
    assert body.id is not None  # both types have one
    return body.id


def _owner(context: Context, caller: Caller, name: str) -> str:
    """Return the owner of a new subscription. The human decides for any agent, an agent for its children."""
    wanted = name.removeprefix("@").lower()
    if wanted in ("", caller.name):
        if caller.kind == EXTERNAL:
            raise WhoAreYou(
                "a script has no mailbox; join with 'pal join', or choose an agent with --for NAME"
            )
        return caller.name
    if wanted == HUMAN:
        raise NotPerson("only a person can subscribe for @human")
    agent = context.directory.get(wanted)
    if agent is None:
        near = context.directory.nearest(wanted)
        raise NotFound(
            f"agent {cut_name(wanted)}",
            f"did you mean {', '.join(near)}?" if near else "'pal list' shows the agents",
        )
    is_child = caller.kind == INSTANCE and agent.by == caller.name
    is_worker = standing_of_role(agent.role) <= Standing.WORKER and agent.role != GUEST_ROLE
    is_for_worker = caller.kind == EXTERNAL and is_worker
    if caller.is_person or is_child or is_for_worker:
        return agent.name
    raise NotPerson(
        f"{caller.name} can subscribe only for itself and the agents it started; {agent.name} is not one "
        "of them"
    )


def _check(request: Subscribe) -> None:
    words = filter_words(request.filter)
    if request.preset and request.preset not in PRESETS:
        raise BadRequest(f"no such preset: {request.preset!r}; the presets are {', '.join(PRESETS)}")
    if not words and request.preset != COLLISION:
        raise BadRequest("a subscription needs a filter; without one it would match every event")
    if len(words) > LIMIT_FILTER_WORDS:
        raise BadRequest(
            f"a subscription has at most {LIMIT_FILTER_WORDS} filters; this one has {len(words)}"
        )
    for word in words:
        check_text(word, "the filter", _LIMIT_WORD_BYTES)
    for text in (request.text, request.send):
        check_text(text, "the text", LIMIT_SAY_BYTES)


async def unsubscribe(context: Context, caller: Caller, request: Unsubscribe, key: bytes | None) -> Written:
    """Write that a subscription or a watch has ended. Only its owner and the human may end it."""
    gone = request.id.lower()
    watch = parse_watch_id(request.id)
    if watch is not None:
        gone = format_watch_id(*watch)
    draft = _removed(context, caller, gone, f"removed by {caller.name}")

    def decide(rows: Rows) -> Draft:
        owner = _owner_of(rows, gone)
        if owner is None:
            raise NotFound(
                f"subscription {cut_name(request.id)}", "'pal events subs' shows yours, --all shows all"
            )
        # Inside the commit, because the short id may belong to another owner's subscription by now.
        if not caller.is_person and caller.name != owner:
            raise NotAllowed("events unsub", caller.standing.word, "its owner or a person")
        return draft

    return Written(event=(await context.log.commit(_key(draft), decide, request_key=key)).event)


def _owner_of(rows: Rows, id: str) -> str | None:
    if (watch := parse_watch_id(id)) is not None:
        watched = read_watch(rows, *watch)
        return None if watched is None else watched.sender
    subscription = read_subscription(rows, id)
    return None if subscription is None or subscription.spent else subscription.owner


async def retire(context: Context, caller: Caller, request: Retire, key: bytes | None) -> Written:
    """Write, once, that a subscription with `once` has ended."""
    draft = _removed(context, caller, request.id, "once")

    def decide(rows: Rows) -> Draft | None:
        subscription = read_subscription(rows, request.id)
        return draft if subscription is not None and subscription.spent else None

    return Written(event=(await context.log.commit(_key(draft), decide, request_key=key)).event)


def _removed(context: Context, caller: Caller, id: str, reason: str) -> Draft:
    return Draft(
        type=SUB_REMOVED,
        sender=caller.name,
        payload={"id": id, "reason": reason},
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.by,
    )


async def fire_subscription(
    context: Context, caller: Caller, request: FireSubscription, key: bytes | None
) -> Written:
    """Write a hit, once per event; nothing if the subscription has ended meanwhile.

    Before it, send the text of the subscription: the notice says what became of it.
    """
    remark = await _send(context, caller, request)
    # With the seq of the subscription: a later one may have the same short id and match the same event.
    id_ = derived_id(request.cause, "hit", str(request.event), request.id, str(request.made))
    extra: dict[str, object] = {"sub": request.id, "event": request.event}
    if request.agents:
        extra |= {"agents": list(request.agents), "file": request.file}

    def decide(rows: Rows) -> Draft | None:
        known = read_subscription(rows, request.id)
        # The short id may belong to a later subscription by now: then the seq differs.
        if known is None or known.spent or known.seq != request.made:
            return None
        return notice_draft(context, caller, known.owner, request.text + remark, id_, extra)

    commit = await context.log.commit(f"subscription/{request.id}", decide, request_key=key)
    return Written(event=commit.event)


async def _send(context: Context, caller: Caller, request: FireSubscription) -> str:
    """Send the text of a subscription to the agents that it mentions, in its owner's name and rights.

    The same event again is the same message, and with `once` every event. Return a remark for the notice.
    """
    known = read_subscription(context.log.rows, request.id)
    if known is None or known.spent or known.seq != request.made or not find_mentions(known.send):
        return ""
    # The owner's rights, not those of the bus: a subscription must not send more than its owner could.
    owner = context.directory.get(known.owner)
    # Only the person can own a subscription without being in the directory, which never loses an agent.
    sender = _PERSON if owner is None else caller_for(owner)
    # With `once` the cause is not part of the id: events at the same time, or after a crash, send one
    # message.
    words = (known.id, str(known.seq)) if known.once else (request.cause, known.id, str(known.seq))
    id_ = derived_id(*words, "send")
    try:
        text = Send(text=known.send, has_mentions=True, id=id_)
        sent = await send(context, replace(sender, by=caller.name), text, None)
    except RequestError as error:
        return f"; its text was not delivered: {error}"
    assert sent.event is not None  # it was not a dry run
    return f"; sent #{sent.event.seq} to {', '.join(sent.delivered_to) or 'no agent'}"


# --------------------
# Reminders: a recipient that does not reply is reminded up to three times; then its sender is notified.


async def fire_reminder(
    context: Context, caller: Caller, request: FireReminder, key: bytes | None
) -> Written:
    """Write a reminder, or the final notice to the sender, once; nothing if it was answered meanwhile.

    An agent that is active again is not reminded: it is checked when it becomes idle the next time.
    """

    def decide(rows: Rows) -> Draft | None:
        reminder = read_reminder(rows, request.agent, request.request)
        due = read_reminder_due(rows, request.agent, request.request)
        # Again, inside the commit: the reply, or a new status, may have come since the reactor looked.
        if (
            reminder is None
            or due is None
            or (due.state == AgentState.IDLE and not _is_idle(rows, request.agent))
        ):
            return None
        return _reminder_text(context, caller, reminder, due)

    reminder_key = f"nag/{request.agent}/{request.request}"
    return Written(event=(await context.log.commit(reminder_key, decide, request_key=key)).event)


def _is_idle(rows: Rows, agent: str) -> bool:
    known = read_agent(rows, agent)
    return known is not None and known.state == AgentState.IDLE


def _reminder_text(context: Context, caller: Caller, reminder: Reminder, due: ReminderDue) -> Draft:
    is_reminder = due.state == AgentState.IDLE and reminder.count < LIMIT_REMINDERS
    to = reminder.agent if is_reminder else reminder.sender
    count = reminder.count + 1 if is_reminder else 0
    payload = build_payload(
        text=_text(reminder, due, count),
        scope=MENTIONS,
        mentions=(to,),
        sender_kind=SYSTEM,
        delivered_to=(to,),
        intent=INFORM,
        # A reminder is delivered when its agent is idle; the sender is notified at once.
        priority=format_priority(Priority.IDLE) if is_reminder else None,
    )
    notice = {"agent": reminder.agent, "request": reminder.request, "count": count}
    return Draft(
        type=MESSAGE,
        sender=caller.name,
        payload=payload | {"nag": notice},
        to=(to,),
        id=derived_id(due.cause, "nag", reminder.agent, str(reminder.request), str(count)),
        ts=context.clock.now_ms(),
    )


def _text(reminder: Reminder, due: ReminderDue, count: int) -> str:
    if count:
        answer = f"pal send @{reminder.sender} --reply-to {reminder.request} -- TEXT"
        return (
            f"@{reminder.agent} {reminder.sender} waits for your answer to #{reminder.request} "
            f"(reminder {count} of {LIMIT_REMINDERS}): {answer}"
        )
    if due.state == AgentState.IDLE:
        return (
            f"@{reminder.sender} {reminder.agent} has not answered #{reminder.request} "
            f"after {reminder.count} reminders: "
            "no more reminders are sent"
        )
    return f"@{reminder.sender} {reminder.agent} has stopped without answering #{reminder.request}"
