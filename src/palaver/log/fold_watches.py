"""The part of the fold that keeps watches and subscriptions, and how they are read. Pure.

    watch          requests that a recipient has not answered: `<agent>/<place of the request>`
    watch_due      those of them whose sender is to be told, and why
    subscription   who is told of which events, by short id

A watch falls due in the fold itself, by the places of the log: when its agent has seen the request and then
goes idle, or stops. A copy that expires, is refused or is dead ends its watch: its sender is told of that. So
no clock and no restart can make a watch fire twice or not at all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from palaver.log.api import Change, Rows
from palaver.log.owed import owed_no_more, without
from palaver.log.state import read_entry
from palaver.log.walk import places_of_agents, walk
from palaver.model.delivery import AgentState, State
from palaver.model.envelope import Event
from palaver.model.life import BYE
from palaver.model.mail import agent_key, deliverable, encode_row, place_of_key, reply_place
from palaver.model.message import HUMAN, INSTANCE, MESSAGE, REQUEST, SYSTEM
from palaver.model.query import STORED_STATES
from palaver.model.subscription import (
    DELIVERY,
    STATUS,
    STOPPED,
    SUB_ADDED,
    SUB_REMOVED,
    Due,
    Subscription,
    Watch,
    decode_due,
    decode_subscription,
    decode_watch,
    parse_watch_id,
)

WATCHES: Final = "watch"
DUE: Final = "watch_due"
SUBSCRIPTIONS: Final = "subscription"

_WATCHED_FOR: Final = frozenset({INSTANCE, HUMAN})


def watch_changes(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Tell what an event changes in watches and subscriptions; `agent` is whose life it is about.

    Raises what the fold skips on only for events of our own types that cannot be read.
    """
    handler = _HANDLERS.get(event.type)
    return [] if handler is None else handler(rows, event, agent)


def read_watch(rows: Rows, agent: str, request: int) -> Watch | None:
    """Look the watch on one recipient of a request up."""
    value = rows.get(WATCHES, agent_key(agent, request))
    return None if value is None else decode_watch(value)


def read_watches(rows: Rows) -> Iterator[Watch]:
    """Walk all open watches, agent by agent."""
    return (decode_watch(value) for _, value in walk(rows, WATCHES, ""))


def read_due(rows: Rows, agent: str, request: int) -> Due | None:
    """Tell why a watch fires; None while it does not."""
    value = rows.get(DUE, agent_key(agent, request))
    return None if value is None else decode_due(value)


def due_watches(rows: Rows, agent: str = "") -> list[tuple[str, int]]:
    """Give agent and request of every watch that is to fire: one agent's, or all."""
    return places_of_agents(rows, DUE, agent)


def read_subscription(rows: Rows, id: str) -> Subscription | None:
    """Look a subscription up by its short id."""
    value = rows.get(SUBSCRIPTIONS, id)
    return None if value is None else decode_subscription(value)


def read_subscriptions(rows: Rows) -> Iterator[Subscription]:
    """Walk all subscriptions, by id."""
    return (decode_subscription(value) for _, value in walk(rows, SUBSCRIPTIONS, ""))


def _by_message(rows: Rows, event: Event, agent: str) -> list[Change]:
    """A request is watched, a reply ends a watch, and so does the word that it has fired.

    A reply that is held has not answered anybody yet.
    """
    payload = event.payload
    changes: list[Change] = []
    if payload.get("intent") == REQUEST and payload.get("sender_kind") in _WATCHED_FOR:
        changes += _watched(event)
    if (place := reply_place(event)) is not None and not deliverable(event).held:
        changes += _unwatched(rows, event.sender, place)
    if payload.get("sender_kind") == SYSTEM:
        changes += _told(rows, event)
    return changes


def _watched(event: Event) -> Iterable[Change]:
    """Whoever asks itself knows whether it has answered, and a person has no state to wait for."""
    for name in deliverable(event).delivered_to:
        if name not in (event.sender, HUMAN):
            watch = Watch(agent=name, request=event.seq, sender=event.sender, ts=event.ts)
            yield WATCHES, agent_key(name, event.seq), encode_row(watch)


def _told(rows: Rows, event: Event) -> list[Change]:
    """A word of the bus says what made it: a watch, which is over, or a subscription, which may be spent."""
    watch, hit = event.payload.get("watch"), event.payload.get("sub")
    if isinstance(watch, Mapping):
        return _unwatched(rows, str(watch["agent"]), int(watch["request"]))
    known = read_subscription(rows, hit) if isinstance(hit, str) else None
    if known is None or not known.once or known.spent:
        return []
    return [(SUBSCRIPTIONS, known.id, encode_row(msgspec.structs.replace(known, spent=event.seq)))]


def _unwatched(rows: Rows, agent: str, request: int) -> list[Change]:
    return without(rows, (WATCHES, DUE), agent, request)


def _by_report(rows: Rows, event: Event, agent: str) -> list[Change]:
    """What is owed no more is watched no more."""
    return [change for owed in owed_no_more(rows, event) for change in _unwatched(rows, *owed)]


def _by_status(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Who goes idle owes an answer to what it has seen."""
    word = str(event.payload.get("state", ""))
    if STORED_STATES.get(word, word) != AgentState.IDLE:
        return []
    return _fall_due(rows, event, agent, AgentState.IDLE.value, is_seen_only=True)


def _by_bye(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Who stops will not answer, whether it has seen the request or not."""
    return _fall_due(rows, event, agent, STOPPED, is_seen_only=False)


def _fall_due(rows: Rows, event: Event, agent: str, state: str, *, is_seen_only: bool) -> list[Change]:
    """Mark an agent's open watches; what fell due before keeps its first cause."""
    due = encode_row(Due(state=state, cause=event.id))
    changes: list[Change] = []
    for key, _ in walk(rows, WATCHES, f"{agent}/"):
        is_owed = not is_seen_only or _has_seen(rows, place_of_key(key), agent)
        if is_owed and rows.get(DUE, key) is None:
            changes.append((DUE, key, due))
    return changes


def _has_seen(rows: Rows, request: int, agent: str) -> bool:
    entry = read_entry(rows, request, agent)
    return entry is not None and entry.state == State.SEEN


def _by_added(rows: Rows, event: Event, agent: str) -> list[Change]:
    if "filter" not in event.payload:
        return []
    made = msgspec.convert(event.payload, Subscription)
    return [(SUBSCRIPTIONS, made.id, encode_row(msgspec.structs.replace(made, seq=event.seq, ts=event.ts)))]


def _by_removed(rows: Rows, event: Event, agent: str) -> list[Change]:
    gone = str(event.payload["id"])
    if (watch := parse_watch_id(gone)) is not None:
        return _unwatched(rows, *watch)
    return [] if rows.get(SUBSCRIPTIONS, gone) is None else [(SUBSCRIPTIONS, gone, None)]


_Handler = Callable[[Rows, Event, str], list[Change]]
_HANDLERS: Final[Mapping[str, _Handler]] = {
    MESSAGE: _by_message,
    DELIVERY: _by_report,
    STATUS: _by_status,
    BYE: _by_bye,
    SUB_ADDED: _by_added,
    SUB_REMOVED: _by_removed,
}
