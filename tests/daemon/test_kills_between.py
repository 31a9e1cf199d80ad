"""A daemon that is killed between writing `submitted` and passing the message on: no message is stranded.

The process that holds the lane outlives the daemon and reports to the next one which messages it has
received. A message that it never received is queued again, and no other message is sent twice.
"""

import signal

import pytest
from tests.daemon.holder import FakeHolder, ticket_of, words_of
from tests.daemon.stage import Home, Shell, wait_until
from tests.daemon.test_hooks import hook, monitor_of, prompt_with, receipt, send, shown
from tests.daemon.wires import ThinWire

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
        self.token, said = self.output()
        self.acknowledge()
        return said.decode()


def restart(bus: Home) -> None:
    bus.kill(signal.SIGKILL)
    bus.ok("up")


def test_message_that_never_reached_a_monitor_is_sent_by_the_next_daemon(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "SessionStart", source="startup")
    with Monitor(bus) as before:
        token = before.token
        place = send(luna, "@nova", "--", "are you there?")
        line = before.line()  # which the reconnecting client has never read
        restart(bus)

    with Monitor(bus, token) as again:
        assert again.line() == line
        prompt_with(nova, line)
        wait_until(lambda: receipt(bus, place) == ("seen", "context"))


def test_message_that_reached_a_monitor_is_not_sent_again(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "SessionStart", source="startup")
    with Monitor(bus) as before:
        place = send(luna, "@nova", "--", "are you there?")
        line = before.line()
        restart(bus)

    with Monitor(bus, before.token) as again:
        other = send(luna, "@nova", "--", "another one")
        assert again.line() == f"[new message #{other}] luna → nova: another one\n"
        assert receipt(bus, place) == ("submitted", "")
        prompt_with(nova, line)
        wait_until(lambda: receipt(bus, place) == ("seen", "context"))


def test_new_monitor_reports_nothing_about_an_earlier_one(bus: Home, nova: Shell, luna: Shell) -> None:
    hook(nova, "SessionStart", source="startup")
    with Monitor(bus) as before:
        place = send(luna, "@nova", "--", "are you there?")
        before.line()
        restart(bus)

    with Monitor(bus):
        wait_until(lambda: bus.ok("receipts", str(place), "--json").json["receipts"][0].get("unconfirmed"))
    assert f"#{place} was handed to nova and never confirmed" in luna.ok("recv", "--wait", "--json").out


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
        place = send(luna, "@kira", "--", "are you there?")
        wait_until(lambda: receipt(bus, place)[0] == "submitted")
        restart(bus)
        kira.again()

        kira.lane = kira.ok("lane", kind=kind, remembers=True)["lane"]
        kira.gate(open=True)

        assert kira.take() == "are you there?"
        wait_until(lambda: receipt(bus, place)[0] == "seen")


def test_message_that_never_reached_a_rewake_is_repeated_after_a_restart(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    hook(nova, "SessionStart", source="startup")
    with ThinWire(bus.path) as before:
        before.ask("rewake", "Stop", "--as", "nova")
        token, _ = before.output()
        before.acknowledge()
        place = send(luna, "@nova", "--", "wake up")
        _, said = before.output()  # which the reconnecting client has never read
        restart(bus)

    with ThinWire(bus.path) as again:
        again.ask("rewake", "Stop", "--as", "nova", token=token)
        assert again.output()[0] == token
        again.acknowledge()

        assert again.output()[1] == said
        assert f"#{place}] luna → nova: wake up" in said.decode()
