"""A signal is told to the daemon, and then is what the client dies of."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

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
    assert process.communicate(timeout=5) == (b"begun\n", b"")
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
    assert process.wait(5) == 0


def test_a_stopped_client_goes_on_where_it_was(pal: Pal, daemon: Daemon) -> None:
    process = pal.start("recv")
    peer = daemon.accept()

    process.send_signal(signal.SIGSTOP)
    peer.write(1, b"late")
    process.send_signal(signal.SIGCONT)
    peer.quit()

    assert process.communicate(timeout=5)[0] == b"late"
    assert process.returncode == 0
