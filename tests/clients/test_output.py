"""Writing the daemon's output, and acknowledging it when it is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.limits import LIMIT_S

from palaver.version import __version__

if TYPE_CHECKING:
    from tests.clients.conftest import Daemon, Pal

MALFORMED = f"pal: the daemon sent something that this client ({__version__}) does not understand\n".encode()


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def test_output_and_errors_go_to_their_streams(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("list")
    peer = daemon.accept()

    peer.write(1, b"out\n")
    peer.send(b"E", b"err\n")
    peer.quit()

    assert process.communicate(timeout=LIMIT_S) == (b"out\n", b"err\n")
    assert process.returncode == 0


@pytest.mark.parametrize("status", [0, 1, 2, 3, 127, 255])
def test_daemon_chooses_the_exit_status(pal: Pal, daemon: Daemon, status: int) -> None:
    process = pal.start("list")

    daemon.accept().quit(status)

    assert process.wait(LIMIT_S) == status


def test_each_frame_is_acknowledged_in_order(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("recv")
    peer = daemon.accept()

    for at in range(50):
        peer.write(at + 7, b"%d\n" % at)
    peer.quit()

    assert peer.rest() == [(b"A", number(at + 7)) for at in range(50)]
    assert process.communicate(timeout=LIMIT_S)[0] == b"".join(b"%d\n" % at for at in range(50))


def test_empty_frame_is_acknowledged_too(pal: Pal, daemon: Daemon) -> None:
    pal.start("recv")
    peer = daemon.accept()

    peer.write(4_000_000_000, b"", token=b"t")

    assert peer.next_frame() == (b"A", number(4_000_000_000))


def test_frame_in_pieces_is_one_frame(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("recv")
    peer = daemon.accept()
    whole = b"O" + number(10) + number(1) + b"\0\0text"

    for byte in whole:
        peer.wire.sendall(bytes([byte]))
    peer.quit()

    assert process.communicate(timeout=LIMIT_S)[0] == b"text"


def test_large_frame_is_written_completely_before_it_is_acknowledged(pal: Pal, daemon: Daemon) -> None:
    data = os.urandom(1024) * 10_000
    process = pal.start("recv")
    peer = daemon.accept()

    peer.write(1, data)
    peer.quit()
    out = process.communicate(timeout=LIMIT_S)[0]

    assert out == data
    assert peer.rest() == [(b"A", number(1))]


def test_frame_that_the_reader_did_not_take_is_not_acknowledged(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("recv")
    peer = daemon.accept()
    assert process.stdout is not None

    peer.write(1, b"one")
    first = os.read(process.stdout.fileno(), 3)
    peer.write(2, b"x" * 4_000_000)
    os.read(process.stdout.fileno(), 1)
    process.terminate()

    assert first == b"one"
    assert peer.rest() == [(b"A", number(1)), (b"S", bytes([signal.SIGTERM]))]
    assert process.wait(LIMIT_S) == -signal.SIGTERM


def test_non_blocking_output_is_waited_for(pal: Pal, daemon: Daemon) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    process = pal.start("recv", stdout=theirs)
    os.close(theirs)
    peer = daemon.accept()

    peer.write(1, b"x" * 300_000)
    peer.quit()
    with os.fdopen(ours, "rb") as reader:
        out = reader.read()

    assert out == b"x" * 300_000
    assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("is_ignored", [False, True])
def test_closed_pipe_ends_the_client_silently_without_acknowledgement(
    pal: Pal, daemon: Daemon, is_ignored: bool
) -> None:
    ours, theirs = os.pipe()
    process = pal.start("recv", stdout=theirs, restore_signals=not is_ignored)
    os.close(theirs)
    peer = daemon.accept()

    os.close(ours)
    peer.write(1, b"lost")

    assert peer.rest() == []
    assert process.communicate(timeout=LIMIT_S)[1] == b""
    assert process.returncode == -signal.SIGPIPE


def test_full_disk_is_an_error_and_nothing_is_acknowledged(pal: Pal, daemon: Daemon) -> None:
    with open("/dev/full", "wb") as full:
        process = pal.start("recv", stdout=full)
    peer = daemon.accept()

    peer.write(1, b"lost")

    assert peer.rest() == []
    assert process.communicate(timeout=LIMIT_S)[1] == b"pal: standard output: No space left on device\n"
    assert process.returncode == 1


def test_closed_standard_output_is_an_error(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("recv", before=("sh", "-c", 'exec "$@" <&- >&-', "sh"))
    peer = daemon.accept()

    peer.write(1, b"lost")

    assert peer.rest() == []
    assert process.communicate(timeout=LIMIT_S)[1] == b"pal: standard output: Bad file descriptor\n"
    assert process.returncode == 1


@pytest.mark.parametrize(
    "bad",
    [
        b"!" + number(0),
        b"A" + number(4) + number(1),
        b"O" + number(5) + number(1) + b"\0",
        b"O" + number(6) + number(1) + b"\0\1",
        b"Q" + number(0),
        b"Q" + number(2) + b"\0\0",
        b"I" + number(3) + b"\0\0\0",
        b"F" + number(3) + b"\0\0\0",
        b"E" + number(10 * 1024 * 1024 + 1),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_invalid_frame_is_an_error(pal: Pal, daemon: Daemon, bad: bytes) -> None:
    process = pal.start("list")

    daemon.accept().wire.sendall(bad)

    assert process.communicate(timeout=LIMIT_S) == (b"", MALFORMED)
    assert process.returncode == 1


def test_command_in_python_replaces_the_client(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("chat", "--home", str(daemon.home), env={"PALAVER_HOME": "/nowhere"})
    peer = daemon.accept()

    peer.send(b"V", b"chat\0\0\xff x\0--room")

    assert peer.rest() == []
    assert process.communicate(timeout=LIMIT_S)[0] == b"in python\n"
    assert process.returncode == 7
    (note,) = pal.notes()
    assert note["argv"] == ["-I", "-m", "palaver.app", "chat", "", "\xff x", "--room"]
    assert note["environment"]["PALAVER_HOME"] == str(daemon.home)


def test_ticket_is_passed_by_a_pipe_and_never_by_arguments(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("run", "--", "x")

    daemon.accept().send(b"V", b"__run\0--detach\0--ticket\0secret\0--name\0a\0--\0--ticket\0own")

    assert process.wait(LIMIT_S) == 7
    (note,) = pal.notes()
    argv = note["argv"]
    assert argv[3:6] == ["__run", "--detach", "--ticket-fd"]
    assert int(argv[6]) > 2
    assert argv[7:] == ["--name", "a", "--", "--ticket", "own"]
    assert note["ticket"] == "secret"


def test_command_without_arguments_gets_none(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("chat")

    daemon.accept().send(b"V")

    assert process.wait(LIMIT_S) == 7
    assert pal.notes()[0]["argv"] == ["-I", "-m", "palaver.app"]


def test_python_that_cannot_run_is_an_error(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("chat", env={"PALAVER_PYTHON": "/nowhere/python"})

    daemon.accept().send(b"V", b"chat")

    text = b"pal: cannot run /nowhere/python: No such file or directory\n"
    assert process.communicate(timeout=LIMIT_S)[1] == text
    assert process.returncode == 1


def test_version_needs_no_daemon(pal: Pal) -> None:
    result = pal.run("--version", "list", env={"PALAVER_HOME": "/dev/null/x"})

    assert (result.status, result.out, result.err) == (0, f"pal {__version__}\n".encode(), b"")


@pytest.mark.parametrize(
    "arguments",
    [("--version", "--json"), ("--json", "--version"), ("--home", "/dev/null", "--version", "--json")],
)
def test_version_with_json_is_an_object(pal: Pal, arguments: tuple[str, ...]) -> None:
    result = pal.run(*arguments)

    assert (result.status, result.err) == (0, b"")
    assert json.loads(result.out) == {"version": __version__}


def test_version_option_after_a_command_goes_to_the_daemon(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("list", "--version")

    peer = daemon.accept()
    peer.quit(2)

    assert peer.all(b"a") == [b"list", b"--version"]
    assert process.wait(LIMIT_S) == 2


def test_version_that_cannot_be_written_is_an_error(pal: Pal) -> None:
    with open("/dev/full", "wb") as full:
        process = pal.start("--version", stdout=full, stdin=subprocess.DEVNULL)

    assert process.wait(LIMIT_S) == 1
