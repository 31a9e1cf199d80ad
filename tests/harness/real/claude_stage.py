"""Claude Code: how it is started here, and what it looks like."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.real.harness_home import HarnessHome, bus, new_folder
from tests.harness.real.harness_stage import HarnessStage, reply, tool

from palaver.cli.doctor.accounts import account_for
from palaver.cli.mock_model.script import Reply, Script, ToolCall
from palaver.cli.mock_model.server import mock_model

_SAID_AGAIN = re.compile(r'Stop hook blocking error from command: (?:[^"\\]|\\.)*"')
PREFIX = "mcp__plugin_palaver_palaver__"


class ClaudeStage(HarnessStage):
    """One Claude Code, its model, and others who write to it."""

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

    def shell(self, command: str) -> ToolCall:
        return tool("Bash", command=command, description="do it")

    def asking_to_make(self, path: Path) -> ToolCall:
        return tool("Write", file_path=str(path), content="x")

    def bus_replies(self, name: str, **given: object) -> list[Reply]:
        """It looks a tool up before it can call it."""
        found = tool("ToolSearch", query=f"select:{PREFIX}{name}")
        return [reply("", found, awaits=f"{PREFIX}{name}"), reply("", tool(PREFIX + name, **given))]

    def composer(self, text: str) -> str:
        return f"❯ {text}"

    def dialog(self) -> str:
        """What stands below the last rule: above it a picture moves by itself."""
        below = self.screen().rpartition("────────")[2]
        return below if "Esc to cancel" in below else ""

    def screen(self, name: str = "nova") -> str:
        """What its terminal shows; the blank that does not break is one like any other."""
        return super().screen(name).replace("\xa0", " ")

    def count(self, text: str, conversation: str) -> int:
        """It puts the reason of a Stop hook to its model twice: as feedback, and as what a command said."""
        return super().count(text, _SAID_AGAIN.sub("", conversation))


@contextmanager
def claude_stage(program: Path) -> Iterator[ClaudeStage]:
    """All of it, ended with the block: processes, terminals, files."""
    folder = new_folder(program)
    write_account(folder)
    with mock_model(Script()) as model:
        home = HarnessHome(folder / "home", model, "claude")
        with bus(home) as people:
            yield ClaudeStage(home, model, people)


def write_account(folder: Path) -> None:
    """Have Claude Code ask nothing of whoever starts it there."""
    for name, text in account_for("claude", "", str(folder)).files.items():
        (folder / "account" / name).write_text(text)
