"""Notify the owners of subscriptions and watches. Each event finds its subscriptions by an index."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Final

from palaver.errors import PalaverError, Unavailable
from palaver.log.api import ANY_EVENT, LIMIT_NEWEST, Log
from palaver.log.follow import follow, news_of
from palaver.protocol.address import find_mentions
from palaver.protocol.envelope import Event, is_migrated, words_of
from palaver.protocol.events import (
    BYE,
    DeliveryReport,
    Filter,
    MessageSent,
    StatusChanged,
    SubscriptionAdded,
    SubscriptionRemoved,
)
from palaver.protocol.query import (
    STORED_STATES,
    STORED_TYPES,
    Query,
    is_file_pattern,
    is_file_wanted,
    participants_of,
    replied_to,
    states_of,
)
from palaver.protocol.requests import Notify, Submit
from palaver.protocol.subscriptions import (
    COLLISION,
    STATUS,
    SUB_ADDED,
    SUB_REMOVED,
    FireSubscription,
    FireWatch,
    Retire,
    Subscription,
    format_watch_id,
    is_collision_hit,
    is_for,
    is_news,
    is_system,
)
from palaver.protocol.summary import summary
from palaver.state.fold import agent_of
from palaver.state.rooms import read_rooms_of
from palaver.state.watches import due_watches, read_subscription, read_subscriptions

# --------------------
# Find the subscriptions that an event matches, with a few lookups.
#
# Equal filters are stored once and tested once per event, however many subscriptions have them. A filter is
# filed under its types and the values of one of its fields; an event is looked up under its own values. The
# field is chosen when the filter is added: the one whose values have the fewest other filters. So an event
# that matches none of a thousand subscriptions is tested against very few, whichever field they differ in.
# `protocol.subscriptions.is_hit` defines a match; this index only finds it faster.

_Tests = tuple[tuple[str, frozenset[str]], ...]
"""A filter in comparable form: its fields in a fixed order, each with its accepted values."""

_TYPES: Final = "types"
_FILES: Final = "files"
_PATTERNS: Final = "file patterns"
"""The field of files if one of them is a pattern. No event has a pattern, so no filter is filed under it."""
_ANY: Final = ""
"""Means all types, and is the field and value of a filter that has no field but types."""


@dataclass(slots=True, eq=False)
class _Wanted:
    """One filter and all its subscriptions, by owner and id."""

    filter: Filter
    tests: _Tests
    owners: dict[str, dict[str, Subscription]] = field(default_factory=dict)
    field: str = _ANY
    """The field it is filed under."""

    def index_keys(self) -> Iterator[tuple[str, str]]:
        """Return the type and value of every position in the index."""
        return _index_keys(self.tests, self.field)


class SubscriptionIndex:
    """All active subscriptions."""

    def __init__(self) -> None:
        self._all: dict[str, Subscription] = {}
        self._wanted: dict[_Tests, _Wanted] = {}
        self._shelves: dict[str, dict[str, dict[str, set[_Wanted]]]] = {}
        """Filters by type, field and value."""
        self._collisions: dict[str, Subscription] = {}

    def __len__(self) -> int:
        return len(self._all)

    def put(self, subscription: Subscription) -> None:
        """Add a subscription, or replace the one with the same id."""
        # Every hit refreshes its subscription, and most of them have not changed.
        if self._all.get(subscription.id) == subscription:
            return
        self.drop(subscription.id)
        self._all[subscription.id] = subscription
        # Not in the index: a collision is a fact about several events, so no single event can be looked up
        # for it.
        if subscription.preset == COLLISION:
            self._collisions[subscription.id] = subscription
            return
        tests = _compile(subscription.filter)
        wanted = self._wanted.get(tests)
        if wanted is None:
            wanted = self._wanted[tests] = _Wanted(subscription.filter, tests)
            self._shelve(wanted)
        wanted.owners.setdefault(subscription.owner, {})[subscription.id] = subscription

    def drop(self, id: str) -> None:
        """Remove a subscription; an unknown id is not an error."""
        gone = self._all.pop(id, None)
        if gone is None or self._collisions.pop(id, None) is not None:
            return
        wanted = self._wanted[_compile(gone.filter)]
        del wanted.owners[gone.owner][id]
        if not wanted.owners[gone.owner]:
            del wanted.owners[gone.owner]
        if not wanted.owners:
            del self._wanted[wanted.tests]
            self._unshelve(wanted)

    def hits(self, event: Event) -> list[Subscription]:
        """Return every subscription that matches an event, oldest first."""
        shelves = [self._shelves[type] for type in {event.type, _ANY} if type in self._shelves]
        if not shelves or not is_news(event):
            return []
        words = _EventFields(event)
        found: set[_Wanted] = set()
        for fields in shelves:
            for name, shelf in fields.items():
                for word in words[name]:
                    found.update(shelf.get(word, ()))
        hits = [
            subscription
            for wanted in found
            if all(words.has(name, some) for name, some in wanted.tests)
            for owner, own in wanted.owners.items()
            if is_for(wanted.filter, owner, event)
            for subscription in own.values()
            # After a start the newest events are read again, and some are older than the subscription.
            if event.seq > subscription.seq
        ]
        return sorted(hits, key=_by_age)

    def collisions(self) -> list[Subscription]:
        """Return the collision subscriptions, oldest first."""
        return sorted(self._collisions.values(), key=_by_age)

    def _shelve(self, wanted: _Wanted) -> None:
        # Types are the first level of the index already.
        fields = [name for name, _ in wanted.tests if name not in (_TYPES, _PATTERNS)] or [_ANY]
        wanted.field = min(fields, key=lambda name: self._crowd(wanted.tests, name))
        for type, word in wanted.index_keys():
            self._shelves.setdefault(type, {}).setdefault(wanted.field, {}).setdefault(word, set()).add(
                wanted
            )

    def _unshelve(self, wanted: _Wanted) -> None:
        for type, word in wanted.index_keys():
            fields = self._shelves[type]
            fields[wanted.field][word].remove(wanted)
            # Empty levels are removed, so that the index does not grow, and `hits` can skip a type at once.
            if not fields[wanted.field][word]:
                del fields[wanted.field][word]
            if not fields[wanted.field]:
                del fields[wanted.field]
            if not fields:
                del self._shelves[type]

    def _crowd(self, tests: _Tests, name: str) -> int:
        """Count the filters at the fullest position of this filter if it were filed under a field."""
        return max(
            len(self._shelves.get(type, {}).get(name, {}).get(word, ()))
            for type, word in _index_keys(tests, name)
        )


def _by_age(subscription: Subscription) -> tuple[int, str]:
    return subscription.seq, subscription.id


def _index_keys(tests: _Tests, name: str) -> Iterator[tuple[str, str]]:
    """Return each type of a filter with each value of one of its fields."""
    words = dict(tests)
    types, some = words.get(_TYPES, (_ANY,)), words.get(name, (_ANY,))
    return ((type, word) for type in types for word in some)


def _compile(wanted: Filter) -> _Tests:
    """Return a filter in comparable form; the most selective field comes first."""
    plain = ((name, fold(getattr(wanted, name))) for name, (fold, _) in _FIELDS.items())
    has_pattern = any(map(is_file_pattern, wanted.files))
    return tuple(
        (_PATTERNS if has_pattern and name == _FILES else name, words) for name, words in plain if words
    )


class _EventFields(dict[str, frozenset[str]]):
    """The values of an event by field; each field is read at its first use."""

    def __init__(self, event: Event) -> None:
        super().__init__({_ANY: _NO_FIELD})
        self._event = event

    def __missing__(self, name: str) -> frozenset[str]:
        fold, read = _FIELDS[name]
        # Type aliases exist only in filters: the type of an event is compared unchanged.
        words = self[name] = (frozenset if name == _TYPES else fold)(read(self._event))
        return words

    def has(self, name: str, some: frozenset[str]) -> bool:
        """Return whether the event has one of the accepted values of a field."""
        if name == _PATTERNS:
            return is_file_wanted(some, self[_FILES])
        return not self[name].isdisjoint(some)


def _targets(event: Event) -> Iterable[str]:
    return *event.delivered_to, *words_of(event, "delivered_to")


def _recipients(event: Event) -> Iterable[str]:
    return *_targets(event), *event.to


def _parties(event: Event) -> Iterable[str]:
    named = (word for key in ("to", "from", "agent") for word in words_of(event, key))
    return *_recipients(event), event.sender, *named


def _names(words: Iterable[str]) -> frozenset[str]:
    return frozenset([word.lower().removeprefix("@") for word in words])


def _types(words: Iterable[str]) -> frozenset[str]:
    return frozenset([STORED_TYPES.get(word, word) for word in words])


def _states(words: Iterable[str]) -> frozenset[str]:
    return frozenset([STORED_STATES.get(word, word) for word in words])


_NO_FIELD: Final = frozenset({_ANY})

_Fold = Callable[[Iterable[str]], frozenset[str]]
_Read = Callable[[Event], Iterable[str]]
# How the values of a field are compared, and how they are read from an event. The rarest values first.
_FIELDS: Final[Mapping[str, tuple[_Fold, _Read]]] = {
    "threads": (frozenset, lambda event: words_of(event, "thread")),
    "replies_to": (frozenset, replied_to),
    _FILES: (frozenset, lambda event: words_of(event, "file")),
    "rooms": (frozenset, lambda event: words_of(event, "room")),
    "mentions": (_names, lambda event: words_of(event, "mentions")),
    "statuses": (_states, states_of),
    "tools": (_names, lambda event: words_of(event, "tool")),
    "intents": (frozenset, lambda event: words_of(event, "intent")),
    "senders": (_names, lambda event: (event.sender,)),
    "targets": (_names, _targets),
    "to": (_names, _recipients),
    "participants": (_names, participants_of),
    "agents": (_names, _parties),
    _TYPES: (_types, lambda event: (event.type,)),
}

# --------------------
# Recent edits of files, and collisions between agents. Pure: the time comes from the events.
#
# Kept in memory and bounded: if there are too many files, the least recently edited one is forgotten, and
# collisions on it are missed.

WINDOW_MS: Final = 30_000
LIMIT_FILES: Final = 1024
# Agents whose last edits of one file are remembered; above it the earliest edit is dropped.
_LIMIT_AGENTS: Final = 64


@dataclass(slots=True)
class _FileEdits:
    """The last edit of each agent, and when each pair of them last collided."""

    edits: dict[str, Event] = field(default_factory=dict)
    notified: dict[frozenset[str], int] = field(default_factory=dict)


class Edits:
    """The edits of the last half minute."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, _FileEdits] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def collide(self, event: Event, agent: str) -> list[Event]:
        """Record an edit; return the edits of others that it newly collides with, newest first.

        Two agents that keep editing the same file collide once; again only after half a minute without a
        collision.
        """
        path = _edited(event)
        if not path:
            return []
        # Moved to the end: the first one is the least recently edited, which is forgotten next.
        file = self._files.pop(path, None) or _FileEdits()
        self._files[path] = file
        if len(self._files) > LIMIT_FILES:
            self._files.popitem(last=False)
        _forget(file, event.ts)
        others = [(name, edit) for name, edit in file.edits.items() if name != agent]
        # Removed first, so that the newest edit is always the last one: the result and `_forget` rely on the
        # order.
        file.edits.pop(agent, None)
        file.edits[agent] = event
        news = [edit for name, edit in others if frozenset({name, agent}) not in file.notified]
        # Also for known pairs: each further edit extends the time in which they are not reported again.
        file.notified |= {frozenset({name, agent}): event.ts for name, _ in others}
        return news[::-1]


def _edited(event: Event) -> str:
    """Return the file that an agent reports to edit; empty for any other event."""
    return event.body.file if isinstance(event.body, StatusChanged) else ""


def _forget(file: _FileEdits, now_ms: int) -> None:
    # By the distance, because the clock may have been set back: a time in the future must not stay.
    file.edits = {name: edit for name, edit in file.edits.items() if abs(now_ms - edit.ts) <= WINDOW_MS}
    file.notified = {pair: ts for pair, ts in file.notified.items() if abs(now_ms - ts) <= WINDOW_MS}
    while len(file.edits) >= _LIMIT_AGENTS:
        del file.edits[next(iter(file.edits))]


# --------------------
# The text of a subscription hit, on one line. Pure: events in, text out.

LIMIT_EXCERPT: Final = 300


def hit_text(subscription: Subscription, event: Event) -> str:
    """Return the text of a hit:

    `[sub a1b2c3] #57 status nova: idle (in src/x.py)`, then the owner's own text.
    """
    to = f" → {', '.join(event.to)}" if event.to else ""
    return _worded(subscription, f"#{event.seq} {event.type} {event.sender}{to}: {summary(event)}")


def collision_text(subscription: Subscription, event: Event, agents: Sequence[str], file: str) -> str:
    """Return the text of a collision: `[sub a1b2c3] #57 collision: nova and luna edited src/x.py`."""
    first, *others = agents
    return _worded(subscription, f"#{event.seq} collision: {', '.join(others)} and {first} edited {file}")


def members_text(to: str, event: Event, others: Sequence[str], file: str) -> str:
    """Return the text of a collision for a member of a room that made one of the edits."""
    names = ", ".join(others)
    return _one_line(
        f"@{to} you and {names} edited {file} within {WINDOW_MS // 1000} seconds (#{event.seq}): "
        "agree who continues, and check that no change was lost"
    )


def _worded(subscription: Subscription, sentence: str) -> str:
    words = [f"[sub {subscription.id}] {_one_line(sentence)}", subscription.text]
    if subscription.send and not find_mentions(subscription.send):
        words.append(subscription.send)  # It names no recipient, so it is for the owner.
    return " — ".join(filter(None, words))


def _one_line(text: str) -> str:
    """Return a text on one line, without unprintable characters and cut: the event itself has the rest."""
    # Cut before the work on each character: a message can have many thousands.
    cut = text[: LIMIT_EXCERPT + 1]
    plain = " ".join("".join(char if char.isprintable() else " " for char in cut).split())
    return plain if len(text) <= LIMIT_EXCERPT else f"{plain[: LIMIT_EXCERPT - 1]}…"


# --------------------
# The reactor of request watches and subscriptions. It reads the log in seq order and writes through the
# broker.
#
# The id of each notice is derived from its cause, so a repeat is one event: after a restart it processes the
# newest events again. Its index is derived from the stored state; it keeps nothing else that could be lost.

Reaction = FireSubscription | FireWatch | Retire | Notify

_logger: Final = logging.getLogger("palaver.watches")

_WITHOUT_SUBSCRIPTIONS: Final = (STATUS, BYE, SUB_ADDED, SUB_REMOVED)
"""Types of events that can make a watch due, or change the subscriptions."""
_AT_ONCE: Final = 256
"""Number of requests submitted to the broker together."""
TRY_AGAIN_S: Final = 5.0
"""Seconds to the next attempt after a full disk, if no event is stored earlier."""


class Watches:
    """The request watches and subscriptions of all local agents."""

    def __init__(self, log: Log, submit: Submit, *, tasks: asyncio.TaskGroup) -> None:
        """Create the reactor. Its work runs in `tasks`, whose owner waits for it."""
        self._log = log
        self._submit = submit
        self._tasks = tasks
        self._index = SubscriptionIndex()
        self._edits = Edits()
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start with the due watches, then the newest events, then all new ones."""
        for subscription in read_subscriptions(self._log.rows):
            if not subscription.spent:
                self._index.put(subscription)
        self._work = self._tasks.create_task(self._run())

    def close(self) -> None:
        """Stop. Unwritten notices are written after the next start. Closing twice is harmless."""
        if self._work is not None:
            self._work.cancel()

    async def _run(self) -> None:
        # A daemon that ended between a hit and its `Retire` has left such a subscription.
        spent = [one.id for one in read_subscriptions(self._log.rows) if one.spent]
        await self._tell([*self._due(), *(Retire(id=id) for id in spent)])
        # As many as memory holds: the notices of the newest events may not have been written.
        newest = await self._log.read(Query(last=LIMIT_NEWEST, limit=LIMIT_NEWEST))
        await self._look_at(newest)
        after = newest[-1].seq if newest else 0
        while True:
            after = await self._follow(after, is_all=len(self._index) > 0)

    async def _follow(self, after: int, *, is_all: bool) -> int:
        """React to events above a seq: to all of them, or only to those that matter without a subscription.

        Return the last processed seq when the first subscription appears or the last one disappears, so that
        the caller continues from there with the other selection.
        """
        types = () if is_all else _WITHOUT_SUBSCRIPTIONS
        # No types select all events of a query, but no event for a handler.
        following = follow(self._log, Query(types=types), after=after, woken_by=types or ANY_EVENT)
        async with aclosing(following) as batches:
            async for batch in batches:
                events = batch if is_all else _up_to_subscription(batch)
                await self._look_at(events)
                if len(events) < len(batch) or is_all != (len(self._index) > 0):
                    return events[-1].seq
        raise AssertionError("a query without an end does not end")

    async def _look_at(self, events: Sequence[Event]) -> None:
        requests: list[Reaction] = []
        for event in events:
            # A migrated event is history: it was reported where it comes from.
            if not is_migrated(event):
                requests += self._reactions(event)
            if len(requests) >= _AT_ONCE:
                await self._tell(requests)
                requests = []
        await self._tell(requests)

    async def _tell(self, requests: Sequence[Reaction]) -> None:
        """Submit all of these, in order. While the log is full, try again when something is written.

        Also after some seconds: there may be room again without another event.
        """
        while requests:
            # Before the submits: an event that is stored during one of them shows that there is room again.
            with news_of(self._log) as news:
                # Started in order and without waiting, so that their events share one sync of the log.
                tries = [self._tasks.create_task(self._must_wait(request)) for request in requests]
                # None for a task that failed unexpectedly, which is logged. Like a refused request, it is not
                # tried again, because it would keep back all later ones.
                answers = await asyncio.gather(*tries)
                requests = [one for one, must_wait in zip(requests, answers, strict=True) if must_wait]
                if requests:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(TRY_AGAIN_S):
                            await news.wait()

    async def _must_wait(self, request: Reaction) -> bool:
        """Submit one request; return True while the log is full. A refused one is skipped."""
        try:
            await self._submit(request)
        except Unavailable:
            return True
        # Not tried again, because it would be refused each time and keep back all later ones.
        except PalaverError as error:
            # By id: the text of the notice is private and must not be in the daemon's log.
            _logger.warning("skipped %s of %s: %s", type(request).__name__, _id_of(request), error)
        return False

    def _reactions(self, event: Event) -> Iterator[Reaction]:
        """Yield all requests that follow from one event."""
        body = event.body
        if isinstance(body, SubscriptionAdded | SubscriptionRemoved):
            # At once, because later events of the same batch must find the subscriptions as they are then.
            self._refresh(body.id)
        elif event.type in (STATUS, BYE):
            yield from self._due(agent_of(event))
            yield from self._collisions(event)
        # A notice of the bus matches no subscription: a hit would cause the next hit.
        if is_system(event):
            yield from self._after_hit(event)
        else:
            yield from self._hits(event)

    def _due(self, agent: str = "") -> Iterator[FireWatch]:
        return (FireWatch(agent=name, request=seq) for name, seq in due_watches(self._log.rows, agent))

    def _hits(self, event: Event) -> Iterator[FireSubscription]:
        hits = self._index.hits(event)
        if hits and not self._is_about_system(event):
            for subscription in hits:
                yield _hit(subscription, event, hit_text(subscription, event))

    def _is_about_system(self, event: Event) -> bool:
        """Whether an event is only about our own notices.

        Otherwise two subscribers to all delivery steps would notify each other endlessly.
        """
        if not isinstance(event.body, DeliveryReport):
            return False
        messages = [self._log.event(seq) for seq in event.body.messages]
        return all(message is not None and is_system(message) for message in messages)

    def _collisions(self, event: Event) -> Iterator[FireSubscription | Notify]:
        others = self._edits.collide(event, agent_of(event))
        if not others:
            return
        agents = tuple(agent_of(edit) for edit in (event, *others))
        file = _edited(event)
        owners = set()
        for subscription in self._index.collisions():
            if is_collision_hit(subscription, (event, *others)):
                owners.add(subscription.owner)
                text = collision_text(subscription, event, agents, file)
                yield _hit(subscription, event, text, agents, file)
        yield from self._collisions_of_members(event, agents, file, owners)

    def _collisions_of_members(
        self, event: Event, agents: Sequence[str], file: str, owners: Set[str]
    ) -> Iterator[Notify]:
        """Notify agents that share a room with the editor, and the editor itself.

        An agent whose own subscription reports the collision is not notified twice.
        """
        editor = agents[0]
        members = self._roommates(editor, event.ts)
        others = tuple(name for name in agents[1:] if name in members)
        for name in (editor, *others) if others else ():
            if name not in owners:
                seen = others if name == editor else (editor,)
                yield Notify(
                    to=name,
                    text=members_text(name, event, seen, file),
                    cause=event.id,
                    kind=COLLISION,
                    event=event.seq,
                    agents=(editor, *others) if name == editor else (editor, name),
                    file=file,
                )

    def _roommates(self, name: str, ts: int) -> set[str]:
        """Return all members of the rooms that an agent was in at a time: edits may be read again later."""
        found: set[str] = set()
        for room in read_rooms_of(self._log.rows, name):
            members = {member.name for member in room.members if member.joined_ms <= ts}
            found |= members if name in members else set()
        return found

    def _after_hit(self, event: Event) -> Iterator[Retire]:
        """Retire a one-time subscription after its first hit."""
        subscription = self._refresh(event.body.sub if isinstance(event.body, MessageSent) else None)
        if subscription is not None and subscription.spent:
            yield Retire(id=subscription.id)

    def _refresh(self, id: str | None) -> Subscription | None:
        """Update the index from the stored state; return the stored subscription."""
        if id is None:
            return None
        subscription = read_subscription(self._log.rows, id)
        if subscription is None or subscription.spent:
            self._index.drop(id)
        else:
            self._index.put(subscription)
        return subscription


def _id_of(request: Reaction) -> str:
    """Return the id of the watch, the subscription or the event that a request is about."""
    if isinstance(request, FireWatch):
        return format_watch_id(request.agent, request.request)
    return request.cause if isinstance(request, Notify) else request.id


def _up_to_subscription(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events up to the first new subscription: it may select any of the next ones."""
    count = next((index for index, event in enumerate(events, 1) if event.type == SUB_ADDED), len(events))
    return events[:count]


def _hit(
    subscription: Subscription, event: Event, text: str, agents: tuple[str, ...] = (), file: str = ""
) -> FireSubscription:
    return FireSubscription(
        id=subscription.id,
        made=subscription.seq,
        event=event.seq,
        cause=event.id,
        text=text,
        agents=agents,
        file=file,
    )
