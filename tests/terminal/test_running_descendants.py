"""Descendant processes that an agent leaves running below its holder."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.daemon.stage import wait_until

from palaver.terminal.processes import children, running_descendants

TWO = "import subprocess, sys; subprocess.Popen(['sleep', '99'], start_new_session=True); sys.stdin.read()"

MANY = 1200
"""Processes whose ids, in the system's list of children, need more than one memory page."""
FORKS = f"""
import os, sys
for _ in range({MANY}):
    if os.fork() == 0:
        os._exit(0)
print("on", flush=True)
sys.stdin.read()
"""


@contextmanager
def running(*words: str) -> Iterator[int]:
    """Run a process with one child; end both."""
    with subprocess.Popen([sys.executable, "-I", "-c", TWO, *words], stdin=subprocess.PIPE) as process:
        wait_until(lambda: bool(children(process.pid)))
        (below,) = children(process.pid)
        try:
            yield process.pid
        finally:
            os.kill(below, 9)
            process.kill()


def test_all_descendants_except_the_agent_are_left_processes() -> None:
    with running() as agent, running() as other:
        below = {*children(agent), *children(other)}

        found = set(running_descendants(agent))

    assert {other, *below} <= found
    assert agent not in found


def test_holders_and_daemons_and_their_children_are_excluded() -> None:
    with running("-m", "palaver.holder.main") as holder, running("-m", "palaver.daemon") as daemon:
        found = set(running_descendants(0))

        assert not found & {holder, daemon, *children(holder), *children(daemon)}


def test_bus_client_is_a_left_process_like_any_other() -> None:
    with running("-m", "palaver.app") as client:
        assert client in running_descendants(0)


def test_zombie_is_not_a_left_process() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert process.pid not in running_descendants(0)


def test_list_of_children_may_be_longer_than_a_memory_page() -> None:
    words = [sys.executable, "-I", "-c", FORKS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"

        found = children(process.pid)

    assert len(set(found)) == MANY
