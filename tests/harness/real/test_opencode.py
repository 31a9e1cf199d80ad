"""OpenCode, started with `pal opencode`, with a scripted model."""

import os
import signal
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.harness.real.harness_stage import reply, send
from tests.harness.real.install import installed
from tests.harness.real.opencode_stage import OpenCodeStage, opencode_stage

pytestmark = pytest.mark.harness


@pytest.fixture
def opencode() -> Iterator[OpenCodeStage]:
    """A home with a running bus in which OpenCode can be started."""
    with opencode_stage(installed("opencode")) as stage:
        yield stage


def test_message_is_handled_by_the_agent_mode_of_the_session(opencode: OpenCodeStage) -> None:
    opencode.script.add(reply("planned"), reply("still planning"))
    opencode.start("--agent", "plan", "--prompt", "go on")
    opencode.requests(1)
    opencode.until(lambda: opencode.state()[0] == "idle")

    opencode.until_seen(send(opencode.friend(), "@nova", "--", "and now build it"))

    opencode.until(lambda: "still planning" in opencode.screen())
    assert "Build ·" not in opencode.screen()


def test_oldest_supported_version_gets_its_messages_natively() -> None:
    with opencode_stage(installed("opencode-old")) as opencode:
        opencode.script.add(reply("here"))
        opencode.start()

        receipt = opencode.until_seen(send(opencode.friend(), "@nova", "--", "are you there?"))

        assert (receipt["lane"], receipt["grade"]) == ("native", "context")


def test_server_refuses_requests_without_the_password(opencode: OpenCodeStage) -> None:
    opencode.start()
    (folder,) = opencode.places

    with pytest.raises(HTTPError) as refusal:
        urlopen(f"http://127.0.0.1:{opencode.port}/session", timeout=5)

    refusal.value.close()
    assert refusal.value.code == 401
    assert (folder / "server.json").stat().st_mode & 0o077 == 0


def test_nothing_is_left_when_daemon_and_holder_are_killed(opencode: OpenCodeStage) -> None:
    opencode.script.add(reply("awake"))
    opencode.start()
    holder = opencode.holder()
    opencode.home.kill(signal.SIGKILL)
    opencode.until(lambda: opencode.home.pal("up").status == 0)  # its holder may be starting one already
    opencode.until(lambda: "native" in opencode.gates())
    seq = send(opencode.friend(), "@nova", "--", "are you still there?")
    assert opencode.until_seen(seq)["grade"] == "context"

    opencode.home.kill(signal.SIGKILL)
    os.kill(holder, signal.SIGKILL)
    opencode.until_gone()
    opencode.until(lambda: opencode.home.pal("up").status == 0)

    opencode.until(lambda: opencode.state()[0] in ("exited", ""))
    opencode.until_clean()
