"""Gemini CLI: how the tests start it, and what its screen shows."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.real.harness_home import HarnessHome, bus, new_folder
from tests.harness.real.harness_stage import HarnessStage, reply, tool

from palaver.app.doctor import account_for
from palaver.app.mock_model import Script, ScriptedReply, ScriptedToolCall, mock_model

SHELL = "run_shell_command"
_FRAME = re.compile(r"^╭.*?^╰[^\n]*", re.MULTILINE | re.DOTALL)


class GeminiStage(HarnessStage):
    """One Gemini CLI, its model, and other agents that write to it."""

    harness = "gemini"
    lanes = ("hook", "terminal")
    resume = ("--resume", "latest")
    sign = b"gemini-2.5-flash"
    question = "Allow once"
    tools_sign = "mcp_palaver_send"
    own_files = (".gemini/settings.json",)
    leaves = ("gemini-",)

    def words(self, prompt: str, *, asks: bool) -> tuple[str, ...]:
        mode = "default" if asks else "yolo"
        return ("--approval-mode", mode, *(("-i", prompt) if prompt else ()))

    def shell(self, command: str) -> ScriptedToolCall:
        return tool(SHELL, command=command)

    def asking_to_make(self, path: Path) -> ScriptedToolCall:
        return tool(SHELL, command=f"touch {path}")

    def bus_replies(self, name: str, **given: object) -> list[ScriptedReply]:
        return [reply("", tool(f"mcp_palaver_{name}", **given), awaits=f"mcp_palaver_{name}")]

    def composer(self, text: str) -> str:
        return f"> {text}"

    def dialog(self) -> str:
        """Return the frame at the left edge that contains the question."""
        return next((one for one in _FRAME.findall(self.screen()) if self.question in one), "")

    def is_ready(self, name: str) -> bool:
        return "terminal" in self.gates(name) and self.state(name)[0] in ("idle", "active", "blocked")

    @property
    def settings(self) -> Path:
        """The settings file of the user."""
        return self.account / ".gemini" / "settings.json"


@contextmanager
def gemini_stage(program: Path) -> Iterator[GeminiStage]:
    """Open a stage; its processes, terminals and files are removed at the end of the block."""
    folder = new_folder(program)
    with mock_model(Script()) as model:
        for name, text in account_for("gemini", model.url, str(folder)).files.items():
            (folder / "account" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "account" / name).write_text(text)
        home = HarnessHome(folder / "home", model, "gemini")
        with bus(home) as people:
            yield GeminiStage(home, model, people)
