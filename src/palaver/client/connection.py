"""The connection of a program to the bus: requests, mail, followers, handlers of envelopes."""

import asyncio
import inspect
import logging
import os
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Self, TypeAlias, TypeVar

import msgspec

from palaver.client.values import (
    AgentInfo,
    Delivery,
    JoinReply,
    Message,
    Receipt,
    agents_from_json,
    dead_letters_from_json,
    event_from_json,
    events_from_json,
    fields_from_json,
    joined_from_json,
    last_from_json,
    ledger_from_json,
    mail_from_json,
    receipt_from_json,
    route_result_from_json,
    routed_from_json,
    seq_from_json,
    subscribed_from_json,
    subscriptions_from_json,
)
from palaver.client.wire import ReplyLine, Wire, default_home, open_wire
from palaver.clock import SystemClock
from palaver.errors import BadRequest, Disconnected, PalaverError, ShuttingDown
from palaver.ids import UlidSource
from palaver.protocol.envelope import Draft, Event, matches_recipient
from palaver.protocol.events import BODIES, BYE, HELLO
from palaver.protocol.lines import (
    AckOp,
    ClearDeadLettersOp,
    DeadLettersOp,
    EventsOp,
    HistoryOp,
    JoinOp,
    LeaveOp,
    ListenOp,
    ListOp,
    Op,
    PutOp,
    ReceiptsOp,
    ReceiveOp,
    RouteOp,
    SendOp,
    StatusOp,
    SubscribeOp,
    SubscriptionsOp,
    ToolOp,
    UnsubscribeOp,
    op_to_json,
)
from palaver.protocol.message import MESSAGE
from palaver.protocol.paths import (
    BROADCAST_PATH,
    DEFAULT_COMMAND,
    INTERNAL,
    DeadLetter,
    Delivered,
    PathSubscription,
    RoutedMessage,
    RouteResult,
    SubscriptionResult,
    delivered_of,
)
from palaver.version import __version__

# --------------------
# Handlers: functions of a program that are called with each envelope that arrives. Opens no connection.
#
# A text message is an envelope of the type `message`.

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
                # Raised after the group, which would otherwise wrap it in an `ExceptionGroup`.
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
            # Only logged: an error of this second connection must not end the handlers of messages.
            _logger.warning("no more announcements are handled: %s", error)


class _Calls:
    """The running calls of handlers, in a task group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._free = asyncio.Semaphore(LIMIT_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    async def start(self, handlers: list[Handler], envelope: Draft, message: Message | None) -> None:
        """Start the handlers of an envelope, after waiting while too many envelopes are being handled."""
        # Acquired before the task exists, so that the reader of messages waits, and not thousands of tasks.
        await self._free.acquire()
        task = self._group.create_task(self._serve(handlers, envelope, message))
        self._running.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel all calls. Their envelopes stay unread."""
        # No copy is needed: the loop calls `_done` later, not `cancel`.
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


# --------------------
# Connections that outlive the daemon: with one name, or without.

_TRIES: Final = 5
"""Connections in a row that may be lost before the join is accepted."""
_LEAVE_LIMIT_S: Final = 5.0
"""Seconds that the end of a connection waits for the reply to its leave."""

Answer = asyncio.Future[msgspec.Raw]


class RequestConnection:
    """A connection with a name. Requests are sent in the order of the calls; unanswered ones are sent again,
    in that order, after a loss.

    So each request must be safe to repeat: it carries an id, or is idempotent. While the daemon does not read
    or is being restarted, calls wait; nothing is dropped. If the reconnect fails, all waiting calls get the
    error, and the next call tries again.
    """

    def __init__(
        self,
        home: str,
        join: JoinOp,
        on_push: Callable[[ReplyLine], None],
        on_broken: Callable[[PalaverError], None],
    ) -> None:
        """Create a connection. `on_broken` is called when a reconnect has failed."""
        self._home = home
        self._join = join
        self._on_push = on_push
        self._on_broken = on_broken
        self._numbers = count(1)
        self._wire: Wire | None = None
        self._greeting: Answer | None = None
        self._greeting_number = 0
        self._calls: dict[int, tuple[bytes, Answer]] = {}
        self._returning: asyncio.Task[None] | None = None
        self._is_open = False
        self.is_listening = False
        """Whether every new connection starts with a listen request."""
        self.joined = JoinReply()

    # Connecting and leaving

    async def open(self) -> None:
        """Join; raises at once if the join is refused, and then leaves nothing open."""
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        try:
            await self._connect(is_returning=False)
        except BaseException:
            self._is_open = False
            raise

    async def close(self) -> None:
        """Leave the bus, if the daemon is connected, and close. Waiting calls fail."""
        wire = self._wire
        try:
            if self._returning is not None:
                self._returning.cancel()
                # Not awaited directly: its cancellation would be raised here, as if the caller was cancelled.
                await asyncio.wait([self._returning])
            elif wire is not None:
                leaving = self.ask(LeaveOp())
                # After `ask`, which needs it. A connection lost from now on is not replaced.
                self._is_open = False
                async with asyncio.timeout(_LEAVE_LIMIT_S):
                    await leaving
        except (PalaverError, TimeoutError):
            pass  # the daemon itself writes the leave event if the client does not return
        finally:
            self._is_open = False
            self._wire = None
            self._fail(Disconnected("the connection was closed"))
            if wire is not None:
                wire.close()
                await wire.wait_closed()

    async def _connect(self, *, is_returning: bool) -> None:
        tries_left = _TRIES
        # Limited, because a daemon that crashes at every join would otherwise be started again endlessly.
        while True:
            tries_left -= 1
            wire = await open_wire(self._home, self._hear, self._lose, is_returning=is_returning)
            try:
                self.joined = await self._greet(wire)
                break
            except (Disconnected, ShuttingDown):
                wire.close()
                if not tries_left:
                    raise
            except BaseException:
                wire.close()
                raise
        # No await between the join and here: later requests are written after the waiting ones.
        self._wire = wire
        if self.is_listening:
            # No call waits for this number, so the reply is dropped.
            wire.write(op_to_json(next(self._numbers), ListenOp()))
        # A cancelled call is in the table until its reply comes: do not send it again.
        self._calls = {number: call for number, call in self._calls.items() if not call[1].done()}
        for line, _ in self._calls.values():
            wire.write(line)

    async def _greet(self, wire: Wire) -> JoinReply:
        self._greeting = self._loop.create_future()
        self._greeting_number = next(self._numbers)
        join = self._join
        if self.joined.name:  # The full name that it got, which includes the tag.
            join = msgspec.structs.replace(join, name=self.joined.name, tag="")
        wire.write(op_to_json(self._greeting_number, join))
        answer = await self._greeting
        if wire.error is not None:
            raise wire.error  # lost again after the reply
        return joined_from_json(answer)

    def _lose(self, wire: Wire) -> None:
        assert wire.error is not None
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(wire.error)
        if wire is self._wire:  # Else it was lost before its join was accepted: `_connect` tries again.
            self._wire = None
            if self._is_open:
                self._come_back()
            else:
                self._fail(wire.error)

    def _come_back(self) -> None:
        if self._returning is None:
            self._returning = self._loop.create_task(self._return())

    async def _return(self) -> None:
        try:
            await self._connect(is_returning=True)
        except PalaverError as error:
            self._fail(error)
            self._on_broken(error)
        finally:
            # No await since the connection was made: a loss in between would find this task, and start no
            # other.
            self._returning = None

    def _fail(self, error: PalaverError) -> None:
        calls, self._calls = self._calls, {}
        for _, answer in calls.values():
            if not answer.done():
                answer.set_exception(error)

    # Requests

    def ask(self, request: Op) -> Answer:
        """Send a request; the future returns its result or raises its refusal.

        Raises at once if the request can never be sent. After cancelling the future it is unknown whether the
        request was executed.
        """
        if not self._is_open:
            raise Disconnected("the connection is not open: use it inside its `async with` block")
        number = next(self._numbers)
        # Encoded before the entry in the table: a request that cannot be encoded must not be repeated later.
        line = op_to_json(number, request)
        answer: Answer = self._loop.create_future()
        self._calls[number] = line, answer
        if self._wire is not None:
            self._wire.write(line)
        else:
            self._come_back()
        return answer

    def _hear(self, line: ReplyLine) -> None:
        if line.push:
            self._on_push(line)
        elif line.req == self._greeting_number:
            assert self._greeting is not None
            _settle(self._greeting, line)
        elif line.error != ShuttingDown.code and (call := self._calls.pop(line.req, None)) is not None:
            # A request refused by a stopping daemon is sent to the next one.
            _settle(call[1], line)


def _settle(answer: Answer, line: ReplyLine) -> None:
    if answer.done():
        return
    if line.error:
        answer.set_exception(line.refusal)
    else:
        answer.set_result(line.ok)


# --------------------
# A connection without a name: requests are made as the calling process, and repeated after a loss.

_PLAIN_TRIES: Final = 20
"""Consecutive connections that may be lost without a reply before it gives up."""


class Plain:
    """A connection without a name. Requests that a lost daemon has not answered are sent to the next one.

    So each request must be safe to repeat: it changes nothing, or carries a key. Calls may run concurrently.
    """

    def __init__(self, home: str, greeting: Callable[[], Op] | None = None) -> None:
        """`greeting` returns the first request of each new connection. Every call can raise its refusal."""
        self._home = home
        self._greeting = greeting
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()
        self._was_connected = False
        self._losses = 0
        self._is_over = False

    async def __aenter__(self) -> Self:
        await self._connected()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # First: a call that loses this connection must not open another one.
        self._is_over = True
        if (wire := self._wire) is not None:
            wire.close()
            await wire.wait_closed()

    async def ask(self, request: Op) -> msgspec.Raw:
        """Send a request and return its result. Raises its refusal, or Disconnected without a bus."""
        while True:
            wire = await self._connected()
            try:
                return await self._ask(wire, request)
            except ShuttingDown:
                # Until then `_connected` returns the connection to the daemon that is stopping.
                await wire.wait_closed()
            except Disconnected:
                if self._losses >= _PLAIN_TRIES:
                    raise

    async def ask_here(self, request: Op) -> msgspec.Raw:
        """Send a request on the present connection only. Raises Disconnected without it or after its loss."""
        if self._wire is None:
            raise Disconnected("there is no connection to the daemon")
        return await self._ask(self._wire, request)

    async def _ask(self, wire: Wire, request: Op) -> msgspec.Raw:
        number = next(self._numbers)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        wire.write(op_to_json(number, request))
        try:
            return await answer
        finally:
            # Also after a cancellation: a reply that comes later then finds no call, and is dropped.
            del self._calls[number]

    async def _connected(self) -> Wire:
        # One connection for all: calls that find none at the same time would otherwise open one each.
        async with self._connecting:
            if self._is_over:
                raise Disconnected("the connection was closed")
            if self._wire is None:
                wire = await open_wire(self._home, self._hear, self._lose, is_returning=self._was_connected)
                # Stored only after the greeting, so that no other request is sent before it.
                if self._greeting is not None:
                    await self._greet(wire, self._greeting())
                self._wire = wire
                self._was_connected = True
            return self._wire

    async def _greet(self, wire: Wire, greeting: Op) -> None:
        try:
            await self._ask(wire, greeting)
            if wire.error is not None:
                raise wire.error  # lost again after the reply
        except PalaverError:
            wire.close()
            await wire.wait_closed()
            raise
        # No wait after a cancellation: the caller wants to end now.
        except BaseException:
            wire.close()
            raise

    def _hear(self, line: ReplyLine) -> None:
        self._losses = 0
        answer = self._calls.get(line.req)
        if answer is None or answer.done():
            return
        if line.error:
            answer.set_exception(line.refusal)
        else:
            answer.set_result(line.ok)

    def _lose(self, wire: Wire) -> None:
        self._wire = None
        self._losses += 1
        # Calls wait for one connection only: the next one is made after its loss.
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(wire.error or Disconnected("the connection to the daemon was lost"))


# --------------------
# A queue of received items. The producer limits its length.

T = TypeVar("T")


class Stream(Generic[T]):
    """An asynchronous iterator that a producer fills. With several readers each item goes to one of them.

    After the end, readers still get the remaining items, and then stop or get the error it ended with.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._news = asyncio.Event()
        self._is_ended = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Append an item."""
        self._items.append(item)
        self._news.set()

    def end(self, error: Exception | None = None) -> None:
        """End the stream, optionally with an error. Only the first call counts."""
        if not self._is_ended:
            self._is_ended = True
            self._error = error
            self._news.set()

    def reopen(self) -> None:
        """Continue after an end; without an end, do nothing."""
        self._is_ended = False
        self._error = None

    def __aiter__(self) -> "Stream[T]":
        return self

    async def __anext__(self) -> T:
        # A loop, because another reader that the same event woke may have taken the item.
        while not self._items:
            if self._is_ended:
                raise self._error or StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._items.popleft()


# --------------------
# The inbox of one connection: each pushed message once, and the record of acknowledged ones.

_LIMIT_REMEMBERED: Final = 10_000
"""Acknowledged messages that are remembered: the next connection pushes those again whose ack was lost."""


class Inbox:
    """Drops repeats by seq. Unacknowledged messages are all remembered, acknowledged ones up to 10,000.

    It holds the messages that were pushed and not taken yet: at most all unread messages of the agent.
    """

    def __init__(self) -> None:
        self.waiting: Stream[Message] = Stream()
        self._in_hand: set[int] = set()
        self._acked: OrderedDict[int, None] = OrderedDict()

    def put(self, message: Message) -> bool:
        """Store a pushed message; return False if it was already acknowledged, so its ack must have been
        lost.
        """
        if message.seq in self._acked:
            return False
        if message.seq not in self._in_hand:
            self._in_hand.add(message.seq)
            self.waiting.put(message)
        return True

    def acked(self, seq: int) -> None:
        """Remember that the program has acknowledged a message."""
        self._in_hand.discard(seq)
        self._acked[seq] = None
        if len(self._acked) > _LIMIT_REMEMBERED:
            self._acked.popitem(last=False)


# --------------------
# The messages pushed to one connection: decoded, and acknowledged, again if the ack was lost.

Ask = Callable[[Op], Awaitable[msgspec.Raw]]
"""Sends a request to the current daemon."""


class MailReader:
    """Received messages, each once. A message stays unread on the bus until its `ack`."""

    def __init__(self, ask: Ask, answer: Callable[..., Awaitable[Receipt]]) -> None:
        """Create the messages of a connection. `answer` sends a reply."""
        self._ask = ask
        self._answer = answer
        self._inbox = Inbox()
        self._again: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> Stream[Message]:
        """Messages that have arrived and were not taken yet."""
        return self._inbox.waiting

    def hear(self, line: ReplyLine) -> None:
        """Process a push. A message whose ack was lost is acknowledged again."""
        mail = mail_from_json(line.message)
        message = Message(
            seq=mail.seq,
            id=mail.id,
            ts=mail.ts,
            sender=mail.sender,
            text=mail.text,
            intent=mail.intent,
            thread=mail.thread,
            reply_to=mail.reply_to,
            fields=fields_from_json(line.message),
            acknowledge=self._ack,
            answer=self._answer,
        )
        if not self._inbox.put(message):
            again = asyncio.get_running_loop().create_task(self._ack_again(mail.seq))
            # The event loop keeps only a weak reference to a task, which could disappear before it ends.
            self._again.add(again)
            again.add_done_callback(self._again.discard)

    async def _ack(self, seq: int) -> None:
        # Before the request: if its reply is lost, the message is pushed again, and must not be read again.
        self._inbox.acked(seq)
        await self._ask(AckOp(messages=(seq,)))

    async def _ack_again(self, seq: int) -> None:
        with suppress(PalaverError):  # it stays unread then and is pushed again on the next connection
            await self._ack(seq)


# --------------------
# Follow the log on a separate connection, so that a slow reader delays no other request.
#
# A follower needs no name, changes nothing, and continues across restarts of the daemon after its last event.

LIMIT_WAITING: Final = 1000
"""Events that may wait to be taken. At this limit reading pauses; the daemon sends the rest later."""
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses before the next connection, when several in a row ended without an event."""


class Follower:
    """Events that match a filter, in log order, each once."""

    def __init__(
        self, home: str, request: EventsOp, on_unreadable: Callable[[], None] = lambda: None
    ) -> None:
        """Create a follower. `on_unreadable` is called for each event that is skipped as unreadable."""
        self._home = home
        self._request = request
        self._waiting: Stream[Event] = Stream()
        self._on_unreadable = on_unreadable
        self._is_closed = False
        self._closing = asyncio.Event()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield events as they arrive. Raises Disconnected if the daemon cannot be reached again."""
        is_returning = False
        empty = 0
        while not self._is_closed:
            # A new stream, because the loss of the connection has ended the previous one.
            waiting = self._waiting = Stream()
            wire = await open_wire(self._home, self._hear, self._lose, is_returning=is_returning)
            self._wire = wire
            is_returning = True
            empty += 1
            wire.write(op_to_json(1, self._request))
            try:
                async for event in waiting:
                    empty = 0
                    # At half of the limit, so that reading does not pause and resume with every event.
                    if len(waiting) == LIMIT_WAITING // 2:
                        wire.resume_reading()
                    # When it is taken, not when it arrives: waiting events are lost with the connection.
                    self._request = msgspec.structs.replace(self._request, after=event.seq)
                    yield event
            finally:
                wire.close()
            if empty:
                await self._pause(_PAUSES_S[min(empty, len(_PAUSES_S)) - 1])

    def close(self) -> None:
        """End; a current reader gets the remaining events and then stops."""
        self._is_closed = True
        self._closing.set()
        self._waiting.end()

    def _hear(self, line: ReplyLine) -> None:
        if line.error:
            self._waiting.end(line.refusal)
        elif line.push == "event":
            event = event_from_json(line.event)
            if event is None:
                self._skip(line.event)
                return
            self._waiting.put(event)
            if len(self._waiting) == LIMIT_WAITING:
                self._wire.pause_reading()

    def _skip(self, line: msgspec.Raw) -> None:
        """Skip an unreadable event; it is not requested again after a reconnect."""
        self._on_unreadable()
        after = max(self._request.after, seq_from_json(line))
        if not len(self._waiting):  # Otherwise the waiting events would be skipped with it.
            self._request = msgspec.structs.replace(self._request, after=after)

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closing.wait()

    def _lose(self, wire: Wire) -> None:
        # Without an error: the reader takes the remaining events, and then connects again.
        self._waiting.end()


# --------------------
# The connection of the SDK, and `connect`, which opens it.


class Connection:
    """One name on the bus.

    Created by `connect`; belongs to one event loop and may be used by many tasks in it.
    """

    def __init__(self, home: str, join: JoinOp) -> None:
        self._home = home
        self._connection = RequestConnection(home, join, self._on_push, self._on_broken)
        self._mail = MailReader(self._connection.ask, self.send)
        self._ids = UlidSource(SystemClock(), os.urandom)
        self._followers: set[Follower] = set()
        self._handlers = Handlers()
        self._is_over = False
        self._unreadable = 0

    @property
    def unreadable(self) -> int:
        """Number of events that `events()` and `follow()` skipped because they were unreadable."""
        return self._unreadable

    @property
    def name(self) -> str:
        """The full name on the bus; empty until connected."""
        return self._connection.joined.name

    @property
    def device(self) -> str:
        """The id of this machine on the bus."""
        return self._connection.joined.device

    async def __aenter__(self) -> Self:
        await self._connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # First: calls that fail because of the close then end without an error, see `_until_over`.
        self._is_over = True
        try:
            await self._connection.close()
        finally:
            self._mail.waiting.end()
            for follower in self._followers:
                follower.close()

    def _on_push(self, line: ReplyLine) -> None:
        self._mail.hear(line)

    def _on_broken(self, error: PalaverError) -> None:
        self._mail.waiting.end(error)

    def _skip(self) -> None:
        self._unreadable += 1

    # Sending

    async def send(
        self,
        to: str | Sequence[str],
        text: str,
        *,
        intent: str = "",
        thread: str = "",
        reply_to: str | int = "",
        priority: str = "",
        expires_ms: int = 0,
        id: str = "",
        bundle: str = "",
        mentions: bool = False,
        yes: bool = False,
        dry_run: bool = False,
        expects_reply: bool = False,
    ) -> Receipt:
        """Send a text to one or several addresses; "@all" is a broadcast. Durable on return.

        An empty list means the author of the message in `reply_to`, or the participants of `thread`. With
        `mentions`, `@names` in the text are recipients too. Concurrent calls get their seqs in the order of
        the calls. A repeated `id` is stored once.
        """
        request = SendOp(
            text=text,
            to=(to,) if isinstance(to, str) else tuple(to),
            mentions=mentions,
            intent=intent,
            thread=thread,
            reply_to=str(reply_to),
            priority=priority,
            expires_ms=expires_ms,
            id=id or self._ids.next(),
            bundle_id=bundle,
            yes=yes,
            dry_run=dry_run,
            expects_reply=expects_reply,
        )
        return receipt_from_json(await self._connection.ask(request))

    async def put(self, envelope: Draft | Event) -> Receipt:
        """Store an envelope; its sender must be your name. Durable on return.

        The same envelope again is stored once. Raises `IdTaken` if the id has another type, `to` or payload.
        """
        made = envelope.envelope if isinstance(envelope, Event) else envelope
        try:
            line = made.to_json().encode()
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadRequest(f"the envelope cannot be built: {error}; nothing was sent") from error
        return receipt_from_json(await self._connection.ask(PutOp(envelope=msgspec.Raw(line))))

    async def emit(
        self, type: str, payload: Mapping[str, object] | None = None, *, to: str | Sequence[str] = ()
    ) -> Receipt:
        """Send an envelope with a new id in your name; without `to` it is for every agent.

        Durable on return. Recipients follow the exact rules of `matches_recipient`.
        """
        return await self.put(Draft.new(type, self.name, payload, to))

    async def set_status(self, state: str, detail: str = "", *, tool: str = "", file: str = "") -> None:
        """Set your status: starting, active, idle or blocked; optionally with the current tool and file."""
        await self._connection.ask(StatusOp(state=state, detail=detail, tool=tool, file=file))

    # Receiving

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Yield your messages as they arrive, unread ones first. Each stays unread until its `ack`.

        A message is never yielded twice by one connection, whatever happens to the daemon. From the first use
        on, messages are pushed to this connection until it ends; several readers share them.
        """
        # Set first: a connection that is lost during this request must listen again after its return.
        self._connection.is_listening = True
        with self._until_over():
            await self._connection.ask(ListenOp())
        # A failed reconnect has ended the stream; this connection works again.
        if not self._is_over:
            self._mail.waiting.reopen()
        async for message in self._mail.waiting:
            yield message

    def on(self, type: str) -> Callable[[H], H]:
        """Return a decorator that adds a handler for the envelopes of a type; `*` is for all types."""
        return self._handlers.on(type)

    async def handle(self) -> None:
        """Call the handlers with each envelope that arrives, until the block ends or this is cancelled.

        Each call is a task. The envelope is acknowledged when its handlers have returned. If one raises, the
        error is logged, and the envelope stays unread: only the next connection gets it again.
        Takes the same messages as `messages()`.
        """
        joined = self._connection.joined
        async with AsyncExitStack() as stack:
            messages = await stack.enter_async_context(aclosing(self.messages()))
            announced = None
            if types := self._handlers.announcements:
                announced = await stack.enter_async_context(aclosing(self.follow(types=types)))
            await self._handlers.run(joined.name, joined.role, messages, announced)

    @contextmanager
    def _until_over(self) -> Iterator[None]:
        """Ignore `Disconnected` after the block has ended: a reader that starts late ends like the others."""
        try:
            yield
        except Disconnected:
            if not self._is_over:
                raise

    # Paths

    async def route(
        self,
        path: str,
        command: str = DEFAULT_COMMAND,
        payload: object = None,
        source: str = INTERNAL,
        external_id: str | None = None,
        *,
        id: str = "",
    ) -> RouteResult:
        """Send a command with a payload, any JSON value, to all subscribers of a path. Durable on return.

        Without a subscriber it is stored as a dead letter, which is not an error. A repeated `id` is stored
        once.
        """
        request = RouteOp(
            path=path,
            command=command,
            payload=payload,
            source=source,
            external_id=external_id or "",
            id=id or self._ids.next(),
        )
        return route_result_from_json(await self._connection.ask(request))

    async def broadcast(
        self,
        command: str = DEFAULT_COMMAND,
        payload: object = None,
        source: str = INTERNAL,
        external_id: str | None = None,
        *,
        id: str = "",
    ) -> RouteResult:
        """Route to the paths of all agents: `agent/**`. You and your sessions do not get it."""
        return await self.route(BROADCAST_PATH, command, payload, source, external_id, id=id)

    async def subscribe(self, pattern: str, *, session: str = "") -> SubscriptionResult:
        """Subscribe yourself, or one of your sessions, to a pattern of paths. A repeat changes nothing.

        A session that does not exist is created. Your own path has a subscription already. A pattern that
        reaches the path of another agent requires an operator.
        """
        request = SubscribeOp(pattern=pattern, session=session)
        return subscribed_from_json(await self._connection.ask(request))

    async def unsubscribe(self, pattern: str, *, session: str = "") -> SubscriptionResult:
        """End a subscription of `subscribe`. A missing one is not an error."""
        request = UnsubscribeOp(pattern=pattern, session=session)
        return subscribed_from_json(await self._connection.ask(request))

    async def subscriptions(self, agent: str = "", *, session: str = "") -> list[PathSubscription]:
        """Return the path subscriptions of an agent or session (yours by default), without automatic ones."""
        request = SubscriptionsOp(agent=agent, session=session)
        return subscriptions_from_json(await self._connection.ask(request))

    async def receive(
        self, *, session: str = "", limit: int = 100, since: int | None = None, until: int | None = None
    ) -> list[RoutedMessage]:
        """Take your waiting messages, or those of one of your sessions: each once, ordered as by `pal recv`.

        They count as seen when this returns: use `messages()` if each should stay unread until its `ack`.
        `limit` is at most 1,000; fewer are returned if they do not fit into one frame. `since` and `until`
        are Unix milliseconds, both included.
        """
        request = ReceiveOp(session=session, limit=limit, since=since, until=until, key=secrets.token_hex(16))
        return routed_from_json(await self._connection.ask(request))

    async def history(
        self,
        agent: str = "",
        *,
        session: str = "",
        limit: int = 100,
        since: int | None = None,
        until: int | None = None,
    ) -> list[RoutedMessage]:
        """Return the messages of an agent or session, by default yours, read and unread, the newest first."""
        request = HistoryOp(agent=agent, session=session, limit=limit, since=since, until=until)
        return routed_from_json(await self._connection.ask(request))

    async def dead_letters(
        self, *, limit: int = 100, since: int | None = None, until: int | None = None
    ) -> list[DeadLetter]:
        """Return the messages that reached no subscriber since the list was cleared, the newest first."""
        request = DeadLettersOp(limit=limit, since=since, until=until)
        return dead_letters_from_json(await self._connection.ask(request))

    async def clear_dead_letters(self) -> None:
        """Empty the list of dead letters. The messages stay in the log."""
        await self._connection.ask(ClearDeadLettersOp(key=secrets.token_hex(16)))

    async def routed(self, *, after: int | None = None) -> AsyncGenerator[Delivered, None]:
        """Yield each message that was delivered by its path, of any agent, and where it went.

        Begins after the seq `after`, or with the next one. Continues across restarts of the daemon without
        gaps or repeats, and ends with the connection. Dead letters were not delivered.
        """
        async with aclosing(self.follow(types=(MESSAGE,), after=after)) as events:
            async for event in events:
                if (delivered := delivered_of(event)) is not None:
                    yield delivered

    # Rooms

    async def call(self, tool: str, **arguments: object) -> dict[str, object]:
        """Call a tool by name, as models do: rooms, the stick, notes. Return its result.

        The call is repeated after a restart of the daemon and executed once. A relative path starts at the
        current directory of this process.
        """
        request = ToolOp(tool=tool, arguments=arguments, cwd=str(Path.cwd()), key=secrets.token_hex(16))
        return fields_from_json(await self._connection.ask(request))

    # Reading

    async def agents(self) -> list[AgentInfo]:
        """Return all known agents, present ones first."""
        return agents_from_json(await self._connection.ask(ListOp()))

    async def receipts(self, message: int | str) -> list[Delivery]:
        """Return the receipts of a message: one per recipient, in the order of sending."""
        return ledger_from_json(await self._connection.ask(ReceiptsOp(message=str(message))))

    async def events(
        self,
        *,
        types: Sequence[str] = (),
        agents: Sequence[str] = (),
        senders: Sequence[str] = (),
        threads: Sequence[str] = (),
        rooms: Sequence[str] = (),
        after: int = 0,
        last: int | None = None,
        search: str = "",
        limit: int = 1000,
    ) -> list[Event]:
        """Read at most `limit` events (10,000): the first ones after `after`, or the `last` ones.

        Values of one filter are combined with or, different filters with and. Fewer events are returned if
        they do not fit into one frame: continue after the last one. Reading marks nothing as seen.
        """
        request = EventsOp(
            types=tuple(types),
            agents=tuple(agents),
            senders=tuple(senders),
            threads=tuple(threads),
            rooms=tuple(rooms),
            after=after,
            last=last,
            search=search,
            limit=limit,
        )
        events, unreadable = events_from_json(await self._connection.ask(request))
        self._unreadable += unreadable
        return events

    async def follow(
        self,
        *,
        types: Sequence[str] = (),
        agents: Sequence[str] = (),
        senders: Sequence[str] = (),
        threads: Sequence[str] = (),
        rooms: Sequence[str] = (),
        after: int | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield events as they arrive, after the seq `after`, or from now on.

        Continues across restarts of the daemon without gaps or repeats, and ends with the connection.
        """
        # Asked once here and not by the follower, so that "from now on" is the same after a reconnect.
        if after is None:
            with self._until_over():
                after = last_from_json(await self._connection.ask(EventsOp(last=1)))
        if self._is_over:
            return
        request = EventsOp(
            types=tuple(types),
            agents=tuple(agents),
            senders=tuple(senders),
            threads=tuple(threads),
            rooms=tuple(rooms),
            after=after or 0,
            follow=True,
        )
        follower = Follower(self._home, request, self._skip)
        self._followers.add(follower)
        try:
            async with aclosing(follower.events()) as events:
                async for event in events:
                    yield event
        finally:
            self._followers.discard(follower)


def connect(
    name: str = "",
    *,
    tag: str = "",
    role: str = "worker",
    harness: str = "",
    home: str | os.PathLike[str] | None = None,
) -> Connection:
    """Join the bus for the length of an `async with` block; without a name, a free one is assigned.

    The daemon of the home (by default `$PALAVER_HOME` or `~/.palaver`) is started if it does not run. Raises
    `NameTaken` or another `RequestError` if the name is not available, `Disconnected` if there is no daemon.
    """
    join = JoinOp(
        name=name,
        tag=tag,
        role=role,
        harness=harness,
        runtime="python",
        version=__version__,
        # A new connection after a loss proves with it that the name is still its own.
        secret=secrets.token_hex(16),
    )
    return Connection(default_home() if home is None else str(Path(home).absolute()), join)
