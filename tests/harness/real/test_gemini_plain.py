"""Gemini CLI started by a person without `pal`, after `pal install gemini`: when it gets its messages."""

from collections.abc import Callable, Iterator

import pytest
from tests.app.person import Person
from tests.harness.real.gemini_stage import GeminiStage, gemini_stage
from tests.harness.real.harness_stage import PATIENCE_S, reply, send
from tests.harness.real.install import installed

pytestmark = pytest.mark.harness


@pytest.fixture
def gemini() -> Iterator[GeminiStage]:
    """A home with a running bus in which Gemini CLI can be started."""
    with gemini_stage(installed("gemini")) as stage:
        yield stage


@pytest.fixture
def person(gemini: GeminiStage) -> Iterator[Person]:
    """A person at a terminal without an agent."""
    somebody = Person(gemini.home, cols=100, rows=30, term="xterm-256color")
    yield somebody
    somebody.close()


def test_messages_while_idle_are_held_until_the_next_prompt(gemini: GeminiStage, person: Person) -> None:
    def until(is_so: Callable[[], object]) -> None:
        def is_so_now() -> object:
            person.drain()  # a terminal blocks if its output is not read
            return is_so()

        gemini.until(is_so_now)

    def has_asked_again() -> bool:
        person.drain()
        return len(gemini.script.main) == 2

    def names() -> list[str]:
        agents = gemini.home.ok("list", "--json").lines
        return [str(one["name"]) for one in agents if one["harness"] == "gemini"]

    gemini.script.add(reply("first"), reply("second"))
    gemini.home.ok("install", "gemini", "--yes")
    luna = gemini.friend()
    person.run("COLORTERM=truecolor gemini -i 'go on'")
    until(names)
    (name,) = names()
    until(lambda: len(gemini.script.main) == 1 and gemini.state(name)[0] == "idle")

    seq = send(luna, f"@{name}", "--", "are you there?")
    until(lambda: gemini.receipt(seq)["state"] == "held")

    receipt = gemini.receipt(seq)
    assert (receipt["lane"], receipt["reason"]) == ("hook", "asleep")
    until(lambda: "nothing can wake it" in luna.ok("recv", "--peek", "--json").out)
    assert len(gemini.script.main) == 1

    person.press(b"go on again")
    while len(gemini.script.main) < 2:  # an Enter right after a text is taken as part of the text
        gemini.wait(has_asked_again, PATIENCE_S)
        person.press(b"\r")
        gemini.wait(has_asked_again, PATIENCE_S)

    asked = gemini.script.main[1].conversation
    assert asked.count("are you there?") == 1
    assert "go on again" in asked
    until(lambda: gemini.receipt(seq)["state"] == "seen")
    seen = gemini.receipt(seq)
    assert (seen["lane"], seen["grade"]) == ("hook", "context")
