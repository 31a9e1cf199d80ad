"""The companion of all sessions in one folder of an OpenCode started without `pal`; the test plays the
plugin.
"""

import asyncio
import json
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.holder.stage import Stage
from tests.limits import LIMIT_S

from palaver.holder.opencode import MODULE, NOT_NEEDED, Companion, new_endpoint_path, write_holder


class Plugin:
    """The other end of the pipe: it answers nothing, and records all requests and instructions."""

    def __init__(self, stage: Stage, limit_bytes: int = 4096) -> None:
        self.reader = asyncio.StreamReader(limit=limit_bytes)
        self.lines: list[dict[str, object]] = []
        self.news = asyncio.Event()
        companion = Companion(str(stage.home), "/src", self._take)
        self.running = asyncio.create_task(companion.run(self.reader))

    def _take(self, line: bytes) -> None:
        self.lines.append(json.loads(line))
        self.news.set()

    def say(self, **line: object) -> None:
        self.reader.feed_data(json.dumps(line).encode() + b"\n")

    def happen(self, kind: str, **about: object) -> None:
        self.say(event={"type": kind, "properties": about})

    async def told(self, session: str) -> str:
        """Wait until a session has received instructions, and return them."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                for line in self.lines:
                    if line.get("session") == session:
                        return str(line["told"])
                self.news.clear()
                await self.news.wait()

    def asked_about(self, session: str) -> int:
        return len([one for one in self.lines if str(one.get("path", "")).endswith(session)])

    async def end(self) -> int:
        self.reader.feed_eof()
        async with asyncio.timeout(LIMIT_S):
            return await self.running


@asynccontextmanager
async def plugin(stage: Stage) -> AsyncIterator[Plugin]:
    made = Plugin(stage)
    try:
        yield made
    finally:
        if not made.running.done():
            await made.end()


async def test_agent_of_a_root_session_joins_the_bus(stage: Stage) -> None:
    async with plugin(stage) as opencode:
        opencode.happen("session.created", info={"id": "ses_1"})
        opencode.say(begun="ses_1")

        asked = await stage.daemon.heard("accompany")
        assert (asked["harness"], asked["session"], asked["cwd"]) == ("opencode", "ses_1", "/src")
        assert "luna" in await opencode.told("ses_1")
        assert await opencode.end() == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["run", "go"], "Nothing wakes you"), (["serve"], "a message wakes you"), ([], "a message wakes you")],
)
async def test_agent_of_a_single_run_learns_that_nothing_wakes_it(
    stage: Stage, arguments: list[str], expected: str
) -> None:
    async with plugin(stage) as opencode:
        opencode.say(arguments=arguments)
        opencode.happen("session.created", info={"id": "ses_1"})

        opencode.say(begun="ses_1")

        assert expected in await opencode.told("ses_1")


async def test_subagent_does_not_join_by_itself(stage: Stage) -> None:
    async with plugin(stage) as opencode:
        opencode.happen("session.created", info={"id": "ses_2", "parentID": "ses_1"})

        opencode.say(begun="ses_2")

        assert await opencode.told("ses_2") == ""
        assert stage.daemon.said == []


async def test_unknown_session_is_requested_only_once_at_a_time(stage: Stage) -> None:
    async with plugin(stage) as opencode:
        opencode.say(begun="ses_1")
        opencode.say(begun="ses_1")
        opencode.happen("session.created", info={"id": "ses_2", "parentID": "ses_1"})
        opencode.say(begun="ses_2")

        await opencode.told("ses_2")  # everything sent before has been processed then
        assert opencode.asked_about("ses_1") == 1


async def test_oversized_line_is_skipped(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async with plugin(stage) as opencode:
        opencode.say(begun="x" * 10_000)
        opencode.happen("session.created", info={"id": "ses_2", "parentID": "ses_1"})
        opencode.say(begun="ses_2")

        assert await opencode.told("ses_2") == ""
        assert "is too long" in caplog.text


async def test_companion_exits_if_the_session_already_has_an_agent(stage: Stage) -> None:
    stage.daemon.refusals["accompany"] = {"error": "already_joined", "message": "luna"}
    opencode = Plugin(stage)
    opencode.happen("session.created", info={"id": "ses_1"})

    opencode.say(begun="ses_1")

    async with asyncio.timeout(LIMIT_S):
        assert await opencode.running == NOT_NEEDED


@pytest.mark.parametrize(("above", "status"), [("{}", NOT_NEEDED), ('sh -c "{}; exit \\$?"', 0)])
def test_companion_exits_at_once_in_a_process_run_by_a_holder(
    tmp_path: Path, above: str, status: int
) -> None:
    write_holder(new_endpoint_path(str(tmp_path)))
    words = shlex.join([sys.executable, "-I", "-m", MODULE, "--home", str(tmp_path), "/src"])

    with subprocess.Popen(
        ["sh", "-c", f"{above.format(words)}; exit $?"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as opencode:
        if status != NOT_NEEDED:  # an OpenCode inside a held one has its own companion, until its pipe closes
            opencode.communicate(timeout=LIMIT_S)
        assert opencode.wait(LIMIT_S) == status
