"""A bus with clients of the IRC door that need no socket: what they get is recorded as parsed lines."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from tests.fakes import Bus, FakeClock, OpenLog, Ring, open_memory, opened_bus
from tests.limits import LIMIT_S

from palaver.doors.irc.channels import Hub
from palaver.doors.irc.connection import Client, IrcLimits, Unit
from palaver.doors.irc.irc_wire import Line, format_line, parse_line
from palaver.doors.irc.showing import Shown
from palaver.doors.irc.speaking import speak
from palaver.identity.accounts import Account, Token
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query
from palaver.protocol.requests import Send
from palaver.services.paths import PathService
from palaver.services.queries import Queries
from palaver.services.services import Services

ALL_CAPS = frozenset(
    {
        "message-tags",
        "server-time",
        "batch",
        "labeled-response",
        "echo-message",
        "account-tag",
        "draft/multiline",
        "draft/chathistory",
        "standard-replies",
    }
)


def token(name: str) -> Token:
    """Return a token of an agent or a registered person."""
    return Token(id=f"t-{name}", name=name, standing="worker", by="human", ts=0, hash=name)


class Recorded(Client):
    """A client whose lines are formatted, parsed again and kept."""

    def __init__(self, id: str, clock: FakeClock, news: asyncio.Event) -> None:
        super().__init__(
            id=id,
            clock=clock,
            call_later=cast("Any", Ring),
            limits=IrcLimits(),
            is_local=True,
        )
        self.lines: list[Line] = []
        self.news = news

    def _write(self, unit: Unit) -> None:
        for line in unit:
            data = format_line(self._for_client(line))
            assert data.count(b"\r\n") == 1
            assert data.endswith(b"\r\n")
            self.lines.append(parse_line(data, limit_tags_bytes=8191))
        self.news.set()

    def of(self, *commands: str) -> list[Line]:
        """Return the recorded lines with one of these commands."""
        return [line for line in self.lines if line.command in commands]

    @property
    def said(self) -> list[tuple[str, str]]:
        """The target and the text of each PRIVMSG."""
        return [(line.params[0], line.params[1]) for line in self.of("PRIVMSG")]

    @property
    def told(self) -> list[str]:
        """The texts of all notices."""
        return [line.params[-1] for line in self.of("NOTICE")]

    @property
    def failed(self) -> list[tuple[str, ...]]:
        """The parameters of each FAIL, without its sentence."""
        return [line.params[:-1] for line in self.of("FAIL")]

    @property
    def codes(self) -> list[str]:
        """The numerics."""
        return [line.command for line in self.lines if line.command.isdigit()]

    def pong(self) -> None:
        """Answer every PING."""
        for line in self.of("PING"):
            self.ponged(line.params[-1])


class Stage:
    """The bus, the hub, and what shows its events."""

    def __init__(self, bus: Bus, tasks: asyncio.TaskGroup) -> None:
        self.bus = bus
        self.log = bus.log
        self.broker = bus.broker
        self.delivery = bus.delivery
        self.queries = Queries(bus.log)
        self.paths = PathService(bus.broker, self.queries, bus.delivery)
        self.clock = bus.clock
        self.started_ms = bus.clock.now_ms()
        self.daemon = self
        self.news = asyncio.Event()
        self.level = ""
        self.hub = Hub(cast("Services", self))
        self.shown = Shown(self.hub, tasks=tasks, level_of=self._level_of)
        self.hub.on_open.append(self.shown.opened)
        self.hub.on_close.append(self.shown.closed)

    def _level_of(self, channel: str) -> str:
        return self.level or self.queries.irc_level(channel)

    def add(self, nick: str, account: Account, *channels: str, caps: frozenset[str] = ALL_CAPS) -> Recorded:
        """Add a registered client that has joined channels; what that sent is forgotten."""
        client = Recorded(f"c{nick}", self.clock, self.news)
        client.nick = client.user = nick
        client.caps = caps
        client.set_account(account)
        client.has_welcome = True
        self.hub.add(client, lambda: None)
        for channel in channels:
            self.hub.join(client, channel)
        client.lines.clear()
        return client

    def person(self, *channels: str, caps: frozenset[str] = ALL_CAPS) -> Recorded:
        """Add a person with a code: the account `human` with the rights of a guest."""
        caller = Caller(name="human", standing=Standing.GUEST, kind="human")
        return self.add("human", Account(name="human", caller=caller), *channels, caps=caps)

    def guest(
        self, nick: str, *channels: str, caps: frozenset[str] = ALL_CAPS, standing: Standing = Standing.GUEST
    ) -> Recorded:
        """Add a client without credentials."""
        caller = Caller(name=f"irc/local/{nick.lower()}", standing=standing, kind="external")
        account = Account(name=nick, caller=caller, is_guest=True)
        return self.add(nick, account, *channels, caps=caps)

    def program(self, caller: Caller, *channels: str, caps: frozenset[str] = ALL_CAPS) -> Recorded:
        """Add a client with the token of an agent."""
        account = Account(name=caller.name, caller=caller, is_program=True, token=token(caller.name))
        return self.add(caller.name.replace(":", "|"), account, *channels, caps=caps)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until a line that a client gets makes this true."""
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                self.news.clear()
                await self.news.wait()

    async def until_stored(self, is_so: Callable[[], bool]) -> None:
        """Wait until an event makes this true."""
        news = asyncio.Event()
        stop = self.log.subscribe(lambda _: news.set())
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                news.clear()
                await news.wait()
        stop()

    async def speak(self, client: Client, target: str, text: str, **tags: str) -> None:
        """Let a client write a line."""
        await speak(self.hub, client, target, text, tags=tags)

    async def send(self, caller: Caller, text: str, *to: str, **options: Any) -> Event:
        """Send a message at another door."""
        sent = cast("Any", await self.broker.submit(caller, Send(text=text, to=to, **options)))
        assert isinstance(sent.event, Event)
        return sent.event

    async def messages(self) -> list[Event]:
        """Return all stored messages."""
        return await self.log.read(Query(types=("message",)))


@asynccontextmanager
async def opened_stage(directory: Path, open_log: OpenLog = open_memory) -> AsyncIterator[Stage]:
    """Yield a bus with an IRC door without sockets."""
    async with opened_bus(open_log, directory) as bus, asyncio.TaskGroup() as tasks:
        stage = Stage(bus, tasks)
        yield stage
        for client in tuple(stage.hub.clients):
            stage.hub.quit(client, "the test is over")
