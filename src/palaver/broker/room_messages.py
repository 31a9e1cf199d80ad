"""Messages in a room: to all its members, to some of them, or to the room and other agents.

Recipients are for routing, not for privacy: every reader of the room reads all of it. An agent's message to
the room wakes no agent unless it names one; a person's does. Decides recipients, stores nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from palaver.broker.context import Context
from palaver.broker.rooms import stick_key
from palaver.domain.lease import ALL_WAKE, PERSONS_WAKE
from palaver.domain.routing import Directory, Resolved, resolve
from palaver.errors import (
    AmbiguousRecipient,
    BadRequest,
    InvalidBody,
    MessageTooLarge,
    RoomClosed,
    UnknownMember,
    UnknownRecipient,
)
from palaver.log.api import Decide
from palaver.protocol.address import Everyone, Human, Named, Path, RoomAddress, format_address, parse_address
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Draft
from palaver.protocol.message import BROADCAST, HUMAN, MENTIONS
from palaver.protocol.query import HINTS, INTERRUPT, NORMAL
from palaver.protocol.requests import Send
from palaver.state.rooms import Room, find_member, find_room, read_room, read_rooms_of
from palaver.state.rows import Rows

_PERSONS: Final = frozenset({Standing.HUMAN, Standing.GUEST})
"""Standings that may write in a room without being a member."""
_EVERYONE: Final = format_address(Everyone())
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
            if not room.is_open:
                raise RoomClosed(self.room)
            return draft

        return decide


def said_in_room(
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
    if not room.is_open:
        raise RoomClosed(room.id)
    if room.member(caller.name) is None and caller.standing not in _PERSONS:
        raise UnknownMember(caller.name, room.id)
    others = [token for token in request.to if not _is_room(token)]
    if others and not rooms:
        resolved = _to_members(context, caller, room, others)
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
    """Refuse an empty or too large body. Blanks count as a body, and nothing is cut."""
    if not request.text:
        raise InvalidBody("the message is empty")
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
    ids = {find_room(context.log.rows, word).id for word in (*words, *([named] if named else []))}
    if len(ids) > 1:
        raise BadRequest(f"a message can go to one room only; this selects {', '.join(sorted(ids))}")
    if ids:
        return find_room(context.log.rows, ids.pop())
    own = list(read_rooms_of(context.log.rows, caller.name))
    if len(own) != 1:
        which = ", ".join(f"#{room.id}" for room in own) or "none"
        raise BadRequest(f"name one room as #NAME: you are in {which}; 'pal room list' shows the rooms")
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
        scope=BROADCAST if _EVERYONE in meant else MENTIONS,
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
    is_present = context.attendance.is_present
    try:
        return find_member(room, token, is_present, asking=caller.name).name
    except UnknownMember:
        if not bases:
            raise
    if len(bases) > 1:
        raise AmbiguousRecipient(token, list(bases))
    return find_member(room, bases[0], is_present, asking=caller.name).name


def _group(room: Room, token: str, others: Directory) -> Sequence[str]:
    """Return the members of a group: by tag, by role, or by the beginning of their full names."""
    try:
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
    return replace(named, to=(name, *named.to), recipients=both, scope=BROADCAST), named.recipients


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
        if hint == INTERRUPT and resolved.scope == BROADCAST and room.owner:
            woken.append(room.owner)
    woken = [name for name in dict.fromkeys(woken) if name != caller.name]
    return None if set(woken) == set(resolved.recipients) else woken
