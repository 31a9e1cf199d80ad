"""The few verbs that a client knows by itself: hook, help, down and up."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.clients.conftest import Daemon, Pal

HOOK = ("hook", "claude", "Stop")
QUIET = (b"", b"")


def test_a_hook_says_and_ends_as_the_daemon_tells(pal: Pal, daemon: Daemon) -> None:
    process = pal.start(*HOOK, stdin=subprocess.PIPE)
    peer = daemon.accept()
    assert process.stdin is not None

    peer.ask_stdin()
    process.stdin.write(b"{}")
    process.stdin.close()
    content = peer.next_content()
    peer.write(1, b'{"decision":"block"}')
    peer.quit(2)

    assert content == (b"{}", (b"Z", b""))
    assert peer.next_frame() == (b"A", b"\0\0\0\1")
    assert process.wait(5) == 2


@pytest.mark.parametrize("arguments", [HOOK, ("--as", "down", "--json", *HOOK), ("--", *HOOK)])
def test_a_hook_is_silent_when_nobody_listens_and_starts_nothing(
    pal: Pal, arguments: tuple[str, ...]
) -> None:
    result = pal.run(*arguments)

    assert (result.status, result.out, result.err) == (0, *QUIET)
    assert pal.notes() == []


@pytest.mark.parametrize("given", ["", "/dev/null", "/nowhere", "/" + "x" * 300])
def test_a_hook_is_silent_whatever_its_home_is(pal: Pal, given: str) -> None:
    result = pal.run(*HOOK, "--home", given)

    assert (result.status, result.out, result.err) == (0, *QUIET)


@pytest.mark.parametrize(
    "said", [b"", b"E\0", b"!\0\0\0\0", b"HTTP/1.1 400\r\n\r\n", b"N\0\0\0\0", b"Q\0\0\0\0"]
)
def test_a_hook_is_silent_when_the_daemon_speaks_nonsense_or_is_lost(
    pal: Pal, daemon: Daemon, said: bytes
) -> None:
    process = pal.start(*HOOK)
    peer = daemon.accept()

    peer.wire.sendall(said)
    peer.close()

    assert process.communicate(timeout=5) == QUIET
    assert process.returncode == 0
    assert pal.notes() == []


def test_a_hook_does_not_wait_long_for_a_silent_daemon(pal: Pal, daemon: Daemon) -> None:
    process = pal.start(*HOOK)
    peer = daemon.accept()

    out, err = process.communicate(timeout=10)  # its own limit is five seconds

    assert (out, err, process.returncode) == (*QUIET, 0)
    assert peer.rest() == []


def test_a_verb_that_a_hook_runs_is_not_under_its_limit(pal: Pal, daemon: Daemon, home: Path) -> None:
    script = home.parent / "python"
    script.write_text("#!/bin/sh\nkill -ALRM $$\n")
    process = pal.start(*HOOK)

    daemon.accept().send(b"V", b"hook")

    assert process.wait(5) == -signal.SIGALRM


@pytest.mark.parametrize(
    "arguments", [(), ("help",), ("send", "--help"), ("-h",), ("down", "-h"), ("up", "--help")]
)
def test_help_runs_in_python_when_nobody_listens(pal: Pal, arguments: tuple[str, ...]) -> None:
    (pal.home / "down").touch()

    result = pal.run(*arguments)

    assert (result.status, result.out) == (7, b"in python\n")
    assert [note["argv"] for note in pal.notes()] == [["-I", "-m", "palaver.cli", *arguments]]
    assert (pal.home / "down").exists()


def test_help_is_an_ordinary_request_when_somebody_listens(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("down", "--help")
    peer = daemon.accept()
    lock = os.open(daemon.home / "daemon.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)

    peer.quit()

    assert process.wait(5) == 0  # and it does not wait for the daemon to end
    os.close(lock)


def test_help_behind_the_end_of_options_is_text(pal: Pal) -> None:
    result = pal.run("send", "--", "--help")

    assert result.out == b"served\n"


def test_down_leaves_a_marker_when_nobody_listens(pal: Pal) -> None:
    result = pal.run("down")

    assert (result.status, result.out, result.err) == (0, b"", b"pal: the bus is not running\n")
    assert stat.S_IMODE((pal.home / "down").stat().st_mode) == 0o600
    assert (pal.home / "down").read_bytes() == b""
    assert pal.notes() == []


def test_down_makes_no_home(pal: Pal) -> None:
    pal.home.rmdir()

    result = pal.run("down")

    assert (result.status, result.err) == (0, b"pal: the bus is not running\n")
    assert not pal.home.exists()


def test_down_waits_until_the_daemon_is_gone(pal: Pal, daemon: Daemon) -> None:
    lock = os.open(daemon.home / "daemon.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    process = pal.start("down")
    peer = daemon.accept()

    peer.quit()
    peer.rest()
    is_waiting = process.poll() is None
    os.close(lock)

    assert is_waiting
    assert process.wait(5) == 0


def test_a_refused_down_waits_for_nothing(pal: Pal, daemon: Daemon) -> None:
    lock = os.open(daemon.home / "daemon.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    process = pal.start("down")

    daemon.accept().quit(1)

    assert process.wait(5) == 1
    os.close(lock)


def test_up_starts_the_daemon_and_removes_the_marker(pal: Pal) -> None:
    (pal.home / "down").touch()

    result = pal.run("up", "--http", "127.0.0.1:7420", env={"CLAUDECODE": "1"})

    assert (result.status, result.out) == (0, b"served\n")
    assert not (pal.home / "down").exists()


def test_up_in_the_foreground_becomes_the_daemon(pal: Pal) -> None:
    (pal.home / "down").touch()

    result = pal.run("--json", "up", "--http", "h:1", "--home", str(pal.home), "--foreground", "--irc=x")

    assert result.status == 7
    argv = ["-I", "-m", "palaver.daemon", "--home", str(pal.home), "--foreground", "--http", "h:1", "--irc=x"]
    assert pal.notes()[0]["argv"] == argv
    assert not (pal.home / "down").exists()
