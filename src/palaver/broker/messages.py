"""Sending: a text, a foreign envelope, a word from the bus itself.

Recipients are fixed here, at send time. Nothing is stored when any part of a request is refused.
"""

from dataclasses import dataclass
from typing import Final

from palaver.broker.context import Context
from palaver.broker.lookup import find_message
from palaver.broker.outcome import Sent, Written
from palaver.errors import BadRequest, NotYou
from palaver.model.address import find_mentions
from palaver.model.agent import Caller
from palaver.model.envelope import Draft, Envelope, Event
from palaver.model.ids import derived_id, is_ulid
from palaver.model.message import ACK, BROADCAST, INFORM, INTENTS, MENTIONS, MESSAGE, SYSTEM, build_payload
from palaver.model.priority import parse_priority
from palaver.model.request import Notify, Put, Send
from palaver.model.text import check_text, check_thread
from palaver.routing.policy import check_foreign_type
from palaver.routing.recipients import Resolved, resolve

LIMIT_UNASKED: Final = 5
"""An agent under a harness writes to so many without being asked back."""
LIMIT_EXPIRES_MS: Final = 366 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class _Reply:
    """What a message inherits from the one it answers."""

    place: str = ""
    thread: str = ""
    author: str = ""


async def send(context: Context, caller: Caller, request: Send, key: bytes | None) -> Sent:
    """Store one message for everybody it is meant for."""
    check_text(request.text)
    if not request.text:
        raise BadRequest("the message is empty")
    reply = _check_reply(context, request)
    thread = request.thread or reply.thread
    if thread:
        check_thread(thread)
    if request.priority:
        parse_priority(request.priority)
    resolved = _resolve(context, caller, request, reply)
    _check_breadth(caller, request, resolved)
    payload = build_payload(
        text=request.text,
        scope=resolved.scope,
        mentions=() if resolved.scope != MENTIONS else resolved.recipients,
        sender_kind=caller.kind,
        delivered_to=resolved.recipients,
        intent=request.intent,
        thread=thread,
        reply_to=reply.place,
        bundle_id=request.bundle_id,
        priority=None if request.priority == "normal" else request.priority,
        expires=_expires(context, request),
        path=resolved.paths[0] if resolved.paths else None,
    )
    if resolved.dead:
        payload["dead"] = list(resolved.dead)
    sent = Sent(
        event=None,
        to=resolved.to,
        delivered_to=resolved.recipients,
        empty_groups=resolved.empty_groups,
        dead=resolved.dead,
    )
    if request.is_dry_run:
        return sent
    draft = _draft(context, caller, MESSAGE, payload, to=resolved.to, id=request.id)
    return await _store(context, draft, sent, key)


async def put(context: Context, caller: Caller, request: Put, key: bytes | None) -> Sent:
    """Store an envelope as it came. Types of our own and other people's names are refused."""
    envelope = request.envelope
    if envelope.sender != caller.name:
        raise NotYou(envelope.sender, caller.name)
    if envelope.type == MESSAGE:
        return await send(context, caller, _send_from(envelope), key)
    check_foreign_type(envelope.type)
    resolved = resolve(
        envelope.to, context.directory, sender=caller.name, is_present=context.is_present
    )
    draft = Draft(
        type=envelope.type,
        sender=caller.name,
        payload=dict(envelope.payload or {}),
        to=envelope.to,
        id=envelope.id,
        ts=context.clock.now_ms(),
        by=caller.by,
        delivered_to=resolved.recipients,
    )
    sent = Sent(event=None, to=resolved.to, delivered_to=resolved.recipients, empty_groups=resolved.empty_groups)
    return await _store(context, draft, sent, key)


async def notify(context: Context, caller: Caller, request: Notify, key: bytes | None) -> Written:
    """Write a word from the bus to one name. It matches no subscription and asks for no answer."""
    payload = build_payload(
        text=request.text,
        scope=MENTIONS,
        mentions=(request.to,),
        sender_kind=SYSTEM,
        delivered_to=(request.to,),
        intent=INFORM,
        reply_to=str(request.about) if request.about else None,
    )
    draft = Draft(
        type=MESSAGE,
        sender=caller.name,
        payload=payload,
        to=(request.to,),
        id=derived_id(request.cause, "notice", request.to),
        ts=context.clock.now_ms(),
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)


async def _store(context: Context, draft: Draft, sent: Sent, key: bytes | None) -> Sent:
    commit = await context.log.commit(None, lambda rows: draft, request_key=key)
    event = commit.event
    assert event is not None  # decide above always gives a draft
    if not commit.is_repeat:
        return Sent(
            event=event,
            to=sent.to,
            delivered_to=sent.delivered_to,
            empty_groups=sent.empty_groups,
            dead=sent.dead,
        )
    return Sent(event=event, to=event.to, delivered_to=recipients_of(event), is_repeat=True)


def recipients_of(event: Event) -> tuple[str, ...]:
    """Give those an event was stored for."""
    if event.type != MESSAGE:
        return event.delivered_to
    names = event.payload.get("delivered_to", ())
    return tuple(str(name) for name in names) if isinstance(names, (list, tuple)) else ()


def _draft(
    context: Context, caller: Caller, type_: str, payload: dict[str, object], *, to: tuple[str, ...], id: str  # noqa: A002
) -> Draft:
    if id and not is_ulid(id):
        raise BadRequest(f"--id must be a ULID (26 characters), not {id!r}")
    return Draft(
        type=type_,
        sender=caller.name,
        payload=payload,
        to=to,
        id=id or context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.by,
    )


def _resolve(context: Context, caller: Caller, request: Send, reply: _Reply) -> Resolved:
    mentions = find_mentions(request.text) if request.has_mentions else []
    tokens = request.to
    if not tokens and not mentions and reply.author:
        tokens = (reply.author,)
    return resolve(
        tokens, context.directory, sender=caller.name, is_present=context.is_present, mentions=mentions
    )


def _check_breadth(caller: Caller, request: Send, resolved: Resolved) -> None:
    """An agent under a harness says outright that it means to write to many."""
    count = len(resolved.recipients)
    if caller.harness and resolved.scope == BROADCAST and count > LIMIT_UNASKED and not request.is_confirmed and not request.is_dry_run:
        raise BadRequest(f"this would go to {count} agents; add --yes if you mean it. Nothing was sent")


def _check_reply(context: Context, request: Send) -> _Reply:
    if request.intent and request.intent not in INTENTS:
        raise BadRequest(f"the intents are {', '.join(INTENTS)}, not {request.intent!r}")
    if not request.reply_to:
        if request.intent == ACK:
            raise BadRequest("an ack says what it answers: add --reply-to ID")
        return _Reply()
    original = find_message(context.log, request.reply_to)
    intent = original.payload.get("intent")
    if request.intent == ACK and intent in (ACK, INFORM):
        raise BadRequest(f"#{original.seq} is an {intent}, which is not acknowledged")
    is_system = original.payload.get("sender_kind") == SYSTEM
    return _Reply(
        place=str(original.seq),
        thread=str(original.payload.get("thread") or ""),
        author="" if is_system else original.sender,
    )


def _expires(context: Context, request: Send) -> int | None:
    if not request.expires_in_ms:
        return None
    if not 0 < request.expires_in_ms <= LIMIT_EXPIRES_MS:
        raise BadRequest("a message expires after at least a millisecond and at most a year")
    return context.clock.now_ms() + request.expires_in_ms


def _send_from(envelope: Envelope) -> Send:
    payload = envelope.payload or {}
    text = payload.get("text")
    if not isinstance(text, str):
        raise BadRequest("a message envelope carries its text as payload.text")
    return Send(
        text=text,
        to=envelope.to,
        intent=str(payload.get("intent") or ""),
        thread=str(payload.get("thread") or ""),
        reply_to=str(payload.get("reply_to") or ""),
        priority=str(payload.get("priority") or ""),
        id=envelope.id if is_ulid(envelope.id) else "",
    )
