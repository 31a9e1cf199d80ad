"""A daemon that is killed between writing `submitted` and passing the message on: no message is stranded.

The process that holds the lane outlives the daemon and reports to the next one which messages it has
received. A message that it never received is queued again, and no other message is sent twice.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import Home, Job, Shell, is_connected, wait_until
from tests.daemon.test_hooks import SESSION, hook, monitor_of, prompt_with, receipt, send, shown
from tests.daemon.wires import ThinWire
from tests.processes import end_process

KILLS = 8


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


class Monitor(ThinWire):
    """A client of `pal monitor` that keeps its tokens, so that a test can choose one of them."""

    def __init__(self, bus: Home, token: bytes | None = None) -> None:
        super().__init__(bus.path)
        self.ask("monitor", "--as", "nova", token=token)
        self.token = b""
        assert self.line() == ""

    def line(self) -> str:
        """Read the next lines and the token that comes with them."""
        self.token, output = self.output()
        self.acknowledge()
        return output.decode()


def restart(bus: Home) -> None:
    bus.kill(signal.SIGKILL)
    bus.ok("up")


def test_message_that_never_reached_a_monitor_is_sent_by_the_next_daemon(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "SessionStart", source="startup")
    with Monitor(bus) as before:
        token = before.token
        seq = send(luna, "@nova", "--", "are you there?")
        line = before.line()  # which the reconnecting client has never read
        restart(bus)

    with Monitor(bus, token) as again:
        assert again.line() == line
        prompt_with(nova, line)
        wait_until(lambda: receipt(bus, seq) == ("seen", "context"))


def test_message_that_reached_a_monitor_is_not_sent_again(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "SessionStart", source="startup")
    with Monitor(bus) as before:
        seq = send(luna, "@nova", "--", "are you there?")
        line = before.line()
        restart(bus)

    with Monitor(bus, before.token) as again:
        other = send(luna, "@nova", "--", "another one")
        assert again.line() == f"[new message #{other}] luna → nova: another one\n"
        assert receipt(bus, seq) == ("submitted", "")
        prompt_with(nova, line)
        wait_until(lambda: receipt(bus, seq) == ("seen", "context"))


def test_new_monitor_reports_nothing_about_an_earlier_one(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "SessionStart", source="startup")
    with Monitor(bus) as before:
        seq = send(luna, "@nova", "--", "are you there?")
        before.line()
        restart(bus)

    with Monitor(bus):
        wait_until(lambda: bus.ok("receipts", str(seq), "--json").json["receipts"][0].get("unconfirmed"))
    assert f"#{seq} was submitted to nova but never confirmed" in luna.ok("recv", "--wait", "--json").out


def test_each_message_arrives_once_whenever_the_daemon_is_killed(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "SessionStart", source="startup")
    monitor = monitor_of(bus)
    assert monitor.stdout is not None
    texts = [f"message {number} of many" for number in range(KILLS)]
    for text in texts:
        send(luna, "@nova", "--", text)
        restart(bus)
    last = send(luna, "@nova", "--", "the last one")

    read = ""
    while not all(text in read for text in [*texts, f"#{last}]"]):
        line = monitor.stdout.readline().decode()
        read += line + hook(nova, "UserPromptSubmit", prompt=shown(line)).out
        read += hook(nova, "PreToolUse", tool_name="Bash", tool_input={"command": "ls"}).out

    assert {text: read.count(text) for text in texts} == dict.fromkeys(texts, 1)


@pytest.mark.parametrize("kind", ["native", "terminal"])
def test_message_that_never_reached_a_holder_is_offered_after_a_restart(
    bus: Home, luna: Shell, kind: str
) -> None:
    with FakeHolder(bus) as kira:
        kira.hold(ticket_of(words_of(bus, "run", "--name", "kira", "--", "bash")))
        kira.lane = kira.ok("lane", kind=kind, remembers=True)["lane"]
        kira.gate(open=True)
        seq = send(luna, "@kira", "--", "are you there?")
        wait_until(lambda: receipt(bus, seq)[0] == "submitted")
        restart(bus)
        kira.again()

        kira.lane = kira.ok("lane", kind=kind, remembers=True)["lane"]
        kira.gate(open=True)

        assert kira.take() == "are you there?"
        wait_until(lambda: receipt(bus, seq)[0] == "seen")


def test_message_that_never_reached_a_rewake_is_repeated_after_a_restart(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "SessionStart", source="startup")
    with ThinWire(bus.path) as before:
        before.ask("rewake", "Stop", "--as", "nova")
        token, _ = before.output()
        before.acknowledge()
        seq = send(luna, "@nova", "--", "wake up")
        _, output = before.output()  # which the reconnecting client has never read
        restart(bus)

    with ThinWire(bus.path) as again:
        again.ask("rewake", "Stop", "--as", "nova", token=token)
        assert again.output()[0] == token
        again.acknowledge()

        assert again.output()[1] == output
        assert f"#{seq}] luna → nova: wake up" in output.decode()


class HookProcess:
    """A real `pal hook` that is connected to a daemon which has not read its request yet."""

    def __init__(self, bus: Home, shell: Shell, event: str) -> None:
        content, number = bus.spare_path(), bus.spare_path()
        content.write_text(json.dumps(SESSION))
        script = (
            f"pal hook claude {event} <{content} & echo $! >{number}.new; mv {number}.new {number}; wait $!"
        )
        self.job: Job = shell.begin_script(script)
        wait_until(number.exists)
        self.pid = int(number.read_text())
        wait_until(lambda: is_connected(self.pid))


@contextmanager
def stopped_daemon(bus: Home) -> Iterator[None]:
    os.kill(bus.pid, signal.SIGSTOP)
    yield
    os.kill(bus.pid, signal.SIGCONT)


def submit_to_a_stopped_hook(bus: Home, nova: Shell, seq: int, event: str = "PostToolUse") -> HookProcess:
    """Have the daemon hand a message to a hook process that is stopped before it can read the answer."""
    with stopped_daemon(bus):
        process = HookProcess(bus, nova, event)
        os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: receipt(bus, seq)[0] == "submitted")
    return process


def prove(bus: Home, nova: Shell, seq: int) -> str:
    """Run the hooks of a turn that goes on, and return their output; the message is seen in the end."""
    output = ""

    def is_seen() -> bool:
        nonlocal output
        output += hook(nova, "PostToolUse").out + hook(nova, "PostToolBatch").out
        output += hook(nova, "PreToolUse", tool_name="Bash", tool_input={"command": "ls"}).out
        return receipt(bus, seq) == ("seen", "context")

    wait_until(is_seen)
    return output


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse", "Stop"])
def test_hook_whose_daemon_dies_before_it_reads_the_request_loses_nothing(
    bus: Home, nova: Shell, luna: Shell, event: str
) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "@nova", "--", "look here")
    os.kill(bus.pid, signal.SIGSTOP)
    process = HookProcess(bus, nova, event)
    restart(bus)

    output = process.job.end().out + prove(bus, nova, seq)

    assert output.count("look here") == 1


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse", "Stop"])
def test_hook_without_its_answer_gets_it_from_the_next_daemon_or_hook(
    bus: Home, nova: Shell, luna: Shell, event: str
) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "@nova", "--", "look here")
    process = submit_to_a_stopped_hook(bus, nova, seq, event)
    restart(bus)
    os.kill(process.pid, signal.SIGCONT)

    output = process.job.end().out + prove(bus, nova, seq)

    assert output.count("look here") == 1


def test_message_is_queued_again_when_the_hook_found_no_other_daemon(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "@nova", "--", "look here")
    process = submit_to_a_stopped_hook(bus, nova, seq)
    bus.kill(signal.SIGKILL)
    os.kill(process.pid, signal.SIGCONT)
    assert process.job.end().out == ""

    bus.ok("up")

    assert receipt(bus, seq) == ("queued", "")
    assert prove(bus, nova, seq).count("look here") == 1


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse", "Stop"])
def test_later_hooks_prove_a_message_written_before_the_daemon_died(
    bus: Home, nova: Shell, luna: Shell, event: str
) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "@nova", "--", "look here")
    output = hook(nova, event).out
    restart(bus)

    output += prove(bus, nova, seq)

    assert output.count("look here") == 1
    wait_until(lambda: not list((bus.path / "hooks").iterdir()))


def test_message_of_a_killed_hook_is_unconfirmed_and_not_sent_again(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "@nova", "--", "look here")
    process = submit_to_a_stopped_hook(bus, nova, seq)
    bus.kill(signal.SIGKILL)
    end_process(process.pid, signal.SIGKILL)
    bus.ok("up")

    output = hook(nova, "PostToolUse").out + hook(nova, "Stop").out

    assert "look here" not in output
    wait_until(lambda: bus.ok("receipts", str(seq), "--json").json["receipts"][0].get("unconfirmed"))
