"""Claude Code: how the tests start it, and what its screen shows."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.real.harness_home import HarnessHome, bus, new_folder
from tests.harness.real.harness_stage import HarnessStage, reply, tool

from palaver.app.doctor import account_for
from palaver.app.mock_model import Script, ScriptedReply, ScriptedToolCall, mock_model

_SAID_AGAIN = re.compile(r'Stop hook blocking error from command: (?:[^"\\]|\\.)*"')
PREFIX = "mcp__plugin_palaver_palaver__"


class ClaudeStage(HarnessStage):
    """One Claude Code, its model, and other agents that write to it."""

    harness = "claude"
    lanes = ("native", "terminal")
    resume = ("--continue",)
    sign = "❯".encode()
    question = "Do you want to create"
    tools_sign = f"{PREFIX}send"
    own_files = (".claude/settings.json",)
    leaves = ("claude-", "cc-socks")

    def words(self, prompt: str, *, asks: bool) -> tuple[str, ...]:
        allowed = () if asks else (f"--allowedTools=Bash,{PREFIX}send",)
        return ("--permission-mode", "manual", *allowed, *([prompt] if prompt else []))

    def shell(self, command: str) -> ScriptedToolCall:
        return tool("Bash", command=command, description="do it")

    def asking_to_make(self, path: Path) -> ScriptedToolCall:
        return tool("Write", file_path=str(path), content="x")

    def bus_replies(self, name: str, **given: object) -> list[ScriptedReply]:
        """Return the replies that call a tool; Claude Code looks a tool up before it calls it."""
        found = tool("ToolSearch", query=f"select:{PREFIX}{name}")
        return [reply("", found, awaits=f"{PREFIX}{name}"), reply("", tool(PREFIX + name, **given))]

    def composer(self, text: str) -> str:
        return f"❯ {text}"

    def dialog(self) -> str:
        """Return the text below the last rule; an animation above it changes by itself."""
        below = self.screen().rpartition("────────")[2]
        return below if "Esc to cancel" in below else ""

    def screen(self, name: str = "nova") -> str:
        """Return the screen of its terminal, with normal blanks instead of non-breaking ones."""
        return super().screen(name).replace("\xa0", " ")

    def count(self, text: str, conversation: str) -> int:
        """Count a text, ignoring the second copy of a Stop hook's reason that the model gets."""
        return super().count(text, _SAID_AGAIN.sub("", conversation))


@contextmanager
def claude_stage(program: Path) -> Iterator[ClaudeStage]:
    """Open a stage; its processes, terminals and files are removed at the end of the block."""
    folder = new_folder(program)
    write_account(folder)
    with mock_model(Script()) as model:
        home = HarnessHome(folder / "home", model, "claude")
        with bus(home) as people:
            yield ClaudeStage(home, model, people)


def write_account(folder: Path) -> None:
    """Write an account with which Claude Code asks nothing at its start."""
    for name, text in account_for("claude", "", str(folder)).files.items():
        (folder / "account" / name).write_text(text)
