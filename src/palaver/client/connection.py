"""The SDK: one name on the bus, held for as long as a block runs.

    async with palaver.connect(name="luna") as me:
        await me.send("@nova", "can you review this?", intent="request")
        async for message in me.messages():
            await message.ack()

It comes back by itself when the daemon is restarted: the same name, its unread messages, every request repeated with
its own id, so that nothing is sent twice and nothing is missed.
"""

import asyncio
import os
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from palaver.client.message import Message, Receipt
from palaver.client.start import StartError, ensure_daemon, reach
from palaver.client.wire import Line, Refused, Wire
from palaver.errors import Disconnected
from palaver.model.envelope import Envelope, Event, decode_event
from palaver.model.ids import system_ulid

_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_LIMIT_REMEMBERED: Final = 10_000

_encode: Final = msgspec.json.Encoder().encode


def default_home() -> str:
    """Give the home that `pal` would use."""
    return str(Path(os.environ.get("PALAVER_HOME") or Path.home() / ".palaver").absolute())


class Connection:
    """One name on the bus. Made by `connect`; belongs to one event loop."""

    def __init__(self, name: str, *, tag: str, role: str, harness: str, home: str) -> None:
        self._asked_name = name
        self._tag = tag
        self._role = role
        self._harness = harness
        self._home = home
        self._secret = ""
        self._wire: Wire | None = None
        self._numbers = count(1)
        self._online = asyncio.Event()
        self._broken: Exception | None = None
        self._is_closing = False
        self._reconnecting: asyncio.Task[None] | None = None
        self._inbox: asyncio.Queue[Line | None] = asyncio.Queue()
        self._is_listening = False
        self._known: OrderedDict[int, bool] = OrderedDict()
        self._followers: dict[int, asyncio.Queue[Event | None]] = {}
        self.name = ""
        """The name it has on the bus, once connected."""
        self.device = ""

    # Coming and going

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        if self._wire is not None and not self._wire.is_lost:
            try:
                async with asyncio.timeout(5):
                    await self._wire.ask(next(self._numbers), {"op": "leave", "name": self.name})
            except (Refused, Disconnected, TimeoutError):
                pass  # the daemon writes the goodbye itself when nobody comes back
            self._wire.close()
        self._inbox.put_nowait(None)
        for follower in self._followers.values():
            follower.put_nowait(None)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            raw = reach(self._home)
            if raw is None:
                await asyncio.to_thread(ensure_daemon, self._home)
                raw = reach(self._home)
        except StartError as error:
            raise Disconnected(str(error)) from error
        if raw is None:
            raise Disconnected(f"nobody listens in {self._home}")
        plain = socket.socket(fileno=raw.detach())
        plain.setblocking(False)
        _, wire = await loop.create_unix_connection(lambda: Wire(self._on_push, self._on_lost), sock=plain)
        join = {
            "op": "join",
            "name": self.name or self._asked_name,
            "tag": "" if self.name else self._tag,
            "role": self._role,
            "harness": self._harness,
            "secret": self._secret,
        }
        joined = await wire.ask(next(self._numbers), join)
        self.name, self._secret, self.device = joined["name"], joined["secret"], joined["device"]
        if self._is_listening:
            await wire.ask(next(self._numbers), {"op": "listen", "name": self.name})
        self._wire = wire
        self._online.set()

    def _on_lost(self) -> None:
        self._online.clear()
        self._wire = None
        if not self._is_closing and (self._reconnecting is None or self._reconnecting.done()):
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Come back, for as long as there is a chance; a refusal ends it, and every call then says why."""
        attempt = 0
        while not self._online.is_set():
            try:
                await self._connect()
            except Disconnected as error:
                if "pal down" in str(error):
                    self._give_up(error)
                    return
                await asyncio.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
                attempt += 1
            except Refused as error:
                self._give_up(error)
                return

    def _give_up(self, error: Exception) -> None:
        self._broken = error
        self._online.set()
        self._inbox.put_nowait(None)

    async def _ask(self, request: Line) -> Any:
        """Ask until it is answered, across restarts of the daemon. Requests are safe to repeat: they carry ids."""
        while True:
            await self._online.wait()
            if self._broken is not None:
                raise self._broken
            wire = self._wire
            if wire is None:
                self._online.clear()
                continue
            try:
                return await wire.ask(next(self._numbers), {**request, "name": self.name})
            except Disconnected:
                if self._is_closing:
                    raise

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
        mentions: bool = False,
        yes: bool = False,
    ) -> Receipt:
        """Send a text to one address or several; an empty list is a broadcast. Durable on return.

        With `mentions`, `@names` in the text are recipients too.
        """
        request: Line = {"op": "send", "text": text, "to": [to] if isinstance(to, str) else list(to)}
        optional = {
            "intent": intent,
            "thread": thread,
            "reply_to": str(reply_to),
            "priority": priority,
            "expires_ms": expires_ms,
            "mentions": mentions,
            "yes": yes,
        }
        request |= {key: value for key, value in optional.items() if value}
        request["id"] = id or system_ulid()
        return _receipt(await self._ask(request))

    async def put(self, envelope: Envelope) -> Receipt:
        """Store an envelope of your own type; its sender must be your name."""
        return _receipt(await self._ask({"op": "put", "envelope": msgspec.Raw(envelope.to_json().encode())}))

    async def set_status(self, state: str, detail: str = "") -> None:
        """Say what you are doing: starting, active, idle or blocked."""
        await self._ask({"op": "status", "state": state, "detail": detail})

    # Taking

    async def messages(self) -> AsyncIterator[Message]:
        """Give your messages as they come, the unread ones first. Each stays unread until its `ack`.

        One that you have been given is not given again by this connection, whatever happens to the daemon.
        """
        if not self._is_listening:
            self._is_listening = True
            await self._ask({"op": "listen"})
        while (line := await self._inbox.get()) is not None:
            yield self._message(line)
        if self._broken is not None:
            raise self._broken

    def _message(self, fields: Line) -> Message:
        return Message(
            seq=fields["seq"],
            id=fields["id"],
            ts=fields["ts"],
            sender=fields["from"],
            text=fields["text"],
            intent=fields.get("intent"),
            thread=fields.get("thread"),
            reply_to=fields.get("reply_to"),
            fields=fields,
            acknowledge=self._ack,
            answer=self.send,
        )

    async def _ack(self, seq: int) -> None:
        self._known[seq] = True
        await self._ask({"op": "ack", "messages": [seq]})

    def _on_push(self, line: Line) -> None:
        if line["push"] == "message":
            self._on_message(line["message"])
        elif line["push"] == "event" and (follower := self._followers.get(line["req"])) is not None:
            follower.put_nowait(decode_event(_encode(line["event"])))

    def _on_message(self, fields: Line) -> None:
        """Drop repeats by place: one in hand waits for its ack, one acknowledged lost its ack on the way."""
        seq = fields["seq"]
        if seq not in self._known:
            self._known[seq] = False
            while len(self._known) > _LIMIT_REMEMBERED:
                self._known.popitem(last=False)
            self._inbox.put_nowait(fields)
        elif self._known[seq]:
            task = asyncio.get_running_loop().create_task(self._ack(seq))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    # Reading

    async def agents(self) -> list[Line]:
        """Give everybody the bus knows."""
        found: list[Line] = (await self._ask({"op": "list"}))["agents"]
        return found

    async def receipts(self, message: int | str) -> Line:
        """Give the ledger of one message."""
        found: Line = await self._ask({"op": "receipts", "message": str(message)})
        return found

    async def events(
        self,
        *,
        types: Sequence[str] = (),
        agents: Sequence[str] = (),
        after: int = 0,
        last: int | None = None,
        search: str = "",
    ) -> list[Event]:
        """Read the log. Reading marks nothing."""
        request: Line = {"op": "events", "types": list(types), "agents": list(agents), "after": after}
        if last is not None:
            request["last"] = last
        if search:
            request["search"] = search
        found = await self._ask(request)
        return [decode_event(_encode(event)) for event in found["events"]]

    async def follow(
        self, *, types: Sequence[str] = (), agents: Sequence[str] = (), after: int | None = None
    ) -> AsyncIterator[Event]:
        """Give events as they come, from behind `after` or from now on; goes on across restarts without a gap."""
        if after is None:
            after = (await self._ask({"op": "events", "last": 1}))["last"]
        while True:
            async for event in self._follow_once(types, agents, after):
                after = event.seq
                yield event
            await self._online.wait()
            if self._is_closing or self._broken is not None:
                return

    async def _follow_once(
        self, types: Sequence[str], agents: Sequence[str], after: int
    ) -> AsyncIterator[Event]:
        await self._online.wait()
        wire = self._wire
        if wire is None:
            return
        number = next(self._numbers)
        queue = self._followers[number] = asyncio.Queue()
        request = {"op": "events", "types": list(types), "agents": list(agents), "after": after, "follow": True}
        try:
            await wire.ask(number, request)
            wire.on_end(lambda: queue.put_nowait(None))
            while (event := await queue.get()) is not None:
                yield event
        except Disconnected:
            return
        finally:
            del self._followers[number]


def connect(
    name: str = "",
    *,
    tag: str = "",
    role: str = "worker",
    harness: str = "",
    home: str | None = None,
) -> Connection:
    """Take a name on the bus for the length of an `async with` block; without one, a free name is given."""
    return Connection(name, tag=tag, role=role, harness=harness, home=home or default_home())


def _receipt(answer: Line) -> Receipt:
    return Receipt(
        seq=answer["seq"],
        id=answer["id"],
        to=tuple(answer["to"]),
        delivered_to=tuple(answer["delivered_to"]),
        empty_groups=tuple(answer.get("empty_groups", ())),
        dead=tuple(answer.get("dead", ())),
        is_repeat=answer.get("repeat", False),
    )
