"""Foreign envelopes: stored unchanged and routed without reading them, except for types that are requests.

Recipients follow the exact rules of the wire (`resolve_exactly`), so that sender, bus and reader agree on
them. The sender's `ts` is stored in addition to the time of the log.

The rows of the table in `broker.py` for foreign envelopes: that module only knows which function decides.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from palaver.broker.agents import leave_bus
from palaver.broker.context import Context, Imported, Sent
from palaver.broker.messages import send_with_id, store
from palaver.broker.rooms import leave_all_rooms
from palaver.broker.tasks import ask_telling, members_of
from palaver.domain.rights import check_foreign_type, require_person
from palaver.domain.routing import Resolved, resolve, resolve_exactly
from palaver.errors import BadRequest, IdTaken, NotYou, WhoAreYou
from palaver.log.api import Decide
from palaver.protocol.agents import INSTANCE, Caller
from palaver.protocol.envelope import Draft, Event, draft_of_import
from palaver.protocol.events import BYE, HELLO
from palaver.protocol.message import MESSAGE
from palaver.protocol.query import STORED_TYPES
from palaver.protocol.requests import LEFT, Import, Put, Send
from palaver.protocol.tasks import task_request_from
from palaver.protocol.text import check_line, check_text

_LIMIT_TYPE_BYTES: Final = 256
_LIMIT_ID_BYTES: Final = 256


async def put(context: Context, caller: Caller, request: Put, key: bytes | None) -> Sent:
    """Store an envelope under its own id. Refuses Palaver's own types and foreign sender names."""
    envelope = request.envelope
    if envelope.sender != caller.name:
        raise NotYou(envelope.sender, caller.name)
    check_foreign_type(envelope.type)
    check_line(envelope.type, "the type", _LIMIT_TYPE_BYTES)
    check_line(envelope.id, "the id", _LIMIT_ID_BYTES)
    if STORED_TYPES.get(envelope.type, envelope.type) == MESSAGE:
        return await send_with_id(context, caller, _send_from(envelope, request), key)
    if envelope.type == BYE:
        return await _bye(context, caller, envelope, key)
    if (asked := task_request_from(envelope)) is not None:
        recipients = _recipients(context, caller, request)
        return await ask_telling(context, caller, asked, recipients, key, sent_ts=envelope.ts)
    if envelope.type == HELLO:
        payload, resolved = _hello(caller, envelope), Resolved(to=envelope.to)
    else:
        payload, resolved = envelope.payload, _recipients(context, caller, request)
    draft = replace(
        envelope,
        id=envelope.id or context.ids.next(),  # a command line may leave it out
        payload=payload,
        to=resolved.to,
        ts=context.clock.now_ms(),
        sent_ts=envelope.ts,
        by=caller.by,
        delivered_to=resolved.recipients,
    )
    return await store(context, draft, resolved, key)


async def import_events(context: Context, caller: Caller, request: Import, key: bytes | None) -> Imported:
    """Store exported events unchanged, under new seqs, and skip known ones: a repeat stores nothing twice.

    Each one is stored as imported, so no delivery, watch or reminder follows from it.
    """
    require_person(caller, "import")
    outcomes = await context.log.commit_all([(None, _always(event)) for event in request.events])
    count = 0
    different: list[Event] = []
    for event, outcome in zip(request.events, outcomes, strict=True):
        if isinstance(outcome, Exception):
            raise outcome
        count += not outcome.is_repeat
        # The payload may differ: secrets are redacted in an export.
        if (first := outcome.event) is not None and (first.type, first.ts) != (event.type, event.ts):
            different.append(event)
    known = len(request.events) - count - len(different)
    return Imported(count=count, known=known, different=tuple(different))


def _always(event: Event) -> Decide:
    draft = draft_of_import(event)
    return lambda rows: draft


def _recipients(context: Context, caller: Caller, request: Put) -> Resolved:
    """Return the recipients of an envelope: of its `to`, else those of the channel it was written in."""
    to = request.envelope.to
    if to or not request.at:
        return resolve_exactly(to, context.directory, sender=caller.name, is_present=context.is_present)
    return resolve(
        (request.at,),
        context.directory,
        sender=caller.name,
        is_present=context.is_present,
        rooms=lambda name: members_of(context, caller, name),
    )


def _hello(caller: Caller, envelope: Draft) -> dict[str, object]:
    """Return the runtime and version in a hello. The identity of the agent was decided when it joined."""
    if caller.kind != INSTANCE:
        raise WhoAreYou("only an agent can send a hello; join first with 'pal join'")
    asked = _fields(envelope)
    runtime, version = _word(asked.runtime), _word(asked.version)
    check_text(runtime, "the runtime", 256)
    check_text(version, "the version", 256)
    return {"runtime": runtime, "version": version}


async def _bye(context: Context, caller: Caller, envelope: Draft, key: bytes | None) -> Sent:
    if caller.kind != INSTANCE:
        raise WhoAreYou("you have no name to give up; 'pal list' shows the agents")
    reason = _word(_fields(envelope).reason) or LEFT
    if reason == LEFT:
        await leave_all_rooms(context, caller)
    written = await leave_bus(
        context, caller.name, reason, key, by=caller.by, id=envelope.id, sent_ts=envelope.ts
    )
    if written.event is None:
        raise WhoAreYou(f"{caller.name} has already left")
    if written.event.type != BYE:
        raise IdTaken(envelope.id, written.event.seq)
    return Sent(event=written.event, to=(), delivered_to=())


def _send_from(envelope: Draft, request: Put) -> Send:
    asked = _fields(envelope)
    to = envelope.to or ((request.at,) if request.at else ())
    if not isinstance(asked.text, str):
        raise BadRequest("a message envelope needs its text in payload.text")
    return Send(
        text=asked.text,
        to=to,
        intent=_word(asked.intent),
        thread=_word(asked.thread),
        reply_to=_word(asked.reply_to),
        bundle_id=_word(asked.bundle_id),
        priority=_word(asked.priority),
        id=envelope.id,
        sent_ts=envelope.ts,
        is_exact=bool(envelope.to) or not request.at,
        channel=request.channel,
    )


class _EnvelopeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The payload fields of an envelope that is a request. External programs may write numbers as texts."""

    text: object = None
    intent: object = None
    thread: object = None
    reply_to: object = None
    bundle_id: object = None
    priority: object = None
    runtime: object = None
    version: object = None
    reason: object = None


def _fields(envelope: Draft) -> _EnvelopeRequest:
    return msgspec.convert(envelope.payload, _EnvelopeRequest)


def _word(value: object) -> str:
    return str(value or "")
