"""Sub-agents started by the `task` tool of OpenCode: each has its own name, messages and state."""

from collections.abc import Iterator

import pytest
from tests.harness.real.harness_stage import reply, send, tool
from tests.harness.real.install import installed
from tests.harness.real.opencode_installed_stage import installed_stage
from tests.harness.real.opencode_stage import OpenCodeStage, opencode_stage

from palaver.app.mock_model import Rule, ScriptedReply

pytestmark = pytest.mark.harness

CHILD = "SUBPROMPT"
"""The prompt of the sub-agent, contained in all of its requests."""


@pytest.fixture
def opencode() -> Iterator[OpenCodeStage]:
    """A home with a running bus in which OpenCode can be started."""
    with opencode_stage(installed("opencode")) as stage:
        yield stage


def task() -> ScriptedReply:
    return reply("", tool("task", description="look", prompt=f"{CHILD} look at it", subagent_type="general"))


def child_says(opencode: OpenCodeStage, *replies: ScriptedReply) -> None:
    """Script the model of the sub-agent; no user message of its parent matches the rules."""
    opencode.script.add_rules(
        *(Rule(pattern=rf'"role": ?"user", ?"content": ?"{CHILD}', reply=one) for one in replies)
    )


def test_message_to_a_sub_agent_goes_into_its_own_session(opencode: OpenCodeStage) -> None:
    child_says(
        opencode,
        reply("", tool("bash", command="echo sub-result", description="x"), gate="busy"),
        reply("sub done"),
    )
    opencode.script.add(task(), reply("parent done"))
    opencode.start("--prompt", "go on")
    opencode.until(lambda: opencode.state("nova_general_1")[0] == "active")
    luna = opencode.friend()

    seq = send(luna, "@nova_general_1", "--", "for the child alone")
    opencode.until(lambda: opencode.receipt(seq)["state"] == "submitted")
    opencode.script.open("busy")

    conversation = opencode.told("for the child alone")
    assert CHILD in conversation
    assert "sub-result" in conversation
    receipt = opencode.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")
    opencode.until(lambda: opencode.state("nova_general_1")[0] in ("", "exited"))
    opencode.until_idle()
    assert "for the child alone" not in opencode.script.main[-1].conversation
    status = [one for one in opencode.home.events("--type", "status") if one["payload"].get("command")]
    assert [(one["from"], one["payload"]["command"]) for one in status] == [
        ("nova_general_1", "echo sub-result")
    ]


def test_request_of_a_sub_agent_blocks_it_and_its_parent(opencode: OpenCodeStage) -> None:
    made = opencode.project / "made.txt"
    child_says(opencode, reply("", opencode.asking_to_make(made)), reply("sub done"))
    opencode.script.add(task(), reply("parent done"))
    opencode.start("--prompt", "go on")

    asked = ("blocked", f"permission: edit: {made}")
    opencode.until(lambda: opencode.state("nova_general_1") == asked)
    opencode.until(lambda: opencode.state() == asked)
    opencode.until(lambda: "Allow once" in opencode.screen())
    seq = send(opencode.friend(), "@nova_general_1", "--", "while it asks")
    shown = {one["agent"] for one in opencode.home.ok("pending", "--json").lines}
    assert "nova_general_1" in shown
    assert opencode.receipt(seq)["state"] == "queued"
    assert not made.exists()

    opencode.answer_dialog(opencode.sit_down(last=b"Reject"))

    opencode.until(made.exists)
    opencode.until_idle()


def test_installed_plugin_identifies_the_shell_of_a_sub_agent() -> None:
    with installed_stage(installed("opencode")) as opencode:
        whoami = f"{opencode.shell_pal} --home {opencode.home.path} whoami --json"
        child_says(opencode, reply("", tool("bash", command=whoami, description="x")), reply("sub done"))
        opencode.script.add(task(), reply("parent done"))
        process = opencode.serve()
        try:
            session = opencode.begin_session("go on")

            conversation = opencode.told('\\"kind\\":')
            name = opencode.agents()[session]
            assert f'\\"name\\":\\"{name}_general_1\\"' in conversation
            assert f"You are {name}_general_1" in conversation
        finally:
            process.kill()
            process.wait()
