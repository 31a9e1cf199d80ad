"""A query to the log. Values, and the test of one event; the engines find events fast."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import msgspec

from palaver.model.concern import is_concerned, writers
from palaver.model.envelope import Event
from palaver.model.life import BYE


class Filter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Words per field: any word of a field matches, all fields must match, and an empty field matches all."""

    types: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    intents: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()


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
    search: str = ""
    sql: str = ""
    last: int | None = None
    """The number of newest matching events to return."""
    limit: int = 1000


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
    return (
        _in_range(query, event)
        and not any(wanted.isdisjoint(found(event)) for wanted, found in _filters(query))
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
        (frozenset(query.files), _files),
    )
    return tuple((wanted, found) for wanted, found in filters if wanted)


def _in_range(query: Query, event: Event) -> bool:
    return (
        event.seq > query.after
        and (query.before is None or event.seq < query.before)
        and (query.since is None or event.ts >= query.since)
        and (query.until is None or event.ts <= query.until)
    )


def _stored(words: Iterable[str], aliases: dict[str, str]) -> frozenset[str]:
    return frozenset(aliases.get(word, word) for word in words)


def _folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower().removeprefix("@") for name in names)


def _words(event: Event, key: str) -> tuple[str, ...]:
    """Return the string or list of strings of a payload field; ignore everything else."""
    found = event.payload.get(key)
    if isinstance(found, str):
        return (found,)
    if isinstance(found, (list, tuple)):
        return tuple(word for word in found if isinstance(word, str))
    return ()


def _types(event: Event) -> Iterable[str]:
    return (event.type,)


def states_of(event: Event) -> frozenset[str]:
    """Return the states that an event reports: a bye means `exited`."""
    states = _stored(_words(event, "state"), STORED_STATES)
    return states | {EXITED} if event.type == BYE else states


def _senders(event: Event) -> Iterable[str]:
    return _folded(writers(event))


def _mentions(event: Event) -> Iterable[str]:
    return _folded(_words(event, "mentions"))


def _targets(event: Event) -> frozenset[str]:
    return _folded((*event.delivered_to, *_words(event, "delivered_to")))


def _recipients(event: Event) -> frozenset[str]:
    return _targets(event) | _folded(event.to)


def _agents(event: Event) -> Iterable[str]:
    named = (word for key in ("to", "from", "agent") for word in _words(event, key))
    return _recipients(event) | _folded((event.sender, *named))


def _threads(event: Event) -> Iterable[str]:
    return _words(event, "thread")


def _rooms(event: Event) -> Iterable[str]:
    return _words(event, "room")


def _intents(event: Event) -> Iterable[str]:
    return _words(event, "intent")


def _files(event: Event) -> Iterable[str]:
    return _words(event, "file")
