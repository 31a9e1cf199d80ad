"""A signal is told to the daemon, and then is what the client dies of."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.limits import LIMIT_S

if TYPE_CHECKING:
    from tests.clients.conftest import Daemon, Pal

CAUGHT = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.parametrize("number", CAUGHT)
def test_a_signal_becomes_a_frame_and_the_cause_of_death(
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
def test_a_signal_that_was_ignored_stays_ignored(pal: Pal, daemon: Daemon, number: signal.Signals) -> None:
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


def test_a_stopped_client_goes_on_where_it_was(pal: Pal, daemon: Daemon) -> None:
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
def test_where_the_daemon_asked_for_it_a_signal_is_told_and_the_daemon_says_the_end(
    pal: Pal, daemon: Daemon, number: signal.Signals
) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"one\n")
    peer.next_frame()

    process.send_signal(number)
    told = peer.next_frame()
    peer.write(2, b"two\n")
    acknowledged = peer.next_frame()
    peer.send(b"E", b"cursor_event_seq=2\n")
    peer.quit()

    assert told == (b"S", bytes([number]))
    assert acknowledged == (b"A", b"\0\0\0\2")
    assert process.communicate(timeout=LIMIT_S) == (b"one\ntwo\n", b"cursor_event_seq=2\n")
    assert process.returncode == 0


def test_a_client_says_that_it_can_be_ended_so(pal: Pal, daemon: Daemon) -> None:
    pal.start("events", "--follow")

    assert daemon.accept().one(b"c") == b"G"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_other_signals_end_it_at_once_also_there(pal: Pal, daemon: Daemon, number: signal.Signals) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"")
    peer.next_frame()

    process.send_signal(number)

    assert peer.rest() == [(b"S", bytes([number]))]
    assert process.wait(LIMIT_S) == -number


def test_a_second_signal_ends_it_at_once_and_is_told_no_more(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"")
    peer.next_frame()

    process.send_signal(signal.SIGTERM)
    told = peer.next_frame()
    process.send_signal(signal.SIGTERM)

    assert told == (b"S", bytes([signal.SIGTERM]))
    assert peer.rest() == []
    assert process.wait(LIMIT_S) == -signal.SIGTERM


def test_a_daemon_that_says_no_end_and_a_reader_that_never_reads_do_not_hold_it_up(
    pal: Pal, daemon: Daemon
) -> None:
    process = pal.start("events", "--follow")
    peer = daemon.accept()
    peer.send(b"G")
    peer.write(1, b"")
    peer.next_frame()
    peer.write(2, b"x" * 1_000_000)  # more than a pipe holds

    process.send_signal(signal.SIGTERM)

    assert peer.rest() == [(b"S", bytes([signal.SIGTERM]))]
    assert process.wait(LIMIT_S) == -signal.SIGTERM


def test_a_daemon_that_is_lost_instead_of_saying_the_end_is_not_asked_again(pal: Pal, daemon: Daemon) -> None:
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
