"""Sending: a text, or a notice from the bus itself.

Recipients are fixed here, at send time. Nothing is stored if any part of a request is refused; a message that
a brake stops is stored, and held until a person releases it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from palaver.broker import raw
from palaver.broker.bundles import attached_bundle
from palaver.broker.context import SYSTEM_CALLER, Context
from palaver.broker.held import held_text
from palaver.broker.lookup import find_message
from palaver.broker.outcome import Sent, Written
from palaver.broker.room_messages import said_in_room
from palaver.errors import BadRequest, IdTaken, RateLimited, UnknownRecipient
from palaver.log.api import Decide
from palaver.log.records import decode_payload, encode_payload
from palaver.model.address import Everyone, find_mentions, format_address
from palaver.model.agent import Caller
from palaver.model.envelope import Draft, Event
from palaver.model.ids import derived_id, is_ulid
from palaver.model.mail import deliverable
from palaver.model.message import (
    ACK,
    HUMAN,
    INFORM,
    INTENTS,
    MENTIONS,
    MESSAGE,
    SYSTEM,
    build_payload,
    is_lost,
    is_raw,
)
from palaver.model.priority import parse_priority
from palaver.model.removal import is_removed, without_text
from palaver.model.request import Notify, Send
from palaver.model.task import TASK_TYPES
from palaver.model.text import check_text, check_thread
from palaver.routing.brakes import chain_of
from palaver.routing.policy import is_foreign_type
from palaver.routing.recipients import Resolved, resolve

LIMIT_UNASKED: Final = 5
"""An agent under a harness may broadcast to this many agents without confirming it."""
_SAID: Final = ("text", "intent", "thread", "reply_to", "bundle_id", "priority", "room")
"""The payload fields that the sender of a message sets; the bus decides the rest."""
_EVERYONE: Final = format_address(Everyone())
LIMIT_EXPIRES_MS: Final = 366 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class _Reply:
    """The fields that a message inherits from the one it replies to."""

    place: str = ""
    thread: str = ""
    author: str = ""
    original: Event | None = None


async def send(context: Context, caller: Caller, request: Send, key: bytes | None) -> Sent:
    """Store one message for all its recipients."""
    if request.id and not is_ulid(request.id):
        raise BadRequest(f"--id must be a ULID (26 characters), not {request.id!r}")
    raw.check_sender(caller, request)
    if request.raw:
        request = structs.replace(request, **raw.as_keys(request))
    bundle_id = attached_bundle(context.log, request.bundle_id)
    return await send_with_id(context, caller, structs.replace(request, bundle_id=bundle_id), key)


async def send_with_id(context: Context, caller: Caller, request: Send, key: bytes | None) -> Sent:
    """Store one message under the id it came with, in any form: a foreign id is kept."""
    mentions = find_mentions(request.text) if request.has_mentions else []
    said = said_in_room(context, caller, request, mentions)
    check_text(request.text)
    if not request.text:
        raise BadRequest("the message is empty")
    reply = _check_reply(context, request)
    thread = request.thread or reply.thread
    if thread:
        check_thread(thread)
    if request.priority:
        parse_priority(request.priority)
    resolved = _resolve(context, caller, request, reply, mentions) if said is None else said.resolved
    priority = request.priority if said is None else said.priority
    check_breadth(caller, request, Sent(event=None, to=resolved.to, delivered_to=resolved.recipients))
    raw.check_terminals(context, request, resolved.recipients)
    now = context.clock.now_ms()
    payload = build_payload(
        text=request.text,
        scope=resolved.scope,
        mentions=resolved.recipients if resolved.scope == MENTIONS else (),
        sender_kind=caller.kind,
        delivered_to=resolved.recipients,
        intent=request.intent,
        thread=thread,
        reply_to=reply.place,
        bundle_id=request.bundle_id,
        priority=None if priority == "normal" else priority,
        expires=_expires(request, now),
        path=resolved.paths[0] if resolved.paths else None,
    )
    payload |= raw.keys_payload(request)
    if said is not None:
        payload |= said.payload
    if resolved.dead:
        payload["dead"] = list(resolved.dead)
    if not request.is_dry_run:
        payload |= _braked(context, caller, reply, resolved, now)
    draft = Draft(
        type=MESSAGE,
        sender=caller.name,
        payload=payload,
        to=resolved.to,
        id=request.id or context.ids.next(),
        ts=now,
        by=caller.by,
    )
    on, decide = (None, None) if said is None else (said.key, said.unless_closed(draft))
    sent = await store(context, draft, resolved, key, is_dry_run=request.is_dry_run, on=on, decide=decide)
    if sent.event is not None and is_held(sent.event):
        await _tell_human(context, sent.event, now)
    return unless_held(sent)


def _braked(
    context: Context, caller: Caller, reply: _Reply, resolved: Resolved, now: int
) -> dict[str, object]:
    """Return what the brakes add to a message: its position in a chain of replies, and why it is held."""
    chain = chain_of(caller, reply.original)
    added: dict[str, object] = {} if chain is None else {"chain": chain.id, "hops": chain.hops}
    if reason := context.brakes.check(caller, resolved.recipients, chain, now):
        added["held"] = reason
    return added


async def _tell_human(context: Context, event: Event, now: int) -> None:
    """Notify the human that a message is held: once per message, and once a minute per sender."""
    others = context.brakes.untold(event.sender, event.seq, now)
    if others is not None:
        told = Notify(to=HUMAN, text=held_text(event, others), cause=event.id, kind="held")
        await notify(context, SYSTEM_CALLER, told, None)


def is_held(event: Event) -> bool:
    """Whether a brake stopped a message when it was sent, even if it was released since."""
    return event.type == MESSAGE and "held" in event.payload


def unless_held(sent: Sent) -> Sent:
    """Return the outcome for a sender.

    Raises `RateLimited`, on every repeat, for a message that a brake stopped.
    """
    if sent.event is not None and is_held(sent.event):
        raise RateLimited(sent.event.seq, str(sent.event.payload["held"]))
    return sent


async def notify(context: Context, caller: Caller, request: Notify, key: bytes | None) -> Written:
    """Write a notice from the bus to one recipient, once. It matches no subscription and needs no reply."""
    payload = build_payload(
        text=request.text,
        scope=MENTIONS,
        mentions=(request.to,),
        sender_kind=SYSTEM,
        delivered_to=(request.to,),
        intent=INFORM,
    )
    draft = Draft(
        type=MESSAGE,
        sender=caller.name,
        payload=payload,
        to=(request.to,),
        id=derived_id(request.cause, "notice", request.kind, request.to),
        ts=context.clock.now_ms(),
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)


async def store(
    context: Context,
    draft: Draft,
    resolved: Resolved,
    key: bytes | None,
    *,
    is_dry_run: bool = False,
    on: str | None = None,
    decide: Decide | None = None,
) -> Sent:
    """Write a draft and return its recipients. An event that was stored before keeps its recipients.

    `decide` refuses, or returns the draft; `on` is the key that this decision is made on.
    """
    sent = Sent(
        event=None,
        to=draft.to,
        delivered_to=resolved.recipients,
        empty_groups=resolved.empty_groups,
        dead=resolved.dead,
    )
    if is_dry_run:
        return sent
    commit = await context.log.commit(on, decide or (lambda rows: draft), request_key=key)
    assert commit.event is not None  # decide always returns a draft
    if commit.is_repeat:
        if commit.event.id == draft.id and not _says_the_same(draft, commit.event):
            raise IdTaken(draft.id, commit.event.seq)
        # The same request key is the same request, with the same outcome; the same id is a repeat by the
        # sender.
        return replace(_sent(commit.event), is_repeat=commit.event.id == draft.id)
    return replace(sent, event=commit.event)


def _says_the_same(draft: Draft, stored: Event) -> bool:
    """Whether a draft repeats a stored event, in the fields that its sender set.

    Recipients, expiry and brakes are decided at send time, and differ when the same message is sent again.
    """
    if draft.type != stored.type:
        return False
    if is_lost(stored) or is_raw(stored):
        return True
    new, old = decode_payload(encode_payload(draft.payload)), stored.payload
    is_foreign = is_foreign_type(stored.type)
    if is_removed(stored, is_foreign=is_foreign):  # The text was removed: compare the rest.
        new = without_text(replace(stored, payload=new), is_foreign=is_foreign).payload
    if draft.type in TASK_TYPES:
        return _without_assignees(new) == _without_assignees(old)
    if draft.to != stored.to:
        return False
    if draft.type != MESSAGE:
        return new == old
    # A repeated command does not create its bundle again, and in a room the bus decides the priority.
    optional = {"bundle_id": not new.get("bundle_id"), "priority": "room" in old}
    return all(optional.get(name) or new.get(name) == old.get(name) for name in _SAID)


def _without_assignees(payload: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in payload.items() if name != "assignees"}


def sent_by(context: Context, event: Event) -> Sent:
    """Return the outcome of a message from the event it wrote; raises `RateLimited` for a held one."""
    return unless_held(_sent(event))


def _sent(event: Event) -> Sent:
    dead = event.payload.get("dead", ()) if event.type == MESSAGE else ()
    return Sent(
        event=event,
        to=event.to,
        delivered_to=recipients_of(event),
        dead=tuple(dead) if isinstance(dead, (list, tuple)) else (),
    )


def recipients_of(event: Event) -> tuple[str, ...]:
    """Return the recipients that an event was stored for."""
    return deliverable(event).delivered_to


def _resolve(
    context: Context, caller: Caller, request: Send, reply: _Reply, mentions: Sequence[str]
) -> Resolved:
    if request.recipient:
        return _exactly(context, request.recipient)
    if reply.author and not request.to and not mentions:
        return _exactly(context, reply.author)
    return resolve(
        request.to,
        context.directory,
        sender=caller.name,
        is_present=context.is_present,
        mentions=mentions,
    )


def _exactly(context: Context, name: str) -> Resolved:
    """Address a reply to its asker only, not to all agents that share the base name."""
    if name != HUMAN and context.directory.get(name) is None:
        raise UnknownRecipient({name: ()})
    return Resolved(to=(name,), recipients=(name,), scope=MENTIONS)


def check_breadth(caller: Caller, request: Send, sent: Sent) -> None:
    """Refuse a broadcast to many agents that an agent under a harness has not confirmed.

    `sent` has its recipients; a dry run of the same request returns them too.
    """
    count = len(sent.delivered_to)
    is_broadcast = not sent.to or _EVERYONE in sent.to
    is_asked_for = request.is_confirmed or request.is_dry_run
    if caller.harness and is_broadcast and count > LIMIT_UNASKED and not is_asked_for:
        raise BadRequest(f"this would go to {count} agents; to confirm, add --yes. Nothing was sent")


def _check_reply(context: Context, request: Send) -> _Reply:
    if request.intent and request.intent not in INTENTS:
        raise BadRequest(f"no such intent: {request.intent!r}; the intents are {', '.join(INTENTS)}")
    if not request.reply_to:
        if request.intent == ACK:
            raise BadRequest("an ack requires --reply-to ID")
        return _Reply()
    original = find_message(context.log, request.reply_to)
    intent = original.payload.get("intent")
    if request.intent == ACK and intent in (ACK, INFORM):
        raise BadRequest(f"#{original.seq} is an {intent}, which needs no ack; nothing was sent")
    return _Reply(
        place=str(original.seq),
        thread=str(original.payload.get("thread") or ""),
        author=original.sender,
        original=original,
    )


def _expires(request: Send, now: int) -> int | None:
    if not request.expires_in_ms:
        return None
    if not 0 < request.expires_in_ms <= LIMIT_EXPIRES_MS:
        raise BadRequest("a message can expire after 1 millisecond to 1 year")
    return now + request.expires_in_ms
