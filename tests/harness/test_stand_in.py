"""The program that replaces a harness in other tests behaves like the real harnesses."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.real.behaviours import (
    leaves_a_dialog_as_it_is,
    leaves_a_draft_as_it_was,
    wakes_one_that_rests,
)
from tests.harness.real.claude_stage import ClaudeStage
from tests.harness.real.harness_home import HarnessHome, bus, new_folder
from tests.harness.real.harness_stage import NAME
from tests.holder.stage import PROGRAMS

from palaver.app.mock_model import Script, mock_model


class StandIn(ClaudeStage):
    """`moods.py` with the screen of Claude Code. It has no model, so a sent text counts as received."""

    sign = "❯".encode()
    question = "Do you want to proceed?"

    @property
    def record(self) -> Path:
        return self.project / "record"

    def begin(self, prompt: str = "", *, asks: bool = False, lane: str = "") -> None:
        assert (prompt, lane) == ("", "terminal"), "it has nothing but a terminal"
        orders = self.project / "orders"
        os.mkfifo(orders)
        words = (sys.executable, "-ISE", str(PROGRAMS / "moods.py"), str(self.record), str(orders), "framed")
        self.launch("pal", "run", "--name", NAME, "--harness", "claude", "--detach", "--", *words)
        self.be("idle")
        self.until_idle()

    def be(self, mood: str) -> None:
        """Order a mood, and wait until the terminal has shown it."""
        before = self._noted("mood").count(mood)
        self.until(lambda: self._noted("mood"))
        (self.project / "orders").write_text(f"{mood}\n")
        self.until(lambda: self._noted("mood").count(mood) > before)

    def begin_asking(self, lane: str) -> None:
        self.begin(lane=lane)
        self.be("dialog")

    def has_leave(self) -> bool:
        """Return whether permission was given: by any key, or because the dialog is closed."""
        return bool(self._noted("read:dialog")) or self._noted("mood")[-1] == "idle"

    def give_leave(self) -> None:
        self.be("idle")

    def told(self, text: str) -> str:
        self.until(lambda: text in self.all_told())
        return self.all_told()

    def all_told(self) -> str:
        return "\n".join(bytes.fromhex(value).decode() for value in self._noted("sent"))

    def _noted(self, word: str) -> list[str]:
        text = self.record.read_text() if self.record.exists() else ""
        lines = [line.split(" ") for line in text.rpartition("\n")[0].splitlines()]
        return [value for noted, value in lines if noted == word]


@pytest.fixture
def stage() -> Iterator[StandIn]:
    """A home with a running bus in which the stand-in can be started."""
    folder = new_folder()
    with mock_model(Script()) as model:
        home = HarnessHome(folder / "home", model)
        with bus(home) as people:
            yield StandIn(home, model, people)


def test_message_wakes_an_idle_agent(stage: StandIn) -> None:
    wakes_one_that_rests(stage, "terminal")


def test_dialog_is_unchanged_and_messages_come_after_it(stage: StandIn) -> None:
    leaves_a_dialog_as_it_is(stage, "terminal")


def test_draft_is_unchanged(stage: StandIn) -> None:
    leaves_a_draft_as_it_was(stage, "terminal")
