"""`pal mcp`, both clients: lines are numbered, settled once, repeated, and refused without a daemon."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.conftest import Daemon, Pal, Peer, Result, finish
from tests.daemon.stage import wait_until
from tests.limits import LIMIT_S

MAGIC = b"PALM"
LINE_LIMIT = 1024 * 1024
HUNG = b'{"id":1,"method":"initialize"}'


class Harness:
    """The program that starts the pump and exchanges lines with it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def say(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))
        self.process.stdin.flush()

    def hear(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None


@pytest.fixture
def harness(pal: Pal, daemon: Daemon) -> Iterator[Harness]:
    process = pal.start("mcp", "--tools", "rooms", stdin=subprocess.PIPE, env={"CODEX_THREAD_ID": "t-1"})
    with contextlib.closing(_Alarm()):
        yield Harness(process)


class _Alarm:
    """A timeout, so that a missing line fails the test instead of blocking it."""

    def __init__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, 4 * LIMIT_S)

    def _ring(self, *_: object) -> None:
        raise TimeoutError

    def close(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def line_of(peer: Peer, kind: bytes = b"L") -> tuple[int, bytes]:
    """Return the next line that the client forwards."""
    found, payload = peer.next_frame()
    assert found == kind, (found, payload[:100])
    return int.from_bytes(payload[:4], "big"), payload[4:]


def meet(daemon: Daemon) -> Peer:
    """Accept the next pump and confirm the connection at once, as the daemon does."""
    peer = daemon.accept(MAGIC)
    answer(peer, 0)
    return peer


def answer(peer: Peer, number: int, line: bytes = b"") -> None:
    peer.send(b"L", number.to_bytes(4, "big") + line)


def test_pump_reports_its_directory_and_its_harness(harness: Harness, daemon: Daemon) -> None:
    peer = meet(daemon)

    assert peer.all(b"a") == [b"mcp", b"--tools", b"rooms"]
    assert b"CODEX_THREAD_ID=t-1" in peer.all(b"e")
    assert Path(peer.one(b"d").decode()) == Path.cwd()
    assert len(peer.one(b"k")) == 16


def test_lines_go_both_ways(harness: Harness, daemon: Daemon) -> None:
    peer = meet(daemon)

    harness.say(b'{"id":1}', b"", b"  ", b'{"id":2}')
    assert line_of(peer) == (1, b'{"id":1}')
    assert line_of(peer) == (2, b'{"id":2}')
    answer(peer, 2, b"two\n")
    answer(peer, 0, b"by the way\n")
    answer(peer, 1, b"one\n")

    assert [harness.hear(), harness.hear(), harness.hear()] == [b"two\n", b"by the way\n", b"one\n"]


def test_end_of_input_is_reported_and_the_daemon_sets_the_status(harness: Harness, daemon: Daemon) -> None:
    peer = meet(daemon)

    harness.say(b"a")
    harness.process.stdin.write(b"never ended")  # type: ignore[union-attr]  # it is a pipe
    harness.end()
    assert line_of(peer) == (1, b"a")
    assert peer.next_frame() == (b"Z", b"")
    answer(peer, 1, b"done\n")
    peer.quit(0)

    assert finish(harness.process).out == b"done\n"
    assert harness.process.returncode == 0


def test_unsettled_lines_are_repeated_to_the_next_daemon(
    harness: Harness, daemon: Daemon, home: Path
) -> None:
    first = meet(daemon)
    harness.say(b"one", b"two", b"three")
    for number, word in ((1, b"one"), (2, b"two"), (3, b"three")):
        assert line_of(first) == (number, word)
    first.send(b"T", b"token")
    answer(first, 2, b"second\n")
    assert harness.hear() == b"second\n"
    first.wire.shutdown(socket.SHUT_RDWR)

    second = meet(daemon)
    harness.say(b"four")

    assert second.one(b"r") == b"token"
    assert second.one(b"k") == first.one(b"k")
    assert line_of(second, b"M") == (1, b"one")
    assert line_of(second, b"M") == (3, b"three")
    assert line_of(second) == (4, b"four")


def test_half_reply_is_not_written(harness: Harness, daemon: Daemon) -> None:
    first = meet(daemon)
    harness.say(b"one")
    line_of(first)
    first.wire.sendall(b"L\0\0\0\x20\0\0\0\x01half")
    first.wire.shutdown(socket.SHUT_RDWR)

    second = meet(daemon)
    assert line_of(second, b"M") == (1, b"one")
    answer(second, 1, b"whole\n")

    assert harness.hear() == b"whole\n"


@pytest.mark.parametrize("over", [1, 100, 5000, 9 * 1024 * 1024])
def test_oversized_line_is_sent_as_its_two_ends_and_the_next_completely(
    harness: Harness, daemon: Daemon, over: int
) -> None:
    peer = meet(daemon)
    pattern = bytes(range(33, 127)) * ((LINE_LIMIT + over) // 94 + 1)
    line = pattern[: LINE_LIMIT + over]

    saying = threading.Thread(target=harness.say, args=(b"x" * LINE_LIMIT, line, b"after"))
    saying.start()  # a pipe does not accept this much at once

    assert line_of(peer) == (1, b"x" * LINE_LIMIT)
    assert line_of(peer, b"X") == (2, line[:4096] + line[-4096:])
    assert line_of(peer) == (3, b"after")
    saying.join()


REQUESTS = [
    (b'{"jsonrpc":"2.0","id":7,"method":"ping"}', 7),
    (b'{"method":"x","params":{"id":1,"a":["id",{"id":2}],"s":"\\"id\\":3"},"id":"a\\"b"}', 'a"b'),
    (b'{"a":"id","id":-4}', -4),
    (b'{ "x" : [1,"id",2] , "id" : "z" }', "z"),
    (b'{"id":8,"method":"x","params":"' + "é".encode() * LINE_LIMIT + b'"}', 8),
]


def test_without_a_daemon_requests_are_refused_by_id_and_the_pump_stays(
    harness: Harness, daemon: Daemon, home: Path
) -> None:
    peer = meet(daemon)
    (home / "down").touch()
    daemon.deafen()
    harness.say(b'{"id":0,"method":"wait"}', b'{"method":"notifications/initialized"}')
    line_of(peer)
    peer.close()
    assert json.loads(harness.hear())["id"] == 0

    for line, id in REQUESTS:
        harness.say(b'{"method":"notifications/x","params":{"id":9}}', line)
        refused = json.loads(harness.hear())
        assert refused["id"] == id
        assert refused["jsonrpc"] == "2.0"
        assert refused["error"]["code"] == -32000
        assert "pal up" in refused["error"]["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a client as another user")
def test_lost_access_to_the_bus_is_reported(pal: Pal, daemon: Daemon, home: Path) -> None:
    home.chmod(0o755)
    (home / "daemon.sock").chmod(0o666)
    process = pal.start_as_nobody("mcp", stdin=subprocess.PIPE)
    harness, peer = Harness(process), meet(daemon)
    harness.say(HUNG)
    line_of(peer)

    (home / "daemon.sock").chmod(0o600)
    peer.close()

    with contextlib.closing(_Alarm()):
        refused = json.loads(harness.hear())
    assert refused["id"] == 1
    assert "may not connect to the bus" in refused["error"]["message"]
    assert pal.notes() == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell")
def test_pump_without_a_daemon_sleeps_although_its_input_does_not_block(
    pal: Pal, daemon: Daemon, home: Path
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with open(reader, "rb") as stdin, open(writer, "wb", buffering=0) as harness:
        process = pal.start("mcp", stdin=stdin)
        peer = meet(daemon)
        (home / "down").touch()
        daemon.deafen()
        harness.write(HUNG + b"\n")
        line_of(peer)
        peer.close()
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"] == 1

        wait_until(lambda: _is_asleep(process.pid))

        harness.write(b'{"id":2}\n')
        assert json.loads(process.stdout.readline())["id"] == 2


def _is_asleep(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(") ")[2][0] == "S"


def test_session_continues_after_the_bus_was_stopped_and_started(
    harness: Harness, daemon: Daemon, home: Path
) -> None:
    peer = meet(daemon)
    peer.send(b"T", b"state")
    (home / "down").touch()
    harness.say(b'{"id":1}')
    line_of(peer)
    daemon.close()
    assert json.loads(harness.hear())["id"] == 1

    (home / "down").unlink()
    with contextlib.closing(Daemon(home)) as later:
        harness.say(b'{"id":2}')
        again = meet(later)

        assert again.one(b"r") == b"state"
        assert line_of(again, b"M") == (2, b'{"id":2}')


def test_dead_daemon_is_started_again(harness: Harness, daemon: Daemon, pal: Pal) -> None:
    peer = meet(daemon)
    harness.say(b'{"id":1}')
    line_of(peer)

    daemon.close()

    # The stand-in starts, serves one request with its own reply, and the client receives that.
    finish(harness.process)
    assert any("palaver.daemon" in note["argv"] for note in pal.notes())


def test_refused_start_is_reported_as_for_every_command(pal: Pal, home: Path) -> None:
    (home / "down").touch()

    ended = pal.run("mcp")

    assert ended.status == 1
    assert b"pal down" in ended.err


def test_help_prints_help_and_pumps_nothing(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("mcp", "--help")
    peer = daemon.accept()
    peer.write(1, b"help\n")
    peer.quit()

    assert finish(process).out == b"help\n"


def test_closed_output_ends_the_pump(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("mcp", stdin=subprocess.PIPE)
    peer = meet(daemon)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None

    answer(peer, 0, b"anybody?\n")

    assert process.wait(LIMIT_S) == -signal.SIGPIPE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_pump(harness: Harness, daemon: Daemon, number: signal.Signals) -> None:
    peer = meet(daemon)
    peer.send(b"T", b"")

    harness.process.send_signal(number)

    assert harness.process.wait(LIMIT_S) == -number


def test_invalid_frame_ends_the_pump_with_an_error(harness: Harness, daemon: Daemon) -> None:
    meet(daemon).send(b"?", b"")

    assert finish(harness.process).status == 1


def test_silent_daemon_is_reported_and_the_next_line_reconnects(harness: Harness, daemon: Daemon) -> None:
    hung = daemon.accept(MAGIC)
    harness.say(b'{"method":"notifications/x"}', HUNG)

    refused = json.loads(harness.hear())

    assert refused["id"] == 1
    assert refused["error"]["code"] == -32000
    assert "does not answer" in refused["error"]["message"]
    assert [line_of(hung)[0], line_of(hung)[0]] == [1, 2]
    harness.say(b'{"id":2}')
    peer = meet(daemon)
    assert line_of(peer, b"M") == (3, b'{"id":2}')
    answer(peer, 3, b"two\n")
    assert harness.hear() == b"two\n"


def test_daemon_that_does_not_read_is_waited_for_only_once(harness: Harness, daemon: Daemon) -> None:
    wire = daemon.accept_raw()
    # A wait for each of these lines would be longer than the time limit of the test.
    small = [b'{"id":%d}' % id for id in range(2, 61)]
    saying = threading.Thread(target=harness.say, args=(b'{"id":1,"x":"' + b"x" * 900_000 + b'"}', *small))
    saying.start()  # a pipe does not accept this much at once

    refused = [json.loads(harness.hear())["id"] for _ in range(60)]

    assert refused == list(range(1, 61))
    saying.join()
    wire.close()


def test_reset_input_counts_as_its_end(pal: Pal, daemon: Daemon) -> None:
    theirs, ours = socket.socketpair()
    with theirs.makefile("rb") as stdin:
        process = pal.start("mcp", stdin=stdin)
        peer = meet(daemon)
        theirs.send(b"never read")

        ours.close()

        assert peer.next_frame() == (b"Z", b"")
        peer.quit(0)
        assert finish(process) == Result(0, b"", b"")
    theirs.close()


def test_end_of_input_ends_the_pump_although_the_daemon_is_silent(harness: Harness, daemon: Daemon) -> None:
    daemon.accept(MAGIC)
    harness.say(HUNG)

    harness.end()

    ended = finish(harness.process)
    assert json.loads(ended.out)["id"] == 1
    assert ended.status == 1


def test_settled_pump_ends_successfully_although_the_daemon_hangs(harness: Harness, daemon: Daemon) -> None:
    peer = meet(daemon)
    harness.say(HUNG)
    line_of(peer)
    answer(peer, 1, b"one\n")
    assert harness.hear() == b"one\n"

    harness.end()

    assert finish(harness.process).status == 0
    assert peer.next_frame() == (b"Z", b"")


def test_daemon_that_hangs_later_is_waited_for_until_the_end_of_input(
    harness: Harness, daemon: Daemon
) -> None:
    peer = meet(daemon)
    harness.say(HUNG)
    line_of(peer)

    harness.end()

    ended = finish(harness.process)
    assert json.loads(ended.out)["id"] == 1
    assert ended.status == 1
