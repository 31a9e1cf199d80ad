"""The rewake process that wakes a session, with real daemons: it prints once and never blocks the harness."""

import json
import signal
import subprocess

import pytest
from tests.daemon.stage import Home, Shell, wait_until
from tests.daemon.wires import ThinWire
from tests.limits import LIMIT_S

TERMINAL = {"CLAUDE_CODE_ENTRYPOINT": "cli"}
WAKES = 2


@pytest.fixture
def nova(bus: Home) -> Shell:
    """A process that the bus takes for an idle session of Claude Code."""
    shell = bus.shell()
    shell.ok("join", "--name", "nova", "--harness", "claude")
    hook(shell, "SessionStart", source="startup")
    return shell


@pytest.fixture
def luna(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "luna")
    return shell


def hook(shell: Shell, event: str, **fields: str) -> None:
    content = json.dumps({"session_id": "s1", **fields})
    assert shell.begin_script(f"printf %s '{content}' | pal hook claude {event}").end().status == 0


def waiting(bus: Home, event: str = "Stop", source: str = "") -> "subprocess.Popen[bytes]":
    """Start a rewake process for nova, as a hook would, and wait until it can wake."""
    before = bus.ok("status", "nova", "--json").json.get("gates")
    process = bus.start("rewake", event, "--as", "nova", env=TERMINAL, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"session_id": "s1", "source": source}).encode())
    process.stdin.close()
    process.stdin = None
    wait_until(lambda: before != bus.ok("status", "nova", "--json").json.get("gates") or is_native(bus))
    return process


def is_native(bus: Home) -> bool:
    gates = bus.ok("status", "nova", "--json").json.get("gates") or []
    return any(gate["lane"] == "native" for gate in gates)


def send(shell: Shell, *words: str) -> int:
    seq: int = shell.ok("send", "--json", "@nova", *words).json["seq"]
    return seq


def receipt(home: Home, seq: int) -> tuple[str, str]:
    (line,) = home.ok("receipts", str(seq), "--json").json["receipts"]
    return line["state"], line.get("lane") or ""


def is_unconfirmed(home: Home, seq: int) -> bool:
    (line,) = home.ok("receipts", str(seq), "--json").json["receipts"]
    return bool(line.get("unconfirmed"))


def test_rewake_prints_the_new_message_and_exits_to_wake_the_session(
    bus: Home, nova: Shell, luna: Shell
) -> None:
    process = waiting(bus)

    seq = send(luna, "--intent", "request", "--", "first\nsecond line")

    out, err = process.communicate(timeout=LIMIT_S)
    line = f"[request #{seq}] luna → nova: first ⏎ second line"
    assert (out.decode(), err) == (f"New messages:\n{line}\n", b"")
    assert process.returncode == WAKES
    assert receipt(bus, seq) == ("submitted", "native")


def test_rewake_is_silent_while_the_session_works(bus: Home, nova: Shell, luna: Shell) -> None:
    process = waiting(bus)
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = send(luna, "--", "at work?")
    assert receipt(bus, seq) == ("queued", "")

    hook(nova, "Stop", stop_hook_active="false")

    assert process.wait(LIMIT_S) == WAKES


def test_rewake_next_to_a_monitor_exits_at_once(bus: Home, nova: Shell, luna: Shell) -> None:
    monitor = bus.start("monitor", "--as", "nova")
    wait_until(lambda: is_native(bus))

    result = bus.pal("rewake", "Stop", "--as", "nova", content=b"{}", env=TERMINAL)

    assert (result.status, result.out, result.err) == (0, "", "")
    seq = send(luna, "--", "hello")
    assert monitor.stdout is not None
    assert monitor.stdout.readline().decode() == f"[new message #{seq}] luna → nova: hello\n"


def test_rewake_ends_when_a_monitor_starts(bus: Home, nova: Shell) -> None:
    process = waiting(bus, "SessionStart", "startup")

    bus.start("monitor", "--as", "nova")

    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == 0


def test_newer_rewake_replaces_the_older_one(bus: Home, nova: Shell, luna: Shell) -> None:
    first = waiting(bus)

    second = waiting(bus)

    assert first.communicate(timeout=LIMIT_S) == (b"", b"")
    assert first.returncode == 0
    send(luna, "--", "hello")
    assert second.wait(LIMIT_S) == WAKES


@pytest.mark.parametrize("event", ["SessionEnd", "leave"])
def test_rewake_ends_with_the_session(bus: Home, nova: Shell, event: str) -> None:
    process = waiting(bus)

    if event == "leave":
        nova.ok("leave")
    else:
        hook(nova, event, reason="clear")

    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == 0


def test_rewake_continues_with_the_next_daemon(bus: Home, nova: Shell, luna: Shell) -> None:
    process = waiting(bus)
    bus.kill(signal.SIGKILL)
    bus.ok("up")
    wait_until(lambda: is_native(bus))

    seq = send(luna, "--", "back again")

    out, _ = process.communicate(timeout=LIMIT_S)
    assert (out.decode(), process.returncode) == (
        f"New messages:\n[new message #{seq}] luna → nova: back again\n",
        WAKES,
    )


def test_killed_rewake_does_not_block_later_messages(bus: Home, nova: Shell, luna: Shell) -> None:
    with ThinWire(bus.path) as doomed:
        doomed.ask("rewake", "Stop", "--as", "nova")
        doomed.output()
        doomed.acknowledge()
        lost = send(luna, "--", "said to nobody")
        _, text = doomed.output()  # it received this message and ended before it has written it out
    assert b"said to nobody" in text

    again = waiting(bus)
    seq = send(luna, "--", "and now?")
    out, _ = again.communicate(timeout=LIMIT_S)
    assert out.decode() == f"New messages:\n[new message #{seq}] luna → nova: and now?\n"
    wait_until(lambda: is_unconfirmed(bus, lost))
    for event in (
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "PostToolBatch",
        "Stop",
        "UserPromptSubmit",
    ):
        hook(nova, event, prompt="go")
    wait_until(lambda: bus.ok("status", "nova", "--json").json["state"] == "active")
    assert receipt(bus, lost) == ("submitted", "native")
    assert is_unconfirmed(bus, lost)


@pytest.mark.parametrize("words", [("rewake", "Stop"), ("rewake", "Stop", "--as", "luna"), ("rewake",)])
def test_rewake_without_a_session_ends_at_once(bus: Home, luna: Shell, words: tuple[str, ...]) -> None:
    result = bus.pal(*words, content=b"no json", env=TERMINAL)

    assert (result.status, result.out, result.err) == (0, "", "")
