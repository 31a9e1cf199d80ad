"""Hooks and monitors with real daemons: the process decides the identity; hooks never block a harness."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.daemon.clocked import ClockedDaemon, clocked_daemon
from tests.daemon.mcp_stage import handshaken, pump_parameters
from tests.daemon.stage import Home, Result, Shell, finish, wait_until, write_settings
from tests.limits import LIMIT_S

from palaver.harness.claude.output import EVENT_EVERY_S, EVENTS_AT_ONCE

SESSION = {"session_id": "s1"}


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


def hook(shell: Shell, event: str, **fields: Any) -> Result:
    """Run a hook below a session."""
    content = json.dumps({**SESSION, **fields})
    result = shell.begin_script(f"printf %s '{content}' | pal hook claude {event}").end()
    assert (result.status, result.err) == (0, "")
    return result


def context(result: Result) -> str:
    output: str = result.json["hookSpecificOutput"]["additionalContext"]
    return output


def state(home: Home, name: str = "nova") -> tuple[str, str]:
    (agent,) = [one for one in home.ok("list", "--json").lines if one["name"] == name]
    return agent["state"], agent["detail"] or ""


def receipt(home: Home, seq: int) -> tuple[str, str]:
    (line,) = home.ok("receipts", str(seq), "--json").json["receipts"]
    return line["state"], line.get("grade") or ""


def send(shell: Shell, *words: str) -> int:
    seq: int = shell.ok("send", "--json", *words).json["seq"]
    return seq


def test_hook_carries_a_message_and_the_next_hook_proves_it(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "@nova", "--", "look here")

    assert context(hook(nova, "PostToolUse")) == f"<pal>[new message #{seq}] luna → nova: look here</pal>"
    assert receipt(bus, seq) == ("submitted", "")
    hook(nova, "PostToolBatch")
    hook(nova, "PreToolUse", tool_name="Bash", tool_input={"command": "ls"})

    wait_until(lambda: receipt(bus, seq) == ("seen", "context"))
    wait_until(lambda: state(bus) == ("active", "Bash: ls"))


def test_request_that_a_hook_carried_can_be_answered_before_it_is_proven(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "@nova", "--intent", "request", "--", "can you?")

    assert nova.ok("send", "--json", "@luna", "--", "by the way").json.get("answers") is None
    assert "can you?" in context(hook(nova, "PostToolUse"))

    assert nova.ok("send", "--json", "@luna", "--", "yes").json["answers"] == seq


def test_hook_of_another_agent_or_harness_or_with_bad_input_is_silent(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    send(luna, "@nova", "--", "look here")

    assert hook(luna, "PostToolUse").out == ""
    assert bus.ok("hook", "claude", "PostToolUse", content=b"{}").out == ""
    for script in (
        "pal hook codex PostToolUse </dev/null",
        "echo '{}' | pal hook claude",
        "echo '[' | pal hook claude PostToolUse",
        "echo '{}' | pal hook claude PostToolUse more",
    ):
        result = nova.begin_script(script).end()
        assert (result.status, result.out, result.err) == (0, "", "")
    assert "look here" in context(hook(nova, "PostToolUse"))


def test_session_inside_another_session_is_a_different_one(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "SessionStart", source="startup")
    wait_until(lambda: "s1" in json.dumps(bus.events("--type", "life")))
    send(luna, "@nova", "--", "for the outer one")

    content = json.dumps({"session_id": "inner"})
    inner = bus.spare_path()
    inner.write_text(f"printf %s '{content}' | pal hook claude PostToolUse; true\n")
    result = nova.begin_script(f"bash -c 'exec -a claude bash {inner}; true'").end()

    assert result.status == 0
    assert "for the outer one" not in result.out
    assert "for the outer one" in context(hook(nova, "PostToolUse"))


def test_hook_to_a_stopped_daemon_loses_nothing(bus: Home, nova: Shell, luna: Shell) -> None:
    seq = send(luna, "@nova", "--", "look here")
    os.kill(bus.pid, signal.SIGSTOP)
    try:
        result = hook(nova, "PostToolUse")
    finally:
        os.kill(bus.pid, signal.SIGCONT)

    assert result.out == ""
    wait_until(lambda: receipt(bus, seq)[0] == "queued")
    wait_until(lambda: hook(nova, "PostToolUse").out != "")


def test_hook_continues_with_the_next_daemon_after_a_kill(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "@nova", "--", "look here")
    assert hook(nova, "PostToolUse").out

    bus.kill()
    assert hook(nova, "PostToolUse").out == ""
    bus.ok("up")
    hook(nova, "Stop")

    wait_until(lambda: receipt(bus, seq) == ("seen", "context"))


def test_new_session_after_a_kill_leaves_earlier_messages_unconfirmed(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "@nova", "--", "look here")
    assert hook(nova, "PostToolUse").out

    bus.kill()
    bus.ok("up")
    hook(nova, "SessionStart", source="startup")

    wait_until(lambda: bus.ok("receipts", str(seq), "--json").json["receipts"][0].get("unconfirmed") is True)
    wait_until(lambda: any("never confirmed" in text for text in bus.texts()))


def test_many_hooks_at_once_deliver_each_message_once(bus: Home, nova: Shell, luna: Shell) -> None:
    seqs = [send(luna, "@nova", "--", f"text {number}") for number in range(5)]
    script = "for i in 1 2 3 4 5 6 7 8; do echo '{}' | pal hook claude PostToolUse & done; wait"

    out = nova.begin_script(script).end().out

    assert [out.count(f"#{seq}] luna") for seq in seqs] == [1] * 5


# A monitor


def test_monitor_prints_a_line_for_each_message_at_once(bus: Home, nova: Shell, luna: Shell) -> None:
    monitor = nova.begin("monitor")
    one = send(luna, "@nova", "--", "first\nsecond line")
    assert monitor.line() == f"[new message #{one}] luna → nova: first ⏎ second line"
    two = send(luna, "@nova", "--intent", "request", "--", "again")
    assert monitor.line() == f"[request #{two}] luna → nova: again"

    wait_until(lambda: receipt(bus, two) == ("seen", "flushed"))


def test_hooks_prove_the_lines_that_a_monitor_printed(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "SessionStart", source="startup")
    monitor = bus.start("monitor", "--as", "nova")
    assert monitor.stdout is not None
    seq = send(luna, "@nova", "--", "word " * 200)
    line = monitor.stdout.readline().decode()
    assert line.endswith(f"else: pal show {seq})\n")

    notice = f"<task-notification><event>{line}</event></task-notification>"
    added = context(hook(nova, "UserPromptSubmit", prompt=notice.replace("'", "")))

    assert "word " * 200 in added
    assert receipt(bus, seq) == ("submitted", "")
    hook(nova, "Stop")
    wait_until(lambda: receipt(bus, seq) == ("seen", "context"))


def shown(*lines: str) -> str:
    """Return a prompt in which Claude Code shows lines of a monitor."""
    return f"<task-notification><event>{''.join(lines)}</event></task-notification>"


def monitor_of(bus: Home) -> "subprocess.Popen[bytes]":
    return bus.start("monitor", "--as", "nova")


def next_line(monitor: "subprocess.Popen[bytes]") -> str:
    assert monitor.stdout is not None
    return monitor.stdout.readline().decode()


def prompt_with(nova: Shell, *lines: str) -> None:
    """Let the harness show lines to its model, which replies."""
    hook(nova, "UserPromptSubmit", prompt=shown(*lines))
    hook(nova, "Stop")


def gate_of(bus: Home) -> str:
    gates = bus.ok("status", "nova", "--json").json["gates"]
    (reason,) = [gate["reason"] or "" for gate in gates if gate["lane"] == "native"]
    return str(reason)


def fill_pace(monitor: "subprocess.Popen[bytes]", nova: Shell, luna: Shell) -> None:
    """Send as many messages as a monitor may write without a pause."""
    for number in range(EVENTS_AT_ONCE):
        send(luna, "@nova", "--", f"message {number}")
        prompt_with(nova, next_line(monitor))


@pytest.fixture
def clocked(home: Home) -> Iterator[ClockedDaemon]:
    """The daemon of a home, which sees no time pass unless the test advances its clock."""
    with clocked_daemon(home) as daemon:
        yield daemon


def crew(home: Home) -> tuple[Shell, Shell]:
    """Return nova, which the bus takes for a session of Claude Code, and luna."""
    nova, luna = home.shell(), home.shell()
    nova.ok("join", "--name", "nova", "--harness", "claude")
    luna.ok("join", "--name", "luna")
    hook(nova, "SessionStart", source="startup")
    return nova, luna


def test_monitor_stays_below_the_limit_of_its_harness(home: Home, clocked: ClockedDaemon) -> None:
    nova, luna = crew(home)
    monitor = monitor_of(home)
    fill_pace(monitor, nova, luna)
    assert gate_of(home) == "paced"

    seqs = [send(luna, "@nova", "--", f"late {number}") for number in range(3)]
    assert {receipt(home, seq) for seq in seqs} == {("queued", "")}
    clocked.advance(EVENT_EVERY_S)
    lines = [next_line(monitor) for _ in seqs]

    last = send(luna, "@nova", "--", "later still")
    assert {receipt(home, seq) for seq in seqs} == {("submitted", "")}
    assert receipt(home, last) == ("queued", "")  # the three lines were one event, the only one that was free
    prompt_with(nova, *lines)
    wait_until(lambda: {receipt(home, seq) for seq in seqs} == {("seen", "context")})


def test_hook_carries_messages_that_a_monitor_may_not_write_yet(home: Home, clocked: ClockedDaemon) -> None:
    nova, luna = crew(home)
    monitor = monitor_of(home)
    fill_pace(monitor, nova, luna)
    hook(nova, "UserPromptSubmit", prompt="go on")
    seq = send(luna, "@nova", "--", "at once, please")

    assert "at once, please" in context(hook(nova, "PostToolBatch"))

    hook(nova, "Stop")
    wait_until(lambda: receipt(home, seq) == ("seen", "context"))


def test_next_daemon_knows_how_much_a_monitor_has_written(home: Home, clocked: ClockedDaemon) -> None:
    nova, luna = crew(home)
    monitor = monitor_of(home)
    fill_pace(monitor, nova, luna)

    clocked.kill()
    clocked.start()
    wait_until(lambda: home.ok("status", "nova", "--json").json.get("gates"))
    assert gate_of(home) == "paced"
    seq = send(luna, "@nova", "--", "and one more")
    assert receipt(home, seq) == ("queued", "")
    clocked.advance(EVENT_EVERY_S)

    assert next_line(monitor) == f"[new message #{seq}] luna → nova: and one more\n"


def test_message_dropped_by_the_harness_is_sent_again_after_a_whole_turn(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "SessionStart", source="startup")
    monitor = monitor_of(bus)
    seq = send(luna, "@nova", "--", "are you deaf?")
    line = next_line(monitor)
    wait_until(lambda: receipt(bus, seq) == ("submitted", ""))

    hook(nova, "UserPromptSubmit", prompt="something else")
    hook(nova, "Stop")
    assert receipt(bus, seq) == ("submitted", "")
    hook(nova, "UserPromptSubmit", prompt="something else again")
    hook(nova, "Stop")

    assert next_line(monitor) == line  # only the monitor can wake this session
    prompt_with(nova, line)
    wait_until(lambda: receipt(bus, seq) == ("seen", "context"))


def test_message_that_appears_after_a_resend_is_not_sent_a_third_time(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "SessionStart", source="startup")
    monitor = monitor_of(bus)
    seq = send(luna, "@nova", "--", "slow, not deaf")
    line = next_line(monitor)
    for _ in range(2):
        hook(nova, "UserPromptSubmit", prompt="something else")
        hook(nova, "Stop")
    assert next_line(monitor) == line

    for _ in range(2):
        hook(nova, "UserPromptSubmit", prompt="something else")
        hook(nova, "Stop")
    wait_until(lambda: bus.ok("receipts", str(seq), "--json").json["receipts"][0].get("unconfirmed"))
    assert "never confirmed" in luna.ok("recv", "--wait", "--json").out
    prompt_with(nova, line)

    wait_until(lambda: receipt(bus, seq) == ("seen", "context"))


def test_monitor_waits_for_the_next_daemon_also_after_down(bus: Home, nova: Shell, luna: Shell) -> None:
    monitor = bus.start("monitor", "--as", "nova")
    assert monitor.stdout is not None
    send(luna, "@nova", "--", "hello")
    monitor.stdout.readline()  # A client that connects only after 'pal down' ends at once.
    bus.ok("down")
    assert not (bus.path / "daemon.sock").exists()

    bus.ok("up")
    seq = send(luna, "@nova", "--", "back again")

    assert monitor.stdout.readline().decode() == f"[new message #{seq}] luna → nova: back again\n"


def test_monitor_ends_with_its_agent(bus: Home, nova: Shell, luna: Shell) -> None:
    monitor = bus.start("monitor", "--as", "nova")
    assert monitor.stdout is not None
    send(luna, "@nova", "--", "hello")
    monitor.stdout.readline()

    nova.ok("leave")

    assert monitor.wait(LIMIT_S) == 0


def test_script_has_no_mail_to_monitor(bus: Home) -> None:
    result = bus.pal("monitor")

    assert result.status == 1
    assert "only an agent receives messages" in result.err


# Other doors


async def test_tool_answers_hooks_and_is_not_offered_to_models(bus: Home, luna: Shell) -> None:
    join = f"{shlex.quote(bus.client)} join --name nova --harness claude --pid $$"
    seq = 0
    async with handshaken(pump_parameters(bus, "--tools", "hooks", script=join)) as model:
        assert await model.ok("hook", harness="claude", event="PostToolUse", session_id="s1") == {}
        seq = send(luna, "@nova", "--", "look here")
        result = await model.ok(
            "hook",
            harness="claude",
            event="PostToolUse",
            session_id="s1",
            tool_name="Bash",
            command="ls",
            agent_id="${agent_id}",
        )
        assert f"#{seq}] luna → nova: look here" in json.dumps(result, ensure_ascii=False)
        assert await model.ok("hook", harness="nobody", event="Stop") == {}
        assert await model.ok("hook", harness="claude") == {}
    async with handshaken(pump_parameters(bus)) as model:
        offered = await model.session.list_tools()
        assert "hook" not in [tool.name for tool in offered.tools]


def test_hooks_arrive_over_http_with_a_token(home: Home) -> None:
    write_settings(home, http="127.0.0.1:0")
    home.start_daemon()
    home.ok("join", "--name", "nova", "--harness", "claude")
    luna = home.shell()
    luna.ok("join", "--name", "luna")
    token = home.ok("token", "create", "--json").json["token"]
    url = home.ok("status", "--json").json["doors"]["http"]
    headers = {"authorization": f"Bearer {token}"}

    def post(harness: str, **fields: str) -> Any:
        answer = httpx2.post(f"{url}/hook/{harness}", headers=headers, json=fields, timeout=LIMIT_S)
        assert answer.status_code == 200
        return answer.json()

    assert post("claude", hook_event_name="PostToolUse", session_id="s1") == {}
    seq = send(luna, "@nova", "--", "look here")
    assert post("codex", hook_event_name="PostToolUse") == {}
    assert post("claude") == {}
    result = post("claude", hook_event_name="PostToolUse", session_id="s1")
    assert f"#{seq}] luna → nova: look here" in result["hookSpecificOutput"]["additionalContext"]
    bad = httpx2.post(
        f"{url}/hook/claude",
        headers={**headers, "content-type": "application/json"},
        content=b"[",
        timeout=LIMIT_S,
    )
    assert (bad.status_code, bad.json()) == (200, {})
    assert httpx2.post(f"{url}/hook/claude", json={}, timeout=LIMIT_S).status_code == 401


def test_killed_hook_has_delivered_nothing(bus: Home, nova: Shell, luna: Shell) -> None:
    seq = send(luna, "@nova", "--", "look here")
    process = subprocess.Popen(
        [bus.client, "hook", "claude", "PostToolUse", "--as", "nova"],
        env=bus.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    process.kill()
    finish(process)

    assert receipt(bus, seq)[0] == "queued"
    assert "look here" in context(hook(nova, "PostToolUse"))


def test_answered_hook_clears_the_mark_of_a_slow_daemon(bus: Home, nova: Shell) -> None:
    mark = bus.path / "slow"
    mark.touch()
    os.utime(mark, (0, 0))  # an old mark: a busy machine must not make the hook end before the response

    hook(nova, "UserPromptSubmit", prompt="go")

    wait_until(lambda: not mark.exists())
