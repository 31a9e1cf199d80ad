"""The SDK: one name on the bus for the length of a block.

    async with palaver.connect(name="luna") as me:
        await me.send("@nova", "can you review this?", intent="request")
        async for message in me.messages():
            await message.ack()

The connection is restored when the daemon restarts: with the same name, the unread messages, and every open
request repeated with its id, so that nothing is sent twice and nothing is missed. A refusal of the daemon is
raised as its class in `palaver.errors`.
"""

import os
import secrets
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from palaver import __version__
from palaver.client.agent import Agent
from palaver.client.answer import (
    agents_from_json,
    events_from_json,
    fields_from_json,
    last_from_json,
    ledger_from_json,
    receipt_from_json,
)
from palaver.client.follower import Follower
from palaver.client.lifeline import Lifeline
from palaver.client.mail import Mail
from palaver.client.message import Message
from palaver.client.receipt import Delivery, Receipt
from palaver.client.wire import Line, default_home
from palaver.clock import SystemClock
from palaver.errors import Disconnected, PalaverError
from palaver.model.envelope import Envelope, Event
from palaver.model.ids import UlidSource
from palaver.model.lines.program_ops import (
    EventsOp,
    JoinOp,
    ListenOp,
    ListOp,
    PutOp,
    ReceiptsOp,
    SendOp,
    StatusOp,
    ToolOp,
)


class Connection:
    """One name on the bus.

    Created by `connect`; belongs to one event loop and may be used by many tasks in it.
    """

    def __init__(self, home: str, join: JoinOp) -> None:
        self._home = home
        self._lifeline = Lifeline(home, join, self._on_push, self._on_broken)
        self._mail = Mail(self._lifeline.ask, self.send)
        self._ids = UlidSource(SystemClock(), os.urandom)
        self._followers: set[Follower] = set()
        self._is_over = False
        self._unreadable = 0

    @property
    def unreadable(self) -> int:
        """Number of events that `events()` and `follow()` skipped because they were unreadable."""
        return self._unreadable

    @property
    def name(self) -> str:
        """The full name on the bus; empty until connected."""
        return self._lifeline.joined.name

    @property
    def device(self) -> str:
        """The id of this machine on the bus."""
        return self._lifeline.joined.device

    async def __aenter__(self) -> Self:
        await self._lifeline.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        try:
            await self._lifeline.close()
        finally:
            self._mail.waiting.end()
            for follower in self._followers:
                follower.close()

    def _on_push(self, line: Line) -> None:
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
        """Send a text to one or several addresses; an empty list is a broadcast. Durable on return.

        With `mentions`, `@names` in the text are recipients too. Concurrent calls get their seqs in the order
        of the calls. A repeated `id` is stored once.
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
        return receipt_from_json(await self._lifeline.ask(request))

    async def put(self, envelope: Envelope) -> Receipt:
        """Store an envelope of a custom type; its sender must be your name. A repeated id is stored once."""
        return receipt_from_json(
            await self._lifeline.ask(PutOp(envelope=msgspec.Raw(envelope.to_json().encode())))
        )

    async def set_status(self, state: str, detail: str = "", *, tool: str = "", file: str = "") -> None:
        """Set your status: starting, active, idle or blocked; optionally with the current tool and file."""
        await self._lifeline.ask(StatusOp(state=state, detail=detail, tool=tool, file=file))

    # Receiving

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Yield your messages as they arrive, unread ones first. Each stays unread until its `ack`.

        A message is never yielded twice by one connection, whatever happens to the daemon. From the first use
        on, messages are pushed to this connection until it ends; several readers share them.
        """
        self._lifeline.is_listening = True
        with self._until_over():
            await self._lifeline.ask(ListenOp())
        if not self._is_over:
            self._mail.waiting.reopen()
        async for message in self._mail.waiting:
            yield message

    @contextmanager
    def _until_over(self) -> Iterator[None]:
        """Ignore `Disconnected` after the block has ended: a reader that starts late ends like the others."""
        try:
            yield
        except Disconnected:
            if not self._is_over:
                raise

    # Rooms

    async def call(self, tool: str, **arguments: object) -> dict[str, object]:
        """Call a tool by name, as models do: rooms, the stick, notes. Return its result.

        The call is repeated after a restart of the daemon and executed once. A relative path starts at the
        current directory of this process.
        """
        request = ToolOp(tool=tool, arguments=arguments, cwd=str(Path.cwd()), key=secrets.token_hex(16))
        return fields_from_json(await self._lifeline.ask(request))

    # Reading

    async def agents(self) -> list[Agent]:
        """Return all known agents, present ones first."""
        return agents_from_json(await self._lifeline.ask(ListOp()))

    async def receipts(self, message: int | str) -> list[Delivery]:
        """Return the receipts of a message: one per recipient, in the order of sending."""
        return ledger_from_json(await self._lifeline.ask(ReceiptsOp(message=str(message))))

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
        events, unreadable = events_from_json(await self._lifeline.ask(request))
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
        if after is None:
            with self._until_over():
                after = last_from_json(await self._lifeline.ask(EventsOp(last=1)))
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
        secret=secrets.token_hex(16),
    )
    return Connection(default_home() if home is None else str(Path(home).absolute()), join)
