"""Sub-agents of Claude Code, started with `pal claude`, with a scripted model."""

import subprocess

import pytest
from tests.daemon.stage import run_script_as_person
from tests.harness.real.claude_stage import ClaudeStage
from tests.harness.real.harness_home import LIMIT_S
from tests.harness.real.harness_stage import PATIENCE_S, reply, send, tool

from palaver.app.mock_model import Request, Rule, ScriptedReply

pytestmark = pytest.mark.harness

CHILD = "nova_general_purpose_1"
GREETING = f"You are {CHILD} on Palaver"
"""Text in every request of the sub-agent and in no other request."""
ALLOWED = "Bash,Agent,mcp__plugin_palaver_palaver__join_path"


def delegate(*, in_background: bool = False) -> ScriptedReply:
    """Return a reply that starts a sub-agent."""
    call = tool(
        "Agent",
        description="look",
        prompt="look into the build",
        subagent_type="general-purpose",
        run_in_background=in_background,
    )
    return reply("I delegate", call)


def begin(claude: ClaudeStage, *of_child: ScriptedReply) -> subprocess.Popen[bytes]:
    """Start a session that delegates to a sub-agent and continues when it is done."""
    claude.script.add(delegate(), reply("all done"))
    return start(claude, *of_child)


def start(claude: ClaudeStage, *of_child: ScriptedReply) -> subprocess.Popen[bytes]:
    """Start a session whose sub-agent has its own script."""
    claude.script.add_rules(*(Rule(pattern=GREETING, reply=one) for one in of_child))
    return claude.begin_headless("--name", "nova", "-p", "go", "--allowedTools", ALLOWED)


def end(claude: ClaudeStage, running: subprocess.Popen[bytes]) -> None:
    """Let the session finish."""
    out, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0
    assert out.endswith(b"all done\n")


def asked_by(claude: ClaudeStage, *, child: bool) -> list[Request]:
    """Return the requests of the sub-agent, or those of its parent."""
    return [request for request in claude.script.main if (GREETING in request.conversation) == child]


def until_asked(claude: ClaudeStage, count: int) -> list[Request]:
    """Wait until the model of the sub-agent has got `count` requests, and return them."""
    claude.until(lambda: len(asked_by(claude, child=True)) >= count)
    return asked_by(claude, child=True)


def bash(command: str, gate: str = "") -> ScriptedReply:
    return reply("working", tool("Bash", command=command, description="x"), gate=gate)


def test_sub_agent_messages_are_only_in_its_own_requests(claude: ClaudeStage) -> None:
    luna = claude.friend()
    claude.script.add(delegate(in_background=True), reply("I rest"), reply("all done"))
    running = start(claude, bash("echo one", gate="busy"), bash("echo two"), reply("looked", gate="end"))
    until_asked(claude, 1)
    claude.until(lambda: len(asked_by(claude, child=False)) == 2)
    listed = {agent["name"]: agent for agent in claude.home.ok("list", "--json").lines}

    seq = send(luna, f"@{CHILD}", "--intent", "request", "--", "look at the second test")
    claude.script.open("busy")

    assert listed[CHILD]["by"] == listed[CHILD]["parent"] == "nova"
    assert (
        f"[request #{seq}] luna → {CHILD}: look at the second test" in until_asked(claude, 2)[1].conversation
    )
    receipt = claude.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")
    until_asked(claude, 3)
    claude.script.open("end")
    end(claude, running)
    assert not any("look at the second test" in one.conversation for one in asked_by(claude, child=False))
    transcript = claude.home.ok("transcript", CHILD).out
    assert "looked" in transcript
    assert "I delegate" not in transcript
    assert ended(claude) == "done"


def test_shell_is_the_parents_and_a_sub_agent_names_itself(claude: ClaudeStage) -> None:
    luna = claude.friend()
    words = f"pal whoami; pal --as {CHILD} whoami; pal --as {CHILD} send @luna -- it is me"
    running = begin(claude, bash(words), reply("looked"))

    end(claude, running)

    shown = until_asked(claude, 2)[1].conversation
    assert '"nova, standing worker, bound to process' in shown
    assert f"{CHILD}, standing worker" in shown
    assert "called by nova" in shown
    (message,) = luna.ok("recv", "--json").lines
    assert (message["from"], message["text"]) == (CHILD, "it is me")
    (event,) = claude.home.ok("events", "--type", "message", "--json").lines
    assert event["by"] == "nova"


def test_tools_know_which_sub_agent_calls(claude: ClaudeStage) -> None:
    folder = claude.project / "work"
    folder.mkdir()
    call = tool("mcp__plugin_palaver_palaver__join_path", context_path=str(folder))
    running = begin(claude, reply("joining", call), reply("looked"))

    end(claude, running)

    shown = until_asked(claude, 2)[1].conversation.replace("\\", "")
    assert f'"agent_id":"{CHILD}"' in shown.replace(" ", "")
    (joined,) = claude.home.ok("events", "--type", "member_joined", "--json").lines
    assert joined["from"] == CHILD


def test_message_extends_a_sub_agent_that_would_end(claude: ClaudeStage) -> None:
    luna = claude.friend()
    running = begin(claude, reply("nearly done", gate="busy"), reply("read it"))
    until_asked(claude, 1)

    seq = send(luna, f"@{CHILD}", "--", "one more thing")
    claude.script.open("busy")

    end(claude, running)
    assert f"#{seq}] luna → {CHILD}: one more thing" in until_asked(claude, 2)[1].conversation
    receipt = claude.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")


def test_parent_keeps_its_messages_and_sub_agents_end_when_killed(claude: ClaudeStage) -> None:
    claude.script.add(delegate(in_background=True), reply("I rest"), reply("I have read it"))
    claude.script.add_rules(Rule(pattern=GREETING, reply=bash("echo one", gate="busy")))
    claude.start("--permission-mode", "manual", "--allowedTools", ALLOWED)
    luna = claude.friend()
    person = claude.sit_down()
    person.press(b"do it")
    claude.until(lambda: "do it" in claude.screen())
    person.press(b"\r")
    until_asked(claude, 1)
    claude.until(lambda: claude.state()[0] == "idle")

    seq = send(luna, "@nova", "--", "this is for you alone")

    claude.until_seen(seq)
    assert "this is for you alone" in asked_by(claude, child=False)[2].conversation
    assert "this is for you alone" not in asked_by(claude, child=True)[0].conversation
    assert claude.state(CHILD)[0] == "active"

    run_script_as_person(claude.home, "pal kill nova")

    claude.until(lambda: ended(claude))
    assert ended(claude).startswith("nova has ended: ")


def interrupted(claude: ClaudeStage, of_parent: ScriptedReply, **environment: str) -> int:
    """Have a person stop the turn while a sub-agent works; return the seq of a request to the sub-agent."""
    claude.script.add(delegate(), of_parent, reply("I have read it"))
    claude.script.add_rules(Rule(pattern=GREETING, reply=bash("echo one", gate="busy")))
    words = (
        "pal",
        "claude",
        "--name",
        "nova",
        "--detach",
        *claude.words("", asks=True),
        "--allowedTools",
        ALLOWED,
    )
    claude.launch(*words, env=environment)
    claude.until(lambda: claude.is_ready("nova"))
    person = claude.sit_down()
    person.press(b"do it")
    claude.until(lambda: claude.composer("do it") in claude.screen())
    person.press(b"\r")
    until_asked(claude, 1)
    claude.until(lambda: "esc to interrupt" in claude.screen())
    seq = send(claude.friend(), f"@{CHILD}", "--intent", "request", "--", "are you there?")
    while "Interrupted" not in claude.screen():
        person.press(b"\x1b")
        claude.wait(lambda: "Interrupted" in claude.screen(), PATIENCE_S)
    return seq


def test_sub_agent_stopped_with_the_turn_ends_and_is_reported(claude: ClaudeStage) -> None:
    seq = interrupted(claude, reply("never"), CLAUDE_CODE_DISABLE_BACKGROUND_TASKS="1")

    claude.until(lambda: ended(claude))
    claude.until_idle()

    assert ended(claude) == "stopped with the turn of nova"
    assert claude.receipt(seq)["state"] == "queued"
    expected = f"@luna {CHILD} is now stopped (request #{seq})"
    claude.until(lambda: expected in claude.home.texts())
    assert len(asked_by(claude, child=True)) == 1


def test_stopped_turn_ends_while_its_sub_agent_continues(claude: ClaudeStage) -> None:
    seq = interrupted(claude, reply("thinking", gate="thinking"))

    claude.until_idle()
    assert claude.state(CHILD)[0] == "active"

    claude.script.add_rules(Rule(pattern=GREETING, reply=reply("looked")))
    claude.script.open("busy")

    claude.until_seen(seq)
    claude.until(lambda: ended(claude) == "done")
    claude.until_idle()


def ended(claude: ClaudeStage) -> str:
    """Return why the sub-agent has ended; empty while it is running."""
    found = {agent["name"]: agent for agent in claude.home.ok("list", "-v", "--json").lines}[CHILD]
    return str(found["detail"]) if found.get("left") else ""
