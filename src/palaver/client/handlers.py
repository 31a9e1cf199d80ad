"""Handlers: functions of a program that are called with each envelope that arrives. Opens no connection.

A text message is an envelope of the type `message`.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

from palaver.client.values import Message
from palaver.errors import BadRequest, PalaverError
from palaver.protocol.envelope import Draft, Event, matches_recipient
from palaver.protocol.events import BODIES, BYE, HELLO

ANY: Final = "*"
"""Instead of a type: every envelope that arrives."""
ANNOUNCEMENTS: Final = frozenset({HELLO, BYE})
"""Types that are in no mailbox: handlers of them read the log."""
LIMIT_AT_ONCE: Final = 256
"""Envelopes that are handled at the same time; further ones wait."""

_logger: Final = logging.getLogger("palaver.client")

Handler: TypeAlias = Callable[[Draft], Awaitable[None] | None]
H = TypeVar("H", bound=Handler)


class Handlers:
    """The handlers of one connection, by type. They may be added at any time."""

    def __init__(self) -> None:
        self._by_type: dict[str, list[Handler]] = {}

    def on(self, type: str) -> Callable[[H], H]:
        """Return a decorator that adds a handler for a type, or for all with `*`."""
        if not type:
            raise BadRequest("the type of a handler is empty; use '*' for all types")

        def add(handler: H) -> H:
            self._by_type.setdefault(type, []).append(handler)
            return handler

        return add

    @property
    def announcements(self) -> tuple[str, ...]:
        """The types without a mailbox that a handler names."""
        return tuple(sorted(ANNOUNCEMENTS & self._by_type.keys()))

    def find(self, type: str) -> list[Handler]:
        """Return the handlers of a type, and then those of all types, in the order in which they were added.

        Announcements are only for handlers that name their type.
        """
        general = [] if type in ANNOUNCEMENTS else self._by_type.get(ANY, [])
        return [*self._by_type.get(type, []), *general]

    async def run(
        self, name: str, role: str, messages: AsyncIterator[Message], announced: AsyncIterator[Event] | None
    ) -> None:
        """Call handlers until the messages end; then end the calls that still run. Raises their error.

        Each call is a task. A message is acknowledged when all its handlers have returned. It stays unread if
        one of them fails, which is logged, or if its `to` does not match the name and role.
        """
        failure: PalaverError | None = None
        async with asyncio.TaskGroup() as group:
            calls = _Calls(group)
            hearing = None
            if announced is not None:
                hearing = group.create_task(self._hear(name, role, announced, calls))
            try:
                async for message in messages:
                    await self._dispatch(name, role, message, calls)
            except PalaverError as error:
                failure = error
            finally:
                calls.cancel()
                if hearing is not None:
                    hearing.cancel()
        if failure is not None:
            raise failure

    async def _dispatch(self, name: str, role: str, message: Message, calls: "_Calls") -> None:
        envelope = message.envelope
        if not matches_recipient(envelope, name, role):
            _logger.info("envelope %r is not addressed to %s: it stays unread", envelope.id, name)
        elif handlers := self.find(envelope.type):
            await calls.start(handlers, envelope, message)
        elif self._by_type and envelope.type not in BODIES:
            # Receivers ignore types that they do not know. Unread, they would fill the mailbox.
            await calls.start([], envelope, message)

    async def _hear(self, name: str, role: str, announced: AsyncIterator[Event], calls: "_Calls") -> None:
        try:
            async for event in announced:
                envelope = event.envelope
                if event.sender != name and matches_recipient(envelope, name, role):
                    await calls.start(self.find(envelope.type), envelope, None)
        except PalaverError as error:
            _logger.warning("no more announcements are handled: %s", error)


class _Calls:
    """The running calls of handlers, in a task group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._free = asyncio.Semaphore(LIMIT_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    async def start(self, handlers: list[Handler], envelope: Draft, message: Message | None) -> None:
        """Start the handlers of an envelope, after waiting while too many envelopes are being handled."""
        await self._free.acquire()
        task = self._group.create_task(self._serve(handlers, envelope, message))
        self._running.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel all calls. Their envelopes stay unread."""
        for task in self._running:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._free.release()

    async def _serve(self, handlers: list[Handler], envelope: Draft, message: Message | None) -> None:
        calls = [self._group.create_task(_call(handler, envelope)) for handler in handlers]
        # A cancelled call is not a failure of the others.
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        if message is None or not all(outcome is True for outcome in outcomes):
            return
        try:
            await message.ack()
        except PalaverError as error:
            _logger.warning("envelope %r was handled, but its ack was not stored: %s", envelope.id, error)


async def _call(handler: Handler, envelope: Draft) -> bool:
    """Return whether the handler has returned. Its errors are logged."""
    try:
        result = handler(envelope)
        if inspect.isawaitable(result):
            await result
    except Exception:
        name = getattr(handler, "__qualname__", repr(handler))
        _logger.exception(
            "handler %s failed: envelope %r of type %r from %r stays unread",
            *(name, envelope.id, envelope.type, envelope.sender),
        )
        return False
    return True
