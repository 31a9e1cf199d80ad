"""Claude Code, started with `pal claude`, with a scripted model."""

import pytest
from tests.harness.real.claude_stage import ClaudeStage
from tests.harness.real.harness_home import LIMIT_S
from tests.harness.real.harness_stage import reply, send, tool

from palaver.app.mock_model import ScriptedReply

pytestmark = pytest.mark.harness

MANUAL = ("--permission-mode", "manual", "--allowedTools", "Bash")


def test_long_message_arrives_complete(claude: ClaudeStage) -> None:
    claude.script.add(reply("read"))
    claude.start(*MANUAL)
    luna = claude.friend()
    text = "first line\n" + "word " * 400 + "\nlast line"

    seq = send(luna, "@nova", "--", text)

    (request,) = claude.requests(1)
    whole = text.replace("\n", "\\n")
    assert whole in request.conversation
    assert claude.until_seen(seq)["grade"] == "context"


def test_message_extends_a_turn_that_would_end(claude: ClaudeStage) -> None:
    claude.script.add(reply("nearly done", gate="busy"), reply("read it"))
    luna = claude.friend()
    running = claude.begin_headless("--name", "nova", "-p", "go")
    claude.requests(1)

    seq = send(luna, "@nova", "--", "one more thing")
    claude.script.open("busy")

    out, _ = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, out) == (0, b"read it\n")
    assert f"#{seq}] luna → nova: one more thing" in claude.requests(2)[1].conversation
    receipt = claude.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")


def test_without_a_monitor_a_message_is_in_the_next_request(claude: ClaudeStage) -> None:
    call = tool("Bash", command="echo one", description="say one")
    claude.script.add(reply("working", call, gate="busy"), reply("after"))
    luna = claude.friend()
    running = claude.begin_headless("--name", "nova", "-p", "go", "--allowedTools=Bash")
    claude.requests(1)

    seq = send(luna, "@nova", "--", "look at this")
    claude.script.open("busy")

    assert running.communicate(timeout=LIMIT_S)[0] == b"after\n"
    assert f"#{seq}] luna → nova: look at this" in claude.requests(2)[1].conversation
    receipt = claude.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")


def test_messages_in_quick_succession_all_arrive(claude: ClaudeStage) -> None:
    claude.start(*MANUAL)
    luna = claude.friend()
    texts = [
        f"message {number:02} of a talk" for number in range(20)
    ]  # Claude Code accepts 10 at once, then 1 per 2 s

    for text in texts:
        send(luna, "@nova", "--", text)
        claude.told(text)

    claude.until_idle()
    asked = claude.all_told()
    assert {text: claude.count(text, asked) for text in texts} == dict.fromkeys(texts, 1)


def test_tools_act_as_the_same_agent(claude: ClaudeStage) -> None:
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


def test_resumed_conversation_keeps_its_name(claude: ClaudeStage) -> None:
    claude.script.add(reply("first"), reply("second"))
    assert claude.run_headless("--name", "nova", "-p", "go").out == "first\n"

    again = claude.run_headless("--continue", "-p", "go on")

    assert again.out == "second\n", again
    joined = [event["from"] for event in claude.home.events("--type", "agent.hello")]
    assert joined == ["nova", "nova"]


def test_usage_limit_holds_messages_and_notifies_their_senders(claude: ClaudeStage) -> None:
    message = "You've hit your session limit · resets 3am (UTC)"
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": message}}
    claude.script.default = ScriptedReply(status=429, body=error)
    claude.start("--permission-mode", "manual", "go on")
    claude.until(lambda: claude.state() == ("blocked", "usage limit, resets 3am (UTC)"))
    luna = claude.friend()

    seq = send(luna, "@nova", "--interrupt", "--", "when you can")
    claude.until(lambda: claude.receipt(seq)["state"] == "held")

    assert claude.receipt(seq)["reason"].endswith("03:00 UTC")
    claude.until(lambda: f"#{seq} is held for nova" in luna.ok("recv", "--json", "--peek").out)
