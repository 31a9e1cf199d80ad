"""Codex, started with `pal codex`, with a scripted model."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.stage import run_script_as_person
from tests.harness.real.codex_server import Server, app_server
from tests.harness.real.codex_stage import (
    CodexStage,
    bus_call,
    codex_stage,
    shell_call,
)
from tests.harness.real.harness_stage import reply, send
from tests.harness.real.install import installed

from palaver.app.mock_model import ScriptedToolCall
from palaver.harness.codex.launch import launch_settings, setting

pytestmark = pytest.mark.harness


@pytest.fixture
def codex() -> Iterator[CodexStage]:
    """A home with a running bus in which Codex can be started."""
    with codex_stage(installed("codex")) as stage:
        yield stage


def test_only_an_interrupt_stops_a_responding_model(codex: CodexStage) -> None:
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


def test_message_waits_until_the_tools_have_started(codex: CodexStage) -> None:
    late, sign = codex.project / "late-tools", codex.project / "go"
    late.write_text(f"#!/bin/sh\nuntil [ -e {sign} ]; do sleep 0.05; done\nexec {codex.shell_pal} mcp\n")
    late.chmod(0o700)
    words = setting("mcp_servers.palaver.command", str(late))
    codex.launch("pal", "codex", "--name", "nova", "--detach", *words)
    codex.until(lambda: "native" in codex.gates())

    seq = send(codex.friend(), "@nova", "--", "hello there")
    codex.until(lambda: codex.gates()["native"] == "starting" or codex.script.main)
    sign.touch()

    first = codex.requests(1)[0]
    assert "hello there" in first.conversation
    assert codex.tools_sign in first.text
    assert codex.until_seen(seq)["lane"] == "native"


def test_failed_tools_do_not_block_messages_and_the_state_says_why(codex: CodexStage) -> None:
    codex.start(*setting("mcp_servers.palaver.command", "/bin/false"))

    state, detail = codex.state()

    assert state == "idle"
    assert detail.startswith("no Palaver tools: ")
    seq = send(codex.friend(), "@nova", "--", "hello there")
    assert codex.until_seen(seq)["lane"] == "native"


def test_error_of_a_failed_detached_start_is_printed(codex: CodexStage) -> None:
    script = f"cd {codex.project} && pal codex --name nova --detach --no-such-option"

    result = run_script_as_person(codex.home, script)

    assert (result.status, result.out) == (2, "")
    assert "unexpected argument '--no-such-option'" in result.err
    assert "codex exited during its start: exited with 2" in result.err


def test_instructions_contain_the_full_path_of_pal(codex: CodexStage) -> None:
    codex.script.add(reply("done"))

    codex.start("go on")

    assert codex.pal.endswith("/pal")
    assert f"write {codex.shell_pal} for pal" in codex.told("You are nova")


def test_sandboxed_shell_gets_a_hint_to_the_tools(codex: CodexStage) -> None:
    codex.script.add(reply("", shell_call(f"{codex.shell_pal} send @luna -- from a shell")), reply("done"))
    codex.start("-s", "workspace-write", "-a", "never", "go on")
    luna = codex.friend()

    asked = codex.requests(2)[1].conversation

    assert "MCP" in asked.partition("function_call_output")[2]
    assert luna.ok("recv", "--json").out == ""


def test_headless_session_runs_to_the_end_of_a_turn(codex: CodexStage) -> None:
    codex.script.add(*codex.bus_replies("send", text="from exec", to="@luna"), reply("the end"))
    luna = codex.friend()

    result = codex.home.ok(
        "codex", "--name", "nova", "exec", "--skip-git-repo-check", "go", cwd=codex.project
    )

    assert result.out == "the end\n"
    assert luna.ok("recv", "--json").json["from"] == "nova"
    assert codex.state() == ("", "")


def test_messages_are_typed_when_the_server_is_lost(codex: CodexStage) -> None:
    codex.script.add(reply("first"))
    codex.start("go on")
    codex.requests(1)
    codex.until(lambda: codex.state()[0] == "idle")
    luna = codex.friend()
    (folder,) = codex.places
    for pid in codex.processes_at(folder):
        if b"app-server" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    codex.until(lambda: "Reconnecting" in codex.home.pal("peek", "nova").out)

    place_of_it = send(luna, "@nova", "--", "can you hear me?")

    codex.until(lambda: "can you hear me?" in codex.home.pal("peek", "nova").out)
    assert codex.receipt(place_of_it)["lane"] == "terminal"


def test_threads_of_one_server_never_read_each_others_messages(codex: CodexStage) -> None:
    asyncio.run(_talk_in_two_threads(codex))


async def _talk_in_two_threads(codex: CodexStage) -> None:
    luna = codex.friend()
    pal, home = codex.pal, str(codex.home.path)
    async with app_server(codex, *launch_settings(pal, home)) as server:
        vega, mira = await server.begin(), await server.begin()
        for thread, name in ((vega, "vega"), (mira, "mira")):
            await _turn(
                codex, server, thread, shell_call(f"{codex.shell_pal} --home {home} join --name {name}")
            )
        send(luna, "@vega", "--", "only for vega")
        send(luna, "@mira", "--", "only for mira")

        for thread, own, other in ((vega, "vega", "mira"), (mira, "mira", "vega")):
            shown = await _turn(codex, server, thread, bus_call("inbox"))
            taken = await _turn(
                codex, server, thread, shell_call(f"{codex.shell_pal} --home {home} recv --json")
            )

            assert f"only for {own}" in shown
            assert f"only for {own}" in taken
            assert f"only for {other}" not in shown + taken


async def _turn(codex: CodexStage, server: Server, thread: str, call: ScriptedToolCall) -> str:
    """Have one thread call one tool, and return the conversation of the model."""
    codex.script.add(reply("", call, awaits=codex.tools_sign), reply("done"))
    await server.turn(thread, "go on")
    return codex.script.main[-1].conversation
