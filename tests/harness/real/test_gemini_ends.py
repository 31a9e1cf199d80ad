"""Gemini CLI starts itself again as a child process: neither process remains, however it ends."""

import os
import signal
from collections.abc import Iterator

import pytest
from tests.harness.real.gemini_stage import GeminiStage, gemini_stage
from tests.harness.real.install import installed
from tests.processes import parent_of, processes_of

pytestmark = pytest.mark.harness


@pytest.fixture
def gemini() -> Iterator[GeminiStage]:
    """A home with a running bus in which Gemini CLI can be started."""
    with gemini_stage(installed("gemini")) as stage:
        yield stage


def child_of(gemini: GeminiStage) -> int:
    """Return the second process of Gemini CLI, a child of the first."""
    found: list[int] = []

    def is_there() -> bool:
        first = gemini.pid()
        found[:] = [
            pid
            for pid, line in processes_of(gemini.home.path.parent).items()
            if "gemini" in line and pid != first and parent_of(pid) == first
        ]
        return bool(found)

    gemini.until(is_there)
    return found[0]


def test_no_process_remains_when_the_second_one_is_killed(gemini: GeminiStage) -> None:
    gemini.start()

    os.kill(child_of(gemini), signal.SIGKILL)

    gemini.until_gone()
    gemini.until(lambda: gemini.state()[0] in ("exited", ""))


def test_no_process_remains_after_its_end_without_a_daemon(gemini: GeminiStage) -> None:
    gemini.start()
    holder, child = gemini.holder(), child_of(gemini)

    gemini.home.kill(signal.SIGKILL)
    os.kill(holder, signal.SIGKILL)

    gemini.until(lambda: not os.path.exists(f"/proc/{child}"))
    gemini.until_gone()
    gemini.home.ok("up")
    gemini.until(lambda: gemini.state()[0] in ("exited", ""))
