"""Find the subscriptions that an event matches, with a few lookups.

Equal filters are stored once and tested once per event, however many subscriptions have them. A filter is
filed under its types and the values of one of its fields; an event is looked up under its own values. The
field is chosen when the filter is added: the one whose values have the fewest other filters. So an event that
matches none of a thousand subscriptions is tested against very few, whichever field they differ in.
`model.subscription.is_hit` defines a match; this index only finds it faster.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from palaver.model.envelope import Event
from palaver.model.query import STORED_STATES, STORED_TYPES, Filter, states_of
from palaver.model.subscription import COLLISION, Subscription, is_for, is_news

_Tests = tuple[tuple[str, frozenset[str]], ...]
"""A filter in comparable form: its fields in a fixed order, each with its accepted values."""

_TYPES: Final = "types"
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

    def places(self) -> Iterator[tuple[str, str]]:
        """Return the type and value of every position in the index."""
        return _places(self.tests, self.field)


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
        if self._all.get(subscription.id) == subscription:
            return
        self.drop(subscription.id)
        self._all[subscription.id] = subscription
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
        if not is_news(event):
            return []
        words = _Words(event)
        found: set[_Wanted] = set()
        for type in {event.type, _ANY}:
            for name, shelf in self._shelves.get(type, {}).items():
                for word in words[name]:
                    found.update(shelf.get(word, ()))
        hits = [
            subscription
            for wanted in found
            if not any(words[name].isdisjoint(some) for name, some in wanted.tests)
            for owner, own in wanted.owners.items()
            if is_for(wanted.filter, owner, event)
            for subscription in own.values()
            if event.seq > subscription.seq
        ]
        return sorted(hits, key=_by_age)

    def collisions(self) -> list[Subscription]:
        """Return the collision subscriptions, oldest first."""
        return sorted(self._collisions.values(), key=_by_age)

    def _shelve(self, wanted: _Wanted) -> None:
        fields = [name for name, _ in wanted.tests if name != _TYPES] or [_ANY]
        wanted.field = min(fields, key=lambda name: self._crowd(wanted.tests, name))
        for type, word in wanted.places():
            self._shelves.setdefault(type, {}).setdefault(wanted.field, {}).setdefault(word, set()).add(
                wanted
            )

    def _unshelve(self, wanted: _Wanted) -> None:
        for type, word in wanted.places():
            fields = self._shelves[type]
            fields[wanted.field][word].remove(wanted)
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
            for type, word in _places(tests, name)
        )


def _by_age(subscription: Subscription) -> tuple[int, str]:
    return subscription.seq, subscription.id


def _places(tests: _Tests, name: str) -> Iterator[tuple[str, str]]:
    """Return each type of a filter with each value of one of its fields."""
    words = dict(tests)
    types, some = words.get(_TYPES, (_ANY,)), words.get(name, (_ANY,))
    return ((type, word) for type in types for word in some)


def _compile(wanted: Filter) -> _Tests:
    """Return a filter in comparable form; the most selective field comes first."""
    plain = ((name, fold(getattr(wanted, name))) for name, (fold, _) in _FIELDS.items())
    return tuple((name, words) for name, words in plain if words)


class _Words(dict[str, frozenset[str]]):
    """The values of an event by field; each field is read at its first use."""

    def __init__(self, event: Event) -> None:
        super().__init__({_ANY: _NO_FIELD})
        self._event = event

    def __missing__(self, name: str) -> frozenset[str]:
        fold, read = _FIELDS[name]
        # Type aliases exist only in filters: the type of an event is compared unchanged.
        words = self[name] = (frozenset if name == _TYPES else fold)(read(self._event))
        return words


def _listed(event: Event, key: str) -> Iterable[str]:
    """Read one string or a list of strings from a payload; ignore anything else."""
    found = event.payload.get(key)
    if isinstance(found, str):
        return (found,)
    return [word for word in found if isinstance(word, str)] if isinstance(found, (list, tuple)) else ()


def _targets(event: Event) -> Iterable[str]:
    return *event.delivered_to, *_listed(event, "delivered_to")


def _recipients(event: Event) -> Iterable[str]:
    return *_targets(event), *event.to


def _parties(event: Event) -> Iterable[str]:
    named = (word for key in ("to", "from", "agent") for word in _listed(event, key))
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
    "threads": (frozenset, lambda event: _listed(event, "thread")),
    "files": (frozenset, lambda event: _listed(event, "file")),
    "rooms": (frozenset, lambda event: _listed(event, "room")),
    "mentions": (_names, lambda event: _listed(event, "mentions")),
    "statuses": (_states, states_of),
    "intents": (frozenset, lambda event: _listed(event, "intent")),
    "senders": (_names, lambda event: (event.sender,)),
    "targets": (_names, _targets),
    "to": (_names, _recipients),
    "agents": (_names, _parties),
    _TYPES: (_types, lambda event: (event.type,)),
}
