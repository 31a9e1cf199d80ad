"""Doors to rooms: at each of them an agent calls the same tools and gets the same objects.

The SDK and both kinds of MCP have the tools themselves; the command line has commands for them.
"""

import asyncio
import json
import shlex
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

from mcp import StdioServerParameters
from tests.daemon.mcp_stage import Model, handshaken, over_http
from tests.flows.door import Refused
from tests.flows.shell import Shell

import palaver
from palaver.errors import PalaverError

Answer = dict[str, Any]
PAL = str(Path(sys.executable).with_name("pal"))


class RoomSeat(Protocol):
    """An agent that uses a door."""

    name: str

    async def ask(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool by its name, or raise Refused."""
        ...


class RoomDoor(Protocol):
    """One door to the rooms of one home."""

    async def join(self, name: str, harness: str = "") -> RoomSeat:
        """Join an agent."""
        ...

    async def close(self) -> None:
        """Disconnect all agents of this door."""
        ...


class SdkRoomSeat:
    """A connection of this process."""

    def __init__(self, me: palaver.Connection) -> None:
        self._me = me
        self.name = me.name

    async def ask(self, tool: str, **arguments: Any) -> Answer:
        try:
            return await self._me.call(tool, **arguments)
        except PalaverError as error:
            raise Refused(error.code, error.details) from error


class SdkRooms:
    """The SDK, and with it the JSON lines of the Unix socket."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._ends = AsyncExitStack()

    async def join(self, name: str, harness: str = "") -> SdkRoomSeat:
        me = palaver.connect(name, harness=harness, home=self._home)
        return SdkRoomSeat(await self._ends.enter_async_context(me))

    async def close(self) -> None:
        await self._ends.aclose()


class McpSeat:
    """A client of the official SDK in a separate task: it must exit in the task that entered it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._over = asyncio.Event()

    async def open(self, client: AbstractAsyncContextManager[Model]) -> None:
        self._ready: asyncio.Future[Model] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(client))
        self.model = await self._ready

    async def _live(self, client: AbstractAsyncContextManager[Model]) -> None:
        try:
            async with client as model:
                self._ready.set_result(model)
                await self._over.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def ask(self, tool: str, **arguments: Any) -> Answer:
        found = await self.model.ask(tool, **arguments)
        if "error" in found:
            raise Refused(found["error"], found.get("details", {}))
        return found

    async def close(self) -> None:
        self._over.set()
        await self._life


class McpRooms:
    """`pal mcp`, the pump that a harness starts, for a client of the older protocol."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._seats: list[McpSeat] = []

    async def join(self, name: str, harness: str = "") -> McpSeat:
        words = f"--name {name}" + (f" --harness {harness}" if harness else "")
        # The shell is the agent, not the process that runs the tests: the join and the pump run below it.
        script = f"pal join {words} >&2 && pal mcp; exit $?"
        parameters = StdioServerParameters(
            command="bash",
            args=["--norc", "--noprofile", "-c", script],
            env={"PATH": f"{Path(PAL).parent}:/usr/bin:/bin", "PALAVER_HOME": str(self._home)},
            cwd=self._home,
        )
        seat = McpSeat(name)
        await seat.open(handshaken(parameters))
        self._seats.append(seat)
        return seat

    async def close(self) -> None:
        for seat in self._seats:
            await seat.close()


class HttpRooms:
    """`/mcp` for a client of the newer protocol. A token identifies the caller; its agent is a shell."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.shells: list[Shell] = []
        """The shells of the agents, in the order of their joins."""
        self._seats: list[McpSeat] = []

    async def join(self, name: str, harness: str = "") -> McpSeat:
        shell = Shell(self._home)
        self.shells.append(shell)
        await shell.open()
        url = json.loads(await _ok(shell, "pal", "status", "--json"))["doors"]["http"]
        await _ok(shell, "pal", "join", "--name", name, *(["--harness", harness] if harness else []))
        token = json.loads(await _ok(shell, "pal", "token", "create", "--json"))["token"]
        seat = McpSeat(name)
        await seat.open(over_http(url, token, is_modern=True))
        self._seats.append(seat)
        return seat

    async def close(self) -> None:
        for seat in self._seats:
            await seat.close()
        for shell in self.shells:
            await shell.close()


async def _ok(shell: Shell, *words: str) -> str:
    result = await shell.run(*words)
    assert result.status == 0, (shlex.join(words), result)
    return result.out
