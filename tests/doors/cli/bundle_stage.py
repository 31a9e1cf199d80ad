"""A test stage for the bundle commands: real broker handlers, and a client that reads files itself."""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.fakes import FakeClock, nowhere

from palaver.broker import bundles, messages
from palaver.broker.context import Context, Outcome
from palaver.domain.routing import Directory
from palaver.doors.cli import bundles as commands_bundle
from palaver.doors.cli.bundles import BUNDLE_COMMANDS, SEND_OPTIONS
from palaver.doors.cli.call import Call
from palaver.doors.cli.run import Handler
from palaver.doors.cli.spec import Command, Option, Positional, Table, build_table, parse
from palaver.doors.thin import ArgvConnection, Run
from palaver.identity.process import Peer
from palaver.ids import UlidSource
from palaver.log.memory import MemoryLog
from palaver.protocol.agents import Agent, Caller, Standing
from palaver.protocol.bundles import CreateBundle
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.requests import Send
from palaver.protocol.thin import FrameReader, ThinRequest, frame
from palaver.services.agents import TranscriptBook
from palaver.services.queries import Queries
from palaver.services.services import Services
from palaver.state.references import made_bundle
from palaver.state.rows import Change, Rows

LUNA = Caller(name="luna", standing=Standing.WORKER, kind="instance")
HUMAN = Caller(name="human", standing=Standing.HUMAN, kind="human")

_SEND = Command(
    path=("send",),
    summary="Send.",
    positionals=(Positional(name="TARGET", help="Who.", many=True),),
    options=(Option(name="--dry-run", help="Only look."), *SEND_OPTIONS),
    exclusive=(("--bundle", "--title"),),
)
TABLE: Table = build_table(Command(path=(), summary="x", is_group=True), (*BUNDLE_COMMANDS, _SEND))

_keys = count(1)


def fold(rows: Rows, event: Event) -> Sequence[Change]:
    return made_bundle(rows, event) if event.type == "bundle" else []


class Client(asyncio.Transport):
    """The other end of the wire: it reads files with its own rights and confirms every output."""

    def __init__(self, connection: ArgvConnection, read: list[str]) -> None:
        """Record in `read` every path that the daemon asks for."""
        super().__init__()
        self._connection = connection
        self._reader = FrameReader()
        self.out = b""
        self.err = b""
        self.verb: list[bytes] = []
        """The command that it was asked to run in its own process."""
        self._read = read

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for kind, payload in self._reader.feed(bytes(data)):
            if kind == b"O":
                number, size = struct.unpack_from(">IH", payload)
                self.out += payload[6 + size :]
                self._connection.data_received(frame(b"A", struct.pack(">I", number)))
            elif kind == b"E":
                self.err += payload
            elif kind == b"V":
                self.verb = payload.split(b"\0")
            elif kind == b"Q":
                assert payload == b"\0"
            else:
                self._send_file(int.from_bytes(payload[:4], "big"), payload[4:].decode())

    def _send_file(self, limit_bytes: int, path: str) -> None:
        self._read.append(path)
        try:
            content = Path(path).read_bytes()[: limit_bytes + 1]
        except OSError as error:
            self._connection.data_received(frame(b"X", f"{error.errno} {error.strerror}".encode()))
        else:
            self._connection.data_received(frame(b"D", content) + frame(b"Z"))


@dataclass(frozen=True, slots=True)
class HandlersOnly:
    """The part of the broker that the commands need."""

    context: Context

    @property
    def directory(self) -> Directory:
        return self.context.directory

    async def submit(self, caller: Caller, request: object, *, key: bytes | None = None) -> Outcome:
        if isinstance(request, CreateBundle):
            return await bundles.create(self.context, caller, request, key)
        assert isinstance(request, Send)
        return await messages.send(self.context, caller, request, key)


@dataclass(frozen=True, slots=True)
class Parts:
    """The services that the commands need."""

    queries: Queries
    broker: HandlersOnly
    clock: FakeClock
    agents: SimpleNamespace
    callers: SimpleNamespace


class EverybodyPresent:
    """Presence for commands: every agent is present."""

    def is_present(self, name: str) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The output of a command."""

    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


@dataclass(slots=True)
class Stage:
    """One bus with luna and nova on it, and the directory that commands run in."""

    cwd: Path
    caller: Caller = LUNA
    is_terminal: bool = False
    environment: dict[str, str] = field(default_factory=lambda: {"TZ": "UTC", "NO_COLOR": "1"})
    transcripts: TranscriptBook = field(default_factory=TranscriptBook)
    read: list[str] = field(default_factory=list)
    """The paths that clients were asked to read."""
    log: MemoryLog = field(default_factory=lambda: MemoryLog(apply=fold))
    clock: FakeClock = field(default_factory=FakeClock)
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        directory = Directory()
        for name in ("luna", "nova"):
            directory.put(Agent(name=name, base=name))
        self.context = Context(
            log=self.log,
            directory=directory,
            clock=self.clock,
            ids=UlidSource(self.clock, bytes),
            is_present=lambda name: True,
            draw=lambda: 0,
        )

    async def run(self, *words: str) -> Answer:
        """Run `pal bundle ...` as the door does."""
        call, client = self.call("bundle", *words)
        status = await _HANDLERS[words[0]](call)
        assert status == 0
        call.connection.exit(status)
        return Answer(out=client.out, err=client.err.decode())

    def call(self, *words: str, key: bytes | None = None) -> tuple[Call, Client]:
        """Return the call that a command gets, and the client that made it."""
        # Nothing runs on the connection, so its peer is never looked up.
        connection = ArgvConnection(cast(Peer, None), cast(Run, None), asyncio.TaskGroup(), lambda one: None)
        client = Client(connection, self.read)
        connection.attach(client, b"")
        asked = ThinRequest(
            key=key or next(_keys).to_bytes(16, "big"),
            version="0",
            argv=words,
            cwd=str(self.cwd),
            environment=self.environment,
            stdin_is_terminal=False,
            stdout_is_terminal=self.is_terminal,
            stderr_is_terminal=False,
            width=80,
        )
        services = Parts(
            Queries(self.log),
            HandlersOnly(self.context),
            self.clock,
            SimpleNamespace(transcripts=self.transcripts),
            SimpleNamespace(presence=EverybodyPresent()),
        )
        call = Call(
            services=cast(Services, services),
            connection=connection,
            asked=asked,
            parsed=parse(TABLE, words),
            anchor_of=nowhere,
            caller=self.caller,
            table=TABLE,
        )
        return call, client

    async def event(self, text: str = "hello") -> Event:
        """Store a message in the log and return its event."""
        draft = Draft(
            type="message",
            sender="nova",
            to=("@luna",),
            payload={"text": text},
            id=f"M{self.log.last()}",
            ts=0,
        )
        commit = await self.log.commit(None, lambda rows: draft)
        assert commit.event is not None
        return commit.event


_HANDLERS: dict[str, Handler] = {
    "create": commands_bundle.create,
    "show": commands_bundle.show,
    "list": commands_bundle.list_bundles,
    "cat": commands_bundle.cat,
}
