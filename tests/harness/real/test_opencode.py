"""OpenCode itself, launched with `pal opencode`, and a scripted model."""

import os
import signal
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.cli.person import holders_of
from tests.harness.real.install import installed
from tests.harness.real.opencode_stage import OpenCodeStage, opencode_stage
from tests.harness.real.stage import reply, send, tool

pytestmark = pytest.mark.harness


@pytest.fixture
def opencode() -> Iterator[OpenCodeStage]:
    """A home in which the bus runs and OpenCode can be started."""
    with opencode_stage(installed("opencode")) as stage:
        yield stage


def test_a_message_wakes_an_idle_session_with_no_key_typed(opencode: OpenCodeStage) -> None:
    opencode.script.add(reply("I am awake"))
    settings = opencode.settings.read_bytes()
    opencode.start()
    luna = opencode.friend()

    place = send(luna, "@nova", "--intent", "request", "--", "please look at the build")

    (request,) = opencode.requests(1)
    assert f"[request #{place}] luna → nova: please look at the build" in request.conversation
    assert "You are nova on Palaver" in request.conversation
    receipt = opencode.until_seen(place)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")
    opencode.until(lambda: "I am awake" in opencode.screen())
    assert opencode.settings.read_bytes() == settings
    assert not [path for path in opencode.settings.parent.rglob("*") if "palaver" in path.name]


def test_a_message_goes_along_with_the_next_step_of_a_busy_one(opencode: OpenCodeStage) -> None:
    command = "echo the-result"
    opencode.script.add(
        reply("working", tool("bash", command=command, description="x"), gate="busy"), reply("after")
    )
    opencode.start("--prompt", "go on")
    opencode.requests(1)
    luna = opencode.friend()
    opencode.until(lambda: opencode.state() == ("active", "thinking"))

    place = send(luna, "@nova", "--", "stop at the second test")
    opencode.until(lambda: opencode.receipt(place)["state"] == "submitted")
    opencode.script.open("busy")

    asked = opencode.requests(2)[1].conversation
    assert "the-result" in asked
    assert "stop at the second test" in asked
    assert opencode.until_seen(place)["grade"] == "context"
    (status,) = [one for one in opencode.home.events("--type", "status") if one["payload"].get("command")]
    assert (status["payload"]["tool"], status["payload"]["command"]) == ("bash", command)


def test_a_dialog_stays_as_it_is_and_messages_come_after_it(opencode: OpenCodeStage) -> None:
    made = opencode.project / "made.txt"
    edit = tool("edit", filePath=str(made), oldString="", newString="x")
    opencode.script.add(reply("", edit), reply("made"), reply("read"), reply("read"))
    opencode.start("--prompt", "make it")
    luna = opencode.friend()
    opencode.until(lambda: "Allow once" in opencode.screen())
    opencode.until(lambda: opencode.state() == ("blocked", f"permission: edit: {made}"))
    before = opencode.still_screen()

    normal = send(luna, "@nova", "--", "a normal one")
    urgent = send(luna, "@nova", "--interrupt", "--", "an urgent one")
    opencode.until(lambda: opencode.receipt(urgent)["state"] == "held")

    assert opencode.receipt(urgent)["reason"] == "dialog"
    assert opencode.receipt(normal)["state"] == "queued"
    assert opencode.gates()["native"] == "dialog"
    assert opencode.still_screen() == before
    assert not made.exists()

    person = opencode.sit_down(last=b"Reject")
    opencode.until(lambda: "Allow once" in opencode.screen())
    person.press(b"\r")

    assert opencode.until_seen(urgent)["grade"] == "context"
    assert opencode.until_seen(normal)["grade"] == "context"
    assert made.exists()
    asked = opencode.script.main[-1].conversation
    assert "a normal one" in asked
    assert "an urgent one" in asked


def test_a_draft_stays_as_it_was(opencode: OpenCodeStage) -> None:
    opencode.script.add(reply("I am awake"), reply("and now you"))
    opencode.start()
    luna = opencode.friend()
    person = opencode.sit_down()
    person.press(b"half a thou")
    opencode.until(lambda: "┃  half a thou" in opencode.screen())

    place = send(luna, "@nova", "--", "are you there?")
    opencode.until_seen(place)
    opencode.until(lambda: opencode.state()[0] == "idle")

    assert "┃  half a thou" in opencode.screen()

    person.until(b"awake")  # a terminal that nobody reads from takes no keys
    person.press(b"ght")
    opencode.until(lambda: "half a thought" in opencode.screen())
    person.press(b"\r")

    assert "half a thought" in opencode.requests(2)[1].conversation


def test_a_message_is_answered_in_the_manner_of_the_session(opencode: OpenCodeStage) -> None:
    opencode.script.add(reply("planned"), reply("still planning"))
    opencode.start("--agent", "plan", "--prompt", "go on")
    opencode.requests(1)
    opencode.until(lambda: opencode.state()[0] == "idle")

    opencode.until_seen(send(opencode.friend(), "@nova", "--", "and now build it"))

    opencode.until(lambda: "still planning" in opencode.screen())
    assert "Build ·" not in opencode.screen()


def test_its_shell_and_its_tools_are_the_same_agent_and_answer_a_request(opencode: OpenCodeStage) -> None:
    luna = opencode.friend()
    opencode.script.add(reply("", tool("bash", command="pal send @luna -- from a shell", description="x")))
    opencode.start("--prompt", "go on")
    opencode.requests(2)
    opencode.until(lambda: opencode.state()[0] == "idle")
    asked = send(luna, "@nova", "--intent", "request", "--", "how is the build?")
    opencode.until_seen(asked)
    opencode.until(lambda: opencode.state()[0] == "idle")
    answer = tool("palaver_send", text="it is green", to="@luna", reply_to=str(asked))
    opencode.script.add(reply("", answer), reply("sent"))

    send(luna, "@nova", "--", "well?")

    opencode.until(lambda: opencode.receipt(asked)["state"] == "answered")
    got = [(one["from"], one["text"]) for one in luna.ok("recv", "--json").lines]
    assert got == [("nova", "from a shell"), ("nova", "it is green")]


def test_a_turn_goes_on_without_the_daemon_and_what_was_in_hand_is_told(opencode: OpenCodeStage) -> None:
    opencode.script.add(
        reply("working", tool("bash", command="true", description="x"), gate="busy"),
        reply("after"),
        reply("back"),
    )
    opencode.start("--prompt", "go on")
    opencode.requests(1)
    luna = opencode.friend()
    opencode.until(lambda: opencode.state()[0] == "active")
    before = send(luna, "@nova", "--", "in hand")
    opencode.until(lambda: opencode.receipt(before)["state"] == "submitted")
    opencode.until(lambda: "in hand" in opencode.screen())

    opencode.home.kill(signal.SIGKILL)
    opencode.script.open("busy")
    opencode.requests(2)
    opencode.home.ok("up")

    assert opencode.until_seen(before)["grade"] == "context"

    place = send(opencode.friend("kira"), "@nova", "--", "welcome back")

    assert "welcome back" in opencode.requests(3)[2].conversation
    assert opencode.until_seen(place)["lane"] == "native"


def test_a_conversation_that_goes_on_keeps_its_name(opencode: OpenCodeStage) -> None:
    opencode.script.add(reply("first"), reply("second"))
    opencode.start("--prompt", "go on")
    opencode.requests(1)
    opencode.until(lambda: opencode.state()[0] == "idle")
    opencode.end()

    begun = opencode.home.ok("opencode", "--detach", "--continue", cwd=opencode.project)

    assert begun.out == "nova\n"
    opencode.until(lambda: "native" in opencode.gates())
    place = send(opencode.friend(), "@nova", "--", "do you remember?")
    asked = opencode.requests(2)[1].conversation
    assert "first" in asked
    assert "do you remember?" in asked
    assert opencode.until_seen(place)["grade"] == "context"


def test_nobody_else_gets_into_its_server(opencode: OpenCodeStage) -> None:
    opencode.start()
    (place,) = opencode.places

    with pytest.raises(HTTPError) as refusal:
        urlopen(f"http://127.0.0.1:{opencode.port}/session", timeout=5)

    refusal.value.close()
    assert refusal.value.code == 401
    assert (place / "server.json").stat().st_mode & 0o077 == 0


def test_nothing_is_left_of_one_that_was_ended(opencode: OpenCodeStage) -> None:
    opencode.start()

    opencode.end()

    opencode.until_gone()
    assert opencode.places == []
    assert opencode.state()[0] in ("exited", "")


def test_nothing_runs_on_of_one_whose_holder_was_killed(opencode: OpenCodeStage) -> None:
    opencode.start()
    (holder,) = holders_of(opencode.home.path)

    os.kill(holder, signal.SIGKILL)

    opencode.until_gone()
    opencode.until(lambda: opencode.state()[0] in ("exited", ""))
