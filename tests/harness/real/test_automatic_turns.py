"""Automatic turns with the real programs: an absent agent continues its session, without a terminal."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.daemon.stage import JsonLine, check_output, run_as_person
from tests.harness.real.claude_stage import ClaudeStage, claude_stage
from tests.harness.real.codex_stage import codex_stage
from tests.harness.real.gemini_stage import gemini_stage
from tests.harness.real.harness_stage import NAME, HarnessStage, reply
from tests.harness.real.install import installed
from tests.harness.real.opencode_stage import opencode_stage

pytestmark = pytest.mark.harness

STAGES: dict[str, Callable[[Path], AbstractContextManager[HarnessStage]]] = {
    "claude": claude_stage,
    "codex": codex_stage,
    "gemini": gemini_stage,
    "opencode": opencode_stage,
}
WORD = "the word is lantern"


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> Iterator[HarnessStage]:
    with STAGES[request.param](installed(request.param)) as made:
        yield made
        run_as_person(made.home, "turn", "stop")


def be_absent(stage: HarnessStage) -> None:
    """Start the agent, let it say the word in a session, and end it."""
    stage.script.add(reply(WORD))
    stage.begin("say the word")
    stage.until(lambda: WORD in stage.screen())
    stage.until_idle()
    stage.end()


def turns(stage: HarnessStage, count: int) -> list[JsonLine]:
    """Wait until `count` turns have ended, and return the events of their ends."""
    ends = ("--type", "auto-turn-result", "--type", "auto-turn-error")
    stage.until(lambda: len(stage.home.events(*ends)) >= count)
    return stage.home.events(*ends)


def test_absent_agent_acts_in_its_session_and_uses_the_bus(stage: HarnessStage) -> None:
    be_absent(stage)
    luna = stage.friend()
    check_output(run_as_person(stage.home, "turn", "start"))
    check_output(run_as_person(stage.home, "turn", "set", NAME, "--accept", "build", "--debounce-ms", "50"))
    stage.script.add(*stage.bus_replies("send", to=["@luna"], text="one test fails"), reply("I told luna"))

    seq = luna.ok("route", f"agent/{NAME}", "--command", "build", "--payload", '"red"', "--json").json["seq"]
    (end,) = turns(stage, 1)

    assert (end["type"], end["payload"].get("text")) == ("auto-turn-result", "I told luna")
    assert "one test fails" in luna.ok("recv", "--wait", "--timeout", "5").out
    assert stage.receipt(seq)["state"] == "seen"
    assert WORD in stage.all_told()

    stage.script.add(reply("all is well"))
    luna.ok("route", f"agent/{NAME}", "--command", "build", "--payload", '"green"')
    again = turns(stage, 2)[-1]

    assert again["payload"].get("text") == "all is well"
    assert "I told luna" in stage.all_told()
    stage.until(lambda: not [line for line in stage.processes() if "palaver.app __runner" not in line])


def test_cheap_model_decides_whether_a_batch_deserves_a_turn(claude: ClaudeStage) -> None:
    claude.start(*claude.words("", asks=False))
    claude.end()
    luna = claude.friend()
    check_output(run_as_person(claude.home, "turn", "set", NAME, "--debounce-ms", "50"))
    check_output(run_as_person(claude.home, "turn", "start"))
    claude.script.add(reply("NO, a greeting"))

    luna.ok("route", f"agent/{NAME}", "--command", "greet")
    claude.until(lambda: claude.home.events("--type", "turn.skipped"))
    claude.script.add(reply("YES"), reply("done with it"))
    luna.ok("route", f"agent/{NAME}", "--command", "fix")
    (end,) = turns(claude, 1)

    assert end["payload"].get("text") == "done with it"
    models = [request.body.get("model") for request in claude.script.main]
    assert [str(model) for model in models[:2] if "haiku" in str(model)] == models[:2]
    run_as_person(claude.home, "turn", "stop")
