"""Handled copies are never typed or injected, and the lanes of an agent carry the mail of its session."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.app.person import holders_of
from tests.daemon.stage import PAL, Home, Result, Shell, check_output, new_home, run_as_person, wait_until
from tests.holder.stage import PROGRAMS
from tests.processes import end_process

PYTHON = str(Path(PAL).with_name("python"))


@pytest.fixture
def home() -> Iterator[Home]:
    """A bus whose holders end with it."""
    with new_home() as made:
        made.start_daemon()
        try:
            yield made
        finally:
            for pid in holders_of(made.path):
                end_process(pid, 9)


@pytest.fixture
def nova(bus: Home) -> Shell:
    """A session of Claude Code that the bus knows as the session mon, which is subscribed to ci/*."""
    shell = bus.shell()
    shell.ok("join", "--name", "nova", "--harness", "claude")
    shell.ok("session", "create", "nova", "mon", "--harness-session", "s1")
    shell.ok("sub", "add", "ci/*", "--session", "mon")
    return shell


def hook(shell: Shell, event: str, session: str = "s1", **fields: Any) -> Result:
    content = json.dumps({"session_id": session, **fields})
    result = shell.begin_script(f"printf %s '{content}' | pal hook claude {event}").end()
    assert (result.status, result.err) == (0, "")
    return result


def route(home: Home, path: str, command: str) -> int:
    seq: int = home.ok("route", path, "--command", command, "--json").json["seq"]
    return seq


def receipts(home: Home, seq: int) -> dict[str, str]:
    """Return the state of each copy: of `agent`, or of `agent session`."""
    lines = home.ok("receipts", str(seq), "--json").json["receipts"]
    return {" ".join(filter(None, (one["name"], one.get("session")))): one["state"] for one in lines}


def test_hook_carries_the_mail_of_the_session_it_runs_in_and_proves_it(bus: Home, nova: Shell) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = route(bus, "ci/main", "red")

    output = hook(nova, "PostToolUse").json["hookSpecificOutput"]["additionalContext"]

    assert f"#{seq}" in output
    assert "red {}" in output
    assert receipts(bus, seq) == {"nova mon": "submitted", "nova": "queued"}
    hook(nova, "PostToolBatch")
    hook(nova, "PreToolUse", tool_name="Bash", tool_input={"command": "ls"})
    wait_until(lambda: receipts(bus, seq) == {"nova mon": "seen", "nova": "queued"})
    assert nova.ok("recv", "--json").json["seq"] == seq
    assert nova.ok("session", "show", "nova", "mon", "--json").json["lastUsedAt"] > 0


def test_session_mail_of_a_hook_is_proven_to_the_next_daemon_after_a_kill(bus: Home, nova: Shell) -> None:
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = route(bus, "ci/main", "red")
    assert "red {}" in hook(nova, "PostToolUse").out

    bus.kill(signal.SIGKILL)
    bus.ok("up")
    hook(nova, "PostToolUse")
    hook(nova, "Stop")

    wait_until(lambda: receipts(bus, seq) == {"nova mon": "seen", "nova": "queued"})


def test_hook_of_another_session_gets_neither_copy(bus: Home, nova: Shell) -> None:
    nova.ok("session", "create", "nova", "mon", "--harness-session", "s2")
    hook(nova, "UserPromptSubmit", prompt="go")
    seq = route(bus, "ci/main", "red")

    assert hook(nova, "PostToolUse").out == ""
    assert receipts(bus, seq) == {"nova mon": "queued", "nova": "queued"}
    assert bus.ok("status", "nova", "--json").json["unread"] == 0
    assert nova.ok("recv", "--wait", "--timeout", "5s", "--json").json["seq"] == seq
    assert nova.ok("recv", "--session", "mon", "--json").json["seq"] == seq


def test_handled_copy_is_never_typed_and_mail_of_the_present_session_is(home: Home) -> None:
    home.ok("run", "--detach", "--name", "luna", "--", PYTHON, "-I", str(PROGRAMS / "lines.py"))
    for pattern, session in (("ci/*", "mon"), ("news/*", "main")):
        check_output(run_as_person(home, "sub", "add", pattern, "--session", session, "--as", "luna"))
    handled = route(home, "ci/main", "red")
    typed = route(home, "news/today", "green")

    wait_until(lambda: receipts(home, typed) == {"luna main": "seen", "luna": "queued"})
    own = home.ok("send", "--json", "@luna", "--", "marker").json["seq"]
    wait_until(lambda: receipts(home, own) == {"luna": "seen"})

    screen = check_output(run_as_person(home, "peek", "luna")).out
    assert "green {}" in screen
    assert "marker" in screen
    assert "red" not in screen
    assert receipts(home, handled) == {"luna mon": "queued", "luna": "queued"}
