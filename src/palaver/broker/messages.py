"""Messages: texts, replies and notices. Resolve the recipients, apply the brakes, write one event."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from palaver.broker.bundles import attached_bundle
from palaver.broker.context import SYSTEM_CALLER, Context, Sent, Written
from palaver.broker.room_messages import said_in_room
from palaver.domain.brakes import chain_of
from palaver.domain.rights import is_foreign_type
from palaver.domain.routing import Resolved, resolve
from palaver.errors import (
    BadRequest,
    IdTaken,
    NotAllowed,
    NotFound,
    NotPerson,
    RateLimited,
    UnknownRecipient,
    WhoAreYou,
)
from palaver.ids import derived_id, is_ulid
from palaver.log.api import Decide, Log
from palaver.log.records import decode_payload, encode_payload
from palaver.protocol.address import Everyone, find_mentions, format_address
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event, body_as
from palaver.protocol.events import ForeignBody, MessageSent
from palaver.protocol.message import (
    ACK,
    EXTERNAL,
    HUMAN,
    INFORM,
    INTENTS,
    MENTIONS,
    MESSAGE,
    SYSTEM,
    Priority,
    build_payload,
    format_priority,
    is_lost,
    is_raw,
    parse_priority,
)
from palaver.protocol.redaction import is_removed, without_text
from palaver.protocol.requests import RAW_EXPIRES_MS, Notify, Send, raw_to_text, secret_text, shown
from palaver.protocol.tasks import TASK_TYPES
from palaver.protocol.text import check_text, check_thread
from palaver.state.rows import deliverable

# --------------------
# The notice to a person about a message that a brake holds. Pure: an event in, a text out.

_NAMED: Final = 20
"""How many earlier held messages are listed by number."""


def held_text(event: Event, others: Sequence[int]) -> str:
    """Write the notice for a held message: how to release it, and which others of its sender are held."""
    names = ", ".join(deliverable(event).delivered_to)
    text = (
        f"#{event.seq} from {event.sender} to {names} is held: {body_as(event, MessageSent).held}. "
        f"To deliver it, run 'pal release {event.seq}'"
    )
    if not others:
        return text
    numbers = ", ".join(f"#{seq}" for seq in others[:_NAMED])
    rest = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    were = "message from {} was" if len(others) == 1 else "messages from {} were"
    return (
        f"{text}. {len(others)} more {were.format(event.sender)} held since the last notice: "
        f"{numbers}{rest}; 'pal pending' lists the held messages"
    )


# --------------------
# Send options in addition to the text: raw keys, no header, a reply. Checks sender and recipient.
#
# Only the human in person may send raw keys, to one agent that a holder runs in a terminal.

_INTERRUPT = format_priority(Priority.INTERRUPT)


def check_sender(caller: Caller, request: Send) -> None:
    """Refuse raw keys and headerless text from other callers than the human, and replies to a script."""
    if request.expects_reply and caller.kind == EXTERNAL:
        raise WhoAreYou("a script has no mailbox for the reply; join first with 'pal join'")
    if not request.raw and not request.is_bare:
        return
    what = "typing raw keys" if request.raw else "typing without a header"
    if caller.kind != HUMAN:
        raise NotAllowed(what, caller.standing.word, "a person")
    if caller.by is not None:
        raise NotPerson(f"{what} requires a person, and is not possible with --as")


def as_keys(request: Send) -> dict[str, object]:
    """Return the fields of a raw-keys message: a text that shows the keys, and its delivery rules."""
    if request.text:
        raise BadRequest("raw keys cannot be sent together with a text")
    if request.priority not in ("", _INTERRUPT):
        raise BadRequest("raw keys are typed immediately; leave out --priority")
    raw_to_text(request.raw)  # Refuses empty or too large input.
    return {
        "text": secret_text(_characters(request.raw)) if request.raw_hash else shown(request.raw),
        "priority": _INTERRUPT,
        "expires_in_ms": request.expires_in_ms or RAW_EXPIRES_MS,
        "has_mentions": False,
    }


def check_terminals(context: Context, request: Send, names: Sequence[str]) -> None:
    """Refuse keys unless they go to one agent that a holder runs in a terminal now."""
    if not request.raw and not request.is_bare:
        return
    if len(names) != 1:
        raise BadRequest(
            f"keys can go to one terminal only; this selects {', '.join(names) or 'none'}. Nothing was sent"
        )
    agent = context.directory.get(names[0])
    if agent is None or not agent.holder or agent.left or not context.is_present(agent.name):
        raise BadRequest(
            f"{names[0]} does not run in a terminal of Palaver; start it with 'pal run'. Nothing was sent"
        )


def keys_payload(request: Send) -> dict[str, object]:
    """Return the payload fields that the terminal's holder needs in addition to the text."""
    payload: dict[str, object] = {}
    if request.raw:
        payload["raw"] = "" if request.raw_hash else raw_to_text(request.raw)
    if request.raw_hash:
        payload |= {"secret": _characters(request.raw), "hash": request.raw_hash}
    if request.is_bare:
        payload["bare"] = True
    if request.expects_reply:
        payload["expects_reply"] = True
    return payload


def _characters(keys: bytes) -> int:
    """Count the characters of a secret without the Enter that ends it."""
    return len(keys.decode("utf-8", "surrogateescape").rstrip("\r\n"))


# --------------------
# Find a message by its reference: `42`, `#42`, `42:BOXE`, its ULID or a unique end of it.

_PLACE: Final = re.compile(r"#?(\d{1,15})(?::([A-Za-z0-9]+))?", re.ASCII)
_LEAST: Final = 4
"""Characters of a ULID's end that are enough to search for it: fewer would match by accident."""
_END: Final = re.compile(rf"[0-9A-Za-z]{{{_LEAST},26}}", re.ASCII)


def find_event(log: Log, reference: str) -> Event:
    """Return any event by its reference. Raises `NotFound`, or names the candidates if several match."""
    if found := _PLACE.fullmatch(reference):
        return _checked(reference, log.recall(int(found[1])), found[2])
    if not _END.fullmatch(reference):
        raise BadRequest(
            f"{reference!r} is not a message: write its number, its ULID, or at least the last {_LEAST} "
            "characters of its ULID"
        )
    events = log.find(reference.upper())
    if not events:
        raise NotFound(f"event {reference}")
    if len(events) > 1:
        candidates = ", ".join(f"#{event.seq} ({event.id})" for event in events)
        raise BadRequest(f"{reference} is ambiguous: it matches {candidates}; write more characters")
    return events[0]


async def fetch_event(log: Log, reference: str) -> Event:
    """Return what `find_event` returns, but read it in a thread: for an event that may be large."""
    if found := _PLACE.fullmatch(reference):
        return _checked(reference, await log.fetch(int(found[1])), found[2])
    return find_event(log, reference)


def _checked(reference: str, event: Event | None, device: str | None) -> Event:
    if event is None or (device and device.upper() != event.device):
        raise NotFound(f"event {reference}")
    return event


def find_message(log: Log, reference: str) -> Event:
    """Return a message, or a foreign envelope that was delivered like one."""
    event = find_event(log, reference)
    if event.type != "message" and not event.delivered_to:
        raise NotFound(f"message {reference}", f"#{event.seq} is an event of type {event.type}")
    return event


# --------------------
# Sending: a text, or a notice from the bus itself.
#
# Recipients are fixed here, at send time. Nothing is stored if any part of a request is refused; a message
# that a brake stops is stored, and held until a person releases it.

LIMIT_UNASKED: Final = 5
"""An agent under a harness may broadcast to this many agents without confirming it."""
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
    check_sender(caller, request)
    if request.raw:
        request = structs.replace(request, **as_keys(request))
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
    check_terminals(context, request, resolved.recipients)
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
    payload |= keys_payload(request)
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
    return isinstance(event.body, MessageSent) and bool(event.body.held)


def unless_held(sent: Sent) -> Sent:
    """Return the outcome for a sender.

    Raises `RateLimited`, on every repeat, for a message that a brake stopped.
    """
    if sent.event is not None and is_held(sent.event):
        raise RateLimited(sent.event.seq, body_as(sent.event, MessageSent).held)
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
    said, known = body_as(replace(draft, payload=new), MessageSent), body_as(stored, MessageSent)
    # A repeated command does not create its bundle again, and in a room the bus decides the priority.
    return (
        (said.text, said.intent, said.thread, said.reply_to, said.room)
        == (known.text, known.intent, known.thread, known.reply_to, known.room)
        and (not said.bundle_id or said.bundle_id == known.bundle_id)
        and (known.room is not None or said.priority == known.priority)
    )


def _without_assignees(payload: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in payload.items() if name != "assignees"}


def sent_by(context: Context, event: Event) -> Sent:
    """Return the outcome of a message from the event it wrote; raises `RateLimited` for a held one."""
    return unless_held(_sent(event))


def _sent(event: Event) -> Sent:
    dead = event.body.dead if isinstance(event.body, MessageSent) else ()
    return Sent(event=event, to=event.to, delivered_to=recipients_of(event), dead=dead)


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
    intent, thread = _topic(original)
    if request.intent == ACK and intent in (ACK, INFORM):
        raise BadRequest(f"#{original.seq} is an {intent}, which needs no ack; nothing was sent")
    return _Reply(
        place=str(original.seq),
        thread=thread or "",
        author=original.sender,
        original=original,
    )


def _topic(original: Event) -> tuple[str | None, str | None]:
    """Return the intent and the thread of a message or of a foreign envelope."""
    body = original.body
    return (body.intent, body.thread) if isinstance(body, MessageSent | ForeignBody) else (None, None)


def _expires(request: Send, now: int) -> int | None:
    if not request.expires_in_ms:
        return None
    if not 0 < request.expires_in_ms <= LIMIT_EXPIRES_MS:
        raise BadRequest("a message can expire after 1 millisecond to 1 year")
    return now + request.expires_in_ms
