"""The native lane to an OpenCode server: a small HTTP client, and the holder's side of the integration."""

import argparse
import asyncio
import base64
import logging
import os
import secrets
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from palaver.clock import Clock
from palaver.errors import AlreadyJoined
from palaver.harness.base import (
    HOLDER_FILE,
    NATIVE_FOLDER,
    EndpointOwner,
    Make,
    NativeBus,
    Spawn,
    format_holder,
    instructions,
    parse_holder,
)
from palaver.harness.hooks import as_map, text_in
from palaver.harness.opencode import wire
from palaver.harness.opencode.integration import OpenCodeIntegration
from palaver.harness.opencode.launch import (
    CONTENT,
    NOT_FOR_TOOLS,
    USUAL,
    Began,
    is_denied_in_settings,
    is_one_turn,
    shell_in_settings,
    shell_name,
    shell_wrapper,
)
from palaver.harness.opencode.wire import HEALTH, Head, Lost, NotSent, OpenCodeEvent
from palaver.holder.connection import Held
from palaver.holder.native_lane import SessionCompanion, run_companion
from palaver.holder.tasks import Work
from palaver.protocol.lines import AccompanyOp
from palaver.version import __version__

# --------------------
# One HTTP request and its response, encoded and decoded by the library `h11`. Does no input or output.
#
# The library takes several milliseconds to load, and the user waits for the start of a harness: so the first
# request loads it. Redirects and compression are not supported and not requested.

LIMIT_HEAD_BYTES: Final = 64 * 1024


class HttpExchange:
    """A request and the response to it. The connection is for this exchange only."""

    def __init__(
        self, method: str, path: str, host: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> None:
        import h11  # slow to load, as above

        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=LIMIT_HEAD_BYTES)
        fields = {"Host": host, "Connection": "close", **headers}
        if body is not None:
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        events = [
            h11.Request(method=method, target=path, headers=list(fields.items())),
            h11.Data(data=body or b""),
            h11.EndOfMessage(),
        ]
        self.request = b"".join(self._connection.send(event) or b"" for event in events)
        self.head: Head | None = None
        self.is_done = False

    def feed(self, data: bytes) -> bytes:
        """Add bytes and return the part of the body in them; no bytes mean the end of the connection.

        Raises Lost if they are not a response, or if it ends too early.
        """
        import h11

        found = bytearray()
        try:
            self._connection.receive_data(data)
            while not self.is_done:
                match self._connection.next_event():
                    case h11.Response(status_code=status):
                        self.head = Head(status)
                    case h11.Data(data=piece):
                        found += piece
                    case h11.EndOfMessage():
                        self.is_done = True
                    case h11.InformationalResponse():
                        continue
                    case h11.NEED_DATA:
                        break
                    case _:
                        raise Lost("the response is incomplete")
        except h11.RemoteProtocolError as error:
            raise Lost(str(error)) from error
        return bytes(found)


# --------------------
# The client: one connection per request, and the events in a stream.

LIMIT_EVENT_BYTES: Final = 16 * 1024 * 1024
"""The largest event; a longer one is skipped."""
LIMIT_BODY_BYTES: Final = 64 * 1024 * 1024
"""The longest response that `ask` keeps in memory."""
_READ_BYTES: Final = 64 * 1024
_CONNECT_S: Final = 5.0
_HOST: Final = "127.0.0.1"
_FIELD: Final = b"data:"


def basic_auth(user: str, password: str) -> str:
    """Return the value of the header for basic authentication."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class EventReader:
    """Finds the events in a stream of server-sent events: the text of their `data:` lines, joined.

    All other lines are skipped.
    """

    def __init__(self, limit_bytes: int = LIMIT_EVENT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._is_dropping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes and yield every complete event."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = bytes(self._rest) + line
            self._rest.clear()
            if (event := self._read_line(whole.removesuffix(b"\r"))) is not None:
                yield event
        self._rest += rest
        if len(self._rest) > self._limit_bytes:
            self._is_dropping = True
            del self._rest[len(_FIELD) :]  # Keep the start of the line: it says which kind of line it is.

    def _read_line(self, line: bytes) -> bytes | None:
        if not line:  # An empty line ends an event.
            data, self._data, self._size = self._data, [], 0
            was_dropped, self._is_dropping = self._is_dropping, False
            return b"\n".join(data) if data and not was_dropped else None
        if line.startswith(_FIELD):
            # Only one space: any further ones belong to the value.
            value = line.removeprefix(_FIELD).removeprefix(b" ")
            self._size += len(value)
            if self._size > self._limit_bytes:
                self._is_dropping = True
                self._data = [b""]  # Free the memory: the event is dropped when it ends.
            else:
                self._data.append(value)
        return None


@dataclass(frozen=True, slots=True)
class HttpClient:
    """A client of one local server: its port and credentials."""

    port: int
    user: str
    password: str

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = 30.0
    ) -> tuple[Head, bytes]:
        """Send a request and return the complete response. Raises NotSent or Lost."""
        async with self._send(method, path, body) as (reader, exchange):
            content = bytearray()
            try:
                async with asyncio.timeout(limit_s):
                    while not exchange.is_done:
                        content += exchange.feed(await reader.read(_READ_BYTES))
                        if len(content) > LIMIT_BODY_BYTES:
                            raise Lost("the response is too long")
            except OSError as error:  # Also a timeout.
                raise Lost(str(error) or "no response in time") from error
            assert exchange.head is not None  # `is_done` is set after the head.
            return exchange.head, bytes(content)

    async def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        """Yield the events of a stream in order. Raises NotSent or Lost.

        A stream is lost if it does not begin within `first_s` seconds, or is silent for longer than
        `silence_s`.
        """
        headers = {"Accept": "text/event-stream"}
        async with self._send("GET", path, None, headers) as (reader, exchange):
            events, limit_s = EventReader(), first_s
            try:
                while not exchange.is_done:
                    async with asyncio.timeout(limit_s):
                        piece = await reader.read(_READ_BYTES)
                    data = exchange.feed(piece)
                    if exchange.head is not None and not exchange.head.is_ok:
                        raise Lost(f"it responded with {exchange.head.status}")
                    for event in events.feed(data):
                        limit_s = silence_s
                        yield event
            except OSError as error:  # Also a timeout.
                raise Lost(str(error) or "it was silent for too long") from error

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, HttpExchange]]:
        """Connect and send a request; the connection is closed at the end of the block.

        Raises NotSent if it cannot connect: then the request has certainly not reached the server.
        """
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(_HOST, self.port)
        except OSError as error:
            # Different from `Lost`: a request that was not sent may be repeated without a risk.
            raise NotSent(str(error) or "no process answers") from error
        try:
            fields = {"Authorization": basic_auth(self.user, self.password), **(headers or {})}
            exchange = HttpExchange(method, path, f"{_HOST}:{self.port}", fields, body)
            writer.write(exchange.request)
            yield reader, exchange
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


# --------------------
# The server of OpenCode reached through its plugin: lines of JSON on two pipes instead of HTTP.
#
# The plugin sends events and replies to requests. When its pipe ends, OpenCode has exited.

_LIMIT_EVENTS: Final = 10_000
"""Events that may wait for a busy follower; when full, the follower loses the stream and must start again."""
_CONNECTED: Final = b'{"type":"server.connected","properties":{}}'


class PluginLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the plugin: an event, a session that received a prompt, or a response."""

    arguments: tuple[str, ...] | None = None
    """The command line of OpenCode; sent in the plugin's first line."""
    event: msgspec.Raw = msgspec.Raw(b"")
    begun: str = ""
    answer: int = 0
    status: int = 0
    body: msgspec.Raw = msgspec.Raw(b"null")


_decode: Final = msgspec.json.Decoder(PluginLine).decode
_encode: Final = msgspec.json.Encoder().encode


def parse_plugin_line(line: bytes) -> PluginLine | None:
    """Decode one line; None if it is malformed."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Relay:
    """One OpenCode. `write` sends a line to its plugin."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[tuple[Head, bytes]]] = {}
        self._followers: set[asyncio.Queue[bytes | None]] = set()
        self._is_closed = False

    def tell(self, session: str, text: str) -> None:
        """Set the instructions that a session's model receives with every request."""
        self._write(_encode({"session": session, "told": text}))

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = 30.0
    ) -> tuple[Head, bytes]:
        """Send a request and return the complete response. Raises NotSent or Lost."""
        if self._is_closed:
            raise NotSent("OpenCode has ended")
        # The plugin runs inside OpenCode: an open pipe is the proof.
        if path == HEALTH:
            return Head(200), b""
        number = next(self._numbers)
        answer: asyncio.Future[tuple[Head, bytes]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        content = msgspec.Raw(body) if body is not None else None
        self._write(_encode({"ask": number, "method": method, "path": path, "body": content}))
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError as error:
            raise Lost("no response in time") from error
        finally:
            self._asked.pop(number, None)

    async def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        """Yield the events in order. Raises Lost when OpenCode has exited or too many events were waiting."""
        events: asyncio.Queue[bytes | None] = asyncio.Queue(_LIMIT_EVENTS)
        self._followers.add(events)
        try:
            # As a server does: the follower waits for this event before it reads the state.
            yield _CONNECTED
            while (event := await events.get()) is not None and events in self._followers:
                yield event
        finally:
            self._followers.discard(events)
        raise Lost("OpenCode has ended" if self._is_closed else "too many requests at once")

    def hear(self, line: PluginLine) -> None:
        """Apply one line of the plugin."""
        if line.answer:
            # Unknown numbers are ignored: a reply may come after its time limit.
            answer = self._asked.get(line.answer)
            if answer is not None and not answer.done():
                answer.set_result((Head(line.status), bytes(line.body)))
        elif event := bytes(line.event):
            for events in list(self._followers):
                if events.full():
                    self._followers.discard(events)
                else:
                    events.put_nowait(event)

    def close(self) -> None:
        """Fail all requests and end all streams: OpenCode has exited."""
        self._is_closed = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(Lost("OpenCode has ended"))
        for events in list(self._followers):
            if events.full():
                # The end must get into the queue, or the follower would wait indefinitely; it loses the
                # stream anyway.
                events.get_nowait()
            events.put_nowait(None)


def session_in(event: OpenCodeEvent) -> str:
    """Return the session that received a prompt, according to an event; empty for any other event."""
    info = as_map(event.about.get("info"))
    if event.type == "message.updated" and info.get("role") == "user" and "summary" not in info:
        return str(event.about.get("sessionID") or "")
    return ""


# --------------------
# The address and password of an OpenCode server, stored in its own directory.
#
# The directory is in the Palaver home and readable only by its owner. It is removed with the agent.
# Directories of servers that no longer run are removed when a new one is made.

_PREFIX: Final = "opencode-"
_FILE: Final = "server.json"
_INSTRUCTIONS_FILE: Final = "instructions.md"
# Seconds. A younger directory may belong to a server that does not listen yet.
_STALE_S: Final = 300.0
_BUSY_S: Final = 1.0


class OpenCodeEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The address and password of a server, chosen before it starts, and how its session began."""

    port: int
    user: str
    # Any user of this machine can connect to a local port, so the server needs a password.
    password: str
    began: Began


def new_endpoint_path(home: str) -> Path:
    """Create a directory for a server and return the path of its file. Raises OSError."""
    above = Path(home) / NATIVE_FOLDER
    above.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tidy(above)
    folder = above / f"{_PREFIX}{secrets.token_hex(6)}"
    folder.mkdir(mode=0o700)
    return folder / _FILE


def write_endpoint(path: Path, endpoint: OpenCodeEndpoint) -> None:
    """Store the address of a server. Raises OSError."""
    _write(path, msgspec.json.encode(endpoint))


def read_endpoint(path: Path) -> OpenCodeEndpoint | None:
    """Return a stored address; None if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=OpenCodeEndpoint)
    except (OSError, msgspec.DecodeError):
        return None


def instructions_path(path: Path) -> Path:
    """Return the path of the agent's instructions about the bus."""
    return path.with_name(_INSTRUCTIONS_FILE)


def write_instructions(path: Path, name: str) -> None:
    """Write the agent's instructions with its name. Raises OSError."""
    _write(instructions_path(path), instructions(name).encode() + b"\n")


def write_holder(path: Path) -> None:
    """Record that this process removes the directory; if it is killed, the daemon does. Raises OSError."""
    content = format_holder(EndpointOwner(pid=os.getpid(), start=_stat(os.getpid())[1]))
    _write(path.with_name(HOLDER_FILE), content.encode("ascii"))


def is_held(home: str, pid: int) -> bool:
    """Return whether a holder with a stored server started this process; False if the system has no /proc."""
    above = _stat(pid)[0]
    holder = EndpointOwner(pid=above, start=_stat(above)[1])
    return above > 0 and any(
        _read_holder(folder) == holder for folder in Path(home, NATIVE_FOLDER).glob(f"{_PREFIX}*")
    )


def _read_holder(folder: Path) -> EndpointOwner | None:
    try:
        return parse_holder((folder / HOLDER_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _stat(pid: int) -> tuple[int, int]:
    """Return a process's parent pid and its start time in ticks since boot; 0 if the system has no /proc."""
    try:
        # The name of the program is in parentheses and may contain spaces and parentheses itself.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return int(words[1]), int(words[19])
    except (OSError, ValueError, IndexError):
        return 0, 0


def _write(path: Path, content: bytes) -> None:
    # A new file with a rename: OpenCode or the daemon may read the old one at any time.
    new_path = path.with_suffix(".new")
    with open(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - a mode
        file.write(content)
    new_path.replace(path)


def _tidy(above: Path) -> None:
    """Remove old directories of servers that no longer run."""
    for folder in above.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            endpoint = read_endpoint(folder / _FILE)
            is_old = time.time() - folder.stat().st_mtime > _STALE_S
            if is_old and (endpoint is None or not _listens(endpoint.port)):
                shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        asking.settimeout(_BUSY_S)
        # Any listener counts, even another program at that port: a directory too many is harmless.
        return asking.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Return a local port that is free now. Another process may take it before the caller's server does."""
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])


# --------------------
# The native lane of an OpenCode that `pal` runs, made from the stored address of its server.

_logger: Final = logging.getLogger("palaver.holder")


def integrate_opencode(path: Path, held: Held | None, *, clock: Clock, spawn: Spawn) -> Make:
    """Return the maker for a stored address, and write the agent's name into its instructions.

    If the address cannot be read, the integration is over from the start. If the instructions cannot be
    written, that is only logged.
    """
    endpoint = read_endpoint(path)
    if held is not None:
        try:
            write_holder(path)
            write_instructions(path, held.name)
        except OSError as error:
            _logger.warning("%s gets no instructions about the bus: %s", held.name, error)

    def make(bus: NativeBus) -> OpenCodeIntegration:
        server = (
            HttpClient(endpoint.port, endpoint.user, endpoint.password) if endpoint else HttpClient(0, "", "")
        )
        began = endpoint.began if endpoint else Began()
        made = OpenCodeIntegration(server, began, bus, spawn=spawn, clock=clock)
        # Over from the start: the terminal lane is used, and no request goes to port 0.
        made.is_over = endpoint is None
        return made

    return make


# --------------------
# The companion process of an OpenCode started without `pal`; its plugin runs one for each directory.
#
#     python -I -m palaver.holder.opencode --home HOME FOLDER
#
# Each session that the user writes in is a separate agent with its own connection, lane and state; it never
# receives another agent's messages. The companion starts no daemon, waits for one indefinitely, and ends
# with OpenCode, whose pipe it reads. If `pal` runs that OpenCode, it ends at once with the exit status
# `NOT_NEEDED`.

MODULE: Final = "palaver.holder.opencode"
HARNESS: Final = "opencode"
NOT_NEEDED: Final = 3
"""The exit status if `pal` itself runs this OpenCode."""
_LIMIT_LINE: Final = 64 * 1024 * 1024


class Companion:
    """All sessions of one directory."""

    def __init__(self, home: str, folder: str, write: Callable[[bytes], None]) -> None:
        self._home = home
        self._folder = folder
        self._relay = Relay(write)
        self._attended: dict[str, SessionCompanion] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._work = Work()
        self._is_needless = asyncio.Event()
        self._is_woken = True
        self._is_root: dict[str, bool] = {}
        """Whether a session is not a sub-agent's, as far as known."""
        self._asking: set[str] = set()
        """Sessions whose parent is being requested."""

    async def run(self, reader: asyncio.StreamReader) -> int:
        """Read the plugin's lines until the pipe ends; return the exit status."""
        reading = asyncio.ensure_future(self._read(reader))
        needless = asyncio.ensure_future(self._is_needless.wait())
        try:
            await asyncio.wait({reading, needless}, return_when=asyncio.FIRST_COMPLETED)
            return NOT_NEEDED if needless.done() else 0
        finally:
            self._relay.close()
            self._work.cancel()
            tasks = [reading, needless, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._work.settle()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await reader.readline()
            # `readline` raises it for a line over the limit. The rest of that line follows as a line that
            # cannot be parsed.
            except ValueError:
                _logger.warning("a line of OpenCode's plugin is too long and was skipped")
                continue
            if not line:
                return
            if (message := parse_plugin_line(line)) is not None:
                self._take(message)

    def _take(self, line: PluginLine) -> None:
        if line.arguments is not None:
            # `opencode run` ends with its turn, and nothing can wake it afterwards.
            self._is_woken = not is_one_turn(line.arguments)
        if line.begun:
            self._look_at(line.begun)
        event = wire.event_from_bytes(bytes(line.event)) if bytes(line.event) else None
        if event is not None:
            self._hear(event)
        self._relay.hear(line)

    def _hear(self, event: wire.OpenCodeEvent) -> None:
        info = as_map(event.about.get("info"))
        if event.type in ("session.created", "session.updated"):
            self._is_root.setdefault(text_in(info, "id"), not text_in(info, "parentID"))
        elif event.type == "session.deleted":
            self._forget(text_in(event.about, "sessionID") or text_in(info, "id"))
        elif session := session_in(event):
            self._look_at(session)

    def _look_at(self, session: str) -> None:
        """Attend an active session, unless it is a sub-agent's."""
        if session in self._attended:
            return
        is_root = self._is_root.get(session)
        # Its creation was not reported here: the session is older than this companion.
        if is_root is None:
            if session not in self._asking:
                self._asking.add(session)
                self._work.spawn(self._ask_about(session))
        elif is_root:
            self._attend(session)
        else:
            self._relay.tell(session, "")  # Do not delay its prompt: instructions come with its name.

    async def _ask_about(self, session: str) -> None:
        try:
            head, body = await self._relay.ask("GET", wire.session_path(session))
        except (NotSent, Lost):
            return
        finally:
            self._asking.discard(session)
        if head.is_ok:
            info = as_map(wire.json_from_bytes(body))
            self._is_root[session] = not text_in(info, "parentID")
            self._look_at(session)

    def _attend(self, session: str) -> None:
        self._attended[session] = companion = self._companion_of(session)
        self._tasks[session] = asyncio.get_running_loop().create_task(self._run(companion))

    def _companion_of(self, session: str) -> SessionCompanion:
        def make(spawn: Spawn) -> Make:
            began = Began(session=session)
            return lambda bus: OpenCodeIntegration(self._relay, began, bus, spawn=spawn, only=session)

        hold = AccompanyOp(harness=HARNESS, session=session, cwd=self._folder, version=__version__)
        return SessionCompanion(
            self._home,
            hold,
            make,
            on_subagent=lambda child, name: self._relay.tell(child, self._instructions(name)),
            on_held=lambda held: self._relay.tell(session, self._instructions(held.name, held.unsure)),
        )

    def _instructions(self, name: str, unsure: Sequence[int] = ()) -> str:
        return instructions(name, unsure=unsure, is_woken=self._is_woken)

    async def _run(self, companion: SessionCompanion) -> None:
        # The session has an agent with a holder: `pal` itself runs this OpenCode.
        if (await companion.run()).code == AlreadyJoined.code:
            self._is_needless.set()

    def _forget(self, session: str) -> None:
        self._is_root.pop(session, None)
        if (one := self._attended.pop(session, None)) is not None:
            self._work.spawn(self._end(one, self._tasks.pop(session)))

    async def _end(self, one: SessionCompanion, task: "asyncio.Task[None]") -> None:
        await one.leave("its session was deleted")
        task.cancel()
        await asyncio.wait({task})


async def _run(home: str, folder: str) -> int:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LIMIT_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    return await Companion(home, folder, lambda line: transport.write(line + b"\n")).run(reader)


def main(arguments: list[str] | None = None) -> int:
    """Run a companion until its pipe ends."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("folder")
    options = parser.parse_args(arguments)
    if is_held(options.home, os.getppid()):
        return NOT_NEEDED
    return run_companion(_run(options.home, options.folder))


# --------------------
# Find the shell that OpenCode would use, and write the wrapper that replaces it.

_NAMES: Final = ("opencode.json", "opencode.jsonc")
_LIMIT_BYTES: Final = 16 * 1024 * 1024


def write_shell(folder: Path, environment: Mapping[str, str], cwd: str) -> str:
    """Write the shell wrapper of a session into its directory and return its path. Raises OSError."""
    shell = find_shell(environment, cwd)
    path = folder / shell_name(shell)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb") as file:  # noqa: PTH123 - a mode
        file.write(os.fsencode(shell_wrapper(shell)))
    return str(path)


def find_shell(environment: Mapping[str, str], cwd: str) -> str:
    """Return the path of the shell in which OpenCode would run its agents' commands."""
    path = environment.get("PATH", os.defpath)
    wanted = shell_in_settings(_settings(environment, cwd)) or environment.get("SHELL", "")
    found = shutil.which(wanted, path=path) if wanted and shell_name(wanted) not in NOT_FOR_TOOLS else None
    return found or shutil.which(USUAL, path=path) or "/bin/sh"


def may_allow(environment: Mapping[str, str], cwd: str) -> bool:
    """Whether the safe commands of the bus may be allowed: not if the user's settings deny them."""
    return not is_denied_in_settings(_settings(environment, cwd))


def _settings(environment: Mapping[str, str], cwd: str) -> Iterator[str]:
    """Yield the texts of all settings that OpenCode reads, in its order: later ones take precedence."""
    home = Path(environment.get("HOME") or Path.home())
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    above = list(reversed((Path(cwd), *Path(cwd).parents)))
    folders = [*(folder / ".opencode" for folder in above), home / ".opencode"]
    if named := environment.get("OPENCODE_CONFIG_DIR"):
        folders.append(Path(named))
    paths = [own / "config.json", *(own / name for name in _NAMES)]
    if named := environment.get("OPENCODE_CONFIG"):
        paths.append(Path(named))
    paths += [folder / name for folder in (*above, *folders) for name in _NAMES]
    for path in paths:
        try:
            if path.stat().st_size <= _LIMIT_BYTES:
                yield path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    yield environment.get(CONTENT, "")


# --------------------
# Find the session that OpenCode would resume, in its own database. Reads only.
#
# Only the client that starts OpenCode calls it, so it imports SQLite itself: that costs memory, and no holder
# should load it.

_DATABASE_BUSY_S: Final = 1.0


def last_opencode_session(environment: Mapping[str, str], cwd: str) -> str:
    """Return the session that OpenCode would resume in a directory; empty if there is no session."""
    import sqlite3

    data = environment.get("XDG_DATA_HOME") or f"{environment.get('HOME', '')}/.local/share"
    path = environment.get("OPENCODE_DB") or f"{data}/opencode/opencode.db"
    question = (
        "SELECT id FROM session WHERE directory = ? AND parent_id IS NULL AND time_archived IS NULL "
        "ORDER BY time_updated DESC LIMIT 1"
    )
    try:
        with closing(
            # Read-only, so that a missing database is not created. Quoted, because `?` and `#` would end the
            # path.
            sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_DATABASE_BUSY_S)
        ) as database:
            found = database.execute(question, (os.path.realpath(cwd),)).fetchone()
    except sqlite3.Error:
        return ""
    return str(found[0]) if found else ""


if __name__ == "__main__":
    sys.exit(main())
