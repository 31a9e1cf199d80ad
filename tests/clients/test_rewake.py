"""`pal rewake`: it waits, prints once, and ends with its harness."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.clients.conftest import Daemon
from tests.limits import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.conftest import Pal

WAKES = 2
WITH_TERMINAL = ("env", "CLAUDE_CODE_ENTRYPOINT=cli")


def begin(
    pal: Pal, content: bytes = b"{}", before: tuple[str, ...] = WITH_TERMINAL
) -> subprocess.Popen[bytes]:
    """Start a waiting client and send the input of its hook."""
    process = pal.start("rewake", "Stop", stdin=subprocess.PIPE, before=before)
    assert process.stdin is not None
    process.stdin.write(content)
    process.stdin.close()
    process.stdin = None
    return process


def test_client_forwards_its_input_and_ends_with_the_requested_status(pal: Pal, daemon: Daemon) -> None:
    process = begin(pal, b'{"session_id":"s"}')
    peer = daemon.accept()
    assert peer.one(b"b") == b'{"session_id":"s"}'

    peer.write(1, b"hello\n", b"-")
    assert peer.next_frame() == (b"A", b"\0\0\0\1")
    peer.quit(WAKES)

    assert process.communicate(timeout=LIMIT_S) == (b"hello\n", b"")
    assert process.returncode == WAKES


@pytest.mark.parametrize("status", [1, 2])
def test_error_of_the_daemon_wakes_nothing(pal: Pal, daemon: Daemon, status: int) -> None:
    process = begin(pal)
    peer = daemon.accept()

    peer.send(b"E", b"pal: unknown command: rewake\n")
    peer.quit(status)

    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == 0


@pytest.mark.parametrize("entry", ["CLAUDE_CODE_ENTRYPOINT=sdk-cli", "OTHER=cli"])
def test_client_does_not_wait_in_a_session_that_prints_and_exits(
    pal: Pal, daemon: Daemon, entry: str
) -> None:
    process = begin(pal, before=("env", entry))

    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == 0


def test_client_continues_with_the_next_daemon_and_sends_its_token(pal: Pal, home: Path) -> None:
    (home / "down").touch()
    first = Daemon(home)
    process = begin(pal)
    peer = first.accept()
    peer.write(1, b"", b"w")
    assert peer.next_frame() == (b"A", b"\0\0\0\1")
    first.close()

    second = Daemon(home)
    again = second.accept()

    assert again.one(b"r") == b"w"
    assert (home / "down").exists()
    assert pal.notes() == []
    again.write(1, b"hello\n", b"-")
    again.next_frame()
    again.quit(WAKES)
    assert process.wait(LIMIT_S) == WAKES
    second.close()


def test_client_reads_a_file_for_the_daemon_and_keeps_waiting(
    pal: Pal, daemon: Daemon, tmp_path: Path
) -> None:
    file = tmp_path / "state.json"
    file.write_bytes(b'{"status":"idle"}')
    process = begin(pal)
    peer = daemon.accept()

    for _ in range(2):
        peer.send(b"F", b"\0\1\0\0" + os.fsencode(file))
        assert peer.next_frame() == (b"D", b'{"status":"idle"}')
        assert peer.next_frame() == (b"Z", b"")
    peer.send(b"F", b"\0\1\0\0" + os.fsencode(tmp_path / "none"))
    assert peer.next_frame()[0] == b"X"

    peer.quit(0)
    assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("has_daemon", [True, False])
def test_client_ends_with_the_harness_although_its_output_is_open(
    pal: Pal, daemon: Daemon, has_daemon: bool
) -> None:
    script = 'CLAUDE_CODE_ENTRYPOINT=cli "$@" </dev/null & echo $!; read line'
    harness = pal.start("rewake", "Stop", stdin=subprocess.PIPE, before=("sh", "-c", script, "sh"))
    assert harness.stdout is not None
    pidfd = os.pidfd_open(int(harness.stdout.readline()))
    daemon.accept()
    if not has_daemon:
        daemon.close()

    harness.send_signal(signal.SIGKILL)
    harness.wait(LIMIT_S)

    ended, _, _ = select.select([pidfd], [], [], LIMIT_S)
    assert ended
    os.close(pidfd)
