"""The commands that a client handles itself: help, down and up; `test_hook.py` tests hook and monitor."""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING

import pytest
from tests.limits import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.conftest import Daemon, Pal


@pytest.mark.parametrize(
    "arguments", [(), ("help",), ("send", "--help"), ("-h",), ("down", "-h"), ("up", "--help")]
)
def test_help_runs_in_python_without_a_daemon(pal: Pal, arguments: tuple[str, ...]) -> None:
    (pal.home / "down").touch()

    result = pal.run(*arguments)

    assert (result.status, result.out) == (7, b"in python\n")
    assert [note["argv"] for note in pal.notes()] == [["-I", "-m", "palaver.app", *arguments]]
    assert (pal.home / "down").exists()


@pytest.mark.parametrize("arguments", [("help",), ("up", "--help"), ("__complete", "se")])
def test_help_needs_no_usable_home(pal: Pal, arguments: tuple[str, ...]) -> None:
    result = pal.run(*arguments, "--home", "/dev/null")

    assert (result.status, result.out, result.err) == (7, b"in python\n", b"")


def test_help_is_an_ordinary_request_with_a_daemon(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("down", "--help")
    peer = daemon.accept()
    lock = os.open(daemon.home / "daemon.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)

    peer.quit()

    assert process.wait(LIMIT_S) == 0  # it does not wait for the daemon to end
    os.close(lock)


def test_help_after_the_end_of_options_is_text(pal: Pal) -> None:
    result = pal.run("send", "--", "--help")

    assert result.out == b"served\n"


def test_down_leaves_a_marker_without_a_daemon(pal: Pal) -> None:
    result = pal.run("down")

    assert (result.status, result.out, result.err) == (0, b"", b"pal: the bus is not running\n")
    assert stat.S_IMODE((pal.home / "down").stat().st_mode) == 0o600
    assert (pal.home / "down").read_bytes() == b""
    assert pal.notes() == []


def test_down_without_a_daemon_prints_json_on_request(pal: Pal) -> None:
    result = pal.run("down", "--json")

    assert (result.status, result.out, result.err) == (0, b'{"pid":null,"stopped":false}\n', b"")


def test_down_creates_no_home(pal: Pal) -> None:
    pal.home.rmdir()

    result = pal.run("down")

    assert (result.status, result.err) == (0, b"pal: the bus is not running\n")
    assert not pal.home.exists()


def test_down_waits_until_the_daemon_has_exited(pal: Pal, daemon: Daemon) -> None:
    lock = os.open(daemon.home / "daemon.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    process = pal.start("down")
    peer = daemon.accept()

    peer.quit()
    peer.rest()
    is_waiting = process.poll() is None
    os.close(lock)

    assert is_waiting
    assert process.wait(LIMIT_S) == 0


def test_refused_down_does_not_wait(pal: Pal, daemon: Daemon) -> None:
    lock = os.open(daemon.home / "daemon.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    process = pal.start("down")

    daemon.accept().quit(1)

    assert process.wait(LIMIT_S) == 1
    os.close(lock)


def test_up_starts_the_daemon_in_spite_of_the_marker(pal: Pal) -> None:
    (pal.home / "down").touch()

    result = pal.run("up", "--http", "127.0.0.1:7420", env={"CLAUDECODE": "1"})

    assert (result.status, result.out) == (0, b"served\n")
    assert (pal.home / "down").exists()  # The daemon itself removes it once it is up.


def test_up_in_the_foreground_becomes_the_daemon(pal: Pal) -> None:
    (pal.home / "down").touch()

    result = pal.run("--json", "up", "--http", "h:1", "--home", str(pal.home), "--foreground", "--irc=x")

    assert result.status == 7
    argv = ["-I", "-m", "palaver.daemon", "--home", str(pal.home), "--foreground", "--http", "h:1", "--irc=x"]
    assert pal.notes()[-1]["argv"] == argv
    assert (pal.home / "down").exists()  # The daemon itself removes it once it is up.


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--bogus"),
        ("--bogus", "up", "--foreground"),
        ("up", "--", "--bogus"),
        ("down", "--bogus"),
        ("--json", "down", "--foreground", "--bogus"),
    ],
)
def test_up_and_down_refuse_invalid_arguments_before_any_action(pal: Pal, arguments: tuple[str, ...]) -> None:
    if "up" in arguments:
        (pal.home / "down").touch()

    result = pal.run(*arguments)

    assert (result.status, result.out, result.err) == (2, b"", b"")
    assert [note["argv"] for note in pal.notes()] == [["-I", "-m", "palaver.app", "__check", *arguments]]
    assert (pal.home / "down").exists() == ("up" in arguments)
    assert not (pal.home / "daemon.sock").exists()


@pytest.mark.parametrize("word", ["--json", "--home=home", "up"])
def test_up_does_not_check_known_arguments(pal: Pal, word: str) -> None:
    result = pal.run("up", *([word] if word != "up" else []), "--as", "--bogus", cwd=pal.home.parent)

    assert result.out == b"served\n"
    assert [note["argv"][2] for note in pal.notes()] == ["palaver.daemon"]


def test_missing_python_for_the_check_is_reported(pal: Pal) -> None:
    result = pal.run("down", "--bogus", env={"PALAVER_PYTHON": "/nowhere/python"})

    assert result.status == 1
    assert result.err.startswith(b"pal: cannot run /nowhere/python: ")
    assert not (pal.home / "down").exists()


# `pal` alone


@pytest.fixture
def terminal() -> Iterator[int]:
    """A terminal for standard input and output."""
    person, program = os.openpty()
    yield program
    os.close(person)
    os.close(program)


@pytest.mark.parametrize("arguments", [(), ("--home", "HOME"), ("--home=HOME",)])
def test_pal_alone_at_a_terminal_opens_the_dashboard(
    pal: Pal, daemon: Daemon, terminal: int, arguments: tuple[str, ...]
) -> None:
    words = [word.replace("HOME", str(pal.home)) for word in arguments]

    process = pal.start(*words, stdin=terminal, stdout=terminal, env={"TERM": "xterm"})
    peer = daemon.accept()
    peer.quit()

    assert process.wait(LIMIT_S) == 0
    assert peer.all(b"a") == [*map(os.fsencode, words), b"ui"]


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"TERM": ""},
        {"TERM": "dumb"},
        {"TERM": "xterm", "CLAUDECODE": "1"},
        {"TERM": "xterm", "PALAVER_SEAT": "1"},
    ],
)
def test_pal_alone_elsewhere_is_help(pal: Pal, daemon: Daemon, terminal: int, env: dict[str, str]) -> None:
    process = pal.start(stdin=terminal, stdout=terminal, env=env)
    peer = daemon.accept()
    peer.quit()

    assert process.wait(LIMIT_S) == 0
    assert peer.all(b"a") == []


@pytest.mark.parametrize("arguments", [("--json",), ("--as", "luna"), ("--",), ("--help",)])
def test_pal_with_other_options_is_not_alone(
    pal: Pal, daemon: Daemon, terminal: int, arguments: tuple[str, ...]
) -> None:
    process = pal.start(*arguments, stdin=terminal, stdout=terminal, env={"TERM": "xterm"})
    peer = daemon.accept()
    peer.quit()

    assert process.wait(LIMIT_S) == 0
    assert peer.all(b"a") == [*map(os.fsencode, arguments)]


def test_pal_alone_with_output_to_a_pipe_is_help(pal: Pal, daemon: Daemon, terminal: int) -> None:
    process = pal.start(stdin=terminal, env={"TERM": "xterm"})
    peer = daemon.accept()
    peer.quit()

    assert process.wait(LIMIT_S) == 0
    assert peer.all(b"a") == []
