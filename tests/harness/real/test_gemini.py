"""Gemini CLI itself, launched with `pal gemini`, and a scripted model."""

import os
import signal
from collections.abc import Iterator

import pytest
from tests.cli.person import holders_of
from tests.harness.real.gemini_stage import GeminiStage, gemini_stage
from tests.harness.real.install import installed
from tests.harness.real.stage import reply, send, tool

pytestmark = pytest.mark.harness

SHELL = "run_shell_command"


@pytest.fixture
def gemini() -> Iterator[GeminiStage]:
    """A home in which the bus runs and Gemini CLI can be started."""
    with gemini_stage(installed("gemini")) as stage:
        yield stage


def test_a_message_wakes_an_idle_session(gemini: GeminiStage) -> None:
    gemini.script.add(reply("I am awake"))
    settings = gemini.settings.read_bytes()
    gemini.start()
    luna = gemini.friend()

    place = send(luna, "@nova", "--", "please look at the build")

    (request,) = gemini.requests(1)
    assert "[pal message from: luna] please look at the build" in request.conversation
    assert "You are nova on Palaver" in request.conversation
    assert gemini.until_seen(place)["lane"] == "terminal"
    assert gemini.settings.read_bytes() == settings


def test_a_message_goes_along_with_what_a_tool_gives(gemini: GeminiStage) -> None:
    command = "echo the-result"
    gemini.script.add(reply("working", tool(SHELL, command=command), gate="busy"), reply("after"))
    gemini.start("--approval-mode", "yolo", "-i", "go on")
    gemini.requests(1)
    luna = gemini.friend()
    gemini.until(lambda: gemini.state()[0] == "active")

    place = send(luna, "@nova", "--", "stop at the second test")
    gemini.script.open("busy")

    asked = gemini.requests(2)[1].conversation
    assert "the-result" in asked
    assert f"[new message #{place}] luna → nova: stop at the second test" in asked
    receipt = gemini.until_seen(place)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")
    (status,) = [one for one in gemini.home.events("--type", "status") if one["payload"].get("command")]
    assert (status["payload"]["tool"], status["payload"]["command"]) == (SHELL, command)


def test_a_turn_does_not_end_before_its_messages_are_read(gemini: GeminiStage) -> None:
    gemini.script.add(reply("nearly done", gate="busy"), reply("now I am done"))
    gemini.start("-i", "go on")
    gemini.requests(1)
    luna = gemini.friend()
    gemini.until(lambda: gemini.state()[0] == "active")

    place = send(luna, "@nova", "--", "one more thing")
    gemini.script.open("busy")

    assert "one more thing" in gemini.requests(2)[1].conversation
    receipt = gemini.until_seen(place)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")
    gemini.until(lambda: gemini.state()[0] == "idle")
    assert len(gemini.script.main) == 2


def test_a_dialog_stays_as_it_is_and_messages_come_after_it(gemini: GeminiStage) -> None:
    made = gemini.project / "made.txt"
    gemini.script.add(reply("", tool(SHELL, command=f"touch {made}")), reply("made"), reply("read"))
    gemini.start("--approval-mode", "default", "-i", "make it")
    luna = gemini.friend()
    gemini.until(lambda: "Allow once" in gemini.screen())
    gemini.until(lambda: gemini.state() == ("blocked", f"permission: touch {made}"))
    gemini.until(lambda: gemini.gates()["terminal"] == "dialog")
    before = gemini.still_screen()

    normal = send(luna, "@nova", "--", "a normal one")
    urgent = send(luna, "@nova", "--interrupt", "--", "an urgent one: y")
    gemini.until(lambda: gemini.receipt(urgent)["state"] == "held")

    assert gemini.receipt(urgent)["reason"] == "dialog"
    assert gemini.receipt(normal)["state"] == "queued"
    assert gemini.still_screen() == before
    assert not made.exists()

    gemini.sit_down(last=b"suggest").press(b"\r")

    gemini.until(made.exists)
    gemini.until_seen(urgent)
    gemini.until_seen(normal)
    asked = gemini.script.main[-1].conversation
    assert "a normal one" in asked
    assert "an urgent one" in asked


def test_a_draft_stays_as_it_was(gemini: GeminiStage) -> None:
    gemini.script.add(reply("yours"), reply("and mine"))
    gemini.start()
    luna = gemini.friend()
    person = gemini.sit_down()
    person.press(b"half a thou")
    gemini.until(lambda: "> half a thou" in gemini.screen())

    place = send(luna, "@nova", "--", "are you there?")
    gemini.until(lambda: gemini.gates()["terminal"] == "draft")

    assert gemini.receipt(place)["state"] == "queued"
    assert "> half a thou" in gemini.still_screen()

    person.press(b"ght")
    gemini.until(lambda: "half a thought" in gemini.screen())
    person.press(b"\r")

    assert "half a thought" in gemini.requests(1)[0].conversation
    gemini.until_seen(place)
    gemini.until(lambda: "are you there?" in gemini.script.main[-1].conversation)


def test_its_shell_and_its_tools_are_the_same_agent(gemini: GeminiStage) -> None:
    luna = gemini.friend()
    asked = send(luna, "@luna", "--", "a note to myself")
    gemini.script.add(
        reply("", tool(SHELL, command="pal send @luna -- from a shell")),
        reply("", tool("mcp_palaver_send", text="from a tool", to="@luna", reply_to=str(asked))),
        reply("done"),
    )

    gemini.start("--approval-mode", "yolo", "-i", "go on")

    gemini.requests(3)
    got = [(one["from"], one["text"]) for one in luna.ok("recv", "--json").lines]
    assert ("nova", "from a shell") in got
    assert ("nova", "from a tool") in got


def test_a_turn_goes_on_without_the_daemon(gemini: GeminiStage) -> None:
    gemini.script.add(
        reply("working", tool(SHELL, command="true"), gate="busy"), reply("after"), reply("back")
    )
    gemini.start("--approval-mode", "yolo", "-i", "go on")
    gemini.requests(1)
    gemini.until(lambda: gemini.state()[0] == "active")

    gemini.home.kill(signal.SIGKILL)
    gemini.script.open("busy")
    gemini.requests(2)
    gemini.home.ok("up")

    gemini.until(lambda: gemini.state()[0] == "idle")
    place = send(gemini.friend(), "@nova", "--", "welcome back")

    assert "welcome back" in gemini.requests(3)[2].conversation
    assert gemini.until_seen(place)["lane"] == "terminal"


def test_a_conversation_that_goes_on_keeps_its_name(gemini: GeminiStage) -> None:
    gemini.script.add(reply("first"), reply("second"))
    gemini.start("-i", "go on")
    gemini.requests(1)
    gemini.until(lambda: gemini.state()[0] == "idle")
    gemini.end()

    begun = gemini.home.ok("gemini", "--detach", "--resume", "latest", cwd=gemini.project)

    assert begun.out == "nova\n"
    gemini.until(lambda: gemini.state()[0] == "idle")
    send(gemini.friend(), "@nova", "--", "do you remember?")
    asked = gemini.requests(2)[1].conversation
    assert "first" in asked
    assert "do you remember?" in asked


def test_nothing_is_left_of_one_that_was_ended(gemini: GeminiStage) -> None:
    gemini.start()

    gemini.end()

    gemini.until_gone()


def test_nothing_runs_on_of_one_whose_holder_was_killed(gemini: GeminiStage) -> None:
    gemini.start()
    (holder,) = holders_of(gemini.home.path)

    os.kill(holder, signal.SIGKILL)

    gemini.until_gone()
    gemini.until(lambda: gemini.state()[0] in ("exited", ""))
