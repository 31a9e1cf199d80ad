"""Which subscriptions an event may be for, found by a few lookups. Never less than match, sometimes more.

A subscription stands under the types it wants and the words of its rarest filter; an event is looked up under
its own type and words. So a thousand subscriptions cost an event that is for none of them no more than one
does. `model.subscription.is_hit` has the last word.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from palaver.model.envelope import Event
from palaver.model.query import STORED_STATES, STORED_TYPES
from palaver.model.subscription import COLLISION, Filter, Subscription

_Shelf = dict[tuple[str, str], dict[str, Subscription]]
"""Subscriptions by the name of a filter and a word of it; empty ones stand for those with no such filter."""

_ANY: Final = ""
_PARTY: Final = "party"
# The rarest first. Whoever is an agent, a recipient or a target of an event is a party to it.
_FILTERS: Final = (
    ("files", "files"),
    ("threads", "threads"),
    ("rooms", "rooms"),
    ("senders", "senders"),
    ("mentions", "mentions"),
    ("targets", _PARTY),
    ("to", _PARTY),
    ("agents", _PARTY),
    ("statuses", "statuses"),
    ("intents", "intents"),
)
_IN_PAYLOAD: Final = (
    ("files", "file"),
    ("threads", "thread"),
    ("rooms", "room"),
    ("mentions", "mentions"),
    ("statuses", "state"),
    ("intents", "intent"),
    (_PARTY, "delivered_to"),
    (_PARTY, "to"),
    (_PARTY, "agent"),
)
_NAMES: Final = frozenset({"senders", "mentions", _PARTY})


class SubscriptionIndex:
    """All subscriptions that can still tell."""

    def __init__(self) -> None:
        self._all: dict[str, Subscription] = {}
        self._by_type: dict[str, _Shelf] = {}
        self._collisions: dict[str, Subscription] = {}

    def __len__(self) -> int:
        return len(self._all)

    def put(self, subscription: Subscription) -> None:
        """Add a subscription, or take it in the place of the one with its id."""
        self.drop(subscription.id)
        self._all[subscription.id] = subscription
        if subscription.preset == COLLISION:
            self._collisions[subscription.id] = subscription
            return
        for type, key in _places(subscription.filter):
            shelf = self._by_type.setdefault(type, {})
            shelf.setdefault(key, {})[subscription.id] = subscription

    def drop(self, id: str) -> None:
        """Take a subscription out; one that is not there is no mistake."""
        gone = self._all.pop(id, None)
        if gone is None:
            return
        self._collisions.pop(id, None)
        for type, key in _places(gone.filter):
            shelf = self._by_type.get(type, {})
            found = shelf.get(key, {})
            found.pop(id, None)
            if not found:
                shelf.pop(key, None)
            if not shelf:
                self._by_type.pop(type, None)

    def candidates(self, event: Event) -> list[Subscription]:
        """Give every subscription that may be for an event, oldest first."""
        shelves = [shelf for type in (event.type, _ANY) if (shelf := self._by_type.get(type))]
        if not shelves:
            return []
        found: dict[str, Subscription] = {}
        for key in _words(event):
            for shelf in shelves:
                found.update(shelf.get(key, {}))
        return sorted(found.values(), key=_by_age)

    def collisions(self) -> list[Subscription]:
        """Give those that want to know of collisions, oldest first."""
        return sorted(self._collisions.values(), key=_by_age)


def _by_age(subscription: Subscription) -> tuple[int, str]:
    return subscription.seq, subscription.id


def _places(wanted: Filter) -> Iterator[tuple[str, tuple[str, str]]]:
    """Where a subscription stands: each type it wants with each word of its rarest filter."""
    types = [STORED_TYPES.get(word, word) for word in wanted.types] or [_ANY]
    name, words = next(
        ((kind, words) for field, kind in _FILTERS if (words := getattr(wanted, field))), (_ANY, (_ANY,))
    )
    return ((type, (name, _plain(name, word))) for type in types for word in words)


def _words(event: Event) -> Iterator[tuple[str, str]]:
    """Every name and word under which an event is looked up, each once."""
    yield _ANY, _ANY
    yield "senders", _plain("senders", event.sender)
    parties = {_plain(_PARTY, name) for name in (event.sender, *event.to, *event.delivered_to)}
    for name, key in _IN_PAYLOAD:
        words = _listed(event.payload.get(key))
        if name is _PARTY:
            parties.update(_plain(name, word) for word in words)
        else:
            yield from ((name, _plain(name, word)) for word in words)
    for party in parties:
        yield _PARTY, party


def _listed(found: object) -> Iterable[str]:
    if isinstance(found, str):
        return (found,)
    return [word for word in found if isinstance(word, str)] if isinstance(found, (list, tuple)) else ()


def _plain(name: str, word: str) -> str:
    """Write a word as it is compared: names without case and @, states in their one spelling."""
    if name in _NAMES:
        return word.lower().removeprefix("@")
    return STORED_STATES.get(word, word) if name == "statuses" else word
