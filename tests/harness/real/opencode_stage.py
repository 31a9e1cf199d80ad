"""A home, a scripted model, and OpenCode with nothing of whoever runs the tests."""

import json
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.person import Person, holders_of
from tests.daemon.stage import run_script_as_person
from tests.harness.real.stage import ClaudeStage, HarnessHome, bus

from palaver.cli.mock_model.script import Request, Script
from palaver.cli.mock_model.server import MockModel, mock_model

SLOW_LIMIT_S = 90.0


class OpenCodeHome(HarnessHome):
    """A home in which OpenCode asks nobody but the scripted model."""

    @property
    def environment(self) -> dict[str, str]:
        switched_off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
        return {**super().environment, **{f"OPENCODE_DISABLE_{name}": "1" for name in switched_off}}


class SlowStage(ClaudeStage):
    """A harness that takes its time."""

    def until(self, is_so: Callable[[], bool]) -> None:
        """Look until something is so. It starts slowly, and on a busy machine very slowly."""
        end = time.monotonic() + SLOW_LIMIT_S
        while not is_so():
            assert time.monotonic() < end, f"it never came to be so: {self.state()} {self.screen()}"
            time.sleep(0.05)

    def requests(self, count: int) -> list[Request]:
        """Wait until the model was asked so often."""
        found = self.script.wait_for_main(count, SLOW_LIMIT_S)
        assert len(found) >= count, f"the model was asked {len(found)} times; there was {self.screen()}"
        return found

    def until_gone(self) -> None:
        """Wait until nothing runs any more that was started for a session."""
        end = time.monotonic() + SLOW_LIMIT_S
        while left := self.processes():
            assert time.monotonic() < end, f"these run on: {left}"
            time.sleep(0.05)

    def still_screen(self) -> str:
        """What its terminal shows once nothing moves in it any more."""
        shown = self.screen()
        while (now := _after_a_moment(self.screen)) != shown:
            shown = now
        return shown

    def gates(self, name: str = "nova") -> dict[str, str]:
        """The lanes that there are, and why each is closed; empty for one that is open."""
        found = self.home.ok("status", name, "--json").json["gates"]
        return {gate["lane"]: gate["reason"] or "" for gate in found}


class OpenCodeStage(SlowStage):
    """One OpenCode, its model, and others who write to it."""

    def start(self, *arguments: str, name: str = "nova") -> None:
        """Start it in the background and wait until it can be reached."""
        words = ("pal", "opencode", "--name", name, "--detach", *arguments)
        assert run_script_as_person(self.home, f"cd {self.project} && {shlex.join(words)}").out == f"{name}\n"
        self.until(lambda: self.state(name)[0] in ("idle", "active", "blocked"))
        self.until(lambda: "native" in self.gates(name))

    def sit_down(self, name: str = "nova", last: bytes = b"commands") -> Person:
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
    def port(self) -> int:
        """Where its server listens."""
        (place,) = self.places
        return int(json.loads((place / "server.json").read_bytes())["port"])

    @property
    def settings(self) -> Path:
        """The user's own settings."""
        return self.account / ".config" / "opencode" / "opencode.json"

    @property
    def places(self) -> list[Path]:
        """The folders of servers that there are."""
        return list((self.home.path / "agents" / "native").glob("*"))


def _after_a_moment(look: Callable[[], str]) -> str:
    time.sleep(1)
    return look()


@contextmanager
def opencode_stage(program: Path) -> Iterator[OpenCodeStage]:
    """All of it, ended with the block: processes, terminals, files."""
    folder = Path(tempfile.mkdtemp(prefix="pal-real-"))
    for name in ("account/.config/opencode", "tmp", "bin"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "opencode").symlink_to(program.resolve())
    with mock_model(Script()) as model:
        (folder / "account" / ".config" / "opencode" / "opencode.json").write_text(_settings(model))
        home = OpenCodeHome(folder / "home", model)
        with bus(home) as people:
            yield OpenCodeStage(home, model, people)


def _settings(model: MockModel) -> str:
    limit = {"context": 200_000, "output": 8_000}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Mock",
        "options": {"baseURL": f"{model.url}/v1", "apiKey": "dummy"},
        "models": {"mock-model": {"name": "Mock", "tool_call": True, "limit": limit}},
    }
    return json.dumps(
        {
            "$schema": "https://opencode.ai/config.json",  # else it writes that itself
            "model": "mock/mock-model",
            "small_model": "mock/mock-model",
            "autoupdate": False,
            "share": "disabled",
            "permission": {"edit": "ask"},
            "provider": {"mock": provider},
        }
    )
