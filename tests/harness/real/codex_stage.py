"""A home, a scripted model, and a Codex that is independent of the user's account."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.real.harness_home import HarnessHome, bus, new_folder
from tests.harness.real.harness_stage import HarnessStage, reply
from tests.processes import processes_of

from palaver.app.mock_model import MockModel, Script, ScriptedReply, ScriptedToolCall, mock_model

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


class CodexStage(HarnessStage):
    """One Codex, its model, and other agents that write to it."""

    harness = "codex"
    lanes = ("native", "terminal")
    resume = ("resume", "--last")
    sign = "›".encode()
    question = "Would you like to run"
    tools_sign = '"mcp__palaver'
    own_files = (".codex/config.toml", ".codex/hooks.json")
    leaves = ("codex-",)

    def words(self, prompt: str, *, asks: bool) -> tuple[str, ...]:
        allowed = () if asks else ("-s", "danger-full-access", "-a", "never")
        return (*allowed, *([prompt] if prompt else []))

    def shell(self, command: str) -> ScriptedToolCall:
        return shell_call(command)

    def asking_to_make(self, path: Path) -> ScriptedToolCall:
        return ask_first(f"touch {path}")

    def bus_replies(self, name: str, **given: object) -> list[ScriptedReply]:
        """Return the replies that call a tool; the tools are available shortly after the start."""
        return [reply("", bus_call(name, **given), awaits=self.tools_sign)]

    def composer(self, text: str) -> str:
        return f"› {text}"

    def dialog(self) -> str:
        _, asked, below = self.screen().partition(self.question)
        return asked + below if "Press enter to confirm" in below else ""

    def processes_at(self, folder: Path) -> list[int]:
        """Return the processes whose command line names a folder, without our own."""
        return [pid for pid, line in processes_of(folder).items() if str(folder) in line]


def shell_call(command: str, **given: object) -> ScriptedToolCall:
    """Return a call of Codex's shell."""
    return ScriptedToolCall(tool="exec_command", input={"cmd": command, **given})


def ask_first(command: str) -> ScriptedToolCall:
    """Return a call of its shell that needs the permission of a person."""
    return shell_call(command, sandbox_permissions="require_escalated", justification="to see")


def bus_call(name: str, **given: object) -> ScriptedToolCall:
    """Return a call of one of our tools."""
    return ScriptedToolCall(tool=name, input=given, namespace="mcp__palaver")


@contextmanager
def codex_stage(program: Path) -> Iterator[CodexStage]:
    """Open a stage; its processes, terminals and files are removed at the end of the block."""
    folder = new_folder(program)
    with mock_model(Script()) as model:
        write_settings(folder, model)
        home = HarnessHome(folder / "home", model, "codex")
        with bus(home, may_use_bus=True) as people:
            stage = CodexStage(home, model, people)
            load_tools(home)
            yield stage


def load_tools(home: HarnessHome) -> None:
    """Have the daemon load its tools first: Codex does not wait for them, and the scripted model is fast."""
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
    """Write the settings by which Codex finds its model."""
    path = folder / "account" / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text(SETTINGS.format(url=model.url, folder=folder))
