"""Sub-agents that Codex starts: each has its own name and messages, and ends when it is closed."""

import re
from collections.abc import Iterator

import pytest
from tests.harness.real.codex_stage import CodexStage, codex_stage, shell_call
from tests.harness.real.harness_stage import reply, send
from tests.harness.real.install import installed

from palaver.app.mock_model import Rule, ScriptedReply, ScriptedToolCall

pytestmark = pytest.mark.harness

SUB = "nova_explorer_1"
FREE = ("-s", "danger-full-access", "-a", "never")
TASK = "look into the cellar"


@pytest.fixture
def codex() -> Iterator[CodexStage]:
    """A home with a running bus in which Codex can be started."""
    with codex_stage(installed("codex")) as stage:
        yield stage


def crew_call(name: str, **given: object) -> ScriptedToolCall:
    """Return a call of one of Codex's tools for sub-agents."""
    return ScriptedToolCall(tool=name, input=given, namespace="multi_agent_v1")


def in_sub(*replies: ScriptedReply) -> list[Rule]:
    """Return rules for the model of the sub-agent: each reply follows the result of the one before it."""
    marks = [f'"text":\\s*"{TASK}"', *(f"step-{number}" for number in range(1, len(replies)))]
    ahead = [*marks[1:], "never-there"]
    return [
        Rule(pattern=f"(?s)^(?!.*{later}).*{mark}", reply=one)
        for mark, later, one in zip(marks, ahead, replies, strict=True)
    ]


def begin(codex: CodexStage, *steps: ScriptedReply) -> None:
    """Start it, and have it start a sub-agent that does these steps."""
    codex.script.add_rules(*in_sub(*steps))
    codex.script.add(reply("", crew_call("spawn_agent", message=TASK, agent_type="explorer")))
    codex.start(*FREE, "go")
    codex.until(lambda: codex.state(SUB)[0])


def test_open_sub_agent_gets_its_own_messages(codex: CodexStage) -> None:
    waiting, there = codex.project / "go", codex.project / "there"
    wait = f"touch {there}; while [ ! -e {waiting} ]; do sleep 0.05; done; echo step-1"
    begin(codex, reply("", shell_call(wait)), reply("looked"))
    codex.until(there.exists)

    codex.until(lambda: codex.state(SUB)[1].startswith("Bash: touch "))
    (status,) = [
        one for one in codex.home.events("--agent", SUB, "--type", "status") if "tool" in one["payload"]
    ]
    assert (status["payload"]["tool"], status["payload"]["command"]) == ("Bash", wait)
    luna = codex.friend()
    seq = send(luna, f"@{SUB}", "--", "mind the stairs")
    codex.until(lambda: codex.receipt(seq)["state"] == "submitted")
    waiting.touch()

    assert codex.until_seen(seq)["grade"] == "context"
    # The scripted model may note the request a moment after the receipt.
    codex.until(lambda: any("mind the stairs" in one.conversation for one in codex.script.main))
    (asked,) = [one.conversation for one in codex.script.main if "mind the stairs" in one.conversation]
    assert TASK in asked
    codex.until(lambda: codex.state(SUB)[0] == "idle")
    again = send(luna, f"@{SUB}", "--", "and the wine?")
    assert codex.until_seen(again)["grade"] == "context"


def test_shell_of_a_sub_agent_speaks_as_the_sub_agent(codex: CodexStage) -> None:
    luna = codex.friend()

    begin(
        codex,
        reply("", shell_call(f"{codex.shell_pal} send @luna -- from below; echo step-1")),
        reply("looked"),
    )

    codex.until(lambda: "step-1" in codex.script.main[-1].conversation)
    got = [(one["from"], one["text"]) for one in luna.ok("recv", "--json").lines]
    assert (SUB, "from below") in got


def test_closed_sub_agent_has_left(codex: CodexStage) -> None:
    begin(codex, reply("looked"))
    codex.until_idle()
    codex.until(lambda: codex.state(SUB)[0] == "idle")
    conversation = "".join(one.text for one in codex.script.main)
    found = re.search(r'agent_id[\\": ]+([0-9a-f-]{36})', conversation)
    assert found is not None
    codex.script.add(reply("", crew_call("close_agent", target=found[1])), reply("closed"))

    send(codex.friend(), "@nova", "--", "close it")

    codex.until(lambda: codex.state(SUB)[0] in ("exited", ""))
    (bye,) = codex.home.events("--agent", SUB, "--type", "agent.bye")
    assert bye["payload"]["reason"] == "its thread was closed"


def test_sub_agents_end_with_their_agent(codex: CodexStage) -> None:
    begin(codex, reply("looked"))
    codex.until(lambda: codex.state(SUB)[0] == "idle")

    codex.end()

    codex.until(lambda: codex.state(SUB)[0] in ("exited", ""))
