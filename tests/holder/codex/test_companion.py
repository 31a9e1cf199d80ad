"""The companion of a Codex session that was started without `pal`: one companion and one session."""

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.holder.codex_fake import FakeCodex, fake_codex
from tests.holder.stage import Stage
from tests.limits import LIMIT_S

from palaver.holder import native_lane as module
from palaver.holder.codex import MODULE, attend, companion_of_session, lock_session, main, shared_server

COMMAND = "item/commandExecution/requestApproval"


class Companion:
    """A running companion."""

    def __init__(self, stage: Stage, server: FakeCodex) -> None:
        self.server = server
        companion = companion_of_session(str(stage.home), server.path, "one", "/src")
        self.running = asyncio.create_task(attend(companion))


@asynccontextmanager
async def companion(stage: Stage) -> AsyncIterator[Companion]:
    """Yield the companion of the first of two sessions, once its gate is open."""
    async with fake_codex(stage.home) as server:
        server.add_thread("one")
        server.add_thread("two", recencyAt=9)
        found = Companion(stage, server)
        try:
            await stage.daemon.heard("gate", open=True)
            yield found
        finally:
            await server.close()
            async with asyncio.timeout(LIMIT_S):
                await found.running


async def test_companion_joins_its_own_session_and_no_other(stage: Stage) -> None:
    async with companion(stage):
        asked = stage.daemon.last("accompany")

        assert (asked["harness"], asked["session"], asked["cwd"]) == ("codex", "one", "/src")
        assert len([one for one in stage.daemon.said if one["op"] == "lane"]) == 1


async def test_message_wakes_its_session_whatever_the_others_do(stage: Stage) -> None:
    async with companion(stage) as found:
        found.server.set_status("two", "active")

        stage.daemon.offer(7, "hello")

        asked = await found.server.heard("turn/start")
        assert asked["threadId"] == "one"
        assert (await stage.daemon.heard("answer"))["answer"] == "seen"


async def test_companion_reports_status_and_leaves_tool_use_to_the_hooks(stage: Stage) -> None:
    async with companion(stage) as found:
        found.server.set_status("one", "active")
        item = {"id": "a", "type": "commandExecution", "command": "make"}
        found.server.tell("item/started", threadId="one", item=item)
        change = {"id": "b", "type": "fileChange", "changes": [{"path": "/a.py"}]}
        found.server.tell("item/started", threadId="one", item=change)
        found.server.set_status("one", "active", "waitingOnApproval")

        await stage.daemon.heard("status", state="blocked")
        statuses = [one for one in stage.daemon.said if one["op"] == "status"]
        assert [one["state"] for one in statuses][-3:] == ["active", "active", "blocked"]
        assert [one["file"] for one in statuses if "file" in one] == ["/a.py"]
        assert [one for one in statuses if "command" in one] == []


async def test_decision_of_a_person_reaches_its_session(stage: Stage) -> None:
    async with companion(stage) as found:
        found.server.set_status("one", "active", "waitingOnApproval")
        found.server.ask(3, COMMAND, threadId="one", command="ls")
        await stage.daemon.heard("permission", request="3")

        stage.daemon.push("decision", request="3", allowed=True)

        found.server.add_thread("three")
        found.server.tell("thread/started", thread={"id": "three"})
        await found.server.heard("thread/read", count=3)  # everything sent before has been processed then
        assert [one["result"] for one in found.server.answers] == [{"decision": "accept"}]


async def test_request_that_only_a_holder_can_serve_is_refused(stage: Stage) -> None:
    async with companion(stage):
        stage.daemon.push("control", ask=5, verb="peek")

        report = await stage.daemon.heard("tell", ask=5)
        assert report["error"] == "bad_request"


async def test_companion_ends_with_the_server(stage: Stage) -> None:
    async with companion(stage) as found:
        await found.server.close()

        async with asyncio.timeout(LIMIT_S):
            await found.running


async def test_companion_ends_when_the_bus_refuses_it(stage: Stage) -> None:
    stage.daemon.refusals["accompany"] = {"error": "bad_request", "message": "no"}
    async with fake_codex(stage.home) as server:
        server.add_thread("one")
        found = Companion(stage, server)

        async with asyncio.timeout(LIMIT_S):
            await found.running


def can_lock_elsewhere(home: Path, session: str) -> bool:
    """Whether another process could lock a session: a process cannot be locked out by itself."""
    words = f"import sys, {MODULE} as companion; sys.exit(companion.lock_session(*sys.argv[1:]) is None)"
    return subprocess.run([sys.executable, "-c", words, str(home), session], check=False).returncode == 0


def test_session_has_one_companion(tmp_path: Path) -> None:
    lock = lock_session(str(tmp_path), "one")
    assert lock is not None

    assert not can_lock_elsewhere(tmp_path, "one")
    assert can_lock_elsewhere(tmp_path, "two")

    os.close(lock)
    assert can_lock_elsewhere(tmp_path, "one")


async def test_companion_retries_five_times_and_then_gives_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    stage.daemon.refusals["accompany"] = {"error": "already_joined", "message": "somebody"}
    async with fake_codex(stage.home) as server:
        server.add_thread("one")

        async with asyncio.timeout(LIMIT_S):
            await Companion(stage, server).running

    assert len([one for one in stage.daemon.said if one["op"] == "accompany"]) == 5
    assert "session one is not on the bus" in caplog.text


@pytest.mark.parametrize(
    ("output", "environment"),
    [
        (b"", {}),
        (b"[]", {}),
        (b"{}", {}),
        (b'{"session_id": "one"}', {}),
        (b'{"session_id": "one"}', {"PALAVER_SEAT": "1:2:luna"}),
    ],
)
def test_without_a_session_or_its_server_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: bytes, environment: dict[str, str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["companion", "--home", str(tmp_path)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(output)))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_SEAT", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert main() == 0
    assert list(tmp_path.iterdir()) == []


def test_shared_server_path_matches_codex() -> None:
    assert str(shared_server({"HOME": "/home/pat"})).startswith("/home/pat/.codex/app-server-control/")
    assert str(shared_server({"HOME": "/h", "CODEX_HOME": "/c"})).startswith("/c/app-server-control/")
