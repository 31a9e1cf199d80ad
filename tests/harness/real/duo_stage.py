"""One bus with Claude Code and Codex, each with a model that replies to incoming messages."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness.real.claude_stage import ClaudeStage, write_account
from tests.harness.real.codex_stage import CodexStage, bus_call, load_tools, shell_call, write_settings
from tests.harness.real.harness_home import HarnessHome, bus, new_folder
from tests.harness.real.harness_stage import reply, tool

from palaver.app.mock_model import Request, Script, ScriptedReply, ScriptedToolCall, mock_model

CLAUDE = "nova"
CODEX = "cody"


class Talker(Script):
    """A model with a list of texts: it sends the next one in reply to each message."""

    def __init__(
        self, pattern: str, say: Callable[[str, str], ScriptedToolCall], lines: Sequence[str]
    ) -> None:
        """Find messages and their seq with `pattern`, and reply with the calls of `say`."""
        super().__init__()
        self._pattern = re.compile(pattern)
        self._say = say
        self._lines = list(lines)
        self._answered: set[str] = set()

    def take(self, request: Request) -> ScriptedReply:
        reply_if_silent = super().take(request)
        if not request.is_main or not self._lines:
            return reply_if_silent
        for found in self._pattern.finditer(request.conversation):
            seq = found[1]
            if seq not in self._answered:
                self._answered.add(seq)
                return reply("", self._say(self._lines.pop(0), seq))
        return reply_if_silent


class CodexTalker(Talker):
    """A talker for Codex, which starts when the tools are available."""

    def take(self, request: Request) -> ScriptedReply:
        if request.is_main and '"mcp__palaver' not in request.text:
            return reply("", shell_call("sleep 1"))
        return super().take(request)


class Duo:
    """Both harnesses in one home."""

    def __init__(self, claude: ClaudeStage, codex: CodexStage) -> None:
        self.claude = claude
        self.codex = codex
        self.home = claude.home

    @property
    def scripts(self) -> list[Script]:
        """The requests to both models."""
        return [self.claude.script, self.codex.script]

    def left(self) -> list[Path]:
        """Return all remaining files and sockets of agents."""
        return [path for path in self.claude.left() if path in self.codex.left()]


def claude_says(text: str, seq: str) -> ScriptedToolCall:
    """Return a call by which Claude Code sends a message from its shell."""
    how = f"--reply-to {seq}" if seq else "--intent request"
    return tool("Bash", command=f"pal send @{CODEX} {how} -- '{text}'", description="write")


def codex_says(text: str, seq: str) -> ScriptedToolCall:
    """Return a call by which Codex sends a message with a tool; its sandboxed shell cannot reach the bus."""
    return bus_call("send", text=text, to=f"@{CLAUDE}", reply_to=seq)


@contextmanager
def duo(claude: Path, codex: Path, claude_lines: Sequence[str], codex_lines: Sequence[str]) -> Iterator[Duo]:
    """Open both stages; processes, terminals and files are removed at the end of the block."""
    folder = new_folder(claude, codex)
    write_account(folder)
    asked = Talker(rf"#(\d+)[^\]]*\] {CODEX} → {CLAUDE}: ", claude_says, claude_lines)
    answering = CodexTalker(rf"#(\d+)[^\]]*\] {CLAUDE} → {CODEX}: ", codex_says, codex_lines)
    with mock_model(asked) as claude_model, mock_model(answering) as codex_model:
        write_settings(folder, codex_model)
        home = HarnessHome(folder / "home", claude_model, "claude", "codex")
        with bus(home, may_use_bus=True) as people:
            load_tools(home)
            yield Duo(ClaudeStage(home, claude_model, people), CodexStage(home, codex_model, people))
