"""A home with a fake daemon that speaks the holder protocol and is controlled by the test.

Holders and the programs in their terminals are real processes; all of them are ended with the stage.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from tests.limits import LIMIT_S

from palaver.holder.agent_socket import listen, socket_path
from palaver.holder.launch import Program, Start, clean_environment, run_to_the_end, start_holder
from palaver.home import connect_socket
from palaver.protocol.agent_socket import (
    DATA,
    RequestReader,
    ViewerFrameReader,
    control_to_bytes,
    data_frames,
)

PROGRAMS = Path(__file__).parent / "programs"
FIRST_MS = 1_763_200_000_000

Fields = dict[str, Any]


def script(name: str, *arguments: str) -> list[str]:
    """Return the command that runs one of the scripted programs."""
    return [sys.executable, "-I", str(PROGRAMS / f"{name}.py"), *arguments]


def _read_request(descriptor: int) -> bytes:
    """Read the pending request from a descriptor, and nothing after its last brace."""
    with socket.socket(fileno=os.dup(descriptor)) as passed:
        data = passed.recv(1 << 20, socket.MSG_PEEK)
        found = RequestReader().feed(data)
        assert found is not None
        passed.recv(len(data) - len(found[1]))
    return found[0]


class FakeDaemon:
    """Answer holders, record their requests, and push messages that the test chooses."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.name = "luna"
        self.harness = ""
        self.who: Fields = {"ok": True, "name": "human", "standing": "human", "kind": "human"}
        self.refusals: dict[str, Fields] = {}
        """The error that each operation is refused with."""
        self.silent: set[str] = set()
        """Operations that get no reply."""
        self.said: list[Fields] = []
        self.passed: list[Fields] = []
        """Requests that holders forwarded with a descriptor."""
        self._news = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self._adopter: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lanes = 0

    async def open(self) -> None:
        self._lanes = 0
        (self.home / "daemon.sock").unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self.home / "daemon.sock"))
        self._adopter = listen(self.home / "adopt.sock")
        asyncio.get_running_loop().add_reader(self._adopter, self._adopt)

    async def close(self) -> None:
        """Close like a daemon that dies: every connection breaks."""
        if self._server is None or self._adopter is None:
            return
        asyncio.get_running_loop().remove_reader(self._adopter)
        self._adopter.close()
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        for task in list(self._tasks):
            task.cancel()
        for name in ("daemon.sock", "adopt.sock"):
            (self.home / name).unlink(missing_ok=True)
        self._server = self._adopter = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                while line := await reader.readline():
                    self._hear(json.loads(line), writer)
        finally:
            self._tasks.discard(task)
            if writer in self._writers:
                self._writers.remove(writer)
            writer.transport.abort()

    def _hear(self, request: Fields, writer: asyncio.StreamWriter) -> None:
        self.said.append(request)
        self._news.set()
        if request["op"] in self.silent:
            return
        refusal = self.refusals.get(request["op"])
        answer = refusal if refusal is not None else {"ok": self._answer(request)}
        writer.write(json.dumps({"req": request["req"], **answer}).encode() + b"\n")

    def _answer(self, request: Fields) -> Fields:
        if request["op"] == "accompany":
            return {"name": self.name, "seat": "seat-mark", "harness": request["harness"]}
        if request["op"] == "hold":
            return {
                "name": self.name,
                "secret": request["secret"],
                "seat": "seat-mark",
                "harness": self.harness,
            }
        if request["op"] == "lane":
            self._lanes += 1
            return {
                "lane": self._lanes,
                **({"offer": request["carrying"][0]} if "carrying" in request else {}),
            }
        if request["op"] == "sub_begin":
            return {"name": f"{request.get('name') or self.name}_{request.get('type') or 'sub'}_1"}
        return {}

    def push(self, kind: str, **fields: object) -> None:
        """Push to the holder that connected last."""
        self.write({"push": kind, **fields})

    def write(self, line: Fields) -> None:
        """Write a line to the holder that connected last, such as a late reply."""
        self._writers[-1].write(json.dumps(line).encode() + b"\n")

    def offer(self, number: int, text: str, *, lane: int = 1, **fields: object) -> None:
        """Offer one message; its seq and id are made from the number."""
        message = {"seq": number, "id": f"01K0000000000000000000{number:04}", "ts": FIRST_MS}
        message |= {"from": "nova", "text": text, "priority": "normal", **fields}
        self.push("offer", lane=lane, offer=number, name=self.name, messages=[message])

    def _adopt(self) -> None:
        assert self._adopter is not None
        connection, _ = self._adopter.accept()
        with connection:
            line, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 4)
            request = _read_request(descriptors[0])
            asked = {**json.loads(line), "request": json.loads(request)}
            self.passed.append(asked)
            self._news.set()
            answer = {**self.who, "request": asked["request"]}
            if asked["request"]["type"] == "send":
                reply = {"ok": True, "message_id": "01KSENT", "seq": 7}
                answer = {"ok": True, "replied": True}
                os.write(descriptors[0], json.dumps(reply).encode() + b"\n")
            for descriptor in descriptors:
                os.close(descriptor)
            connection.sendall(json.dumps(answer).encode() + b"\n")

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until a condition is true; check it whenever a holder sends something."""
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    def last(self, op: str) -> Fields:
        """Return the newest request of an operation."""
        return [one for one in self.said if one["op"] == op][-1]

    async def heard(self, op: str, count: int = 1, **fields: object) -> Fields:
        """Wait for the `count`th request of an operation with these fields and return it."""

        def found() -> list[Fields]:
            return [
                one
                for one in self.said
                if one["op"] == op and all(one.get(k) == v for k, v in fields.items())
            ]

        await self.until(lambda: len(found()) >= count)
        return found()[count - 1]


class Attached:
    """A client that is attached or requests to be."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.connection.setblocking(False)
        self._frames = ViewerFrameReader()
        self._rest = b""
        self.shown = b""
        self.controls: list[Fields] = []

    async def reply(self) -> Fields:
        """Read the one line that answers a request."""
        loop = asyncio.get_running_loop()
        received = b""
        async with asyncio.timeout(LIMIT_S):
            while b"\n" not in received:
                piece = await loop.sock_recv(self.connection, 65536)
                assert piece, f"it was closed after {received!r}"
                received += piece
        line, _, self._rest = received.partition(b"\n")
        answer: Fields = json.loads(line)
        return answer

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(LIMIT_S):
            await asyncio.get_running_loop().sock_sendall(self.connection, data)

    async def press(self, keys: bytes) -> None:
        await self.send(data_frames(keys))

    async def control(self, **fields: object) -> None:
        await self.send(control_to_bytes(fields))

    async def until(self, is_so: Callable[[], object]) -> None:
        """Read until a condition is true."""
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                assert await self.read(), "it was closed"

    async def read(self) -> bool:
        """Read the next data; return False at the end of the stream."""
        data, self._rest = self._rest, b""
        if not data:
            data = await asyncio.get_running_loop().sock_recv(self.connection, 1 << 20)
        for kind, payload in self._frames.feed(data):
            if kind == DATA:
                self.shown += payload
            else:
                self.controls.append(json.loads(payload))
        return bool(data)

    async def until_shown(self, text: bytes) -> None:
        await self.until(lambda: text in self.shown)

    async def control_of(self, kind: str) -> Fields:
        """Wait for a control frame of this type and return the newest one."""
        await self.until(lambda: any(one["type"] == kind for one in self.controls))
        return [one for one in self.controls if one["type"] == kind][-1]

    def close(self) -> None:
        self.connection.close()


class Stage:
    """One home, its fake daemon, and the holders started in it."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700, exist_ok=True)
        self.home = home
        self.daemon = FakeDaemon(home)
        self._clients: list[Attached] = []
        self._pids: list[int] = []

    async def start(
        self,
        command: list[str],
        *,
        cols: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        prompt: str = "",
    ) -> str:
        """Start a holder with a program; return the name of its agent."""
        start = self._start_of(command, cols=cols, rows=rows, env=env, prompt=prompt)
        async with asyncio.timeout(LIMIT_S):
            ready = await asyncio.get_running_loop().run_in_executor(None, start_holder, start)
            return ready.name

    async def run_to_the_end(self, command: list[str]) -> int:
        """Start a holder with a program and wait for its end; return the exit status."""
        start = msgspec.structs.replace(self._start_of(command), is_awaited=True)
        run = partial(run_to_the_end, start, lambda name: None)
        async with asyncio.timeout(LIMIT_S):
            return await asyncio.get_running_loop().run_in_executor(None, run)

    def _start_of(
        self,
        command: list[str],
        *,
        cols: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        prompt: str = "",
    ) -> Start:
        outer = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", **(env or {})}
        kept = clean_environment(outer, str(self.home))
        program = Program(
            argv=tuple(map(os.fsencode, command)),
            cwd=os.fsencode(self.home),
            environment=tuple(os.fsencode(f"{name}={value}") for name, value in kept.items()),
        )
        return Start(
            home=str(self.home), ticket="ticket", program=program, cols=cols, rows=rows, prompt=prompt
        )

    @property
    def child(self) -> int:
        """The process id of the newest agent."""
        return int([one for one in self.daemon.said if one["op"] == "hold"][-1]["pid"])

    @property
    def holder(self) -> int:
        """The process id of the newest agent's holder."""
        return parent_of(self.child)

    def connect(self, name: str = "luna") -> Attached:
        """Connect to an agent's socket without sending anything."""
        client = Attached(connect_socket(socket_path(str(self.home), name)))
        self._clients.append(client)
        return client

    async def ask(self, **request: object) -> Fields:
        """Send one request to the agent's socket and return the reply."""
        client = self.connect()
        await client.send(json.dumps(request).encode() + b"\n")
        return await client.reply()

    async def attach(self, cols: int = 80, rows: int = 24) -> Attached:
        client = self.connect()
        await client.send(json.dumps({"type": "attach", "cols": cols, "rows": rows}).encode() + b"\n")
        reply = await client.reply()
        assert reply["ok"] is True, reply
        return client

    async def until_ready(self) -> None:
        """Wait until the program has printed that it is ready."""
        client = await self.attach()
        await client.until_shown(b"ready")
        client.close()

    async def hook(self, event: str) -> None:
        """Have the agent send a hook event to its socket."""
        self.daemon.who = {"ok": True, "name": self.daemon.name, "standing": "worker", "kind": "instance"}
        assert (await self.ask(type="hook_event", event_name=event, payload={}))["ok"] is True
        self.daemon.who = {"ok": True, "name": "human", "standing": "human", "kind": "human"}

    async def open_gate(self) -> None:
        """Wait until the program is ready, report by a hook that it is idle, and wait for the open gate."""
        await self.until_ready()
        count = len([one for one in self.daemon.said if one["op"] == "gate" and one["open"]])
        await self.hook("SessionStart")
        if not count:
            await self.daemon.heard("gate", open=True)

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        (self.home / "down").touch()  # keeps the holders from starting a real daemon
        for request in self.daemon.said:
            if request["op"] == "hold":
                for pid in (parent_of(request["pid"]), request["pid"]):
                    if is_ours(pid):
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
        await self.daemon.close()
        log = self.home / "agents" / "holder.log"
        complaints = log.read_text() if log.exists() else ""
        assert "Traceback" not in complaints, complaints


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except (OSError, IndexError):
        return 0


def is_ours(pid: int) -> bool:
    """Whether a process id still belongs to a holder or one of its programs: ids are reused."""
    if pid <= 1 or pid == os.getpid():
        return False
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"palaver.holder.main" in words or b"tests/holder/programs" in words


async def wait_until(is_so: Callable[[], object]) -> None:
    """Poll until a condition is true, for facts that only the system knows."""
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - only the system knows, and it sets no event
            await asyncio.sleep(0.005)


def command_of(pid: int) -> str:
    """Return the arguments of a process, each followed by a NUL."""
    return Path(f"/proc/{pid}/cmdline").read_text()


def started_of(pid: int) -> str:
    """Return the start time of a process, in ticks since boot."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


@asynccontextmanager
async def new_stage(path: Path) -> AsyncIterator[Stage]:
    """Yield a home with an open fake daemon."""
    stage = Stage(path)
    await stage.daemon.open()
    try:
        yield stage
    finally:
        await stage.close()
