"""A home, a scripted model, and Codex with nothing of whoever runs the tests."""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.cli.person import Person
from tests.daemon.stage import run_script_as_person
from tests.harness.real.stage import LIMIT_S, ClaudeStage, HarnessHome, bus

from palaver.agents.codex_client import CodexClient
from palaver.agents.codex_server import listens
from palaver.agents.codex_wire import Said, ThreadRead, result_as, start_turn
from palaver.cli.mock_model.script import Script, ToolCall
from palaver.cli.mock_model.server import MockModel, mock_model
from palaver.harness.codex_launch import launch_settings

SETTINGS = """\
model = "mock-model"
model_provider = "mock"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
env_key = "MOCK_API_KEY"
wire_api = "responses"
supports_websockets = false
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
[projects."{folder}"]
trust_level = "trusted"
"""


class CodexHome(HarnessHome):
    """A home in which Codex finds the scripted model."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "MOCK_API_KEY": "dummy"}


class CodexStage(ClaudeStage):
    """One Codex, its model, and others who write to it."""

    def start(self, *arguments: str, name: str = "nova") -> None:
        """Start it in the background and wait until it can be reached."""
        words = ("pal", "codex", "--name", name, "--detach", *arguments)
        assert run_script_as_person(self.home, f"cd {self.project} && {shlex.join(words)}").out == f"{name}\n"
        self.until(lambda: self.state(name)[0] in ("idle", "active"))

    def sit_down(self, name: str = "nova") -> Person:
        """A person at its terminal."""
        person = Person(self.home, cols=100, rows=30)
        self._people.append(person)
        person.run(f"pal attach {name} --plain")
        person.until("›".encode())
        return person

    @property
    def pal(self) -> str:
        """Our own command: a login shell may find another one, or none."""
        found = shutil.which("pal", path=self.home.environment["PATH"])
        assert found is not None
        return found

    def processes_at(self, place: Path) -> list[int]:
        """Those whose command line names a folder, but for ourselves."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if str(place).encode() in words:
                    found.append(int(entry.name))
        return found

    @property
    def places(self) -> list[Path]:
        """The folders of servers that there are."""
        return list((self.home.path / "agents" / "native").glob("*"))


def shell_call(command: str, **given: object) -> ToolCall:
    """A call of Codex's shell."""
    return ToolCall(tool="exec_command", input={"cmd": command, **given})


def ask_first(command: str) -> ToolCall:
    """A call of its shell for which a person must be asked."""
    return shell_call(command, sandbox_permissions="require_escalated", justification="to see")


def bus_call(name: str, **given: object) -> ToolCall:
    """A call of one of our tools."""
    return ToolCall(tool=name, input=given, namespace="mcp__palaver")


@contextmanager
def codex_stage(program: Path) -> Iterator[CodexStage]:
    """All of it, ended with the block: processes, terminals, files."""
    folder = Path(tempfile.mkdtemp(prefix="pal-real-"))
    for name in ("account/.codex", "tmp", "bin"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "codex").symlink_to(program.resolve())
    with mock_model(Script()) as model:
        write_settings(folder, model)
        home = CodexHome(folder / "home", model)
        with bus(home) as people:
            stage = CodexStage(home, model, people)
            load_tools(home)
            yield stage


def load_tools(home: HarnessHome) -> None:
    """Have the daemon load its tools: Codex does not wait for them, and its model here needs no time."""
    info = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    with home.start("mcp", stdin=subprocess.PIPE) as pump:
        assert pump.stdin is not None
        assert pump.stdout is not None
        pump.stdin.write(line.encode() + b"\n")
        pump.stdin.flush()
        assert b'"result"' in pump.stdout.readline()
        pump.stdin.close()


def write_settings(folder: Path, model: MockModel) -> None:
    """Have Codex find its model."""
    path = folder / "account" / ".codex" / "config.toml"
    path.write_text(SETTINGS.format(url=model.url, folder=folder))


class Talk:
    """One thread of a server that several share."""

    def __init__(self, client: CodexClient, thread: str, ended: "asyncio.Queue[str]") -> None:
        self._client = client
        self._thread = thread
        self._ended = ended

    async def turn(self, text: str) -> None:
        """Have a turn, from beginning to end."""
        await self._client.ask(*start_turn(self._thread, text, "test"))
        async with asyncio.timeout(LIMIT_S):
            while await self._ended.get() != self._thread:
                pass


@asynccontextmanager
async def two_threads(stage: CodexStage, program: Path) -> AsyncIterator[tuple[Talk, Talk]]:
    """A server that was not started by us, with two conversations in it."""
    path = stage.project / "shared.sock"
    settings = launch_settings(stage.pal, str(stage.home.path))
    server = await asyncio.create_subprocess_exec(
        *(str(program), "app-server", "--listen", f"unix://{path}", *settings),
        env=stage.home.environment,
        cwd=stage.project,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    ended: asyncio.Queue[str] = asyncio.Queue()

    def hear(said: Said) -> None:
        if said.method == "turn/completed":
            ended.put_nowait(str(said.params["threadId"]))

    client = CodexClient(path, hear, lambda error: None)
    try:
        async with asyncio.timeout(LIMIT_S):
            while not listens(path):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
        await client.open()
        talks = [await _begin(client, stage, ended) for _ in range(2)]
        yield talks[0], talks[1]
    finally:
        client.close()
        server.terminate()
        await server.wait()


async def _begin(client: CodexClient, stage: CodexStage, ended: "asyncio.Queue[str]") -> Talk:
    params: dict[str, object] = {"cwd": str(stage.project), "approvalPolicy": "never"}
    answer = await client.ask("thread/start", {**params, "sandbox": "danger-full-access"})
    return Talk(client, result_as(answer, ThreadRead).thread.id, ended)
