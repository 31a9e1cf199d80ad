"""The reactor of request watches and subscriptions. It reads the log in seq order and writes through the
broker.

The id of each notice is derived from its cause, so a repeat is one event: after a restart it processes the
newest events again. Its index is derived from the stored state; it keeps nothing else that could be lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from palaver.errors import PalaverError, Unavailable
from palaver.log.api import LIMIT_NEWEST, Log
from palaver.log.fold import agent_of
from palaver.log.fold_watches import due_watches, read_subscription, read_subscriptions
from palaver.log.follow import follow
from palaver.model.envelope import Event
from palaver.model.life import BYE
from palaver.model.query import Query
from palaver.model.subscription import (
    DELIVERY,
    STATUS,
    SUB_ADDED,
    SUB_REMOVED,
    FireSubscription,
    FireWatch,
    Retire,
    Subscription,
    format_watch_id,
    is_collision_hit,
    is_system,
)
from palaver.watches.edits import Edits
from palaver.watches.index import SubscriptionIndex
from palaver.watches.words import collision_text, hit_text

Told = FireSubscription | FireWatch | Retire

Submit = Callable[[Told], Awaitable[object]]
"""Submits a request to the broker as the system."""

_logger: Final = logging.getLogger("palaver.watches")

_AT_ONCE: Final = 256
"""Number of requests submitted to the broker together."""


class Watches:
    """The request watches and subscriptions of all local agents."""

    def __init__(self, log: Log, submit: Submit, *, tasks: asyncio.TaskGroup) -> None:
        """Create the reactor. Its work runs in `tasks`, whose owner waits for it."""
        self._log = log
        self._submit = submit
        self._tasks = tasks
        self._index = SubscriptionIndex()
        self._edits = Edits()
        self._news = asyncio.Event()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start with the due watches, then the newest events, then all new ones."""
        self._unsubscribe = self._log.subscribe(lambda _: self._news.set())
        for subscription in read_subscriptions(self._log.rows):
            if not subscription.spent:
                self._index.put(subscription)
        self._work = self._tasks.create_task(self._run())

    def close(self) -> None:
        """Stop. Unwritten notices are written after the next start. Closing twice is harmless."""
        self._unsubscribe()
        if self._work is not None:
            self._work.cancel()

    async def _run(self) -> None:
        spent = [one.id for one in read_subscriptions(self._log.rows) if one.spent]
        await self._tell([*self._due(), *(Retire(id=id) for id in spent)])
        newest = await self._log.read(Query(last=LIMIT_NEWEST, limit=LIMIT_NEWEST))
        await self._look_at(newest)
        after = newest[-1].seq if newest else 0
        async with aclosing(follow(self._log, Query(), after=after)) as batches:
            async for events in batches:
                await self._look_at(events)

    async def _look_at(self, events: Sequence[Event]) -> None:
        requests: list[Told] = []
        for event in events:
            requests += self._reactions(event)
            if len(requests) >= _AT_ONCE:
                await self._tell(requests)
                requests = []
        await self._tell(requests)

    async def _tell(self, requests: Sequence[Told]) -> None:
        """Submit all of these, in order. While the log is full, wait until something is written."""
        while requests:
            self._news.clear()
            tries = [self._tasks.create_task(self._is_done(request)) for request in requests]
            answers = await asyncio.gather(*tries)
            requests = [one for one, is_done in zip(requests, answers, strict=True) if not is_done]
            if requests:
                await self._news.wait()

    async def _is_done(self, request: Told) -> bool:
        """Submit one request; return False while the log is full. A refused one counts as done."""
        try:
            await self._submit(request)
        except Unavailable:
            return False
        except PalaverError as error:
            # By id: the text of the notice is private and must not be in the daemon's log.
            id = (
                format_watch_id(request.agent, request.request)
                if isinstance(request, FireWatch)
                else request.id
            )
            _logger.warning("skipped %s of %s: %s", type(request).__name__, id, error)
        return True

    def _reactions(self, event: Event) -> Iterator[Told]:
        """Yield all requests that follow from one event."""
        if event.type in (SUB_ADDED, SUB_REMOVED):
            self._refresh(event.payload.get("id"))
        elif event.type in (STATUS, BYE):
            yield from self._due(agent_of(event))
            yield from self._collisions(event)
        if is_system(event):
            yield from self._after_hit(event)
        else:
            yield from self._hits(event)

    def _due(self, agent: str = "") -> Iterator[FireWatch]:
        return (FireWatch(agent=name, request=place) for name, place in due_watches(self._log.rows, agent))

    def _hits(self, event: Event) -> Iterator[FireSubscription]:
        hits = self._index.hits(event)
        if hits and not self._is_about_system(event):
            for subscription in hits:
                yield _hit(subscription, event, hit_text(subscription, event))

    def _is_about_system(self, event: Event) -> bool:
        """Whether an event is only about our own notices: two subscribers to all steps would notify each
        other endlessly.
        """
        seqs = event.payload.get("messages")
        if event.type != DELIVERY or not isinstance(seqs, (list, tuple)):
            return False
        messages = [self._log.event(seq) for seq in seqs if isinstance(seq, int)]
        return all(message is not None and is_system(message) for message in messages)

    def _collisions(self, event: Event) -> Iterator[FireSubscription]:
        others = self._edits.collide(event, agent_of(event))
        if not others:
            return
        agents = tuple(agent_of(edit) for edit in (event, *others))
        file = str(event.payload["file"])
        for subscription in self._index.collisions():
            if is_collision_hit(subscription, (event, *others)):
                text = collision_text(subscription, event, agents, file)
                yield _hit(subscription, event, text, agents, file)

    def _after_hit(self, event: Event) -> Iterator[Retire]:
        """Retire a one-time subscription after its first hit."""
        subscription = self._refresh(event.payload.get("sub"))
        if subscription is not None and subscription.spent:
            yield Retire(id=subscription.id)

    def _refresh(self, id: object) -> Subscription | None:
        """Update the index from the stored state; return the stored subscription."""
        if not isinstance(id, str):
            return None
        subscription = read_subscription(self._log.rows, id)
        if subscription is None or subscription.spent:
            self._index.drop(id)
        else:
            self._index.put(subscription)
        return subscription


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
