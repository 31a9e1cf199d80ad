"""Waiting commands while several daemons die in a row."""

import fcntl
import os
import select
import signal
import subprocess

import pytest
from tests.daemon.stage import Home, Shell, finish, is_connected, wait_until
from tests.processes import end_process

DEATHS = 7
"""More than a command that does not wait survives."""
FOLLOWERS = {
    "recv --follow": ("recv", "--follow", "--as", "nova", "--json"),
    "recv --wait": ("recv", "--wait", "--as", "nova", "--json"),
    "recv --follow --after": ("recv", "--follow", "--after", "0", "--as", "nova", "--json"),
    "events --follow": ("events", "--follow", "--type", "message", "--json"),
    "events --wait": ("events", "--wait", "5m", "--type", "message", "--json"),
}


@pytest.fixture
def nova(bus: Home) -> Shell:
    shell = bus.shell()
    shell.ok("join", "--name", "nova")
    return shell


def start_follower(bus: Home, *words: str) -> subprocess.Popen[bytes]:
    """Start a waiting command and return when it is connected to the daemon."""
    follower = bus.start(*words)
    wait_until(lambda: is_connected(follower.pid))
    return follower


def send_until_read(bus: Home, follower: subprocess.Popen[bytes], text: str) -> bytes:
    """Send until the follower writes a line, and return it: `pal events` shows only later messages."""
    output = follower.stdout
    assert output is not None

    def has_read() -> bool:
        bus.ok("send", "@nova", "--", text)
        ready, _, _ = select.select([output], [], [], 0.2)
        return bool(ready)

    wait_until(has_read)
    return output.readline()


def lock_of(bus: Home) -> int:
    """Return the process id in the lock, or 0 while a daemon writes it."""
    return int((bus.path / "daemon.lock").read_text() or "0")


def kill_next(bus: Home, died: int) -> int:
    """Kill the successor of a dead daemon as soon as it has the lock."""
    wait_until(lambda: lock_of(bus) not in (0, died))
    pid = lock_of(bus)
    end_process(pid, signal.SIGKILL)
    return pid


def kill_daemons(bus: Home) -> None:
    """Kill the daemon and those after it, more of them than a command that does not wait survives."""
    died = bus.pid
    bus.kill()
    for _ in range(DEATHS):
        died = kill_next(bus, died)


@pytest.mark.parametrize("name", FOLLOWERS)
def test_follower_continues_when_daemons_die_in_quick_succession(bus: Home, nova: Shell, name: str) -> None:
    follower = start_follower(bus, *FOLLOWERS[name])
    bus.ok("list")  # By now the daemon has normally served the follower.
    kill_daemons(bus)

    line = send_until_read(bus, follower, "at last")
    follower.send_signal(signal.SIGTERM)

    assert b"at last" in line
    assert "the connection to the daemon was lost" not in finish(follower).err


@pytest.mark.parametrize("name", FOLLOWERS)
def test_follower_continues_when_the_first_daemon_dies_before_it_answers(
    bus: Home, nova: Shell, name: str
) -> None:
    os.kill(bus.pid, signal.SIGSTOP)
    follower = start_follower(bus, *FOLLOWERS[name])
    kill_daemons(bus)

    line = send_until_read(bus, follower, "at last")
    follower.send_signal(signal.SIGTERM)

    assert b"at last" in line
    assert "the connection to the daemon was lost" not in finish(follower).err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", [name for name in FOLLOWERS if "--follow" in name])
def test_signal_ends_a_follower_with_its_cursor_while_no_daemon_runs(
    bus: Home, nova: Shell, name: str, number: signal.Signals
) -> None:
    follower = start_follower(bus, *FOLLOWERS[name])
    send_until_read(bus, follower, "are you there?")
    sent = bus.ok("send", "@nova", "--json", "--", "hello").json
    assert follower.stdout is not None
    while b"hello" not in follower.stdout.readline():
        pass
    lock = os.open(bus.path / "start.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)  # No other daemon starts.

    bus.kill()
    follower.send_signal(number)
    ended = finish(follower)

    os.close(lock)
    assert (ended.status, ended.err) == (0, f"cursor_event_seq={sent['seq']}\n")
