"""Claude Code itself, launched with `pal claude`, and a scripted model."""

import signal

import pytest
from tests.daemon.stage import end_process
from tests.harness.real.stage import ClaudeStage, reply, send, tool

from palaver.cli.mock_model.script import Reply

pytestmark = pytest.mark.harness

MANUAL = ("--permission-mode", "manual", "--allowedTools", "Bash")


def test_a_message_wakes_an_idle_session_with_no_key_typed(claude: ClaudeStage) -> None:
    claude.script.add(reply("I am awake"))
    claude.start(*MANUAL)
    luna = claude.friend()

    place = send(luna, "@nova", "--intent", "request", "--", "please look at the build")

    (request,) = claude.requests(1)
    assert f"[request #{place}] luna → nova: please look at the build" in request.conversation
    assert "You are nova on Palaver" in request.conversation
    receipt = claude.until_seen(place)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")
    assert not (claude.account / ".claude" / "settings.json").exists()


def test_a_message_reaches_a_busy_session_with_the_next_tool_result(claude: ClaudeStage) -> None:
    call = tool("Bash", command="echo one", description="say one")
    claude.script.add(reply("working", call, gate="busy"), reply("after"))
    claude.start(*MANUAL)
    luna = claude.friend()
    person = claude.sit_down()
    person.press(b"do it")
    claude.until(lambda: "do it" in claude.screen())
    person.press(b"\r")
    claude.requests(1)

    place = send(luna, "@nova", "--", "stop at the second test")
    claude.until(lambda: claude.receipt(place)["state"] == "submitted")
    claude.script.open("busy")

    assert "stop at the second test" in claude.requests(2)[1].conversation
    receipt = claude.until_seen(place)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")


def test_a_long_message_arrives_whole(claude: ClaudeStage) -> None:
    claude.script.add(reply("read"))
    claude.start(*MANUAL)
    luna = claude.friend()
    text = "first line\n" + "word " * 400 + "\nlast line"

    place = send(luna, "@nova", "--", text)

    (request,) = claude.requests(1)
    whole = text.replace("\n", "\\n")
    assert whole in request.conversation
    assert claude.until_seen(place)["grade"] == "context"


def dialog(claude: ClaudeStage) -> str:
    """The dialog on its screen: above it a picture moves by itself."""
    return claude.screen().partition("────────")[2]


def test_a_dialog_stays_as_it_is_and_messages_come_after_it(claude: ClaudeStage) -> None:
    made = claude.project / "made.txt"
    call = tool("Write", file_path=str(made), content="x")
    claude.script.add(reply("I need a file", call), reply("made"), reply("read"), reply("read"))
    claude.start(*MANUAL)
    luna = claude.friend()
    person = claude.sit_down()
    person.press(b"make it")
    claude.until(lambda: "make it" in claude.screen())
    person.press(b"\r")
    claude.until(lambda: "Do you want to create made.txt" in claude.screen())
    claude.until(lambda: claude.state() == ("blocked", f"permission: Write: {made}"))
    before = dialog(claude)

    normal = send(luna, "@nova", "--", "a normal one")
    urgent = send(luna, "@nova", "--interrupt", "--", "an urgent one")
    claude.until(lambda: claude.receipt(urgent)["state"] == "submitted")

    assert dialog(claude) == before
    assert claude.receipt(normal)["state"] == "queued"
    assert not made.exists()

    claude.answer_dialog(person, "Do you want to create made.txt")

    assert claude.until_seen(urgent)["grade"] == "context"
    assert claude.until_seen(normal)["grade"] == "context"
    assert made.read_text() == "x"
    asked = claude.script.main[-1].conversation
    assert "a normal one" in asked
    assert "an urgent one" in asked


def test_a_draft_stays_as_it_was(claude: ClaudeStage) -> None:
    claude.script.add(reply("I am awake"), reply("and now you"))
    claude.start(*MANUAL)
    luna = claude.friend()
    person = claude.sit_down()
    person.press(b"half a thou")
    claude.until(lambda: "❯ half a thou" in claude.screen().replace("\xa0", " "))

    place = send(luna, "@nova", "--", "are you there?")
    claude.until_seen(place)
    claude.until(lambda: claude.state()[0] == "idle")

    assert "❯ half a thou" in claude.screen().replace("\xa0", " ")

    person.press(b"ght")
    claude.until(lambda: "half a thought" in claude.screen())
    person.press(b"\r")

    assert "half a thought" in claude.requests(2)[1].conversation


def test_a_turn_that_would_end_goes_on_with_a_message(claude: ClaudeStage) -> None:
    claude.script.add(reply("nearly done", gate="busy"), reply("read it"))
    luna = claude.friend()
    running = claude.begin_headless("--name", "nova", "-p", "go")
    claude.requests(1)

    place = send(luna, "@nova", "--", "one more thing")
    claude.script.open("busy")

    out, _ = running.communicate(timeout=20)
    assert (running.returncode, out) == (0, b"read it\n")
    assert f"#{place}] luna → nova: one more thing" in claude.requests(2)[1].conversation
    receipt = claude.until_seen(place)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")


def test_a_message_is_context_for_the_next_request_without_a_monitor(claude: ClaudeStage) -> None:
    call = tool("Bash", command="echo one", description="say one")
    claude.script.add(reply("working", call, gate="busy"), reply("after"))
    luna = claude.friend()
    running = claude.begin_headless("--name", "nova", "-p", "go", "--allowedTools=Bash")
    claude.requests(1)

    place = send(luna, "@nova", "--", "look at this")
    claude.script.open("busy")

    assert running.communicate(timeout=20)[0] == b"after\n"
    assert f"#{place}] luna → nova: look at this" in claude.requests(2)[1].conversation
    receipt = claude.until_seen(place)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")


def test_the_tools_are_the_same_agent(claude: ClaudeStage) -> None:
    name = "mcp__plugin_palaver_palaver__send"
    claude.script.add(
        reply("", tool("ToolSearch", query=f"select:{name}")),
        reply("", tool(name, text="from a tool", to="@luna")),
        reply("sent"),
    )
    luna = claude.friend()

    result = claude.run_headless("--name", "nova", "-p", "go", f"--allowedTools={name}")

    assert result.out == "sent\n", result
    assert luna.ok("recv", "--json").json["from"] == "nova"


def test_the_shell_is_the_same_agent(claude: ClaudeStage) -> None:
    call = tool("Bash", command="pal send @luna -- from a shell", description="write")
    claude.script.add(reply("", call), reply("sent"))
    luna = claude.friend()

    result = claude.run_headless("--name", "nova", "-p", "go", "--allowedTools=Bash")

    assert result.out == "sent\n", result
    assert luna.ok("recv", "--json").json["from"] == "nova"


def test_a_turn_goes_on_without_the_daemon_and_messages_come_when_it_is_back(claude: ClaudeStage) -> None:
    call = tool("Bash", command="echo one", description="say one")
    claude.script.add(reply("working", call, gate="busy"), reply("after"), reply("back"))
    claude.start(*MANUAL)
    person = claude.sit_down()
    person.press(b"do it")
    claude.until(lambda: "do it" in claude.screen())
    person.press(b"\r")
    claude.requests(1)

    claude.home.kill(signal.SIGKILL)
    claude.script.open("busy")
    claude.requests(2)
    claude.home.ok("up")
    luna = claude.friend()
    place = send(luna, "@nova", "--", "welcome back")

    assert claude.requests(3)[2].conversation.count("welcome back") == 1
    claude.until_seen(place)


def test_a_conversation_that_goes_on_keeps_its_name(claude: ClaudeStage) -> None:
    claude.script.add(reply("first"), reply("second"))
    assert claude.run_headless("--name", "nova", "-p", "go").out == "first\n"

    again = claude.run_headless("--continue", "-p", "go on")

    assert again.out == "second\n", again
    joined = [event["from"] for event in claude.home.events("--type", "agent.hello")]
    assert joined == ["nova", "nova"]


def test_a_used_up_allowance_holds_messages_and_their_senders_are_told(claude: ClaudeStage) -> None:
    message = "You've hit your session limit · resets 3am (UTC)"
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": message}}
    claude.script.default = Reply(status=429, body=error)
    claude.start("--permission-mode", "manual", "go on")
    claude.until(lambda: claude.state() == ("blocked", "usage limit, resets 3am (UTC)"))
    luna = claude.friend()

    place = send(luna, "@nova", "--interrupt", "--", "when you can")
    claude.until(lambda: claude.receipt(place)["state"] == "held")

    assert claude.receipt(place)["reason"].endswith("03:00 UTC")
    claude.until(lambda: f"#{place} is held for nova" in luna.ok("recv", "--json", "--peek").out)


def test_nothing_is_left_of_a_session_that_is_killed(claude: ClaudeStage) -> None:
    claude.start(*MANUAL)
    (agent,) = claude.home.ok("list", "--json").lines

    end_process(agent["pid"], signal.SIGKILL)

    claude.until(lambda: claude.home.ok("list", "--json").out == "")
    claude.until(lambda: not claude.processes())
    assert list((claude.home.path / "agents").glob("*.sock")) == []
