"""An open IRC door at a free port, on a bus without other doors, and clients of it.

The clock and the timers of connections move only when the test advances them.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from tests.doors.parts import Parts, SlowFollowers
from tests.fakes import Bus, FakeClock, Ring, open_memory, opened_bus
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.config import KEYS, LiveSettings, LoadedSettings, Settings
from palaver.doors.irc.connection import IrcLimits
from palaver.doors.irc.irc_wire import LIMIT_TAGS_BYTES, Line, parse_line
from palaver.doors.irc.server import IrcDoor
from palaver.identity.accounts import Accounts, TokenBook
from palaver.protocol.agents import Agent, Caller, Standing
from palaver.protocol.message import HUMAN
from palaver.protocol.requests import Gone

PERSON = Caller(name=HUMAN, standing=Standing.HUMAN, kind=HUMAN)
MANY_LINES = IrcLimits(lines_at_once=100_000)
"""Limits for tests that are not about floods: the clock of the stage does not move."""


class Timers:
    """Timers that fire when the test advances the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._rings: list[Ring] = []
        self._started = asyncio.Condition()

    def call_later(self, seconds: float, call: Callable[[], None]) -> Ring:
        ring = Ring(self._clock.monotonic_s() + seconds, call)
        self._rings.append(ring)
        return ring

    @property
    def open(self) -> list[float]:
        """When the timers that were not cancelled fire."""
        return sorted(ring.moment_s for ring in self._rings if not ring.is_over)

    def advance(self, seconds: float) -> None:
        """Advance the clock, and call what is due, in order."""
        self._clock.advance(seconds)
        now_s = self._clock.monotonic_s()
        while due := [ring for ring in self._rings if not ring.is_over and ring.moment_s <= now_s]:
            first = min(due, key=lambda ring: ring.moment_s)
            first.is_over = True
            first.ring()


class IrcClient:
    """One connection to the door, line by line."""

    _tokens = count(1)

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    def send(self, *lines: str) -> None:
        """Send lines."""
        self.write("".join(f"{line}\r\n" for line in lines).encode())

    async def next(self) -> Line:
        """Return the next line. Raises EOFError at the end of the connection."""
        async with asyncio.timeout(LIMIT_S):
            data = await self.reader.readline()
        if not data:
            raise EOFError
        assert data.endswith(b"\r\n"), data
        return parse_line(data, limit_tags_bytes=LIMIT_TAGS_BYTES)

    async def until(self, *commands: str) -> list[Line]:
        """Return the lines up to one with one of these commands."""
        lines = [await self.next()]
        while lines[-1].command not in commands:
            lines.append(await self.next())
        return lines

    async def until_params(self, command: str, last: str) -> list[Line]:
        """Return the lines up to one with this command and this last parameter."""
        lines = [await self.next()]
        while (lines[-1].command, lines[-1].params[-1]) != (command, last):
            lines.append(await self.next())
        return lines

    async def ask(self, *lines: str) -> list[Line]:
        """Send lines, and return everything that comes until the client is in step with the server."""
        token = f"token-{next(self._tokens)}"
        self.send(*lines, f"PING {token}")
        found: list[Line] = []
        while not found or found[-1].command != "PONG" or found[-1].params[-1] != token:
            found.append(await self.next())
        return found[:-1]

    async def rest(self) -> list[Line]:
        """Return everything up to the end of the connection."""
        found: list[Line] = []
        with suppress(EOFError):
            while True:
                found.append(await self.next())
        return found

    async def register(self, nick: str, *caps: str, user: str = "") -> list[Line]:
        """Register as a guest, with capabilities. Return the lines up to the end of the greeting."""
        if caps:
            self.send("CAP LS 302", f"CAP REQ :{' '.join(caps)}")
        self.send(f"NICK {nick}", f"USER {user or nick} 0 * :{nick} of the test")
        if caps:
            self.send("CAP END")
        return await self.until("376", "433", "464", "ERROR")

    async def log_in(self, name: str, secret: str, *caps: str, nick: str = "") -> list[Line]:
        """Register with SASL PLAIN. Return the lines up to the end of the greeting."""
        self.send("CAP LS 302", f"CAP REQ :{' '.join(('sasl', *caps))}", "AUTHENTICATE PLAIN")
        self.send(
            f"AUTHENTICATE {plain(name, secret)}", f"NICK {nick or name}", f"USER {nick or name} 0 * :x"
        )
        self.send("CAP END")
        return await self.until("376", "433", "464", "ERROR")

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


def plain(name: str, secret: str, authzid: str = "") -> str:
    """Return the response of SASL PLAIN."""
    return base64.b64encode(f"{authzid}\0{name}\0{secret}".encode()).decode()


def shown(lines: list[Line]) -> list[tuple[str, ...]]:
    """Return the commands and parameters of lines."""
    return [(line.command, *line.params) for line in lines]


def commands(lines: list[Line]) -> list[str]:
    return [line.command for line in lines]


class IrcStage(Parts):
    """The bus, the accounts and the door."""

    version = "1.2.3"
    started_ms = 1_000_000

    def __init__(self, bus: Bus, tasks: asyncio.TaskGroup, home: Path, limits: IrcLimits) -> None:
        self.configured = Settings(irc="127.0.0.1:0", irc_guests="talk")
        super().__init__(bus, tasks, self.configured, home)
        self.settings = LiveSettings(
            LoadedSettings(settings=self.configured, origins=dict.fromkeys(KEYS, "default"))
        )
        self.tokens = TokenBook(home, bus.clock)
        self.accounts = Accounts(
            tokens=self.tokens,
            directory=bus.broker.directory,
            presence=self.presence,
            submit=bus.broker.submit,
            gone=lambda name, reason: bus.broker.submit(SYSTEM_CALLER, Gone(name=name, reason=reason)),
            live=self.settings,
            clock=bus.clock,
        )
        self.metrics = SlowFollowers()
        self.timers = Timers(bus.clock)
        self.door = IrcDoor(tasks, limits=limits, call_later=self.timers.call_later)
        self._clients: list[IrcClient] = []

    def change(self, **settings: str) -> None:
        """Change settings as a person does."""
        self.configured = replace(self.configured, **settings)  # type: ignore[arg-type]  # texts only
        self.settings.take(self.configured, set(settings))

    async def open(self) -> None:
        """Open the door again, with the configured settings."""
        await self.door.open(self.services, self.configured)

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.door.where)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    async def connect(self, tls: ssl.SSLContext | None = None) -> IrcClient:
        """Return a new connection."""
        host, port = self.address
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname="localhost" if tls else None, limit=2**22
        )
        self._clients.append(IrcClient(reader, writer))
        return self._clients[-1]

    async def guest(self, nick: str, *caps: str) -> IrcClient:
        """Return a guest that has registered."""
        client = await self.connect()
        assert (await client.register(nick, *caps))[-1].command == "376"
        return client

    async def token(self, name: str, role: str = "worker") -> str:
        """Register an agent, and return its token."""
        secret, _ = await self.accounts.register(PERSON, name, role)
        return secret

    async def program(self, name: str, *caps: str, role: str = "worker") -> IrcClient:
        """Return a client that has logged in with the token of a new agent."""
        client = await self.connect()
        assert (await client.log_in(name, await self.token(name, role), *caps))[-1].command == "376"
        return client

    async def agent(self, name: str, **fields: str) -> Agent:
        """Return an agent that is on the bus without an IRC client."""
        await self.bus.join(name, **fields)  # type: ignore[arg-type]  # texts only
        return self.bus.agent(name)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.door.close()


@asynccontextmanager
async def opened_irc(
    directory: Path, limits: IrcLimits = MANY_LINES, group: type[asyncio.TaskGroup] = asyncio.TaskGroup
) -> AsyncIterator[IrcStage]:
    """Open an IRC door. Everything ends with the block. `group` is the class of its tasks."""
    async with opened_bus(open_memory, directory) as bus, group() as tasks:
        stage = IrcStage(bus, tasks, directory, limits)
        await stage.open()
        assert stage.door.where, stage.door.trouble
        try:
            yield stage
        finally:
            await stage.close()
