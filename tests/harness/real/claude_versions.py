"""Claude Code as `npm install` selects it on an older Node; its plugins have no monitors."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.real.claude_stage import PREFIX, ClaudeStage, write_account
from tests.harness.real.harness_home import HarnessHome, bus, new_folder
from tests.harness.real.harness_stage import NAME, HarnessStage
from tests.harness.real.install import installed
from tests.processes import processes_of

from palaver.app.mock_model import Script, mock_model


class OldClaudeStage(ClaudeStage):
    """The old version, its model, and other agents that write to it."""

    def words(self, prompt: str, *, asks: bool) -> tuple[str, ...]:
        """Return its arguments; the mode that asks has another name in this version."""
        allowed = () if asks else (f"--allowedTools=Bash,{PREFIX}send",)
        return ("--permission-mode", "default", *allowed, *([prompt] if prompt else []))

    def is_ready(self, name: str) -> bool:
        """Return whether a process is waiting that can wake it."""
        return self.can_be_woken(name) and HarnessStage.is_ready(self, name)

    def rest(self) -> None:
        """Wait until it is idle and exactly one process waits to wake it."""
        self.until(lambda: self.state()[0] == "idle" and self.can_be_woken())
        self.until(lambda: len(waiters(self)) == 1)

    def can_be_woken(self, name: str = NAME) -> bool:
        """Return whether the native lane is open; there may be no such lane yet."""
        gates = self.home.ok("status", name, "--json").json.get("gates") or []
        return any(gate["lane"] == "native" and not gate["reason"] for gate in gates)


def waiters(claude: HarnessStage) -> list[int]:
    """Return the processes that wait to wake a session."""
    return [pid for pid, line in processes_of(claude.home.path).items() if " rewake " in line]


@contextmanager
def old_claude_stage() -> Iterator[OldClaudeStage]:
    """Open a stage of the old version; processes, terminals and files are removed with the block."""
    folder = new_folder(installed("claude-old"))
    write_account(folder)
    with mock_model(Script()) as model:
        home = HarnessHome(folder / "home", model, "claude")
        with bus(home) as people:
            yield OldClaudeStage(home, model, people)
