"""A `pal opencode` of which a part was killed leaves nothing: no process, no socket, no file."""

import os
import signal
from collections.abc import Iterator

import pytest
from tests.harness.real.harness_stage import reply, send
from tests.harness.real.install import installed
from tests.harness.real.opencode_stage import OpenCodeStage, opencode_stage

pytestmark = pytest.mark.harness


@pytest.fixture
def opencode() -> Iterator[OpenCodeStage]:
    """A home in which the bus runs and OpenCode can be started."""
    with opencode_stage(installed("opencode")) as stage:
        yield stage


def files_left(opencode: OpenCodeStage) -> list[str]:
    """What is left of it. The lock under which holders start a daemon is the home's, and stays."""
    return [path.name for path in opencode.left() if path.name != "start.lock"]


def test_its_holder(opencode: OpenCodeStage) -> None:
    opencode.start()

    os.kill(opencode.holder(), signal.SIGKILL)

    opencode.until_gone()
    opencode.until(lambda: opencode.state()[0] in ("exited", ""))
    opencode.until(lambda: not files_left(opencode))
    opencode.until(lambda: not opencode.places)


def test_opencode_itself(opencode: OpenCodeStage) -> None:
    opencode.start()

    os.kill(opencode.pid(), signal.SIGKILL)

    opencode.until_gone()
    opencode.until(lambda: opencode.state()[0] in ("exited", ""))
    opencode.until(lambda: not files_left(opencode))
    opencode.until(lambda: not opencode.places)


def test_the_daemon_and_then_its_holder(opencode: OpenCodeStage) -> None:
    opencode.script.add(reply("awake"))
    opencode.start()
    holder = opencode.holder()
    opencode.home.kill(signal.SIGKILL)
    opencode.until(lambda: opencode.home.pal("up").status == 0)  # its holder may be starting one just now
    opencode.until(lambda: "native" in opencode.gates())
    place = send(opencode.friend(), "@nova", "--", "are you still there?")
    assert opencode.until_seen(place)["grade"] == "context"

    opencode.home.kill(signal.SIGKILL)
    os.kill(holder, signal.SIGKILL)
    opencode.until_gone()
    opencode.until(lambda: opencode.home.pal("up").status == 0)

    opencode.until(lambda: opencode.state()[0] in ("exited", ""))
    opencode.until(lambda: not files_left(opencode))
    opencode.until(lambda: not opencode.places)
