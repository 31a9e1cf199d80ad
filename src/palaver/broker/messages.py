"""Messages: texts, replies and notices. Resolve the recipients, apply the brakes, write one event."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import msgspec
from msgspec import structs

from palaver.broker.bundles import attached_bundle
from palaver.broker.context import SYSTEM_CALLER, Context, ExitedRecipient, Sent, Written
from palaver.broker.rooms import stick_key
from palaver.domain.paths import has_wildcard
from palaver.domain.rights import Chain, chain_of, is_foreign_type, may_resume, require_person
from palaver.domain.routing import Directory, Resolved, is_recipient, resolve, resolve_exactly
from palaver.domain.stick import ALL_WAKE, PERSONS_WAKE
from palaver.errors import (
    AmbiguousRecipient,
    BadRequest,
    IdTaken,
    InvalidBody,
    MessageTooLarge,
    NotFound,
    PalaverError,
    RateLimited,
    RoomClosed,
    Unavailable,
    UnknownMember,
    UnknownRecipient,
    WhoAreYou,
    cut_name,
)
from palaver.ids import derived_id, is_ulid
from palaver.log.api import Commit, Decide, Log
from palaver.log.records import decode_payload, encode_payload
from palaver.protocol.address import (
    Everyone,
    Human,
    Named,
    Path,
    RoomAddress,
    find_mentions,
    find_named,
    format_address,
    parse_address,
)
from palaver.protocol.agents import INSTANCE, SCRIPT_NAME, Caller, Standing
from palaver.protocol.envelope import TASK_FIELDS_OF_BUS, Draft, Event, body_as
from palaver.protocol.events import AgentState, ForeignBody, MessageSent, State
from palaver.protocol.message import (
    ACK,
    BROADCAST,
    EXTERNAL,
    HUMAN,
    INFORM,
    INTENTS,
    MENTIONS,
    MESSAGE,
    REQUEST,
    SYSTEM,
    Priority,
    build_payload,
    format_priority,
    is_lost,
    is_raw,
    parse_priority,
)
from palaver.protocol.paths import DEFAULT_COMMAND, INTERNAL, IRC, Content, readable_mailbox, split_irc_path
from palaver.protocol.query import HINTS, INTERRUPT, NORMAL, Query
from palaver.protocol.redaction import is_removed, without_text
from palaver.protocol.requests import RAW_EXPIRES_MS, Notify, RelayLine, Send, raw_to_text, secret_text, shown
from palaver.protocol.subscriptions import FireWatch, Watch, WatchDue, format_watch_id
from palaver.protocol.tasks import TASK_TYPES
from palaver.protocol.text import check_text, check_thread
from palaver.protocol.turns import session_of_mailbox
from palaver.state.agents import read_agent, read_entry, read_seen
from palaver.state.references import read_thread
from palaver.state.rooms import Room, find_member, find_room, read_room, read_rooms_of
from palaver.state.rows import Rows, deliverable
from palaver.state.turns import read_turn
from palaver.state.watches import read_due, read_open_requests, read_watch

# --------------------
# Messages in a room: to all its members, to some of them, or to the room and other agents.
#
# Recipients are for routing, not for privacy: every reader of the room reads all of it. An agent's message to
# the room wakes no agent unless it names one; a person's does. Decides recipients, stores nothing.

_PERSONS: Final = frozenset({Standing.HUMAN, Standing.GUEST})
"""Standings that may write in a room without being a member."""
_WHOLE_ROOM: Final = format_address(Everyone())
_CANDIDATES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomMessage:
    """A message in a room: its recipients, its priority, and its additional payload."""

    room: str
    resolved: Resolved
    priority: str
    payload: dict[str, object]
    key: str
    """The key that the message is committed on, so that none is written after the room was closed."""

    def unless_closed(self, draft: Draft) -> Decide:
        """Return a decision that writes the draft, or raises `RoomClosed` if the room is closed by then."""

        def decide(rows: Rows) -> Draft:
            room = read_room(rows, self.room)
            assert room is not None  # it was found just now, and rooms are never removed
            # Again, inside the commit: the room may have been closed after the check.
            if not room.is_open:
                raise RoomClosed(self.room)
            return draft

        return decide


def check_writer(room: Room, caller: Caller) -> None:
    """Refuse a caller that may not write in a room: raise `RoomClosed` or `UnknownMember`."""
    if not room.is_open:
        raise RoomClosed(room.id)
    if room.member(caller.name) is None and caller.standing not in _PERSONS:
        raise UnknownMember(caller.name, room.id)


def resolve_room_message(
    context: Context, caller: Caller, request: Send, mentions: Sequence[str]
) -> RoomMessage | None:
    """Resolve a message for a room; None if the message is not for a room.

    Raises `InvalidBody`, `MessageTooLarge`, `RoomNotFound`, `RoomClosed`, `UnknownMember` for a sender or
    recipient that is not in the room, and `AmbiguousRecipient` for a name that several members match.
    """
    rooms = [token for token in request.to if _is_room(token)]
    if not request.room and not rooms:
        return None
    _check_body(context, request)
    hint = _hint(request)
    room = _find(context, caller, request.room, rooms)
    check_writer(room, caller)
    others = [token for token in request.to if not _is_room(token)]
    if others and not rooms:
        resolved = _to_members(context, caller, room, others)
        # Each of them was named, so also an agent's message wakes all of them.
        named: Sequence[str] = resolved.recipients
    else:
        resolved, named = _to_room(context, caller, room, others, mentions)
    payload: dict[str, object] = {"room": room.id, "delivery_hint": hint}
    wakes = _wakes(context, caller, room, resolved, named, hint)
    if wakes is not None:
        payload["wakes"] = wakes
    return RoomMessage(
        room=room.id,
        resolved=resolved,
        priority=INTERRUPT if hint == INTERRUPT else request.priority,
        payload=payload,
        key=stick_key(room.base),
    )


def _is_room(token: str) -> bool:
    try:
        return isinstance(parse_address(token), RoomAddress)
    except BadRequest:  # Refused later, when recipients are resolved: errors in the text come first.
        return False


def _check_body(context: Context, request: Send) -> None:
    """Refuse an empty or too large body; blanks alone are empty. Nothing is cut."""
    if not request.text.strip():
        raise InvalidBody("the message is empty")
    # A lone surrogate must not fail here: `check_text` refuses it later, with a clear sentence.
    size_bytes = len(request.text.encode("utf-8", "surrogatepass"))
    limit_bytes = context.policy.message_bytes
    if size_bytes > limit_bytes:
        raise MessageTooLarge("the message", size_bytes, limit_bytes)


def _hint(request: Send) -> str:
    """Return the hint; an interrupt can be requested by hint or by priority."""
    hint = request.delivery_hint or NORMAL
    if hint not in HINTS:
        raise BadRequest(f"no such delivery hint: {hint!r}; use {' or '.join(HINTS)}")
    return INTERRUPT if request.priority == INTERRUPT else hint


def _find(context: Context, caller: Caller, named: str, tokens: Sequence[str]) -> Room:
    """Return the room that is meant; a bare `room` is the named one, or the caller's only one."""
    words = {
        address.name
        for token in tokens
        if isinstance(address := parse_address(token), RoomAddress) and address.name
    }
    # By id, because two words may name the same room.
    ids = {find_room(context.log.rows, word).id for word in (*words, *([named] if named else []))}
    if len(ids) > 1:
        raise BadRequest(f"a message can go to one room only; this selects {', '.join(sorted(ids))}")
    if ids:
        return find_room(context.log.rows, ids.pop())
    own = list(read_rooms_of(context.log.rows, caller.name))
    if len(own) != 1:
        which = f"several rooms: {', '.join(f'#{room.id}' for room in own)}" if own else "no room"
        raise BadRequest(
            f"choose a room with --room or as #NAME: you are in {which}; 'pal room list' shows the rooms"
        )
    return own[0]


def _to_members(context: Context, caller: Caller, room: Room, tokens: Sequence[str]) -> Resolved:
    """Resolve members, and maybe the person: by any name of a member, or as a group.

    A group is expanded, so that each listener in the room finds its own name. Offline members count.
    """
    others = _others(context, caller, room)
    meant = {
        format_address(parse_address(token)): _meant(context, caller, room, token, others) for token in tokens
    }
    to = dict.fromkeys(name for spelled, names in meant.items() for name in names or [spelled])
    return Resolved(
        to=tuple(to),
        recipients=tuple(dict.fromkeys(name for names in meant.values() for name in names)),
        scope=BROADCAST if _WHOLE_ROOM in meant else MENTIONS,
        empty_groups=tuple(spelled for spelled, names in meant.items() if not names),
    )


def _others(context: Context, caller: Caller, room: Room) -> Directory:
    """Return a directory of the members of a room without the caller."""
    found = (context.directory.get(name) for name in room.names if name != caller.name)
    return Directory(agent for agent in found if agent is not None)


def _meant(context: Context, caller: Caller, room: Room, token: str, others: Directory) -> Sequence[str]:
    """Return the recipients of one token; empty for a group without members now."""
    match parse_address(token):
        case Human():
            return [HUMAN]
        case Everyone():
            return [name for name in room.names if name != caller.name]
        case Named(name=name):
            return [_member(context, caller, room, token, others.bases_with(name, _CANDIDATES))]
        case Path():
            raise UnknownMember(token, room.id)
        case _:
            return _group(room, token, others)


def _member(context: Context, caller: Caller, room: Room, token: str, bases: Sequence[str]) -> str:
    """Return the member that a name selects; if none matches, `bases` are the names that begin with it."""
    is_present = context.member_presence.is_present
    agent = context.directory.find(token)
    try:
        # A name with its device selects exactly that agent, as outside of rooms.
        word = agent.name if agent is not None and ":" in token else token
        return find_member(room, word, is_present, asking=caller.name).name
    except UnknownMember:
        if not bases:
            raise
    if len(bases) > 1:
        raise AmbiguousRecipient(token, list(bases))
    return find_member(room, bases[0], is_present, asking=caller.name).name


def _group(room: Room, token: str, others: Directory) -> Sequence[str]:
    """Return the members of a group: by tag, by role, or by the beginning of their full names."""
    try:
        # Everyone counts as present: a member that is offline is still a member, and reads the message later.
        return resolve([token], others, sender="", is_present=lambda name: True).recipients
    except UnknownRecipient:
        raise UnknownMember(token, room.id) from None


def _to_room(
    context: Context, caller: Caller, room: Room, others: Sequence[str], mentions: Sequence[str]
) -> tuple[Resolved, Sequence[str]]:
    """Address the whole room and the agents named in addition or in the text; return those agents too."""
    name = f"#{room.id}"
    members = tuple(one for one in room.names if one != caller.name)
    if not others and not mentions:
        return Resolved(to=(name,), recipients=members, scope=BROADCAST), ()
    named = resolve(
        others, context.directory, sender=caller.name, is_present=context.is_present, mentions=mentions
    )
    both = tuple(dict.fromkeys((*members, *named.recipients)))
    return structs.replace(named, to=(name, *named.to), recipients=both, scope=BROADCAST), named.recipients


def _wakes(
    context: Context, caller: Caller, room: Room, resolved: Resolved, named: Sequence[str], hint: str
) -> list[str] | None:
    """Return the recipients that the message wakes; None for all. A message never wakes its sender."""
    wakes_all = context.policy.room_wakes == ALL_WAKE or (
        context.policy.room_wakes == PERSONS_WAKE and caller.kind == HUMAN
    )
    if wakes_all:
        woken = list(resolved.recipients)
    else:
        woken = list(named)
        # An interrupt to the whole room is for the member that works: only the owner of the stick writes.
        if hint == INTERRUPT and resolved.scope == BROADCAST and room.owner:
            woken.append(room.owner)
    woken = [name for name in dict.fromkeys(woken) if name != caller.name]
    # None for all: the event then needs no second list of the same names.
    return None if set(woken) == set(resolved.recipients) else woken


# --------------------
# The notice to a person about a message that a brake holds. Pure: an event in, a text out.

_NAMED: Final = 20
"""How many earlier held messages are listed by number."""


def held_text(event: Event, others: Sequence[int]) -> str:
    """Write the notice for a held message: how to release it, and which others of its sender are held."""
    names = ", ".join(map(readable_mailbox, deliverable(event).delivered_to))
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
# Notices to the senders of unanswered requests.
#
# A notice is decided on the single key of its watch, so a watch notifies once.


async def fire_watch(context: Context, caller: Caller, request: FireWatch, key: bytes | None) -> Written:
    """Write that a request is unanswered, once; nothing if it was answered or the watch ended meanwhile."""
    # Read here, because a decision may run in the writer's thread and sees only rows.
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
        # The id follows from the cause, so a second notice for the same cause is the same event, also after a
        # crash.
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
    # Without a header, an agent could not tell such a text from the input of a person.
    require_person(caller, "typing raw keys" if request.raw else "typing without a header")


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
        # Keys that no terminal takes soon must not be pressed later, on another screen.
        "expires_in_ms": request.expires_in_ms or RAW_EXPIRES_MS,
        # An @ in the keys is a character, not a recipient.
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
        # The log must not contain a secret: the daemon keeps it in memory, and finds it by the hash.
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
    # Raw keys may be any bytes, so the decoding must not fail.
    return len(keys.decode("utf-8", "surrogateescape").rstrip("\r\n"))


# --------------------
# Find a message by its reference: `42`, `#42`, `42:BOXE`, its ULID or a unique end of it.

# ASCII, because `\d` alone also matches other digits; 15 of them stay below the largest integer in SQLite.
_SEQ: Final = re.compile(r"#?(\d{1,15})(?::([A-Za-z0-9]+))?", re.ASCII)
_LEAST: Final = 4
"""Characters of a ULID's end that are enough to search for it: fewer would match by accident."""
_END: Final = re.compile(rf"[0-9A-Za-z]{{{_LEAST},26}}", re.ASCII)


def find_event(log: Log, reference: str, *, what: str = "a message") -> Event:
    """Return any event by its reference. Raises `NotFound`, or names the candidates if several match.

    `what` is the kind of the wanted event, for the error about a reference that cannot be one.
    """
    if found := _SEQ.fullmatch(reference):
        # `recall`, not `event`: a lost archive must be an error, and not look like a wrong number.
        return _checked(reference, log.recall(int(found[1])), found[2])
    if not _END.fullmatch(reference):
        raise BadRequest(
            f"{cut_name(reference)!r} is not {what}: write its number, its ULID, or at least the last "
            f"{_LEAST} characters of its ULID"
        )
    events = log.find(reference.upper())
    if not events:
        raise NotFound(f"event {cut_name(reference)}")
    if len(events) > 1:
        candidates = ", ".join(f"#{event.seq} ({event.id})" for event in events)
        raise BadRequest(f"{reference} is ambiguous: it matches {candidates}; write more characters")
    return events[0]


async def fetch_event(log: Log, reference: str) -> Event:
    """Return what `find_event` returns, but read it in a thread: for an event that may be large."""
    if found := _SEQ.fullmatch(reference):
        return _checked(reference, await log.fetch(int(found[1])), found[2])
    return find_event(log, reference)


def _checked(reference: str, event: Event | None, device: str | None) -> Event:
    # The number of an imported event is one of this log, and its device is another one.
    if event is None or (device and (event.imported or device.upper() != event.device)):
        raise NotFound(f"event {cut_name(reference)}")
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
_LIMIT_CONTENT_BYTES: Final = 1024
"""Bytes of the command, the source and the external id of a routed message, each."""
LIMIT_EXPIRES_MS: Final = 366 * 24 * 3600 * 1000
"""The longest time limit of a message: a year, in milliseconds."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """The fields that a message inherits from the one it replies to."""

    reply_to: str = ""
    thread: str = ""
    author: str = ""
    original: Event | None = None


_NO_REPLY: Final = _Reply()
_OpenRequests = Callable[[str, str], Sequence[Watch]]
"""Returns the requests that an agent has not answered to a sender, as `read_open_requests` does."""


class PreparedSend(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was checked and can be written, with the key and the decision of its commit."""

    caller: Caller
    draft: Draft
    resolved: Resolved
    on: str | None
    decide: Decide


async def send(context: Context, caller: Caller, request: Send, key: bytes | None) -> Sent:
    """Store one message for all its recipients."""
    return await send_with_id(context, caller, _with_checked_options(context, caller, request), key)


async def relay(context: Context, caller: Caller, request: RelayLine, key: bytes | None) -> Sent:
    """Store one line of an external sender. This is all that such a sender can do.

    A word that names no agent is part of the text. Groups, paths and `@all` name none: another network
    cannot wake all agents.
    """
    # The nick is shown as the sender, so another caller could use this request to appear under another name.
    if caller.kind != EXTERNAL or split_irc_path(caller.name) is None:
        raise BadRequest("only a bridge stores lines of another network")
    # Without mentions in the text: only agents that are found below are recipients.
    send_request = Send(text=request.text, id=request.id, display_name=request.nick)
    if request.recipient:
        return await send(context, caller, structs.replace(send_request, recipient=request.recipient), key)
    named = [word for word in find_named(request.text) if _is_named(context, word)]
    to = (*([request.path] if request.path else ()), *named)
    if not to:
        raise BadRequest("the line names no agent: begin it with the name of one, as in 'luna: hello'")
    return await send(context, caller, structs.replace(send_request, to=to), key)


def _is_named(context: Context, word: str) -> bool:
    """Whether a word of a line is the person or the whole name of an agent that has not left for good."""
    try:
        address = parse_address(word)
        if not isinstance(address, Named | Human):
            return False
        resolve((), context.directory, sender="", is_present=context.is_present, mentions=(word,))
    except (BadRequest, UnknownRecipient):
        return False
    return True


async def send_all(
    context: Context, requests: Sequence[tuple[Caller, Send]], *, admit: Callable[[Caller], None]
) -> list[Sent | Exception]:
    """Store several messages with one commit, in order. Return the outcome of each, or its exception.

    A refused message does not affect the others. None of them may be a dry run. `admit` refuses a caller.
    """
    prepared: list[PreparedSend | Exception] = []
    # All messages are decided before the first one is written, so one read for each pair of agents is enough.
    open_requests = cache(partial(read_open_requests, context.log.rows))
    for caller, request in requests:
        try:
            admit(caller)
            checked = _with_checked_options(context, caller, request)
            prepared.append(await _prepare(context, caller, checked, open_requests))
        except PalaverError as error:
            prepared.append(error)
    orders = [(one.on, one.decide) for one in prepared if isinstance(one, PreparedSend)]
    commits = iter(await context.log.commit_all(orders) if orders else ())
    # In the order of the requests: a refused one has no commit, and takes none from the iterator.
    return [
        await _outcome(context, one, next(commits)) if isinstance(one, PreparedSend) else one
        for one in prepared
    ]


async def _outcome(context: Context, prepared: PreparedSend, commit: Commit | Exception) -> Sent | Exception:
    if isinstance(commit, Exception):
        return commit
    # Also here: a message that a brake holds is stored, and refused to its sender.
    try:
        sent = _sent_by_commit(prepared.draft, prepared.resolved, commit)
        return await _concluded(context, prepared.caller, sent)
    except PalaverError as error:
        return error


def _with_checked_options(context: Context, caller: Caller, request: Send) -> Send:
    """Return the request with its raw keys as a text and with the id of its bundle."""
    if request.id and not is_ulid(request.id):
        raise BadRequest(f"--id must be a ULID (26 characters), not {request.id!r}")
    check_sender(caller, request)
    if request.raw:
        request = structs.replace(request, **as_keys(request))
    if request.bundle_id:
        return structs.replace(request, bundle_id=attached_bundle(context.log, request.bundle_id))
    return request


async def send_with_id(context: Context, caller: Caller, request: Send, key: bytes | None) -> Sent:
    """Store one message under the id it came with, in any form: a foreign id is kept."""
    prepared = await _prepare(context, caller, request, partial(read_open_requests, context.log.rows))
    sent = await store(
        context,
        prepared.draft,
        prepared.resolved,
        key,
        is_dry_run=request.is_dry_run,
        on=prepared.on,
        decide=prepared.decide,
    )
    return await _concluded(context, caller, sent)


async def _prepare(
    context: Context, caller: Caller, request: Send, open_requests: _OpenRequests
) -> PreparedSend:
    """Check a message, resolve its recipients and apply the brakes. Writes nothing."""
    mentions = find_mentions(request.text) if request.has_mentions else []
    # In an envelope, a room is not an address.
    in_room = None if request.is_exact else resolve_room_message(context, caller, request, mentions)
    check_text(request.text)
    content = None if request.content is None else _with_payload(request.content)
    if not request.text.strip() and not request.raw and content is None:
        raise BadRequest("the message is empty; nothing was sent")
    reply = _check_reply(context, request)
    thread = request.thread or reply.thread
    if thread:
        check_thread(thread)
    if request.priority:
        parse_priority(request.priority)
    if in_room is None:
        resolved, priority = await _resolve(context, caller, request, reply, mentions), request.priority
    else:
        resolved, priority = in_room.resolved, in_room.priority
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
        reply_to=reply.reply_to,
        bundle_id=request.bundle_id,
        priority=None if priority == "normal" else priority,
        expires=_expires(request, now),
        path=resolved.paths[0] if resolved.paths else None,
        content=content,
    )
    payload |= keys_payload(request)
    if request.display_name:
        payload["display_name"] = request.display_name
    if resolved.handled:
        payload["handled"] = {agent: list(sessions) for agent, sessions in resolved.handled.items()}
    original = reply.original
    if not reply.reply_to and (answered := _implied_request(context, caller, resolved, now, open_requests)):
        payload["answers"] = answered
        original = context.log.event(answered)
    if channel := request.channel or _channel_of(original):
        payload["channel"] = channel
    if in_room is not None:
        payload |= in_room.payload
    if resolved.dead:
        payload["dead"] = list(resolved.dead)
    # After all checks: the brakes count each message, and a refused one must not count.
    if not request.is_dry_run:
        payload |= _braked(context, caller, original, resolved, now)
    draft = Draft(
        type=MESSAGE,
        sender=caller.name,
        payload=payload,
        to=resolved.to,
        id=request.id or context.ids.next(),
        ts=now,
        by=caller.by,
        sent_ts=request.sent_ts,
    )
    if in_room is None:
        return PreparedSend(caller=caller, draft=draft, resolved=resolved, on=None, decide=lambda rows: draft)
    return PreparedSend(
        caller=caller,
        draft=draft,
        resolved=resolved,
        on=in_room.key,
        decide=in_room.unless_closed(draft),
    )


def _with_payload(content: Content) -> Content:
    """Return the content of a message that is sent now, with its defaults, or refuse it.

    A payload that JavaScript takes as false becomes an empty object; an empty list is kept. Imported messages
    keep theirs, because they must stay as they were.
    """
    payload = content.payload
    # `0 == False`, and a list or an object is never equal to one of these.
    if payload is None or payload in (False, ""):
        payload = {}
    return checked_content(structs.replace(content, payload=payload))


def checked_content(content: Content) -> Content:
    """Return the content of a routed message with its default words, or refuse it. Any payload is kept."""
    words = {"command": content.command, "source": content.source, "external id": content.external_id}
    for what, word in words.items():
        check_text(word, f"the {what}", _LIMIT_CONTENT_BYTES)
    size_bytes = len(encode_payload({"payload": content.payload}))
    if size_bytes > content.limit_bytes:
        raise MessageTooLarge("the payload", size_bytes, content.limit_bytes)
    return structs.replace(
        content, command=content.command or DEFAULT_COMMAND, source=content.source or INTERNAL
    )


async def _concluded(context: Context, caller: Caller, sent: Sent) -> Sent:
    """Return the outcome for a sender, after the notices about a held message and about exited recipients."""
    if sent.event is not None and is_held(sent.event):
        await _tell_human(context, sent.event, context.clock.now_ms())
    sent = unless_held(_with_exited(context, caller, sent))
    if sent.exited and sent.event is not None and _topic(sent.event)[0] == REQUEST:
        for one in sent.exited:
            # The fold made the watch of the request due. If the log is full now, the reactor writes the
            # notice later: the message itself is stored.
            with suppress(Unavailable):
                fired = FireWatch(agent=one.agent, request=sent.event.seq)
                await fire_watch(context, SYSTEM_CALLER, fired, None)
    return sent


def _with_exited(context: Context, caller: Caller, sent: Sent) -> Sent:
    """Return the outcome with the recipients that have left the bus."""
    found = [agent for name in sent.delivered_to if (agent := context.directory.get(name)) and agent.left]
    if not found:
        return sent
    exited = [
        ExitedRecipient(
            agent=agent.name,
            state=agent.state,
            since=agent.since,
            resumable=bool(agent.argv) and not agent.parent and may_resume(caller, agent),
        )
        for agent in found
    ]
    return structs.replace(sent, exited=tuple(exited))


def _braked(
    context: Context, caller: Caller, answered: Event | None, resolved: Resolved, now: int
) -> dict[str, object]:
    """Return what the brakes add to a message: its position in a chain of replies, and why it is held."""
    chain = chain_of(caller, answered, _chain_of_turn(context, caller))
    added: dict[str, object] = {} if chain is None else {"chain": chain.id, "hops": chain.hops}
    if reason := context.brakes.check(caller, resolved.recipients, chain, now):
        added["held"] = reason
    return added


def _chain_of_turn(context: Context, caller: Caller) -> Chain | None:
    """Return the chain of the automatic turn that the caller is part of, or None."""
    if not caller.turn:
        return None
    turn = read_turn(context.log.rows, *session_of_mailbox(caller.turn))
    return None if turn.chain is None else Chain(id=turn.chain, hops=turn.hops)


async def _tell_human(context: Context, event: Event, now: int) -> None:
    """Notify the human that a message is held: once per message, and once a minute per sender."""
    others = context.brakes.untold(event.sender, event.seq, now)
    if others is not None:
        request = Notify(to=HUMAN, text=held_text(event, others), cause=event.id, kind="held")
        await notify(context, SYSTEM_CALLER, request, None)


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
    about: dict[str, object] = {} if request.event is None else {"event": request.event}
    if request.agents:
        about |= {"agents": list(request.agents), "file": request.file}
    draft = Draft(
        type=MESSAGE,
        sender=caller.name,
        payload=payload | about,
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
    # Before the commit: a dry run writes no event, so its request key stays free for the real request.
    if is_dry_run:
        return _sent_now(draft, resolved, None)
    commit = await context.log.commit(on, decide or (lambda rows: draft), request_key=key)
    return _sent_by_commit(draft, resolved, commit)


def _sent_by_commit(draft: Draft, resolved: Resolved, commit: Commit) -> Sent:
    assert commit.event is not None  # decide always returns a draft
    if commit.is_repeat:
        if commit.event.id == draft.id and not _says_the_same(draft, commit.event):
            raise IdTaken(draft.id, commit.event.seq)
        # The same request key is the same request, with the same outcome; the same id is a repeat by the
        # sender.
        return structs.replace(_sent(commit.event), is_repeat=commit.event.id == draft.id)
    return _sent_now(draft, resolved, commit.event)


def _sent_now(draft: Draft, resolved: Resolved, event: Event | None) -> Sent:
    return Sent(
        event=event,
        to=draft.to,
        delivered_to=resolved.recipients,
        empty_groups=resolved.empty_groups,
        dead=resolved.dead,
    )


def _says_the_same(draft: Draft, stored: Event) -> bool:
    """Whether a draft repeats a stored event, in the fields that its sender set.

    Recipients, expiry and brakes are decided at send time, and differ when the same message is sent again.
    """
    if draft.type != stored.type:
        return False
    # A lost content cannot be compared, and keys may be a secret, which is never stored.
    if is_lost(stored) or is_raw(stored):
        return True
    # As it would be read back: JSON makes lists of tuples.
    new, old = decode_payload(encode_payload(draft.payload)), stored.payload
    is_foreign = is_foreign_type(stored.type)
    if is_removed(stored, is_foreign=is_foreign):  # The text was removed: compare the rest.
        new = without_text(structs.replace(stored, payload=new), is_foreign=is_foreign).payload
    if draft.type in TASK_TYPES:
        # Without an envelope the bus chooses the recipients, so those of a repeat may differ.
        is_envelope = draft.sent_ts is not None and stored.sent_ts is not None
        if is_envelope and draft.to != stored.to:
            return False
        return _as_sent(new) == _as_sent(old)
    if draft.to != stored.to:
        return False
    if draft.type != MESSAGE:
        return new == old
    new_message, known = (
        body_as(structs.replace(draft, payload=new), MessageSent),
        body_as(stored, MessageSent),
    )
    # A repeated command does not create its bundle again, and in a room the bus decides the priority.
    return (
        _fields_of_sender(new_message) == _fields_of_sender(known)
        and (not new_message.bundle_id or new_message.bundle_id == known.bundle_id)
        and (known.room is not None or new_message.priority == known.priority)
    )


def _fields_of_sender(message: MessageSent) -> tuple[object, ...]:
    """Return the fields of a message that its sender set."""
    topic = (message.text, message.intent, message.thread, message.reply_to, message.room)
    return (*topic, message.command, message.payload, message.source, message.external_id)


def _as_sent(payload: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in payload.items() if name not in TASK_FIELDS_OF_BUS}


def sent_by(context: Context, event: Event) -> Sent:
    """Return the outcome of a message from the event it wrote; raises `RateLimited` for a held one."""
    return unless_held(_sent(event))


def _sent(event: Event) -> Sent:
    dead = event.body.dead if isinstance(event.body, MessageSent) else ()
    return Sent(event=event, to=event.to, delivered_to=recipients_of(event), dead=dead)


def recipients_of(event: Event) -> tuple[str, ...]:
    """Return the recipients that an event was stored for."""
    return deliverable(event).delivered_to


async def _resolve(
    context: Context, caller: Caller, request: Send, reply: _Reply, mentions: Sequence[str]
) -> Resolved:
    # The recipients of an envelope follow the rules of the wire, not those for people.
    if request.is_exact:
        return resolve_exactly(
            request.to, context.directory, sender=caller.name, is_present=context.is_present
        )
    if request.recipient:
        return _exactly(context, request.recipient)
    if reply.author == SCRIPT_NAME and not mentions and all(map(_is_script, request.to)):
        # A script has no mailbox. The reply is stored, and the receipt of the script's message names it.
        return Resolved(to=(SCRIPT_NAME,), scope=MENTIONS)
    # All scripts share one name, so none of them has a mailbox.
    if any(map(_is_script, request.to)):
        raise BadRequest(
            "a script cannot be a recipient: --reply-to ID alone answers its message. Nothing was sent"
        )
    # In this order: a reply goes back to its author also if the request names a thread.
    if not request.to and not mentions:
        if path := _path_back(reply):
            return resolve((path,), context.directory, sender=caller.name, is_present=context.is_present)
        if reply.author:
            return _exactly(context, reply.author)
        if request.thread:
            return await _to_thread(context, caller, request)
        _check_broadcast(context, caller, request)
    return resolve(
        request.to,
        context.directory,
        sender=caller.name,
        is_present=context.is_present,
        mentions=mentions,
    )


def _is_script(token: str) -> bool:
    return token.lower().removeprefix("@") == SCRIPT_NAME


def _check_broadcast(context: Context, caller: Caller, request: Send) -> None:
    """Refuse a message without recipients, except from a script; also a script's, if its text is a name."""
    word = request.text.strip()
    # A script may broadcast, so a forgotten text would otherwise send the recipient's name to all agents.
    if is_recipient(context.directory, word):
        raise BadRequest(
            f"{word!r} is a recipient, and the text is missing: name the recipient first, then the text. "
            "Nothing was sent"
        )
    if caller.kind != EXTERNAL:
        raise BadRequest(
            "the message has no recipient: name one, or @all to send it to all agents. Nothing was sent"
        )


_THREAD_MESSAGES: Final = 200
"""The newest messages of a thread, whose senders and recipients are its participants."""


async def _to_thread(context: Context, caller: Caller, request: Send) -> Resolved:
    """Address the participants of a thread: those that wrote in it, or that its messages went to."""
    known = read_thread(context.log.rows, request.thread)
    if known is None:
        raise BadRequest(
            f"the thread {request.thread} is new: name its recipients, or @all for all agents. "
            "Nothing was sent"
        )
    query = Query(types=(MESSAGE,), threads=(request.thread,), last=_THREAD_MESSAGES)
    events = await context.log.read(query)
    parties = (name for event in events for name in (event.sender, *body_as(event, MessageSent).delivered_to))
    # The stored names are only the first twenty senders of the thread. Later ones are in its newest messages.
    names = dict.fromkeys((*known.names, *parties))
    found = tuple(name for name in names if _can_take_part(context, caller, name))
    if not found:
        raise BadRequest(
            f"the thread {request.thread} has no other participants: name a recipient. Nothing was sent"
        )
    # The sender has not named them, as in a broadcast.
    check_breadth(caller, request, Sent(event=None, to=(), delivered_to=found))
    return Resolved(to=found, recipients=found, scope=MENTIONS)


def _can_take_part(context: Context, caller: Caller, name: str) -> bool:
    """Whether a participant is not the caller, and has a mailbox: an ended sub-agent has no mailbox."""
    agent = context.directory.get(name)
    is_known = name == HUMAN or (agent is not None and not (agent.parent and agent.left))
    return is_known and name != caller.name


_OPEN_MS: Final = 24 * 3600 * 1000
"""For how long a direct message back counts as the reply to a request."""


def _implied_request(
    context: Context, caller: Caller, resolved: Resolved, now: int, open_requests: _OpenRequests
) -> int:
    """Return the seq of the request that a direct message back answers; 0 if it is not exactly one."""
    # Only requests to agents are watched, and a text of a subscription is not written by its owner.
    can_answer = caller.kind == INSTANCE and caller.by != SYSTEM_CALLER.name
    if not can_answer or resolved.scope != MENTIONS or len(resolved.recipients) != 1:
        return 0
    found = open_requests(caller.name, resolved.recipients[0])
    # With several open requests it is not known which one is meant, and a wrong guess would end a watch.
    lately = [watch.request for watch in found if now - watch.ts <= _OPEN_MS]
    return lately[0] if len(lately) == 1 and _may_have_read(context, caller.name, lately[0]) else 0


def _may_have_read(context: Context, name: str, seq: int) -> bool:
    """Whether an agent may know a message: an agent does not answer a request that still waits for it."""
    entry = read_entry(context.log.rows, seq, name)
    is_waiting = entry is None or entry.state == State.QUEUED
    return not is_waiting or context.member_presence.may_know(name, seq)


_ON_IRC: Final = f"{IRC}/"


def _path_back(reply: _Reply) -> str:
    """Return where a reply to a sender on IRC goes: to the channel of its line, or to its nick."""
    if not reply.author.startswith(_ON_IRC):
        return ""
    body = None if reply.original is None else reply.original.body
    path = body.path if isinstance(body, MessageSent) else None
    return path if path and path.startswith(_ON_IRC) else reply.author


def _exactly(context: Context, name: str) -> Resolved:
    """Address a reply to its asker only, not to all agents that share the base name."""
    if "/" in name:
        raise BadRequest(f"{name} has no mailbox for a reply: name a recipient. Nothing was sent")
    # The author of an imported message may be an agent of another home.
    if name != HUMAN and context.directory.get(name) is None:
        raise UnknownRecipient({name: ()})
    return Resolved(to=(name,), recipients=(name,), scope=MENTIONS)


def check_breadth(caller: Caller, request: Send, sent: Sent) -> None:
    """Refuse a broadcast to many agents that an agent under a harness has not confirmed.

    A model can write such a message by mistake, and it wakes them all. `sent` has its recipients; a dry run
    of the same request returns them too.
    """
    count = len(sent.delivered_to)
    is_asked_for = request.is_confirmed or request.is_dry_run
    if not caller.harness or count <= LIMIT_UNASKED or is_asked_for:
        return
    if not sent.to or _EVERYONE in sent.to or any(map(has_wildcard, sent.to)):
        raise BadRequest(f"this would go to {count} agents; to confirm, add --yes. Nothing was sent")


def _check_reply(context: Context, request: Send) -> _Reply:
    if request.intent and request.intent not in INTENTS:
        raise BadRequest(f"no such intent: {request.intent!r}; the intents are {', '.join(INTENTS)}")
    if not request.reply_to:
        if request.intent == ACK:
            raise BadRequest("an ack requires --reply-to ID")
        return _NO_REPLY
    original = find_message(context.log, request.reply_to)
    intent, thread = _topic(original)
    if request.intent == ACK and intent in (ACK, INFORM):
        raise BadRequest(f"#{original.seq} is an {intent}, which needs no ack; nothing was sent")
    return _Reply(
        reply_to=str(original.seq),
        thread=thread or "",
        author=original.sender,
        original=original,
    )


def _channel_of(original: Event | None) -> str | None:
    """Return the IRC channel that a message was written in: a reply is shown there too."""
    return original.body.channel if original is not None and isinstance(original.body, MessageSent) else None


def _topic(original: Event) -> tuple[str | None, str | None]:
    """Return the intent and the thread of a message or of a foreign envelope."""
    body = original.body
    return (body.intent, body.thread) if isinstance(body, MessageSent | ForeignBody) else (None, None)


def _expires(request: Send, now: int) -> int | None:
    if not request.expires_in_ms:
        return None
    if not 0 < request.expires_in_ms <= LIMIT_EXPIRES_MS:
        raise BadRequest("the time after which a message expires must be 1 millisecond to 1 year")
    return now + request.expires_in_ms
