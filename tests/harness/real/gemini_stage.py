"""A home, a scripted model, and Gemini CLI with nothing of whoever runs the tests."""

import json
import os
import shlex
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.person import Person, holders_of
from tests.daemon.stage import run_script_as_person
from tests.harness.real.opencode_stage import SlowStage
from tests.harness.real.stage import HarnessHome, bus

from palaver.cli.mock_model.script import Script
from palaver.cli.mock_model.server import MockModel, mock_model

SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "telemetry": {"enabled": False},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
    "model": {"name": "gemini-2.5-flash"},
}


class GeminiHome(HarnessHome):
    """A home in which Gemini CLI asks nobody but the scripted model."""

    def __init__(self, path: Path, model: MockModel) -> None:
        super().__init__(path, model)
        self._url = model.url

    @property
    def environment(self) -> dict[str, str]:
        return {
            **super().environment,
            "GEMINI_API_KEY": "dummy",
            "GOOGLE_GEMINI_BASE_URL": self._url,
            "GEMINI_TELEMETRY_ENABLED": "false",
        }


class GeminiStage(SlowStage):
    """One Gemini CLI, its model, and others who write to it."""

    def start(self, *arguments: str, name: str = "nova") -> None:
        """Start it in the background and wait until it can be reached."""
        words = ("pal", "gemini", "--name", name, "--detach", *arguments)
        assert run_script_as_person(self.home, f"cd {self.project} && {shlex.join(words)}").out == f"{name}\n"
        self.until(lambda: self.state(name)[0] in ("idle", "active", "blocked"))

    def sit_down(self, name: str = "nova", last: bytes = b"gemini-2.5-flash") -> Person:
        """A person at its terminal who has read its screen up to a word: one that nobody reads is stuck."""
        person = Person(self.home, cols=100, rows=30)
        self._people.append(person)
        person.run(f"pal attach {name} --plain")
        person.until(last)
        return person

    def end(self) -> None:
        """Have its holder end it, and wait until nothing of it is there."""
        for holder in holders_of(self.home.path):
            os.kill(holder, signal.SIGTERM)
        self.until(lambda: not holders_of(self.home.path))

    @property
    def settings(self) -> Path:
        """The user's own settings."""
        return self.account / ".gemini" / "settings.json"


@contextmanager
def gemini_stage(program: Path) -> Iterator[GeminiStage]:
    """All of it, ended with the block: processes, terminals, files."""
    folder = Path(tempfile.mkdtemp(prefix="pal-real-"))
    for name in ("account/.gemini", "tmp", "bin"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "gemini").symlink_to(program.resolve())
    (folder / "account" / ".gemini" / "settings.json").write_text(json.dumps(SETTINGS))
    with mock_model(Script()) as model:
        home = GeminiHome(folder / "home", model)
        with bus(home) as people:
            yield GeminiStage(home, model, people)
