"""A bus connection and a native lane, as a holder has them, connected to a fake Codex app-server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tests.fakes import FakeClock
from tests.holder.codex_fake import FakeCodex, fake_codex
from tests.holder.stage import Stage
from tests.limits import LIMIT_S

from palaver.client.wire import ReplyLine
from palaver.harness.base import NativeBus
from palaver.harness.codex.integration import CodexIntegration
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.integration import connect_codex
from palaver.holder.native_lane import NativeLanes
from palaver.protocol.events import AgentState
from palaver.protocol.lines import HoldOp

TOOL = {"id": "a", "type": "commandExecution", "command": "make"}


class Near:
    """The parts of a holder that use Codex: a bus connection and a native lane."""

    def __init__(
        self, stage: Stage, server: FakeCodex, *, tools_limit_s: float = LIMIT_S, look_s: float = LIMIT_S
    ) -> None:
        self.daemon = stage.daemon
        self.server = server
        self.tasks: set[asyncio.Task[None]] = set()
        self.news = asyncio.Event()
        self.others: list[ReplyLine] = []
        """Offers that were for another lane."""
        hold = HoldOp(pid=1, ticket="ticket", secret="secret")
        self.bus = HolderConnection(str(stage.home), hold, self._on_held, self._on_push)
        self.lanes = NativeLanes(
            self.bus,
            partial(self._make, tools_limit_s, look_s),
            spawn=self._spawn,
            on_status=self.news.set,
            on_change=self.news.set,
        )

    def _make(self, tools_limit_s: float, look_s: float, bus: NativeBus) -> CodexIntegration:
        self.codex = CodexIntegration(
            connect_codex(self.server.path),
            bus,
            version="1",
            clock=FakeClock(),
            spawn=self._spawn,
            tools_limit_s=tools_limit_s,
            look_s=look_s,
        )
        return self.codex

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _on_held(self, held: Held) -> None:
        self.lanes.connected()

    def _on_push(self, line: ReplyLine) -> None:
        if line.push == "decision":
            self.lanes.decide(line)
        else:
            self.lanes.claim(line, self.others.append)

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                self.news.clear()
                await self.news.wait()

    async def state(self, state: AgentState) -> None:
        await self.until(lambda: self.codex.status is not None and self.codex.status.state is state)


@asynccontextmanager
async def near(stage: Stage, *threads: str, look_s: float = LIMIT_S) -> AsyncIterator[Near]:
    """Open a native lane, with a connection to the bus and a server that has these threads."""
    async with fake_codex(stage.home) as server:
        for thread in threads or ("one",):
            server.add_thread(thread)
        holder = Near(stage, server, look_s=look_s)
        running = asyncio.create_task(holder.bus.run())
        try:
            await stage.daemon.heard("hold")
            holder.codex.start()
            await stage.daemon.heard("lane", kind="native")
            yield holder
        finally:
            holder.codex.close()
            running.cancel()
            await asyncio.wait([running, *holder.tasks])


async def work(holder: Near) -> None:
    """Start a turn with a running tool."""
    holder.server.turns["one"] = {"id": "turn-9", "status": "inProgress", "items": []}
    holder.server.set_status("one", "active")
    holder.server.tell("turn/started", threadId="one", turn={"id": "turn-9"})
    holder.server.tell("item/started", threadId="one", item=TOOL)
    await holder.until(lambda: holder.codex.status is not None and holder.codex.status.tool == "Bash")
