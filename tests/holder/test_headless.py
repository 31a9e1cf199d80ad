"""A harness without a terminal: orders of the daemon for it."""

import os
import signal

import pytest

from palaver.client.wire import ReplyLine
from palaver.holder.headless import KILL, STOP, _obey


def child() -> int:
    """Start a process that waits for a signal."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    return pid


@pytest.mark.parametrize(("order", "number"), [(STOP, signal.SIGTERM), (KILL, signal.SIGKILL)])
def test_order_to_end_is_passed_on_as_a_signal(order: str, number: signal.Signals) -> None:
    pid = child()

    _obey(ReplyLine(push="control", verb=order), pid)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -number


def test_order_after_the_end_of_the_harness_does_nothing() -> None:
    pid = child()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

    _obey(ReplyLine(push="control", verb=STOP), pid)
