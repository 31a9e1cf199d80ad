"""Sessions that name another session, with real daemons: at no door do they become it or read its mail."""

import json
import os
import shlex
import sys
from typing import Any

import pytest
from tests.daemon.mcp_stage import HANDSHAKE, notification, request
from tests.daemon.stage import Home, Job, Result, Shell

_LINES = """
import json, signal, socket, sys
wire = socket.socket(socket.AF_UNIX)
wire.settimeout(30)
wire.connect(sys.argv[1])
lines = wire.makefile("rb")
for number, asked in enumerate(json.loads(sys.argv[2])):
    wire.sendall(json.dumps({"req": number, **asked}).encode() + b"\\n")
    while (line := json.loads(lines.readline())).get("req") != number:
        pass
    print(json.dumps(line), flush=True)
if "stay" in sys.argv:
    signal.pause()
"""


@pytest.fixture
def codex(bus: Home) -> Shell:
    """A process with two sessions, as Codex has them: `one` is thread t1, `two` is t2."""
    shell = bus.shell()
    for name, thread in (("one", "t1"), ("two", "t2")):
        assert shell.pal("join", "--name", name, env={"CODEX_THREAD_ID": thread}).status == 0
    return shell


@pytest.fixture
def luna(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "luna")
    return shell


def hook(shell: Shell, harness: str, event: str, *, mark: str = "", **fields: Any) -> Result:
    """Run a hook below a process, with the environment of the session that runs it."""
    content = shlex.quote(json.dumps(fields))
    result = shell.begin_script(f"{mark} pal hook {harness} {event} <<< {content}").end()
    assert (result.status, result.err) == (0, "")
    return result


def lines(shell: Shell, *asked: dict[str, Any], mark: str = "", stays: bool = False) -> Job:
    """Run a program of JSON lines as the child of a process; it prints the responses."""
    program = shell.home.spare_path()
    program.write_text(_LINES)
    words = [sys.executable, "-I", str(program), str(shell.home.path / "daemon.sock"), json.dumps(asked)]
    rest = " stay & true" if stays else ""
    return shell.begin_script(f"{mark} {shlex.join(words)}{rest}")


def whoami(shell: Shell, **marks: str) -> str:
    name: str = json.loads(shell.pal("whoami", "--json", env=marks).out)["name"]
    return name


def unread(home: Home, name: str) -> int:
    (agent,) = [one for one in home.ok("list", "--json").lines if one["name"] == name]
    count: int = agent["unread"]
    return count


def test_hook_of_one_session_in_the_name_of_another_gets_nothing(
    bus: Home, codex: Shell, luna: Shell
) -> None:
    luna.ok("send", "@two", "--", "for two alone")

    forged = hook(codex, "codex", "UserPromptSubmit", mark="CODEX_THREAD_ID=t1", session_id="t2", prompt="x")
    own = hook(codex, "codex", "UserPromptSubmit", session_id="t2", prompt="x")

    assert forged.out == ""
    assert "for two alone" in own.out


def test_session_cannot_make_another_one_its_sub_agent(bus: Home, codex: Shell) -> None:
    fields = {"session_id": "t1", "agent_id": "t2", "agent_type": "x"}
    result = hook(codex, "codex", "PreToolUse", mark="CODEX_THREAD_ID=t1", tool_name="Bash", **fields)
    asked = lines(codex, {"op": "sub_begin", "key": "t2"}, mark="CODEX_THREAD_ID=t1").end()

    assert result.out == ""
    assert json.loads(asked.out)["error"] == "bad_request"
    assert [one["name"] for one in bus.ok("list", "--json").lines] == ["one", "two"]
    assert whoami(codex, CODEX_THREAD_ID="t2") == "two"


def test_program_of_lines_is_the_session_named_by_its_environment(bus: Home, codex: Shell) -> None:
    one, stranger = (
        lines(codex, {"op": "whoami"}, {"op": "listen"}, mark=f"CODEX_THREAD_ID={thread}").end().lines
        for thread in ("t1", "t3")
    )

    assert (one[0]["ok"]["name"], "ok" in one[1]) == ("one", True)
    assert (stranger[0]["ok"]["name"], stranger[1]["error"]) == ("script", "who_are_you")


@pytest.mark.parametrize("mark", ["CODEX_THREAD_ID=t1", ""])
def test_session_with_a_companion_cannot_get_a_second_one(
    bus: Home, codex: Shell, luna: Shell, mark: str
) -> None:
    request = {"op": "accompany", "harness": "codex", "session": "t2"}
    first = lines(codex, request, {"op": "send", "to": ["@luna"], "text": "said beside it"}, stays=True)
    assert json.loads(first.line())["ok"]["name"] == "two"
    assert "ok" in json.loads(first.line())

    second = lines(codex, request, {"op": "whoami"}, mark=mark).end()

    assert second.lines[0]["error"] == "bad_request"
    assert second.lines[1].get("ok", {}).get("name") != "two"
    (sent,) = bus.events("--type", "message")
    assert (sent["from"], sent["by"]) == ("two", "script")


def test_process_of_another_session_cannot_be_a_companion(bus: Home, codex: Shell) -> None:
    second = {"op": "accompany", "harness": "codex", "session": "t2"}

    refused, own = (
        lines(codex, second, mark=f"CODEX_THREAD_ID={thread}").end().lines[0] for thread in ("t1", "t2")
    )

    assert (refused["error"], own["ok"]["name"]) == ("bad_request", "two")


def test_tool_call_in_the_name_of_another_session_is_refused(bus: Home, codex: Shell) -> None:
    call = request(1, "tools/call", name="inbox", arguments={}, _meta={"threadId": "t2"})
    requests = [request(0, "initialize", **HANDSHAKE), notification("notifications/initialized"), call]
    content = shlex.quote("".join(json.dumps(line) + "\n" for line in requests))
    os.mkfifo(pipe := bus.spare_path())
    answers = []

    for mark in ("CODEX_THREAD_ID=t1", "CODEX_THREAD_ID=t2"):
        pump = codex.begin_script(f"{{ printf %s {content}; read -r x < {pipe}; }} | {mark} pal mcp & true")
        assert json.loads(pump.line())["id"] == 0
        answers.append(json.loads(pump.line())["result"])

    assert "names another one" in answers[0]["content"][0]["text"]
    assert [answer.get("isError", False) for answer in answers] == [True, False]


def test_session_next_to_an_observer_can_join(bus: Home) -> None:
    shell = bus.shell()
    shell.pal("join", "--name", "eye", "--role", "observer", env={"CODEX_THREAD_ID": "t1"})

    hook_reply = hook(
        shell, "codex", "UserPromptSubmit", mark="CODEX_THREAD_ID=t2", session_id="t2", prompt="x"
    )
    joined = shell.pal("join", "--name", "three", env={"CODEX_THREAD_ID": "t3"})

    name = whoami(shell, CODEX_THREAD_ID="t2")
    assert f"You are {name} on Palaver" in hook_reply.out
    assert (joined.status, whoami(shell, CODEX_THREAD_ID="t3")) == (0, "three")


def as_claude(shell: Shell, script: str) -> Job:
    """Run a script in a process that is named like Claude Code."""
    path = shell.home.spare_path()
    path.write_text(script)
    return shell.begin_script(f"bash -c 'exec -a claude bash --norc {path}'")


_START = """
fields='{"session_id":"s1","hook_event_name":"SessionStart","source":"resume","prompt":"x"}'
export CLAUDECODE=1
hook() { CLAUDE_CODE_SESSION_ID=$MARK pal hook claude $1 <<< "$fields" >/dev/null; }
who() { CLAUDE_CODE_SESSION_ID=s1 pal whoami --json; }
"""


@pytest.mark.parametrize("mark", ["s1", ""])
def test_conversation_in_two_processes_is_two_agents(bus: Home, luna: Shell, mark: str) -> None:
    stays = f"mkfifo {(pipe := bus.spare_path())}; read -r x < {pipe}"
    first = as_claude(bus.shell(), f"{_START} MARK=s1; hook SessionStart; who; {stays}")
    own: str = json.loads(first.line())["name"]
    luna.ok("send", f"@{own}", "--", "for the first")

    script = f"{_START} MARK={mark}; who; hook SessionStart; who; hook UserPromptSubmit; who"
    second = as_claude(bus.shell(), f"{script}; CLAUDE_CODE_SESSION_ID=s1 pal recv --timeout 0").end()

    before, *after = (json.loads(line) for line in second.out.splitlines()[:3])
    assert before["name"] == "script"
    assert after[0]["name"] == after[1]["name"] not in ("script", own)
    assert "for the first" not in second.out
    assert unread(bus, own) == 1
