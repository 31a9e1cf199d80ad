"""The SDK: one name on the bus, held for as long as a block runs.

    async with palaver.connect(name="luna") as me:
        await me.send("@nova", "can you review this?", intent="request")
        async for message in me.messages():
            await message.ack()

It comes back by itself when the daemon is restarted: the same name, its unread messages, every request
repeated with its own id, so that nothing is sent twice and nothing is missed. What the daemon refuses is
raised as the class of `palaver.errors` that it is.
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
    """One name on the bus. Made by `connect`; belongs to one event loop, and there to any number of tasks."""

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
        """How many events `events()` and `follow()` have skipped because they could not be read."""
        return self._unreadable

    @property
    def name(self) -> str:
        """The full name it has on the bus; empty until it is connected."""
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
        """Send a text to one address or several; an empty list is a broadcast. Durable on return.

        With `mentions`, `@names` in the text are recipients too. Calls that run at once get their places in
        the order in which they were made. The same `id` again is stored once.
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
        """Store an envelope of your own type; its sender must be your name. The same id again is once."""
        return receipt_from_json(
            await self._lifeline.ask(PutOp(envelope=msgspec.Raw(envelope.to_json().encode())))
        )

    async def set_status(self, state: str, detail: str = "", *, tool: str = "", file: str = "") -> None:
        """Say what you are doing: starting, active, idle or blocked; with what tool, and in which file."""
        await self._lifeline.ask(StatusOp(state=state, detail=detail, tool=tool, file=file))

    # Taking

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Give your messages as they come, the unread ones first. Each stays unread until its `ack`.

        One that you have been given is not given again by this connection, whatever happens to the daemon.
        From the first use on mail is handed to this connection until it ends; several readers share it.
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
        """Let those end quietly who only begin to read when the block has ended: the others do, too."""
        try:
            yield
        except Disconnected:
            if not self._is_over:
                raise

    # Rooms

    async def call(self, tool: str, **arguments: object) -> dict[str, object]:
        """Call one of the tools that models call: rooms, the stick, notes. Gives its answer.

        Asked again after a restart of the daemon, and done once. A relative path begins where this runs.
        """
        request = ToolOp(tool=tool, arguments=arguments, cwd=str(Path.cwd()), key=secrets.token_hex(16))
        return fields_from_json(await self._lifeline.ask(request))

    # Reading

    async def agents(self) -> list[Agent]:
        """Give everybody the bus knows, those present first."""
        return agents_from_json(await self._lifeline.ask(ListOp()))

    async def receipts(self, message: int | str) -> list[Delivery]:
        """Give the ledger of one message: a line for each recipient, in the order of sending."""
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
        """Read the log: at most `limit` events (10,000), the first behind `after` or the `last` so many.

        The same filter twice is or, different filters are and. Of events that fill more than one frame fewer
        come: read on behind the last of them. Reading marks nothing.
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
        """Give events as they come, from behind `after`, or from now on.

        Goes on across restarts of the daemon without a gap or a repeat, and ends with the connection.
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
    """Take a name on the bus for the length of an `async with` block; without one, a free name is given.

    The daemon of the home (by default `$PALAVER_HOME` or `~/.palaver`) is started when nobody listens. Raises
    `NameTaken` or another `RequestError` when the name cannot be had, `Disconnected` when there is no daemon.
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
