"""`pal fork` with the real programs: the copy knows the conversation, and the first session is unchanged."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.harness.real.claude_stage import claude_stage
from tests.harness.real.codex_stage import codex_stage
from tests.harness.real.harness_stage import NAME, HarnessStage, reply, send
from tests.harness.real.install import installed
from tests.harness.real.opencode_stage import opencode_stage

pytestmark = pytest.mark.harness

STAGES: dict[str, Callable[[Path], AbstractContextManager[HarnessStage]]] = {
    "claude": claude_stage,
    "codex": codex_stage,
    "opencode": opencode_stage,
}


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> Iterator[HarnessStage]:
    with STAGES[request.param](installed(request.param)) as made:
        yield made


def test_copy_continues_the_conversation_under_a_new_name(stage: HarnessStage) -> None:
    stage.script.add(reply("the word is lantern"))
    stage.begin("say the word")
    stage.until(lambda: "the word is lantern" in stage.screen())
    stage.until_idle()

    stage.launch("pal", "fork", NAME, "--name", "vega", "--detach", name="vega")
    stage.until(lambda: stage.is_ready("vega"))
    luna = stage.friend()
    send(luna, "@vega", "--", "to the copy")
    asked = stage.told("to the copy")
    send(luna, f"@{NAME}", "--", "to the first")
    first = stage.told("to the first")

    assert "the word is lantern" in asked
    assert "to the copy" not in first
    assert stage.state(NAME)[0] in ("idle", "active")
