"""`pal hook`: one request, one reply, and never a delay. `pal monitor`: lines across several daemons."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pytest
from tests.clients.conftest import Daemon
from tests.daemon.stage import wait_until
from tests.limits import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.conftest import Pal

HOOK = ("hook", "claude", "Stop")
START = ("hook", "claude", "SessionStart")
MAGIC = b"PALH"
QUIET = (b"", b"")


def begin(pal: Pal, content: bytes, *words: str) -> subprocess.Popen[bytes]:
    """Start a hook and send its input."""
    process = pal.start(*(words or HOOK), stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(content)
    process.stdin.close()
    process.stdin = None
    return process


def test_hook_forwards_its_input_and_acknowledges_before_it_prints(pal: Pal, daemon: Daemon) -> None:
    process = begin(pal, b'{"session_id":"s"}')
    peer = daemon.accept(MAGIC)
    assert peer.all(b"a") == [word.encode() for word in HOOK]
    assert peer.one(b"b") == b'{"session_id":"s"}'

    peer.send(b"H", b'{"decision":"block"}')

    assert peer.next_frame() == (b"A", b"")
    assert process.communicate(timeout=LIMIT_S) == (b'{"decision":"block"}', b"")
    assert process.returncode == 0


def test_long_reply_is_written_completely_and_acknowledged_once(pal: Pal, daemon: Daemon) -> None:
    text = os.urandom(1000).hex().encode() * 500
    process = begin(pal, b"{}")
    peer = daemon.accept(MAGIC)

    peer.send(b"H", text)

    assert peer.next_frame() == (b"A", b"")
    assert process.communicate(timeout=LIMIT_S) == (text, b"")
    assert peer.rest() == []


def test_reply_is_written_completely_to_non_blocking_output(pal: Pal, daemon: Daemon) -> None:
    text = b"x" * 1_000_000  # more than a pipe takes at once
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    process = pal.start(*HOOK, stdout=theirs)
    peer = daemon.accept(MAGIC)
    peer.send(b"H", text)
    assert peer.next_frame() == (b"A", b"")
    wait_until(lambda: not select.select((), (theirs,), (), 0)[1])  # it is full
    os.close(theirs)

    with open(ours, "rb") as reader:
        assert reader.read() == text

    assert process.wait(LIMIT_S) == 0


def test_empty_reply_has_no_output_and_no_acknowledgement(pal: Pal, daemon: Daemon) -> None:
    process = begin(pal, b"{}")
    peer = daemon.accept(MAGIC)

    peer.send(b"H")

    assert process.communicate(timeout=LIMIT_S) == QUIET
    assert process.returncode == 0
    assert peer.rest() == []


@pytest.fixture
def outcomes(home: Path) -> Path:
    """Return the folder in which hooks leave their outcomes, as the daemon makes it."""
    folder = home / "hooks"
    folder.mkdir()
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_hook_repeats_its_request_when_the_daemon_dies_before_the_answer(
    pal: Pal, daemon: Daemon, outcomes: Path
) -> None:
    process = begin(pal, b'{"session_id":"s"}', *START)
    first = daemon.accept(MAGIC)
    first.close()
    second = daemon.accept(MAGIC)
    second.close()

    third = daemon.accept(MAGIC)
    third.send(b"M", b"mail")

    assert [field for field in third.fields if field[0] != b"r"] == first.fields
    assert (first.all(b"r"), second.all(b"r"), third.all(b"r")) == ([], [b"again"], [b"again"])
    assert third.next_frame() == (b"A", b"")
    assert process.communicate(timeout=LIMIT_S) == (b"mail", b"")
    assert names_in(outcomes) == [f"{first.one(b'k').hex()}.said"]


def test_hook_does_not_write_an_answer_whose_daemon_is_gone(pal: Pal, daemon: Daemon, outcomes: Path) -> None:
    process = begin(pal, b"{}", *START)
    first = daemon.accept(MAGIC)
    os.kill(process.pid, signal.SIGSTOP)
    first.send(b"M", b"from a daemon that died")
    first.close()
    os.kill(process.pid, signal.SIGCONT)

    second = daemon.accept(MAGIC)
    second.send(b"H", b"mail")

    assert second.next_frame() == (b"A", b"")
    assert process.communicate(timeout=LIMIT_S) == (b"mail", b"")
    assert names_in(outcomes) == []


def test_hook_without_another_daemon_reports_that_it_wrote_nothing(
    pal: Pal, daemon: Daemon, home: Path, outcomes: Path
) -> None:
    process = begin(pal, b"{}")
    peer = daemon.accept(MAGIC)
    daemon.deafen()
    peer.close()

    assert process.communicate(timeout=LIMIT_S) == QUIET
    assert process.returncode == 0
    assert names_in(outcomes) == [f"{peer.one(b'k').hex()}.lost"]
    assert not (home / "slow").exists()
    assert pal.notes() == []


def test_hook_that_gives_up_on_a_silent_daemon_leaves_word_too(
    pal: Pal, daemon: Daemon, outcomes: Path
) -> None:
    process = begin(pal, b"{}")
    peer = daemon.accept(MAGIC)

    assert process.communicate(timeout=LIMIT_S) == QUIET
    assert names_in(outcomes) == [f"{peer.one(b'k').hex()}.lost"]


def test_hook_that_waits_for_a_person_does_not_repeat_its_request(
    pal: Pal, daemon: Daemon, outcomes: Path
) -> None:
    process = begin(pal, b"{}")
    peer = daemon.accept(MAGIC)
    peer.send(b"W", (20).to_bytes(4, "big"))
    peer.close()

    assert process.communicate(timeout=LIMIT_S) == QUIET
    assert names_in(outcomes) == []


@pytest.mark.parametrize("size", [0, 1, 65536, 3_000_000])
def test_input_of_any_size_is_forwarded_completely(pal: Pal, daemon: Daemon, size: int) -> None:
    content = b"x" * size
    process = pal.start(*HOOK, stdin=subprocess.PIPE)
    feeder = os.fork()
    assert process.stdin is not None
    if feeder == 0:
        process.stdin.write(content)
        process.stdin.close()
        os._exit(0)
    process.stdin.close()
    process.stdin = None

    peer = daemon.accept(MAGIC)

    assert peer.one(b"b") == content
    peer.send(b"H")
    assert process.communicate(timeout=LIMIT_S) == QUIET
    os.waitpid(feeder, 0)


def test_oversized_input_is_read_to_its_end_and_not_forwarded(pal: Pal, daemon: Daemon) -> None:
    process = pal.start(*HOOK, stdin=subprocess.PIPE)
    assert process.stdin is not None

    process.stdin.write(b"x" * (9 * 1024 * 1024))
    process.stdin.close()
    process.stdin = None

    assert process.communicate(timeout=LIMIT_S) == QUIET
    assert process.returncode == 0


@pytest.mark.parametrize("arguments", [HOOK, ("--as", "down", "--json", *HOOK), ("--", *HOOK)])
def test_hook_is_silent_without_a_daemon_and_starts_nothing(pal: Pal, arguments: tuple[str, ...]) -> None:
    result = pal.run(*arguments)

    assert (result.status, result.out, result.err) == (0, *QUIET)
    assert pal.notes() == []


@pytest.mark.parametrize("given", ["", "/dev/null", "/nowhere", "/" + "x" * 300])
def test_hook_is_silent_whatever_its_home_is(pal: Pal, given: str) -> None:
    result = pal.run(*HOOK, "--home", given)

    assert (result.status, result.out, result.err) == (0, *QUIET)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"H",
        b"H\0\0\0\5half",
        b"E\0\0\0\1x",
        b"E\0\0\0\1xQ\0\0\0\1\1",
        b"!\0\0\0\0",
        b"HTTP/1.1 400\r\n\r\n",
        b"N\0\0\0\0",
        b"H\xff\xff\xff\xff",
    ],
)
def test_hook_is_silent_when_the_daemon_is_incompatible_or_lost(
    pal: Pal, daemon: Daemon, reply: bytes
) -> None:
    process = begin(pal, b"{}")
    peer = daemon.accept(MAGIC)

    peer.wire.sendall(reply)
    peer.close()

    assert process.communicate(timeout=LIMIT_S) == QUIET
    assert process.returncode == 0
    assert pal.notes() == []


def test_hook_does_not_wait_for_a_hanging_daemon(pal: Pal, daemon: Daemon) -> None:
    process = begin(pal, b"{}")
    peer = daemon.accept(MAGIC)

    out, err = process.communicate(timeout=LIMIT_S)

    assert (out, err, process.returncode) == (*QUIET, 0)
    assert peer.rest() == []


def test_hook_does_not_wait_when_it_is_started_with_a_blocked_alarm(pal: Pal, daemon: Daemon) -> None:
    def keep_back() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})

    process = pal.start(*HOOK, preexec_fn=keep_back)
    peer = daemon.accept(MAGIC)

    out, err = process.communicate(timeout=LIMIT_S)

    assert (out, err, process.returncode) == (*QUIET, 0)
    assert peer.rest() == []


def test_non_blocking_input_is_read_to_its_end(pal: Pal, daemon: Daemon) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    os.write(theirs, b'{"first":')
    process = pal.start("hook", "claude", "SessionStart", stdin=ours)
    unread = bytearray(struct.pack("i", 1))
    while process.poll() is None and unread != bytes(
        4
    ):  # until the first piece was read and the pipe is empty
        fcntl.ioctl(ours, termios.FIONREAD, unread)
    os.close(ours)

    os.write(theirs, b"1}")
    os.close(theirs)

    peer = daemon.accept(MAGIC)
    assert peer.one(b"b") == b'{"first":1}'
    peer.send(b"H", b"{}")
    assert process.communicate(timeout=LIMIT_S) == (b"{}", b"")


def test_hook_does_not_wait_for_a_daemon_that_does_not_read(pal: Pal, daemon: Daemon) -> None:
    process = pal.start(*HOOK, stdin=subprocess.PIPE)

    out, err = process.communicate(b"x" * 3_000_000, timeout=LIMIT_S)

    assert (out, err, process.returncode) == (*QUIET, 0)
    daemon.accept_raw().close()


def test_hook_does_not_wait_for_input_that_never_ends(pal: Pal, daemon: Daemon) -> None:
    process = pal.start(*HOOK, stdin=subprocess.PIPE)

    assert process.wait(LIMIT_S) == 0


def test_hook_without_a_reader_ends_successfully(pal: Pal, daemon: Daemon) -> None:
    process = begin(pal, b"{}")
    peer = daemon.accept(MAGIC)
    assert process.stdout is not None
    process.stdout.close()

    peer.send(b"H", b"{}")

    assert process.wait(LIMIT_S) == 0


# A daemon that is known to be slow


def test_first_hook_that_times_out_leaves_a_mark_for_the_others(pal: Pal, daemon: Daemon, home: Path) -> None:
    process = begin(pal, b"{}", *START)
    daemon.accept(MAGIC)

    assert process.communicate(timeout=LIMIT_S) == QUIET

    mark = (home / "slow").stat()
    assert (mark.st_size, stat.S_IMODE(mark.st_mode)) == (0, 0o600)


def test_hook_waits_only_briefly_while_the_mark_is_fresh(pal: Pal, daemon: Daemon, home: Path) -> None:
    mark = home / "slow"
    mark.touch()
    since = time.time() - 10
    os.utime(mark, (since, since))
    process = begin(pal, b"{}", *START)

    assert process.communicate(timeout=LIMIT_S) == QUIET

    assert mark.stat().st_mtime == pytest.approx(since)


@pytest.mark.parametrize("age_s", [31, -1000])
def test_old_or_future_mark_is_ignored(pal: Pal, daemon: Daemon, home: Path, age_s: int) -> None:
    mark = home / "slow"
    mark.touch()
    since = time.time() - age_s
    os.utime(mark, (since, since))
    process = begin(pal, b"{}", *START)
    daemon.accept(MAGIC)

    assert process.communicate(timeout=LIMIT_S) == QUIET

    assert abs(mark.stat().st_mtime - since) > 1  # it waited to its limit and renewed the mark


def test_input_that_never_ends_leaves_no_mark(pal: Pal, daemon: Daemon, home: Path) -> None:
    process = pal.start(*HOOK, stdin=subprocess.PIPE)

    assert process.wait(LIMIT_S) == 0

    assert not (home / "slow").exists()


def test_hook_that_waited_for_a_person_leaves_no_mark(pal: Pal, daemon: Daemon, home: Path) -> None:
    process = begin(pal, b"{}")
    peer = daemon.accept(MAGIC)

    peer.send(b"W", struct.pack(">I", 1))

    assert process.communicate(timeout=LIMIT_S) == QUIET
    assert not (home / "slow").exists()


# Monitors


def test_monitor_prints_lines_and_continues_with_the_next_daemon(pal: Pal, home: Path) -> None:
    (home / "down").touch()
    first = Daemon(home)
    process = pal.start("monitor")
    assert process.stdout is not None
    peer = first.accept()
    peer.write(1, b"one\n", b"-")
    assert process.stdout.readline() == b"one\n"
    assert peer.next_frame() == (b"A", b"\0\0\0\1")
    first.close()

    second = Daemon(home)
    again = second.accept()
    again.write(1, b"two\n")

    assert process.stdout.readline() == b"two\n"
    assert (home / "down").exists()
    assert pal.notes() == []
    again.quit(0)
    assert process.wait(LIMIT_S) == 0
    second.close()


def test_monitor_ends_when_its_output_is_closed(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("monitor")
    daemon.accept()
    assert process.stdout is not None

    process.stdout.close()

    assert process.wait(LIMIT_S) == 0


def test_monitor_without_a_daemon_ends_when_its_output_is_closed(pal: Pal) -> None:
    process = pal.start("monitor")
    assert process.stdout is not None

    process.stdout.close()

    assert process.wait(LIMIT_S) == 0


def test_monitor_without_a_daemon_ends_with_the_harness(pal: Pal, daemon: Daemon) -> None:
    script = '"$@" & echo $!; read line'
    harness = pal.start("monitor", stdin=subprocess.PIPE, before=("sh", "-c", script, "sh"))
    assert harness.stdout is not None
    pidfd = os.pidfd_open(int(harness.stdout.readline()))
    daemon.accept()
    daemon.close()

    harness.send_signal(signal.SIGKILL)
    harness.wait(LIMIT_S)

    ended, _, _ = select.select([pidfd], [], [], LIMIT_S)
    assert ended
    os.close(pidfd)


def test_alarm_of_the_python_hook_rings_again() -> None:
    # A signal that arrives just before a blocking call does not interrupt it. No test can hit that moment.
    # The script ends as a hook does, with `_exit`: an ordinary end first removes the handler of the signal,
    # and an alarm after that would kill the process.
    script = (
        "import os, signal; from palaver.app.thin.hook import HookTimeLimit; "
        "HookTimeLimit([b'hook', b'claude', b'Stop']); "
        "print(*signal.getitimer(signal.ITIMER_REAL), flush=True); os._exit(0)"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)

    left_s, again_s = map(float, done.stdout.split())
    assert left_s > 0
    assert again_s == pytest.approx(0.1)
