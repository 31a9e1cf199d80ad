"""A signal is reported to the daemon, then ends the client."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.daemon.stage import wait_until
from tests.limits import LIMIT_S

if TYPE_CHECKING:
    from tests.clients.conftest import Daemon, Pal

CAUGHT = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.parametrize("number", CAUGHT)
def test_signal_is_sent_as_a_frame_and_ends_the_client(
    pal: Pal, daemon: Daemon, number: signal.Signals
) -> None:
    process = pal.start("recv", "--follow")
    peer = daemon.accept()
    peer.write(1, b"begun\n")
    assert peer.next_frame() == (b"A", b"\0\0\0\1")

    process.send_signal(number)

    assert peer.rest() == [(b"S", bytes([number]))]
    assert process.communicate(timeout=LIMIT_S) == (b"begun\n", b"")
    assert process.returncode == -number


@pytest.mark.parametrize("number", CAUGHT)
def test_ignored_signal_stays_ignored(pal: Pal, daemon: Daemon, number: signal.Signals) -> None:
    process = pal.start("recv", before=("sh", "-c", f'trap "" {number.name[3:]}; exec "$@"', "sh"))
    peer = daemon.accept()
    peer.write(1, b"")
    peer.next_frame()

    process.send_signal(number)
    peer.write(2, b"")
    acknowledged = peer.next_frame()
    peer.quit()

    assert acknowledged == (b"A", b"\0\0\0\2")
    assert process.wait(LIMIT_S) == 0


def test_stopped_client_continues_where_it_was(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("recv")
    peer = daemon.accept()

    process.send_signal(signal.SIGSTOP)
    peer.write(1, b"late")
    process.send_signal(signal.SIGCONT)
    peer.quit()

    assert process.communicate(timeout=LIMIT_S)[0] == b"late"
    assert process.returncode == 0


GENTLE = [signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", GENTLE)
def test_on_request_a_signal_is_reported_and_the_daemon_ends_the_client(
    pal: Pal, daemon: Daemon, number: signal.Signals
) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"one\n")
    peer.next_frame()

    process.send_signal(number)
    reply = peer.next_frame()
    peer.write(2, b"two\n")
    acknowledged = peer.next_frame()
    peer.send(b"E", b"cursor_event_seq=2\n")
    peer.quit()

    assert reply == (b"S", bytes([number]))
    assert acknowledged == (b"A", b"\0\0\0\2")
    assert process.communicate(timeout=LIMIT_S) == (b"one\ntwo\n", b"cursor_event_seq=2\n")
    assert process.returncode == 0


def test_client_reports_that_it_supports_a_graceful_end(pal: Pal, daemon: Daemon) -> None:
    pal.start("events", "--follow")

    assert daemon.accept().one(b"c") == b"GWM"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_other_signals_end_the_client_at_once_in_graceful_mode(
    pal: Pal, daemon: Daemon, number: signal.Signals
) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"")
    peer.next_frame()

    process.send_signal(number)

    assert peer.rest() == [(b"S", bytes([number]))]
    assert process.wait(LIMIT_S) == -number


def test_second_signal_ends_the_client_at_once_and_is_not_reported(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"")
    peer.next_frame()

    process.send_signal(signal.SIGTERM)
    reply = peer.next_frame()
    process.send_signal(signal.SIGTERM)

    assert reply == (b"S", bytes([signal.SIGTERM]))
    assert peer.rest() == []
    assert process.wait(LIMIT_S) == -signal.SIGTERM


def test_missing_end_and_blocked_reader_do_not_delay_the_client(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"")
    peer.next_frame()
    peer.write(2, b"x" * 1_000_000)  # more than a pipe holds

    process.send_signal(signal.SIGTERM)

    assert peer.rest() == [(b"S", bytes([signal.SIGTERM]))]
    assert process.wait(LIMIT_S) == -signal.SIGTERM


def test_daemon_lost_after_the_signal_is_not_contacted_again(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"")
    peer.next_frame()

    process.send_signal(signal.SIGTERM)
    peer.next_frame()
    peer.close()

    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", GENTLE)
@pytest.mark.parametrize(
    ("token", "payload"), [(b"", b"7"), (b"12", b"12"), (b"[9,31,12]", b"31"), (b"3", b"7")]
)
def test_follower_ended_without_a_daemon_prints_its_cursor(
    pal: Pal, daemon: Daemon, number: signal.Signals, token: bytes, payload: bytes
) -> None:
    process = pal.start("recv", "--follow", env={"PALAVER_TEST_DAEMON": "there is no room"})
    peer = daemon.accept()
    peer.send(b"G", b"7")
    peer.write(1, b"one\n", token=token)
    peer.next_frame()
    daemon.close()
    wait_until(lambda: len(pal.notes()) > 1)  # It has tried to start another daemon.

    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)

    assert (out, err.splitlines()[-1]) == (b"one\n", b"cursor_event_seq=" + payload)
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_other_signals_end_a_follower_without_a_daemon_at_once(
    pal: Pal, daemon: Daemon, number: signal.Signals
) -> None:
    process = pal.start("recv", "--follow", env={"PALAVER_TEST_DAEMON": "there is no room"})
    peer = daemon.accept()
    peer.send(b"G", b"7")
    peer.write(1, b"")
    peer.next_frame()
    daemon.close()
    wait_until(lambda: bool(pal.notes()))

    process.send_signal(number)

    assert process.wait(LIMIT_S) == -number


def test_follower_whose_daemon_is_lost_after_the_signal_prints_its_cursor(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"", token=b"5")
    peer.next_frame()

    process.send_signal(signal.SIGTERM)
    peer.next_frame()
    peer.close()

    assert process.communicate(timeout=LIMIT_S) == (b"", b"cursor_event_seq=5\n")
    assert process.returncode == 0
