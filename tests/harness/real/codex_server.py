"""A Codex app-server that `pal` did not start, and a client with conversations on it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.harness.real.codex_stage import CodexStage
from tests.harness.real.harness_home import LIMIT_S
from tests.harness.real.install import installed

from palaver.harness.codex.integration import CodexClient
from palaver.harness.codex.threads import CodexMessage, ThreadRead, result_as, start_turn
from palaver.holder.codex_start import listens
from palaver.holder.integration import connect_codex
from palaver.version import __version__


class Server:
    """A server, and a client that never replies to its questions."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._folder = folder
        self._news = asyncio.Event()
        self.said: list[CodexMessage] = []
        """Everything that the server has sent so far."""
        self.client = CodexClient(connect_codex(path), __version__, self._hear, lambda error: None)

    def _hear(self, message: CodexMessage) -> None:
        self.said.append(message)
        self._news.set()

    async def until(self, method: str, thread: str = "", count: int = 1) -> CodexMessage:
        """Wait until the server has sent a method `count` times for a thread, and return the last one."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                self._news.clear()
                found = [one for one in self.said if one.method == method]
                found = [one for one in found if thread in ("", one.params.get("threadId"))]
                if len(found) >= count:
                    return found[-1]
                await self._news.wait()

    async def begin(self, **given: object) -> str:
        """Begin a conversation that needs no permission, and return its id."""
        params = {"cwd": str(self._folder), "approvalPolicy": "never", "sandbox": "danger-full-access"}
        answer = await self.client.ask("thread/start", {**params, **given})
        return result_as(answer, ThreadRead).thread.id

    async def start(self, thread: str, text: str) -> None:
        """Begin a turn."""
        await self.client.ask(*start_turn(thread, text, "test"))

    async def turn(self, thread: str, text: str) -> None:
        """Run a whole turn."""
        before = sum(one.method == "turn/completed" for one in self._of(thread))
        await self.start(thread, text)
        await self.until("turn/completed", thread, before + 1)

    def _of(self, thread: str) -> list[CodexMessage]:
        return [one for one in self.said if one.params.get("threadId") == thread]

    async def answer(self, method: str, **params: object) -> bytes:
        """Send a request to the server and return the raw result."""
        return bytes(await self.client.ask(method, dict(params)))


@asynccontextmanager
async def app_server(stage: CodexStage, *words: str, path: Path | None = None) -> AsyncIterator[Server]:
    """Run a server with these arguments: on its own socket, or on the default socket of Codex."""
    folder = path or stage.project / "shared.sock"
    listen = f"unix://{folder}" if path is None else "unix://"
    process = await asyncio.create_subprocess_exec(
        *(str(installed("codex")), "app-server", "--listen", listen, *words),
        env={name: value for name, value in stage.home.environment.items() if not name.startswith("PALAVER")},
        cwd=stage.project,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    server = Server(folder, stage.project)
    try:
        async with asyncio.timeout(LIMIT_S):
            while not listens(folder):  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.05)
        await server.client.open()
        yield server
    finally:
        server.client.close()
        process.terminate()
        try:
            async with asyncio.timeout(LIMIT_S / 10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def looked(is_so: Callable[[], object]) -> None:
    """Poll until a condition is true, while the server connection stays served."""
    async with asyncio.timeout(LIMIT_S):
        while not await asyncio.to_thread(is_so):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)
