"""Sub-agents with real daemons: scripted hooks, shells and tools of one session."""

import json
import shlex
from pathlib import Path
from typing import Any, cast

import pytest
from mcp_types import CallToolResult, RequestParamsMeta
from tests.daemon.mcp_stage import content, handshaken, pump_parameters
from tests.daemon.stage import Home, Result, Shell, wait_until
from tests.daemon.wires import LinesWire

CHILD = "nova_reviewer_1"


@pytest.fixture
def nova(bus: Home) -> Shell:
    """A process that the bus takes for a session of Claude Code."""
    shell = bus.shell()
    shell.ok("join", "--name", "nova", "--harness", "claude")
    return shell


@pytest.fixture
def luna(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "luna")
    return shell


def hook(shell: Shell, event: str, key: str = "a1", **fields: Any) -> str:
    """Run a hook inside a sub-agent, or without a key in the session itself. Return its output."""
    inside = {"agent_id": key, "agent_type": "reviewer"} if key else {}
    data = json.dumps({"session_id": "s1", **inside, **fields})
    result = shell.begin_script(f"printf %s '{data}' | pal hook claude {event}").end()
    assert (result.status, result.err) == (0, "")
    if not result.out:
        return ""
    report = result.json
    text: str = report.get("reason") or report["hookSpecificOutput"]["additionalContext"]
    return text


def listed(home: Home, name: str = CHILD) -> dict[str, Any]:
    (agent,) = [one for one in home.ok("list", "-v", "--json").lines if one["name"] == name]
    return agent


def send(shell: Shell, *words: str) -> int:
    seq: int = shell.ok("send", "--json", *words).json["seq"]
    return seq


def receipt(home: Home, seq: int) -> tuple[str, str]:
    (line,) = home.ok("receipts", str(seq), "--json").json["receipts"]
    return line["state"], line.get("grade") or ""


def test_sub_agent_is_a_separate_agent_from_its_start_to_its_end(bus: Home, nova: Shell, luna: Shell) -> None:
    hook_reply = hook(nova, "SubagentStart")
    seq = send(luna, f"@{CHILD}", "--intent", "request", "--", "look here")
    given = hook(nova, "PostToolUse")
    hook(nova, "PostToolBatch")
    hook(nova, "PreToolUse", tool_name="Edit", tool_input={"file_path": "/a.py"})

    assert f"You are {CHILD} on Palaver" in hook_reply
    assert given == f"<pal>[request #{seq}] luna → {CHILD}: look here</pal>"
    wait_until(lambda: receipt(bus, seq) == ("seen", "context"))
    wait_until(lambda: listed(bus)["detail"] == "Edit: /a.py")
    agent = listed(bus)
    assert (agent["by"], agent["parent"], agent["harness"], agent["role"]) == (
        "nova",
        "nova",
        "claude",
        "worker",
    )

    hook(nova, "SubagentStop")

    wait_until(lambda: listed(bus).get("left") is True)
    assert (listed(bus)["state"], listed(bus)["detail"]) == ("exited", "done")
    wait_until(lambda: f"@luna {CHILD} is now stopped (request #{seq})" in bus.texts())


def test_shell_of_a_session_belongs_to_its_agent_despite_sub_agents(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "SubagentStart")

    assert nova.ok("whoami", "--json").json["name"] == "nova"
    assert nova.ok("--as", CHILD, "whoami", "--json").json["by"] == "nova"
    seq = send(nova, "--as", CHILD, "@luna", "--", "it is me")
    refused = luna.pal("--as", CHILD, "whoami")

    (event,) = bus.events("--type", "message")
    assert (event["seq"], event["from"], event["by"]) == (seq, CHILD, "nova")
    assert (refused.status, CHILD in refused.err) == (1, True)
    luna.ok("send", "--reply-to", str(seq), "--", "I see")
    assert f"luna → {CHILD}: I see" in hook(nova, "PostToolUse")
    assert hook(nova, "PostToolUse", key="") == ""

    hook(nova, "SubagentStop")
    wait_until(lambda: listed(bus).get("left") is True)

    over = nova.pal("--as", CHILD, "whoami")
    assert (over.status, "has exited" in over.err) == (1, True)


def test_lists_show_sub_agents_below_their_parent(bus: Home, nova: Shell, luna: Shell) -> None:
    bus.shell().ok("join", "--name", "nova2")
    hook(nova, "SubagentStart")
    hook(nova, "SubagentStart", key="a2")

    names = [line.split("  ")[0] for line in bus.ok("list", "--text").out.splitlines()]

    assert names == ["NAME", "luna", "nova", f"└ {CHILD}", "└ nova_reviewer_2", "nova2"]
    assert "sub-agent of nova" in bus.ok("status", CHILD).out
    assert f"sub-agents: {CHILD}, nova_reviewer_2" in bus.ok("status", "nova").out


def test_sub_agent_cannot_be_resumed_or_peeked_at_separately(bus: Home, nova: Shell) -> None:
    hook(nova, "SubagentStart")

    resumed, seen = nova.pal("resume", CHILD), nova.pal("peek", CHILD)

    assert (resumed.status, seen.status) == (1, 1)
    assert f"{CHILD} is a sub-agent: only nova can resume it" in resumed.err
    assert "it is a sub-agent, inside the session of nova" in seen.err


def test_path_below_the_parent_and_a_broadcast_reach_sub_agents(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "SubagentStart")

    below = luna.ok("send", "--json", "agent/nova/*", "--", "you below").json
    all_of_them = luna.ok("send", "--json", "agent/nova/**", "--", "all of you").json
    base = luna.ok("send", "--json", "@nova", "--", "you alone").json
    everybody = luna.ok("send", "--json", "@all", "everybody").json

    assert below["delivered_to"] == [CHILD]
    assert all_of_them["delivered_to"] == ["nova", CHILD]
    assert base["delivered_to"] == ["nova"]
    assert everybody["delivered_to"] == ["nova", CHILD]


def test_sub_agents_end_with_the_session_and_survive_a_daemon_crash(bus: Home, nova: Shell) -> None:
    hook(nova, "SubagentStart")
    bus.kill()
    bus.ok("up")

    assert listed(bus)["present"] is True
    assert hook(nova, "PostToolUse") == ""
    assert nova.ok("whoami", "--json").json["name"] == "nova"

    nova.close()

    wait_until(lambda: listed(bus).get("left") is True)
    assert listed(bus)["detail"] == "nova has ended: its process ended"


def test_session_without_an_agent_has_no_sub_agents(bus: Home) -> None:
    stranger = bus.shell()

    assert hook(stranger, "SubagentStart") == ""
    assert bus.ok("list", "--json").lines == []


async def test_tool_call_is_made_by_the_agent_that_its_call_id_names(bus: Home, tmp_path: Path) -> None:
    join = f"{shlex.quote(bus.client)} join --name nova --harness claude"
    folder = tmp_path / "work"
    folder.mkdir()

    async with handshaken(pump_parameters(bus, "--tools", "rooms,hooks", script=join)) as model:

        async def joined(call: str) -> str:
            result = await model.session.call_tool(
                "join_path",
                {"context_path": str(folder)},
                meta=cast("RequestParamsMeta", {"claudecode/toolUseId": call}),
            )
            assert isinstance(result, CallToolResult)
            return str(content(result)["agent_id"])

        own = {"harness": "claude", "event": "PreToolUse", "session_id": "s1", "tool_name": "x"}
        await model.ok("hook", **own, tool_use_id="t1", agent_id="a1", agent_type="reviewer")
        await model.ok("hook", **own, tool_use_id="t2")

        assert await joined("t1") == CHILD
        assert await joined("t2") == "nova"
        assert await joined("unknown") == "nova"


def test_program_starts_sub_agents_and_acts_for_them(bus: Home, luna: Shell) -> None:
    with LinesWire(bus.path) as wire:
        wire.ask("join", name="nova", harness="codex")

        begun = wire.ask("sub_begin", key="t1", type="reviewer")["ok"]
        again = wire.ask("sub_begin", name="nova", key="t1")["ok"]
        lane = wire.ask("lane", name=CHILD, kind="native")["ok"]["lane"]
        wire.ask("status", name=CHILD, state="active", detail="reading")
        seq = send(luna, f"@{CHILD}", "--", "look here")
        offer = wire.next_line()

        assert begun == again == {"name": CHILD}
        assert (offer["name"], offer["messages"][0]["seq"], offer["lane"]) == (CHILD, seq, lane)
        assert wire.ask("whoami", name=CHILD)["ok"]["name"] == CHILD
        assert listed(bus)["detail"] == "reading"
        assert listed(bus)["present"] is True

        assert wire.ask("sub_end", key="t1", reason="closed")["ok"] == {}
        assert wire.ask("sub_end", key="t1")["ok"] == {}

        assert (listed(bus)["left"], listed(bus)["detail"]) == (True, "closed")
        assert wire.ask("whoami", name=CHILD)["error"] == "who_are_you"
        refused = wire.ask("sub_begin", key="")
        assert (refused["error"], refused["message"]) == (
            "bad_request",
            "no sub-agent of nova can begin: the id of the sub-agent is missing; its harness must send one",
        )
        wait_until(
            lambda: bus.ok("receipts", str(seq), "--json").json["receipts"][0].get("unconfirmed") is True
        )


def test_caller_cannot_start_sub_agents_of_another_agent(bus: Home, nova: Shell) -> None:
    with LinesWire(bus.path) as wire:
        assert wire.ask("sub_begin", key="t1")["error"] == "who_are_you"
        assert wire.ask("sub_begin", name="nova", key="t1")["error"] == "who_are_you"
        assert wire.ask("sub_end", name="nova", key="t1")["error"] == "who_are_you"


def test_ended_sub_agent_is_only_in_the_verbose_list(bus: Home, nova: Shell) -> None:
    hook(nova, "SubagentStart")
    hook(nova, "Stop", key="", background_tasks=[])

    wait_until(lambda: listed(bus).get("left") is True)

    result: Result = bus.ok("list", "--text")
    assert CHILD not in result.out
    assert f"└ {CHILD}" in bus.ok("list", "-v", "--text").out
