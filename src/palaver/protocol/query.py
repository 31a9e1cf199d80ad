"""A query to the log. Values, and the test of one event; the engines find events fast."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from palaver.errors import AgentIdRequired, InvalidEventTypeFilter
from palaver.protocol.address import IRC_LOCAL
from palaver.protocol.envelope import Event, common_fields, from_agent, words_of
from palaver.protocol.events import (
    BODIES,
    BYE,
    Filter,
    MessageSent,
)
from palaver.protocol.message import BROADCAST, MENTIONS, MESSAGE, readable_text
from palaver.protocol.paths import PLUS, mailbox_of, split_mailbox
from palaver.protocol.tasks import TASK_TYPES

Passes = Callable[[Event], bool]
"""Returns whether a reader wants an event."""

# --------------------
# The source, the recipients and the concerned members of a room event. Pure.

JOINED: Final = "member_joined"
LEFT: Final = "member_left"
RELEASED: Final = "release"
WRITTEN_FOR: Final = (LEFT, RELEASED)
"""Events that the bus writes for a member that has exited; `from` in the payload is that member. In other
events of rooms `from` is another agent, for example the previous owner."""

_COMINGS: Final = frozenset({JOINED, LEFT})


def writers(event: Event) -> tuple[str, ...]:
    """Return the authors of an event: its sender, and the member for which the bus has written it."""
    found = from_agent(event) if event.type in WRITTEN_FOR else None
    # Only the bus may write for another agent. Its name begins with a bracket, as no agent's does.
    is_for_another = found not in (None, event.sender) and event.sender.startswith("[")
    return (event.sender, found) if found is not None and is_for_another else (event.sender,)


def to_agents(event: Event) -> tuple[str, ...]:
    """Return the agents an event is addressed to; none if that is the room."""
    if event.type != MESSAGE:
        return event.to
    if any(token.startswith("#") for token in event.to):
        return ()
    return tuple(token.removeprefix("@") for token in event.to)


def is_concerned(event: Event, name: str) -> bool:
    """Return whether an event concerns a member that listens in its room.

    Messages to it, room messages of others, joins and leaves of others, and other events from or to it.
    """
    sender, to = from_agent(event), to_agents(event)
    if event.type == MESSAGE:
        return name in to if to else sender != name
    if event.type in _COMINGS:
        return sender != name
    return sender == name or name in to


# --------------------
# Where a message is shown on IRC: the words by which the history of one channel or conversation is found.

GENERAL: Final = "#general"
"""The channel of broadcasts."""

_LIMIT_DIRECT: Final = 50
"""A message to more recipients than this is in no conversation of two: each pair costs a row and a word of
the index."""


def fold_channel(name: str) -> str:
    """Return the name of a channel or a nick in lower case; only ASCII letters are folded."""
    if name.isascii():
        return name.lower()
    return "".join(char.lower() if char.isascii() else char for char in name)


def conversation_of_channel(channel: str) -> str:
    """Return the word for the messages of a channel: broadcasts, a room, or its path."""
    return fold_channel(channel)


def conversation_of_thread(thread: str) -> str:
    """Return the word for the messages of a thread, in which case matters."""
    return f"thread/{thread}"


def conversation_of_agent(name: str) -> str:
    """Return the word for the messages from and to an agent."""
    return f"@{_fold(name)}"


def conversation_of_pair(one: str, other: str) -> str:
    """Return the word for the direct messages between two parties."""
    # Sorted, so that the messages of both directions have the same word.
    return "".join(sorted((conversation_of_agent(one), conversation_of_agent(other))))


def is_envelope(event: Event) -> bool:
    """Return whether an event is an envelope of a program: of a foreign type, or about a task."""
    return event.type not in BODIES or event.type in TASK_TYPES


def shown_conversations(event: Event) -> frozenset[str]:
    """Return the words of all conversations that show a message or an envelope; none for other events.

    Raw keys are shown nowhere.
    """
    body = event.body
    if isinstance(body, MessageSent):
        if body.raw is not None:
            return frozenset()
        names = body.delivered_to
    elif is_envelope(event):
        names = event.delivered_to
    else:
        return frozenset()
    agents = {f"@{name}" for name in _parties(event.to, names)}
    return frozenset({*shared_conversations(event), f"@{_fold(event.sender)}", *agents})


def shared_conversations(event: Event) -> tuple[str, ...]:
    """Return the sorted words of `shown_conversations`, without those of single agents.

    They are channels, threads, rooms and pairs.
    """
    body = event.body
    if isinstance(body, MessageSent):
        if body.raw is not None:
            return ()
        names, shown = body.delivered_to, (body.channel, body.thread, body.room)
        find = _conversations if len(names) <= _LIMIT_REMEMBERED else _conversations.__wrapped__
        return find(event.sender, event.to, names, body.scope, shown)
    if not is_envelope(event):
        return ()
    # The payload of an envelope is its sender's, and could claim any room: only its addresses count.
    return _conversations.__wrapped__(event.sender, event.to, event.delivered_to, None, _NOWHERE)


_NOWHERE: Final = (None, None, None)
_LIMIT_REMEMBERED: Final = 8
"""The conversations of a message to more recipients than this are not remembered, so that the remembered ones
stay small."""


_Shown: TypeAlias = tuple[str | None, str | None, str | None]
"""The channel, the thread and the room of a message."""


# Every message is folded into its conversations and indexed by them, and most have the same few.
@lru_cache(maxsize=4096)
def _conversations(
    sender: str, to: tuple[str, ...], names: tuple[str, ...], scope: str | None, shown: _Shown
) -> tuple[str, ...]:
    """Return the shared conversations of a message, or of an envelope if `scope` is None."""
    channel, thread, room = shown
    found = {name for token in to if (name := _channel_of_token(token))}
    if channel:
        found.add(fold_channel(channel))
    if thread:
        found.add(conversation_of_thread(thread))
    if room:
        found.add(fold_channel(f"#{room}"))
    if scope is None:
        is_to_all = not to or "@all" in to
        is_direct = not is_to_all and not any("#" in token for token in to)
    else:
        is_to_all = scope == BROADCAST and not room
        # Written for its recipients by name, and not in a channel or a room.
        # A guest is addressed by a path, and then the scope is not `mentions`.
        is_direct = (scope == MENTIONS or any(map(is_guest, to))) and not room and not channel
    if is_to_all:
        found.add(GENERAL)
    parties = _parties(to, names)
    if is_direct and len(parties) <= _LIMIT_DIRECT:
        found.update(conversation_of_pair(sender, name) for name in parties)
    return tuple(sorted(found))


def _channel_of_token(token: str) -> str:
    """Return the channel that an address stands for: a room, or the path of a channel; empty for others."""
    name = token.removeprefix(IRC_LOCAL)
    # A channel is one segment of a path: a slash in its name is escaped there. `%25` comes last, so that an
    # escaped percent sign never becomes the beginning of another escape.
    return fold_channel(name).replace("%2f", "/").replace("%25", "%") if name.startswith("#") else ""


def _parties(to: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Return the agents, persons and guests that an event is for; a session counts as its agent."""
    agents = [split_mailbox(name)[0] if PLUS in name else name for name in names]
    return _folded((*agents, *filter(is_guest, to)))


def is_guest(name: str) -> bool:
    """Return whether a name or a path is that of a guest on IRC: `irc/local/bob`."""
    return name.startswith(IRC_LOCAL) and "/" not in (nick := name[len(IRC_LOCAL) :]) and nick[:1] not in "#*"


# --------------------
# A query, and the test whether one event matches it.


class Query(Filter, frozen=True, kw_only=True):
    """A filter with limits on the events that it returns."""

    concerns: str = ""
    """Events of rooms that concern this member."""
    after: int = 0
    """Only seqs above this one."""
    before: int | None = None
    """Only seqs below this one."""
    since: int | None = None
    until: int | None = None
    """Unix milliseconds, both ends included."""
    is_dead: bool = False
    """Only messages with a path that no subscription matched."""
    shown: tuple[str, ...] = ()
    """Words of `shown_conversations`: only messages that one of these conversations shows on IRC."""
    search: str = ""
    sql: str = ""
    last: int | None = None
    """The number of newest matching events to return."""
    limit: int = 1000
    with_imported: bool = False
    """Also return imported events. Only for a reader that shows history: no decision may depend on them."""


_DEAD: Final = frozenset({"dead"})
_NAMING_FIELDS: Final = ("to", "from", "agent")
"""The payload fields with the name of an agent that an event is about."""

STORED_TYPES: Final = {"message_sent": "message"}
"""Aliases of event types."""

STORED_STATES: Final = {"listening": "idle", "inactive": "exited"}
"""Aliases of states."""

EXITED: Final = "exited"
"""The state after a bye: no other event changes a state that its payload does not name."""


def matches(query: Query, event: Event) -> bool:
    """Return whether an event passes every filter except `search` and `sql`, which need the engine.

    Names compare without regard to case or a leading `@`.
    """
    # The cheapest test comes first: followers ask for every event.
    return (
        _in_range(query, event)
        and not any(wanted.isdisjoint(found(event)) for wanted, found in _filters(query))
        and (not query.files or is_file_wanted(query.files, words_of(event, "file")))
        and (not query.concerns or is_concerned(event, query.concerns))
    )


# Followers test one query on every event, so its words are folded only once.
@lru_cache(maxsize=1024)
def _filters(query: Query) -> tuple[tuple[frozenset[str], Callable[[Event], Iterable[str]]], ...]:
    filters = (
        (_stored(query.types, STORED_TYPES), _types),
        (_stored(query.statuses, STORED_STATES), states_of),
        (_folded(query.agents), _agents),
        (_folded(query.senders), _senders),
        (_folded(query.to), _recipients),
        (_folded(query.mentions), _mentions),
        (_folded(query.targets), _targets),
        (frozenset(query.threads), _threads),
        (frozenset(query.rooms), _rooms),
        (frozenset(query.intents), _intents),
        (_folded(query.tools), _tools),
        (frozenset(query.replies_to), replied_to),
        (_folded(query.participants), participants_of),
        (_DEAD if query.is_dead else frozenset(), _dead),
        (frozenset(query.shown), shown_conversations),
    )
    return tuple((wanted, found) for wanted, found in filters if wanted)


def _in_range(query: Query, event: Event) -> bool:
    return (
        event.seq > query.after
        and (query.with_imported or not event.imported)
        and (query.before is None or event.seq < query.before)
        and (query.since is None or event.ts >= query.since)
        and (query.until is None or event.ts <= query.until)
    )


def _stored(words: Iterable[str], aliases: dict[str, str]) -> frozenset[str]:
    return frozenset(aliases.get(word, word) for word in words)


def _folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(_fold, names))


# Every stored event is indexed by its names, and most events have the names of a few agents.
@lru_cache(maxsize=4096)
def _fold(name: str) -> str:
    """Fold a name. In a mailbox of a session only the agent is folded: the id of a session keeps its case."""
    if PLUS not in name:
        return name.lower().removeprefix("@")
    agent, session = split_mailbox(name)
    return mailbox_of(agent.lower().removeprefix("@"), session)


def _types(event: Event) -> Iterable[str]:
    return (event.type,)


def states_of(event: Event) -> frozenset[str]:
    """Return the states that an event reports: a bye means `exited`."""
    states = _stored(words_of(event, "state"), STORED_STATES)
    return states | {EXITED} if event.type == BYE else states


def _senders(event: Event) -> Iterable[str]:
    return _folded(writers(event))


def _mentions(event: Event) -> frozenset[str]:
    return _folded(words_of(event, "mentions"))


def _targets(event: Event) -> frozenset[str]:
    return _folded((*event.delivered_to, *words_of(event, "delivered_to")))


def _recipients(event: Event) -> frozenset[str]:
    return _folded((*event.delivered_to, *words_of(event, "delivered_to"), *event.to))


def _agents(event: Event) -> frozenset[str]:
    return _recipients(event) | _folded((event.sender, *_named(event)))


def _named(event: Event) -> list[str]:
    return [word for key in _NAMING_FIELDS for word in words_of(event, key)]


def _threads(event: Event) -> Iterable[str]:
    return words_of(event, "thread")


def _rooms(event: Event) -> Iterable[str]:
    return words_of(event, "room")


def _intents(event: Event) -> Iterable[str]:
    return words_of(event, "intent")


def _dead(event: Event) -> frozenset[str]:
    return _DEAD if event.type == MESSAGE and words_of(event, "dead") else frozenset()


def _tools(event: Event) -> Iterable[str]:
    return _folded(words_of(event, "tool"))


def replied_to(event: Event) -> tuple[str, ...]:
    """Return the reference of the message that an event answers: its seq, with the device if imported."""
    words = words_of(event, "reply_to")
    return tuple(f"{word}:{event.device}" for word in words) if event.imported else words


def participants_of(event: Event) -> frozenset[str]:
    """Return the agents that an event is from or for: its writers and its recipients."""
    return _recipients(event) | _folded(writers(event))


# --------------------
# Words by which an engine finds events fast: each begins with the letter of its kind.


_OTHER_FIELDS: Final = frozenset({*_NAMING_FIELDS, "intent", "tool", "reply_to", "state", "file", "dead"})
"""The payload fields with words for the index, except the recipients and the mentions."""


def index_words(event: Event) -> Sequence[str]:
    """Return the words by which an event can be found."""
    if (words := _words_of_plain_message(event)) is not None:
        return words
    recipients = _recipients(event)
    # The letters are in the stored index, so a changed one would no longer find older events.
    kinds = (
        ("a", recipients | _folded((*writers(event), *_named(event)))),  # `_agents` and `participants_of`
        ("o", recipients | _mentions(event)),
        ("i", _intents(event)),
        ("t", _tools(event)),
        ("r", replied_to(event)),
        ("s", states_of(event)),
        ("f", words_of(event, "file")),
        ("d", _dead(event)),
        (_CONVERSATION, shown_conversations(event)),
    )
    return [f"{kind}{word}" for kind, words in kinds for word in words]


_CONVERSATION: Final = "c"


def _words_of_plain_message(event: Event) -> tuple[str, ...] | None:
    """Return the words of a message without any of the rarer fields; None for any other event.

    Most messages have only these fields, and so the words of another message, which are remembered.
    """
    body = event.body
    if (
        not isinstance(body, MessageSent)
        or body.raw is not None
        or event.odd_fields  # The struct does not have the words of a field that could not be read.
        or event.delivered_to
        or len(body.delivered_to) + len(body.mentions) > _LIMIT_REMEMBERED
        or not _OTHER_FIELDS.isdisjoint(event.payload)
    ):
        return None
    shown = (body.channel, body.thread, body.room)
    return _plain_words(event.sender, event.to, body.delivered_to, body.mentions, body.scope, shown)


# Every message is indexed, and on a busy bus most have the words of another one.
@lru_cache(maxsize=4096)
def _plain_words(
    sender: str,
    to: tuple[str, ...],
    names: tuple[str, ...],
    mentions: tuple[str, ...],
    scope: str,
    shown: _Shown,
) -> tuple[str, ...]:
    recipients = _folded((*names, *to))
    folded_sender = _fold(sender)
    agents = {f"@{name}" for name in _parties(to, names) | {folded_sender}}
    return (
        *[f"a{name}" for name in recipients | {folded_sender}],
        *[f"o{name}" for name in recipients | _folded(mentions)],
        *[
            f"{_CONVERSATION}{conversation}"
            for conversation in {*_conversations(sender, to, names, scope, shown), *agents}
        ],
    )


def conversation_words(event: Event) -> list[str]:
    """Return the words by which the conversations that show an event find it, archived or not."""
    return [f"{_CONVERSATION}{conversation}" for conversation in shown_conversations(event)]


def wanted_words(query: Query) -> list[str]:
    """Return words of which every matching event has at least one. Empty if the query has no such filter.

    The events that the index finds are still tested with `matches`, so one filter is enough.

    Of several filters, the one that probably matches the fewest events counts.
    """
    # The index has whole paths. One pattern among the files makes it useless for the others too: any may
    # match.
    files = () if any(map(is_file_pattern, query.files)) else query.files
    kinds: tuple[tuple[str, Iterable[str]], ...] = (
        ("d", _DEAD if query.is_dead else ()),
        (_CONVERSATION, query.shown),
        ("r", query.replies_to),
        ("f", files),
        ("t", _folded(query.tools)),
        ("o", _folded(query.targets)),
        ("o", _folded(query.to)),
        ("o", _folded(query.mentions)),
        ("a", _folded(query.participants)),
        ("a", _folded(query.agents)),
        ("i", query.intents),
        ("s", _stored(query.statuses, STORED_STATES)),
    )
    return next(([f"{kind}{word}" for word in sorted(words)] for kind, words in kinds if words), [])


def is_file_pattern(path: str) -> bool:
    """Return whether a wanted path has a wildcard: `*`, `?` or `[`."""
    return any(sign in path for sign in "*?[")


def is_file_wanted(wanted: Iterable[str], found: Iterable[str]) -> bool:
    """Return whether a path is one of the wanted ones, or matches one as a pattern.

    `*` in a pattern also matches slashes. A path with brackets matches itself too.
    """
    files = tuple(found)
    return any(
        # Not `fnmatch`, which compares case and slashes by the rules of the system.
        path == file or (is_file_pattern(path) and fnmatchcase(file, path))
        for path in wanted
        for file in files
    )


# --------------------
# Room events as the room tools show them, and filters for them. Pure.
#
# A target selects events by the agents they concern. `self` selects messages to the caller, room messages,
# joins and leaves of others, and other events from or to the caller. A name selects events addressed to that
# agent; `any` selects all.

SELF: Final = "self"
ANY: Final = "any"

NORMAL: Final = "normal"
INTERRUPT: Final = "interrupt"
HINTS: Final = (NORMAL, INTERRUPT)
"""The delivery hints of a sender; the receiver decides."""

MESSAGE_SENT: Final = "message_sent"

_STORED: Final = {MESSAGE_SENT: MESSAGE, "join": JOINED, "leave": LEFT}
"""Accepted names of event types, with the stored names."""
_OWN_FIELDS: Final = frozenset({"room", "from", "turn_id", "handoff", "reason"})
"""Payload fields that are shown outside the payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """The events of a room that a caller wants."""

    caller: str | None = None
    target: str = ANY
    types: frozenset[str] | None = None
    """Stored types; None selects all types."""
    sender: str | None = None


def event_filter(
    *,
    caller: str | None,
    target: str = SELF,
    event_type: str | Sequence[str] | None = None,
    sender: str | None = None,
) -> EventFilter:
    """Make a filter from the arguments of a caller. Any text is a valid type, except the empty one.

    Raises `AgentIdRequired` for `self` without a caller, `InvalidEventTypeFilter` for a filter without types.
    """
    if target == SELF and caller is None:
        raise AgentIdRequired("'self' needs a caller with a name; join first, or use 'any'")
    return EventFilter(
        caller=caller,
        target=target if target in (SELF, ANY) else _name(target),
        types=_room_types(event_type),
        sender=None if sender is None else _name(sender),
    )


def passes(wanted: EventFilter, event: Event) -> bool:
    """Return whether a room event matches a filter."""
    if wanted.types is not None and event.type not in wanted.types:
        return False
    if wanted.sender is not None and from_agent(event) != wanted.sender:
        return False
    if wanted.target == ANY:
        return True
    if wanted.target == SELF:
        assert wanted.caller is not None  # a filter for `self` has a caller
        return is_concerned(event, wanted.caller)
    return wanted.target in to_agents(event)


class RoomEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the room tools show it, in the order of its JSON. A message has the type `message_sent`.

    Another program may have written any value into the turn, the handoff and the reason of its events.
    """

    event_seq: int
    event_id: str
    event_type: str
    from_agent_id: str | None
    to_agent_id: str | tuple[str, ...] | None
    turn_id: object
    handoff: object
    reason: object
    payload: Mapping[str, object] | None
    created_at: int


def room_event(event: Event) -> RoomEvent:
    """Return an event as the room tools show it."""
    to, common = to_agents(event), common_fields(event)
    return RoomEvent(
        event_seq=event.seq,
        event_id=event.id,
        event_type=MESSAGE_SENT if event.type == MESSAGE else event.type,
        from_agent_id=from_agent(event),
        to_agent_id=to[0] if len(to) == 1 else tuple(to) or None,
        turn_id=common.turn_id,
        handoff=common.handoff,
        reason=common.reason,
        payload=_payload(event),
        created_at=event.ts,
    )


def _payload(event: Event) -> dict[str, object] | None:
    if isinstance(message := event.body, MessageSent):
        is_urgent = message.delivery_hint == INTERRUPT
        body = readable_text(event) if message.command else message.text
        return {"body": body, "delivery_hint": INTERRUPT if is_urgent else NORMAL}
    return {key: value for key, value in event.payload.items() if key not in _OWN_FIELDS} or None


def _room_types(written: str | Sequence[str] | None) -> frozenset[str] | None:
    if written is None:
        return None
    words = [written] if isinstance(written, str) else list(written)
    if not words or not all(isinstance(word, str) and word for word in words):
        raise InvalidEventTypeFilter("name one or more event types, or leave out the filter for all")
    return frozenset(_STORED.get(word, word) for word in words)


def _name(written: str) -> str:
    """Return a name as stored: lower case, with the device in upper case."""
    name, colon, device = written.removeprefix("@").partition(":")
    return name.lower() + colon + device.upper()
