"""Codex itself, launched with `pal codex`, and a scripted model."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.real.codex_stage import (
    CodexStage,
    Talk,
    bus_call,
    codex_stage,
    shell_call,
    two_threads,
)
from tests.harness.real.harness_stage import reply, send
from tests.harness.real.install import installed

from palaver.cli.mock_model.script import Reply, ToolCall

pytestmark = pytest.mark.harness


@pytest.fixture
def codex() -> Iterator[CodexStage]:
    """A home in which the bus runs and Codex can be started."""
    with codex_stage(installed("codex")) as stage:
        yield stage


def test_only_an_interrupt_stops_a_model_that_speaks(codex: CodexStage) -> None:
    codex.script.add(reply("never heard", gate="busy"), reply("after"), reply("last"))
    codex.start("go on")
    codex.requests(1)
    luna = codex.friend()
    codex.until(lambda: codex.state() == ("active", "thinking"))

    normal = send(luna, "@nova", "--priority", "normal", "--", "a normal one")
    urgent = send(luna, "@nova", "--interrupt", "--", "an urgent one")

    assert "an urgent one" in codex.requests(2)[1].conversation
    assert "a normal one" not in codex.script.main[1].conversation
    assert codex.until_seen(urgent)["grade"] == "context"
    assert codex.until_seen(normal)["grade"] == "context"
    codex.script.open("busy")


def test_its_sandboxed_shell_is_told_about_the_tools(codex: CodexStage) -> None:
    codex.script.add(reply("", shell_call(f"{codex.pal} send @luna -- from a shell")), reply("done"))
    codex.start("-s", "workspace-write", "-a", "never", "go on")
    luna = codex.friend()

    asked = codex.requests(2)[1].conversation

    assert "MCP" in asked.partition("function_call_output")[2]
    assert luna.ok("recv", "--json").out == ""


def test_it_runs_without_a_terminal_to_the_end_of_a_turn(codex: CodexStage) -> None:
    codex.script.add(*codex.bus_replies("send", text="from exec", to="@luna"), reply("the end"))
    luna = codex.friend()

    result = codex.home.ok(
        "codex", "--name", "nova", "exec", "--skip-git-repo-check", "go", cwd=codex.project
    )

    assert result.out == "the end\n"
    assert luna.ok("recv", "--json").json["from"] == "nova"
    assert codex.state() == ("", "")


def test_a_used_up_allowance_holds_messages(codex: CodexStage) -> None:
    error = {
        "type": "usage_limit_reached",
        "message": "No more.",
        "plan_type": "plus",
        "resets_at": int(time.time()) + 3600,
    }
    codex.script.add(Reply(status=429, body={"error": error}))
    codex.start("go on")
    codex.until(lambda: codex.state()[0] == "blocked")
    luna = codex.friend()

    place = send(luna, "@nova", "--", "are you there?")

    assert codex.state()[1].startswith("usage_limit")
    codex.until(lambda: codex.receipt(place)["state"] == "held")
    assert codex.receipt(place)["reason"].startswith("usage limit until ")
    assert len(codex.script.main) == 1


def test_when_its_server_is_lost_messages_are_typed(codex: CodexStage) -> None:
    codex.script.add(reply("first"))
    codex.start("go on")
    codex.requests(1)
    codex.until(lambda: codex.state()[0] == "idle")
    luna = codex.friend()
    (place,) = codex.places
    for pid in codex.processes_at(place):
        if b"app-server" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    codex.until(lambda: "Reconnecting" in codex.home.pal("peek", "nova").out)

    place_of_it = send(luna, "@nova", "--", "can you hear me?")

    codex.until(lambda: "can you hear me?" in codex.home.pal("peek", "nova").out)
    assert codex.receipt(place_of_it)["lane"] == "terminal"


def test_two_threads_of_one_server_never_read_each_others_mail(codex: CodexStage) -> None:
    asyncio.run(_talk_in_two_threads(codex))


async def _talk_in_two_threads(codex: CodexStage) -> None:
    luna = codex.friend()
    async with two_threads(codex, installed("codex")) as (vega, mira):
        for talk, name in ((vega, "vega"), (mira, "mira")):
            await _turn(codex, talk, shell_call(f"{codex.pal} join --name {name}"))
        send(luna, "@vega", "--", "only for vega")
        send(luna, "@mira", "--", "only for mira")

        for talk, own, other in ((vega, "vega", "mira"), (mira, "mira", "vega")):
            shown = await _turn(codex, talk, bus_call("inbox"))
            taken = await _turn(codex, talk, shell_call(f"{codex.pal} recv --json"))

            assert f"only for {own}" in shown
            assert f"only for {own}" in taken
            assert f"only for {other}" not in shown + taken


async def _turn(codex: CodexStage, talk: Talk, call: ToolCall) -> str:
    """Have one thread call one tool, and give what the model was told of it."""
    codex.script.add(reply("", call, awaits=codex.tools_sign), reply("done"))
    await talk.turn("go on")
    return codex.script.main[-1].conversation
