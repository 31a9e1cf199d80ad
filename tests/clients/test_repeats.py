"""After a crash of the daemon the same request is repeated and continues where its output ended."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.clients.conftest import Daemon as StandIn
from tests.limits import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.conftest import Daemon, Pal

Z = (b"Z", b"")


@pytest.mark.parametrize("output", [b"", b"O", b"O\0\0\0\x0a\0\0\0\1\0\0te"])
def test_request_cut_off_before_its_reply_is_repeated(pal: Pal, daemon: Daemon, output: bytes) -> None:
    process = pal.start("list")
    first = daemon.accept()

    first.wire.sendall(output)
    first.close()
    second = daemon.accept()
    second.write(1, b"whole\n")
    second.quit()

    assert second.fields == first.fields
    assert process.communicate(timeout=LIMIT_S) == (b"whole\n", b"")
    assert process.returncode == 0


def test_repeat_carries_the_last_flushed_token(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("recv", "--follow")
    first = daemon.accept()

    first.write(1, b"one\n", token=b"at-1")
    first.write(2, b"two\n", token=b"at-2")
    first.write(3, b"three\n")
    assert [first.next_frame()[0] for _ in range(3)] == [b"A"] * 3
    first.wire.sendall(b"O\0\0\0\xff\0\0\0\4\0\4at-4half")
    first.close()
    second = daemon.accept()
    second.close()
    third = daemon.accept()
    third.write(1, b"four\n", token=b"a" * 60_000)
    third.next_frame()
    third.close()
    fourth = daemon.accept()
    fourth.quit()

    assert second.fields == third.fields == [*first.fields, (b"r", b"at-2")]
    assert fourth.fields == [*first.fields, (b"r", b"a" * 60_000)]
    assert process.communicate(timeout=LIMIT_S)[0] == b"one\ntwo\nthree\nfour\n"


def test_complete_frames_of_a_dying_daemon_count(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("list")
    wire = daemon.accept_raw()

    wire.sendall(b"O\0\0\0\x0b\0\0\0\1\0\0last\n" + b"Q\0\0\0\1\x05")
    wire.close()

    assert process.communicate(timeout=LIMIT_S) == (b"last\n", b"")
    assert process.returncode == 5


def test_client_gives_up_after_five_repeats(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("list")

    keys = set()
    for _ in range(6):
        peer = daemon.accept()
        keys.add(peer.one(b"k"))
        peer.close()

    assert process.communicate(timeout=LIMIT_S) == (b"", b"pal: the connection to the daemon was lost\n")
    assert process.returncode == 1
    assert len(keys) == 1


def test_every_received_frame_allows_five_more_repeats(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("list")

    for n in range(12):
        peer = daemon.accept()
        if n % 4 == 3:
            peer.send(b"E", b"")
        peer.close()
    daemon.accept().quit()

    assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("kind", [b"W", b"G"])
def test_waiting_command_continues_however_many_daemons_die(pal: Pal, daemon: Daemon, kind: bytes) -> None:
    process = pal.start("recv", "--wait")
    first = daemon.accept()
    first.send(kind)
    first.close()

    for _ in range(8):
        daemon.accept().close()
    last = daemon.accept()
    last.write(1, b"mail\n")
    last.quit()

    assert process.communicate(timeout=LIMIT_S) == (b"mail\n", b"")
    assert process.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("recv", "--follow"),
        ("recv", "--timeout=5m", "--as", "nova"),
        ("events", "--wait", "5m"),
        ("--json", "stick", "wait"),
        ("stick", "--json", "--as", "nova", "wait"),
    ],
)
def test_waiting_command_continues_when_no_daemon_ever_answered(
    pal: Pal, daemon: Daemon, words: tuple[str, ...]
) -> None:
    process = pal.start(*words)

    for _ in range(8):
        daemon.accept().close()
    last = daemon.accept()
    last.write(1, b"mail\n")
    last.quit()

    assert process.communicate(timeout=LIMIT_S) == (b"mail\n", b"")
    assert process.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--wait"),
        ("recv", "--", "--follow"),
        ("recv", "--wait", "--help"),
        ("stick", "claim"),
        ("stick", "--as", "wait"),
        ("stick", "wait", "--help"),
    ],
)
def test_command_that_does_not_wait_gives_up(pal: Pal, daemon: Daemon, words: tuple[str, ...]) -> None:
    process = pal.start(*words)

    for _ in range(6):
        daemon.accept().close()

    assert process.communicate(timeout=LIMIT_S) == (b"", b"pal: the connection to the daemon was lost\n")


def test_waiting_command_reports_a_failed_start_once_and_continues(
    pal: Pal, daemon: Daemon, home: Path
) -> None:
    process = pal.start("recv", "--wait", env={"PALAVER_TEST_DAEMON": "there is no room"})
    peer = daemon.accept()
    peer.send(b"W")
    peer.close()
    daemon.close()

    assert process.stderr is not None
    errors = process.stderr.readline()
    again = StandIn(home)
    last = again.accept()
    last.quit()

    assert errors == b"pal: the daemon did not start: there is no room; trying again\n"
    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    again.close()


def test_standard_input_is_sent_again_from_its_start(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("send", "--stdin", stdin=subprocess.PIPE)
    assert process.stdin is not None
    first = daemon.accept()

    first.ask_stdin()
    process.stdin.write(b"one")
    process.stdin.flush()
    before = first.next_frame()
    first.close()
    second = daemon.accept()
    second.ask_stdin()
    again = second.next_frame()
    process.stdin.write(b"two")
    process.stdin.close()
    rest = second.next_content()
    second.close()
    third = daemon.accept()
    third.ask_stdin(limit_bytes=100)
    whole = third.next_content()
    third.ask_stdin(limit_bytes=3)
    limited = third.next_content()
    third.quit()

    assert before == again == (b"D", b"one")
    assert rest == (b"two", Z)
    assert whole == (b"onetwo", Z)
    assert limited == (b"onet", Z)
    assert process.wait(LIMIT_S) == 0


def test_dead_daemon_is_started_again(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("list")
    peer = daemon.accept()

    daemon.deafen()
    peer.close()

    assert process.communicate(timeout=LIMIT_S) == (b"served\n", b"")
    assert process.returncode == 0
    assert len(pal.notes()) == 1


def test_older_daemon_is_replaced_by_a_newer_one(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("list")
    peer = daemon.accept()

    peer.send(b"N")
    peer.write(1, b"this is read no more")
    daemon.deafen()
    peer.close()

    assert process.communicate(timeout=LIMIT_S) == (b"served\n", b"")
    assert len(pal.notes()) == 1


def test_versions_that_reject_each_other_do_not_repeat_indefinitely(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("list")

    for _ in range(6):
        peer = daemon.accept()
        peer.send(b"N")
        peer.close()

    assert process.communicate(timeout=LIMIT_S) == (b"", b"pal: the connection to the daemon was lost\n")


@pytest.mark.parametrize("is_home_named", [False, True])
def test_follower_does_not_restart_a_stopped_bus(pal: Pal, daemon: Daemon, is_home_named: bool) -> None:
    (daemon.home / "start.lock").touch()  # a bus was started here
    option = ["--home", str(daemon.home)] if is_home_named else []
    process = pal.start("recv", "--follow", *option)
    peer = daemon.accept()

    (daemon.home / "down").touch()
    daemon.deafen()
    peer.close()

    up = " ".join(["pal up", *option])
    sentence = f"pal: the bus was stopped with 'pal down'; '{up}' starts it again\n"
    assert process.communicate(timeout=LIMIT_S)[1] == sentence.encode()
    assert process.returncode == 1
    assert pal.notes() == []
