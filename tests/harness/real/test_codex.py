"""Codex itself, launched with `pal codex`, and a scripted model."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.stage import run_script_as_person
from tests.harness.real.codex_stage import (
    CodexStage,
    Talk,
    ask_first,
    bus_call,
    codex_stage,
    shell_call,
    two_threads,
)
from tests.harness.real.install import installed
from tests.harness.real.stage import reply, send

from palaver.cli.mock_model.script import Reply, ToolCall

pytestmark = pytest.mark.harness

MOMENT = shell_call("sleep 1")
"""Its tools come a moment after its start, and this model thinks faster than that."""


@pytest.fixture
def codex() -> Iterator[CodexStage]:
    """A home in which the bus runs and Codex can be started."""
    with codex_stage(installed("codex")) as stage:
        yield stage


def test_a_message_wakes_an_idle_session_with_no_key_typed(codex: CodexStage) -> None:
    codex.script.add(reply("I am awake"))
    codex.start()
    luna = codex.friend()

    place = send(luna, "@nova", "--intent", "request", "--", "please look at the build")

    (request,) = codex.requests(1)
    assert f"[request #{place}] luna → nova: please look at the build" in request.conversation
    assert "You are nova on Palaver" in request.conversation
    receipt = codex.until_seen(place)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")
    assert "palaver" not in (codex.account / ".codex" / "config.toml").read_text()
    assert not (codex.account / ".codex" / "hooks.json").exists()
    assert not (codex.account / ".codex" / "packages").exists()


def test_a_message_goes_along_with_what_a_tool_gives(codex: CodexStage) -> None:
    waiting, there = codex.project / "go", codex.project / "there"
    command = f"touch {there}; while [ ! -e {waiting} ]; do sleep 0.05; done; echo the-result"
    codex.script.add(reply("working", shell_call(command)), reply("after"))
    codex.start("go on")
    codex.until(there.exists)
    luna = codex.friend()
    codex.until(lambda: codex.state() == ("active", "tool_use"))

    place = send(luna, "@nova", "--", "stop at the second test")
    codex.until(lambda: codex.receipt(place)["state"] == "submitted")
    waiting.touch()

    asked = codex.requests(2)[1].conversation
    assert "the-result" in asked
    assert "stop at the second test" in asked
    assert codex.until_seen(place)["grade"] == "context"
    (status,) = [one for one in codex.home.events("--type", "status") if one["payload"].get("command")]
    assert status["payload"]["tool"] == "Bash"
    assert status["payload"]["command"] == command


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


def test_a_dialog_stays_as_it_is_and_messages_come_after_it(codex: CodexStage) -> None:
    made = codex.project / "made.txt"
    codex.script.add(reply("", ask_first(f"touch {made}")), reply("made"), reply("read"), reply("read"))
    codex.start("make it")
    luna = codex.friend()
    codex.until(lambda: "Would you like to run" in codex.screen())
    codex.until(lambda: codex.state() == ("blocked", f"permission: touch {made}"))
    before = codex.screen()

    normal = send(luna, "@nova", "--", "a normal one")
    urgent = send(luna, "@nova", "--interrupt", "--", "an urgent one: y")
    codex.until(lambda: codex.receipt(urgent)["state"] == "held")

    assert codex.receipt(urgent)["reason"] == "dialog"
    assert codex.receipt(normal)["state"] == "queued"
    assert codex.screen() == before
    assert not made.exists()

    codex.sit_down().press(b"y")

    assert codex.until_seen(urgent)["grade"] == "context"
    assert codex.until_seen(normal)["grade"] == "context"
    assert made.exists()
    asked = codex.script.main[-1].conversation
    assert "a normal one" in asked
    assert "an urgent one" in asked


def test_a_draft_stays_as_it_was(codex: CodexStage) -> None:
    codex.script.add(reply("I am awake"), reply("and now you"))
    codex.start()
    luna = codex.friend()
    person = codex.sit_down()
    person.press(b"half a thou")
    codex.until(lambda: "› half a thou" in codex.screen())

    place = send(luna, "@nova", "--", "are you there?")
    codex.until_seen(place)
    codex.until(lambda: codex.state()[0] == "idle")

    assert "› half a thou" in codex.screen()

    person.press(b"ght")
    codex.until(lambda: "half a thought" in codex.screen())
    person.press(b"\r")

    assert "half a thought" in codex.requests(2)[1].conversation


def test_its_tools_are_the_same_agent_and_answer_a_request(codex: CodexStage) -> None:
    codex.start()
    luna = codex.friend()
    asked = send(luna, "@nova", "--intent", "request", "--priority", "idle", "--", "how is the build?")
    codex.requests(1)
    codex.until(lambda: codex.state()[0] == "idle")
    answer = bus_call("send", text="it is green", to="@luna", reply_to=str(asked))
    codex.script.add(reply("", MOMENT), reply("", answer), reply("sent"))

    send(luna, "@nova", "--", "well?")

    codex.until(lambda: codex.receipt(asked)["state"] == "answered")
    got = [(one["from"], one["text"]) for one in luna.ok("recv", "--json").lines]
    assert ("nova", "it is green") in got


def test_its_sandboxed_shell_is_told_about_the_tools(codex: CodexStage) -> None:
    codex.script.add(reply("", shell_call(f"{codex.pal} send @luna -- from a shell")), reply("done"))
    codex.start("-s", "workspace-write", "-a", "never", "go on")
    luna = codex.friend()

    asked = codex.requests(2)[1].conversation

    assert "MCP" in asked.partition("function_call_output")[2]
    assert luna.ok("recv", "--json").out == ""


def test_a_shell_without_a_sandbox_is_the_same_agent(codex: CodexStage) -> None:
    codex.script.add(reply("", shell_call(f"{codex.pal} send @luna -- from a shell")), reply("done"))
    luna = codex.friend()
    codex.start("-s", "danger-full-access", "-a", "never", "go on")

    codex.requests(2)

    assert luna.ok("recv", "--json").json["from"] == "nova"


def test_a_turn_goes_on_without_the_daemon_and_what_was_in_hand_is_told(codex: CodexStage) -> None:
    waiting, there = codex.project / "go", codex.project / "there"
    command = f"touch {there}; while [ ! -e {waiting} ]; do sleep 0.05; done"
    codex.script.add(reply("working", shell_call(command)), reply("after"), reply("back"))
    codex.start("go on")
    codex.until(there.exists)
    luna = codex.friend()
    codex.until(lambda: codex.state() == ("active", "tool_use"))
    before = send(luna, "@nova", "--", "in hand")
    codex.until(lambda: codex.receipt(before)["state"] == "submitted")

    codex.home.kill(signal.SIGKILL)
    waiting.touch()
    codex.requests(2)
    codex.home.ok("up")

    assert codex.until_seen(before)["grade"] == "context"

    place = send(codex.friend("kira"), "@nova", "--", "welcome back")

    assert "welcome back" in codex.requests(3)[2].conversation
    assert codex.until_seen(place)["grade"] == "context"


def test_a_conversation_that_goes_on_keeps_its_name(codex: CodexStage) -> None:
    codex.script.add(reply("first"), reply("second"))
    codex.start("go on")
    codex.requests(1)
    codex.until(lambda: codex.state()[0] == "idle")
    _end(codex)

    begun = codex.home.ok("codex", "--detach", "resume", "--last", cwd=codex.project)

    assert begun.out == "nova\n"
    codex.until(lambda: codex.state()[0] == "idle")
    place = send(codex.friend(), "@nova", "--", "do you remember?")
    asked = codex.requests(2)[1].conversation
    assert "first" in asked
    assert "do you remember?" in asked
    assert codex.until_seen(place)["grade"] == "context"


def test_an_agent_that_is_resumed_goes_on_with_its_conversation(codex: CodexStage) -> None:
    codex.script.add(reply("first"), reply("second"))
    codex.start("begin the work")
    codex.requests(1)
    codex.until(lambda: codex.state()[0] == "idle")
    _end(codex)

    assert run_script_as_person(codex.home, "pal resume nova --detach").out == "nova\n"

    codex.until(lambda: codex.state()[0] == "idle")
    send(codex.friend(), "@nova", "--", "do you remember?")
    asked = codex.requests(2)[1].conversation
    assert "first" in asked
    assert asked.count("begin the work") == 1


def test_nothing_is_left_of_one_whose_holder_was_killed(codex: CodexStage) -> None:
    made = codex.project / "made.txt"
    codex.script.add(reply("", ask_first(f"touch {made}")))
    codex.start("make it")
    codex.until(lambda: codex.state()[0] == "blocked")
    (place,) = codex.places

    os.kill(_holder_of(codex), signal.SIGKILL)

    codex.until(lambda: not codex.processes_at(place))
    codex.until(lambda: not codex.places)
    assert not made.exists()


def test_it_runs_without_a_terminal_to_the_end_of_a_turn(codex: CodexStage) -> None:
    codex.script.add(reply("", MOMENT), reply("", bus_call("send", text="from exec", to="@luna")))
    codex.script.add(reply("the end"))
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
    codex.script.add(reply("", MOMENT), reply("", call), reply("done"))
    await talk.turn("go on")
    return codex.script.main[-1].conversation


def _end(codex: CodexStage) -> None:
    os.kill(_holder_of(codex), signal.SIGTERM)
    codex.until(lambda: codex.state() == ("", ""))
    codex.until(lambda: not codex.places)


def _holder_of(codex: CodexStage) -> int:
    (agent,) = [one for one in codex.home.ok("list", "--json").lines if one["name"] == "nova"]
    stat = Path(f"/proc/{agent['pid']}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
