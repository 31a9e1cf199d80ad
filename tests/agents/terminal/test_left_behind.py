"""What an agent leaves behind, found below the process that holds it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.daemon.stage import wait_until

from palaver.agents.terminal.foreground import children
from palaver.agents.terminal.left_behind import left_behind

TWO = "import subprocess, sys; subprocess.Popen(['sleep', '99'], start_new_session=True); sys.stdin.read()"


@contextmanager
def running(*words: str) -> Iterator[int]:
    """A process with one below it; both are ended."""
    with subprocess.Popen([sys.executable, "-I", "-c", TWO, *words], stdin=subprocess.PIPE) as process:
        wait_until(lambda: bool(children(process.pid)))
        (below,) = children(process.pid)
        try:
            yield process.pid
        finally:
            os.kill(below, 9)
            process.kill()


def test_all_that_runs_below_is_left_behind_and_the_agent_itself_is_not() -> None:
    with running() as agent, running() as other:
        below = {*children(agent), *children(other)}

        found = set(left_behind(agent))

    assert {other, *below} <= found
    assert agent not in found


def test_a_holder_the_daemon_and_what_they_run_are_no_part_of_an_agent() -> None:
    with running("-m", "palaver.agents.holder") as holder, running("-m", "palaver.daemon") as daemon:
        found = set(left_behind(0))

        assert not found & {holder, daemon, *children(holder), *children(daemon)}


def test_a_client_of_the_bus_is_left_behind_like_any_other_program() -> None:
    with running("-m", "palaver.cli") as client:
        assert client in left_behind(0)


def test_what_has_ended_and_waits_to_be_collected_is_not_left() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert process.pid not in left_behind(0)
