"""All sessions of one folder of an OpenCode that was started plainly, beside a plugin that a test plays."""

import asyncio
import json
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.agents.stage import Stage
from tests.limits import LIMIT_S

from palaver.agents.opencode.companion import MODULE, NOT_NEEDED, Companion
from palaver.agents.opencode.place import new_place, write_holder


class Plugin:
    """The other end of the pipe: it answers nothing, and keeps what it is asked and told."""

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
        """Wait until a session was told something, and give it."""
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


async def test_who_works_in_a_session_of_its_own_is_on_the_bus(stage: Stage) -> None:
    async with plugin(stage) as opencode:
        opencode.happen("session.created", info={"id": "ses_1"})
        opencode.say(begun="ses_1")

        asked = await stage.daemon.heard("accompany")
        assert (asked["harness"], asked["session"], asked["cwd"]) == ("opencode", "ses_1", "/src")
        assert "luna" in await opencode.told("ses_1")
        assert await opencode.end() == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["run", "go"], "Nothing wakes you"), (["serve"], "you are woken"), ([], "you are woken")],
)
async def test_who_ends_with_its_turn_is_told_that_nothing_wakes_it(
    stage: Stage, arguments: list[str], told: str
) -> None:
    async with plugin(stage) as opencode:
        opencode.say(arguments=arguments)
        opencode.happen("session.created", info={"id": "ses_1"})

        opencode.say(begun="ses_1")

        assert told in await opencode.told("ses_1")


async def test_a_sub_agent_is_nobody_by_itself(stage: Stage) -> None:
    async with plugin(stage) as opencode:
        opencode.happen("session.created", info={"id": "ses_2", "parentID": "ses_1"})

        opencode.say(begun="ses_2")

        assert await opencode.told("ses_2") == ""
        assert stage.daemon.said == []


async def test_what_is_not_known_of_a_session_is_asked_once_at_a_time(stage: Stage) -> None:
    async with plugin(stage) as opencode:
        opencode.say(begun="ses_1")
        opencode.say(begun="ses_1")
        opencode.happen("session.created", info={"id": "ses_2", "parentID": "ses_1"})
        opencode.say(begun="ses_2")

        await opencode.told("ses_2")  # behind it all is heard
        assert opencode.asked_about("ses_1") == 1


async def test_a_line_that_is_too_long_is_passed_over(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    async with plugin(stage) as opencode:
        opencode.say(begun="x" * 10_000)
        opencode.happen("session.created", info={"id": "ses_2", "parentID": "ses_1"})
        opencode.say(begun="ses_2")

        assert await opencode.told("ses_2") == ""
        assert "is too long" in caplog.text


async def test_where_somebody_sits_already_it_is_not_needed(stage: Stage) -> None:
    stage.daemon.refusals["accompany"] = {"error": "already_joined", "message": "luna"}
    opencode = Plugin(stage)
    opencode.happen("session.created", info={"id": "ses_1"})

    opencode.say(begun="ses_1")

    async with asyncio.timeout(LIMIT_S):
        assert await opencode.running == NOT_NEEDED


@pytest.mark.parametrize(("above", "status"), [("{}", NOT_NEEDED), ('sh -c "{}; exit \\$?"', 0)])
def test_beside_one_that_a_holder_runs_it_ends_at_once(tmp_path: Path, above: str, status: int) -> None:
    write_holder(new_place(str(tmp_path)))
    words = shlex.join([sys.executable, "-I", "-m", MODULE, "--home", str(tmp_path), "/src"])

    with subprocess.Popen(
        ["sh", "-c", f"{above.format(words)}; exit $?"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as opencode:
        if status != NOT_NEEDED:  # one inside a held one has a companion of its own, until its pipe ends
            opencode.communicate(timeout=LIMIT_S)
        assert opencode.wait(LIMIT_S) == status
