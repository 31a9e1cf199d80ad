"""A Claude Code started by its user without `pal`, after `pal install`: no holder sees its screen."""

from tests.harness.real.claude_stage import ClaudeStage


class Unheld:
    """One session at its user's own terminal."""

    def __init__(self, claude: ClaudeStage) -> None:
        self.claude = claude
        self.person = person = claude.person()
        claude.home.ok("install", "claude", "--yes")
        mode = claude.words("", asks=True)[1]
        person.run(f"cd {claude.project} && claude --permission-mode {mode}")
        # The very first session loads the plugin only after its start, and joins with a prompt.
        claude.until(lambda: any(line.endswith(" mcp") for line in claude.processes()))
        self.write("hello")
        claude.until(self._names)
        (self.name,) = self._names()
        claude.until(lambda: self.state == "idle" and len(claude.script.main) == 1)
        claude.until(lambda: "native" in (claude.home.ok("status", self.name, "--json").out))

    def _names(self) -> list[str]:
        found = self.claude.home.ok("list", "--json").lines
        return [one["name"] for one in found if one["harness"] == "claude"]

    @property
    def state(self) -> str:
        """Its state as the bus knows it."""
        return self.claude.state(self.name)[0]

    def write(self, word: str) -> None:
        """Type one word and send it."""
        self.person.press(word.encode())
        self.person.until(word.encode())
        self.person.press(b"\r")
