"""The native lane of OpenCode, with a fake OpenCode server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.fakes import FakeClock
from tests.holder.opencode_server import PASSWORD, FakeOpenCode, fake_opencode
from tests.limits import LIMIT_S

from palaver.client.wire import ReplyLine
from palaver.clock import SystemClock
from palaver.harness.base import NativeBus
from palaver.harness.opencode import integration as module
from palaver.harness.opencode.integration import OpenCodeIntegration
from palaver.harness.opencode.launch import Began
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.native_lane import NativeLanes
from palaver.holder.opencode import (
    HttpClient,
    OpenCodeEndpoint,
    instructions_path,
    integrate_opencode,
    new_endpoint_path,
    write_endpoint,
)
from palaver.protocol.events import request_digest
from palaver.protocol.lines import AnswerOp, GateOp, Op, PermissionOp


class QuietBus(HolderConnection):
    """A bus that accepts every request and records it."""

    def __init__(self) -> None:
        self.held = Held(name="nova")
        self.told: list[Op] = []
        self.sessions: list[str] = []
        self.drops = 0
        self.news = asyncio.Event()

    def trace(self, seqs: Sequence[int], step: str, lane: str, detail: str = "", *, name: str = "") -> None:
        """Record nothing: these tests write no trace file."""

    @property
    def is_connected(self) -> bool:
        return True

    def ask(self, request: Op) -> "asyncio.Future[msgspec.Raw]":
        self.mention(request)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        answer.set_result(msgspec.Raw(b'{"lane":1}'))
        return answer

    def mention(self, request: Op) -> None:
        self.told.append(request)
        self.news.set()

    def bind(self, session: str) -> None:
        self.sessions.append(session)

    def drop(self) -> None:
        self.drops += 1
        self.news.set()


class Stage:
    """A lane and its server."""

    def __init__(self, server: FakeOpenCode, began: Began) -> None:
        self.server = server
        self.bus = QuietBus()
        self._tasks: set[asyncio.Future[None]] = set()
        self.lanes = NativeLanes(
            self.bus,
            partial(self._make, began),
            spawn=self._spawn,
            on_status=self.bus.news.set,
            on_change=self.bus.news.set,
        )

    def _make(self, began: Began, bus: NativeBus) -> OpenCodeIntegration:
        server = HttpClient(self.server.port, "opencode", PASSWORD)
        self.lane = OpenCodeIntegration(server, began, bus, spawn=self._spawn)
        return self.lane

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.ensure_future(work))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until a condition is true; check it after each callback."""
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                self.bus.news.clear()
                await self.bus.news.wait()

    async def begin(self) -> None:
        self.lane.start()
        await self.until(lambda: any(isinstance(one, GateOp) for one in self.bus.told))

    def offer(self, *texts: str) -> None:
        messages = [
            {"seq": index, "id": f"01{index}", "from": "luna", "text": text}
            for index, text in enumerate(texts, 1)
        ]
        self.lanes.lane.take(
            ReplyLine(push="offer", lane=1, offer=9, messages=msgspec.Raw(json.dumps(messages).encode()))
        )

    @property
    def gates(self) -> list[GateOp]:
        """Return the reported gates."""
        return [one for one in self.bus.told if isinstance(one, GateOp)]

    async def answer(self) -> AnswerOp:
        """Wait for the outcome of the offer."""
        await self.until(lambda: any(isinstance(one, AnswerOp) for one in self.bus.told))
        return next(one for one in self.bus.told if isinstance(one, AnswerOp))


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeOpenCode]:
    async with fake_opencode() as made:
        yield made


@pytest_asyncio.fixture
async def stage(server: FakeOpenCode) -> AsyncIterator[Stage]:
    made = Stage(server, Began(agent="plan"))
    try:
        yield made
    finally:
        made.lane.close()


async def put_a_text(stage: Stage, server: FakeOpenCode) -> None:
    """Start the lane, and wait until a text was submitted to the existing session."""
    server.begin("ses_1")
    await stage.begin()
    stage.offer("a text")
    await server.until_asked("/session/ses_1/prompt_async")


async def test_text_wakes_an_existing_session(stage: Stage, server: FakeOpenCode) -> None:
    server.begin("ses_1")
    await stage.begin()

    stage.offer("are you there?")
    given = await server.until_asked("/session/ses_1/prompt_async")
    server.answer("ses_1")

    answer = await stage.answer()
    assert (answer.answer, answer.grade) == ("seen", "context")
    assert isinstance(given, dict)
    assert given["parts"][0]["text"] == "<pal>[new message #1] luna → nova: are you there?</pal>"
    assert given["agent"] == "plan"
    assert stage.bus.sessions[-1] == "ses_1"


async def test_without_a_session_one_is_created_and_shown(stage: Stage, server: FakeOpenCode) -> None:
    await stage.begin()

    stage.offer("wake up")

    assert await server.until_asked("/tui/select-session") == {"sessionID": "ses_new"}
    await server.until_asked("/session/ses_new/prompt_async")
    server.answer("ses_new")
    assert (await stage.answer()).answer == "seen"
    assert ("POST", "/session", {"agent": "plan"}) in server.asked


async def test_text_is_not_seen_before_the_model_replies(stage: Stage, server: FakeOpenCode) -> None:
    server.begin("ses_1")
    await stage.begin()

    stage.offer("a text")
    await server.until_asked("/session/ses_1/prompt_async")
    server.say("session.status", sessionID="ses_1", status={"type": "busy"})
    await stage.until(lambda: stage.lane.status is not None and stage.lane.status.detail == "thinking")

    assert not stage.lanes.lane.is_at_rest

    server.answer("ses_1")

    assert (await stage.answer()).answer == "seen"


def running(command: str = "rm -r x") -> dict[str, object]:
    """Return a tool call as a part of a message."""
    state = {"status": "running", "input": {"command": command, "workdir": "/y"}}
    return {
        "id": "prt_1",
        "messageID": "msg_1",
        "callID": "call_1",
        "type": "tool",
        "tool": "bash",
        "state": state,
    }


def ask_leave(server: FakeOpenCode, session: str = "ses_1") -> None:
    """Have a busy session request permission for a call, in OpenCode's short form."""
    info = {"id": "msg_1", "role": "assistant", "sessionID": session}
    server.messages[session].append({"info": info, "parts": [running()]})
    call = {"messageID": "msg_1", "callID": "call_1"}
    asked: dict[str, object] = {"id": "per_1", "sessionID": session, "permission": "bash", "tool": call}
    server.permissions.append({**asked, "patterns": ["rm -r x"], "metadata": {}})


async def test_approval_is_passed_on_while_the_call_is_unchanged(stage: Stage, server: FakeOpenCode) -> None:
    server.begin("ses_1")
    server.statuses["ses_1"] = {"type": "busy"}
    ask_leave(server)
    await stage.begin()

    stage.lanes.decide(ReplyLine(push="decision", request="per_1", allowed=True))

    assert await server.until_asked("/permission/per_1/reply") == {"reply": "once"}
    await stage.until(lambda: PermissionOp(request="per_1", outcome="taken") in stage.bus.told)


async def test_request_whose_call_changed_accepts_no_decision(stage: Stage, server: FakeOpenCode) -> None:
    server.begin("ses_1")
    server.statuses["ses_1"] = {"type": "busy"}
    ask_leave(server)
    await stage.begin()

    server.say("message.part.updated", sessionID="ses_1", part=running("rm -r /"))
    await stage.until(lambda: PermissionOp(request="per_1", outcome="gone") in stage.bus.told)
    stage.lanes.decide(ReplyLine(push="decision", request="per_1", allowed=True))

    assert not [path for method, path, _ in server.asked if method == "POST"]


async def test_request_that_now_concerns_another_call_accepts_no_decision(
    stage: Stage, server: FakeOpenCode
) -> None:
    server.begin("ses_1")
    server.statuses["ses_1"] = {"type": "busy"}
    ask_leave(server)
    await stage.begin()
    server.permissions[0]["tool"] = {"messageID": "msg_1", "callID": "call_2"}

    stage.lanes.decide(ReplyLine(push="decision", request="per_1", allowed=True))
    await stage.until(lambda: PermissionOp(request="per_1", outcome="gone") in stage.bus.told)

    assert not [path for method, path, _ in server.asked if method == "POST"]


async def test_earlier_request_of_a_subagent_is_reported_in_full(stage: Stage, server: FakeOpenCode) -> None:
    server.begin("ses_1")
    server.begin("ses_2", parentID="ses_1")
    server.statuses |= {"ses_1": {"type": "busy"}, "ses_2": {"type": "busy"}}
    ask_leave(server, "ses_2")
    await stage.begin()

    await stage.until(lambda: any(isinstance(one, PermissionOp) for one in stage.bus.told))

    (notice,) = [one for one in stage.bus.told if isinstance(one, PermissionOp)]
    assert (notice.session, notice.input["input"]) == ("ses_2", {"command": "rm -r x", "workdir": "/y"})


async def test_permission_request_closes_the_lane_and_is_never_answered(
    stage: Stage, server: FakeOpenCode
) -> None:
    server.begin("ses_1")
    server.statuses["ses_1"] = {"type": "busy"}
    ask_leave(server)

    await stage.begin()

    assert stage.lane.status is not None
    assert stage.lane.status.detail == "permission: bash: rm -r x"
    assert stage.gates[-1] == GateOp(lane=1, open=False, reason="dialog")
    given: dict[str, object] = {"patterns": ["rm -r x"], "input": {"command": "rm -r x", "workdir": "/y"}}
    assert PermissionOp(request="per_1", session="ses_1", tool="bash", input=given) in stage.bus.told

    server.say("permission.replied", sessionID="ses_1", requestID="per_1")
    await stage.until(lambda: stage.gates[-1] == GateOp(lane=1, open=True))

    assert PermissionOp(request="per_1", outcome="gone") in stage.bus.told
    assert not [path for method, path, _ in server.asked if method == "POST"]


async def test_refusal_of_the_server_refuses_the_message(stage: Stage, server: FakeOpenCode) -> None:
    server.begin("ses_1")
    server.prompt_status = 400
    await stage.begin()

    stage.offer("a text")

    answer = await stage.answer()
    assert (answer.answer, answer.reason) == ("refused", "OpenCode responded with 400")


async def test_deleted_session_gets_no_more_texts(stage: Stage, server: FakeOpenCode) -> None:
    server.begin("ses_1")
    await stage.begin()
    del server.messages["ses_1"]

    stage.offer("a text")

    assert (await stage.answer()).answer == "deferred"
    assert stage.lane.session == ""


async def test_lost_reply_is_looked_up_in_the_session(stage: Stage, server: FakeOpenCode) -> None:
    server.begin("ses_1")
    server.is_cut = True
    await stage.begin()

    stage.offer("a text")
    await server.until_asked("/session/ses_1/prompt_async")
    server.cut()
    await server.until_asked("/event", times=2)
    server.answer("ses_1")

    assert (await stage.answer()).answer == "seen"


async def test_events_missed_while_disconnected_are_read_later(stage: Stage, server: FakeOpenCode) -> None:
    await put_a_text(stage, server)

    server.cut()
    server.answer("ses_1")

    assert (await stage.answer()).answer == "seen"


async def test_unreadable_session_leaves_the_outcome_open(stage: Stage, server: FakeOpenCode) -> None:
    await put_a_text(stage, server)

    server.messages_status = 500
    server.cut()
    await server.until_asked("/event", times=3)
    server.messages_status = 200
    server.answer("ses_1")

    assert (await stage.answer()).answer == "seen"


async def test_session_deleted_meanwhile_leaves_its_text_unconfirmed(
    stage: Stage, server: FakeOpenCode
) -> None:
    await put_a_text(stage, server)

    server.messages_status = 404
    server.cut()
    await server.until_asked("/event", times=2)

    assert (await stage.answer()).answer == "unconfirmed"


async def test_late_server_is_waited_for(stage: Stage, server: FakeOpenCode) -> None:
    await server.close()
    stage.lane.start()
    stage.lane.start()
    server.begin("ses_1")
    await server.listen()

    await stage.begin()

    assert stage.lane.status is not None
    assert not stage.lane.is_over


async def test_server_that_stays_away_leaves_the_terminal(
    stage: Stage, server: FakeOpenCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACK_LIMIT_S", 0.0)
    server.begin("ses_1")
    await stage.begin()

    await server.close()
    await stage.until(lambda: stage.lane.is_over)

    assert stage.lane.status is None
    assert stage.bus.drops == 1


async def test_server_with_another_password_gets_no_request(
    server: FakeOpenCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_LIMIT_S", 0.0)
    stage = Stage(server, Began())
    stage.lane._server = HttpClient(server.port, "opencode", "another secret")

    stage.lane.start()
    await stage.until(lambda: stage.lane.is_over)

    assert server.asked == []


@pytest.mark.parametrize(
    ("began", "current"),
    [
        (Began(session="ses_1"), "ses_1"),
        (Began(is_continued=True), "ses_2"),
        (Began(started_ms=60), ""),
        (Began(started_ms=40), "ses_2"),
        (Began(session="ses_1", is_fork=True, started_ms=10), "ses_3"),
        (Began(session="ses_1", is_fork=True, started_ms=20), ""),  # the time limit of the copy is over
    ],
)
async def test_first_session_is_the_requested_one(server: FakeOpenCode, began: Began, current: str) -> None:
    server.begin("ses_1", time={"created": 5, "updated": 6})
    server.begin("ses_2", time={"created": 7, "updated": 50})
    server.begin("ses_3", time={"created": 12, "updated": 12})
    stage = Stage(server, began)

    await stage.begin()

    assert stage.lane.session == current
    stage.lane.close()


async def test_lane_opens_when_the_session_to_continue_is_copied(server: FakeOpenCode) -> None:
    now_ms = SystemClock().now_ms()
    server.begin("ses_1", time={"created": 5, "updated": 6})
    stage = Stage(server, Began(session="ses_1", is_fork=True, started_ms=now_ms))
    stage.lane.start()
    await server.until_asked("/question")
    server.cut()
    await server.until_asked("/question", times=2)  # so the first connection was handled to its end

    assert (stage.gates, stage.lane.status) == ([], None)

    server.begin("ses_2", time={"created": now_ms, "updated": now_ms})
    await stage.until(lambda: bool(stage.gates))

    assert stage.lane.session == "ses_2"
    stage.offer("to the copy")
    await server.until_asked("/session/ses_2/prompt_async")
    stage.lane.close()


async def test_agent_receives_its_name_before_it_starts(tmp_path: Path) -> None:
    path = new_endpoint_path(str(tmp_path))
    write_endpoint(path, OpenCodeEndpoint(port=1, user="opencode", password=PASSWORD, began=Began()))

    make = integrate_opencode(path, Held(name="nova"), clock=FakeClock(), spawn=lambda work: None)
    made = NativeLanes(QuietBus(), make, spawn=lambda work: None, on_status=lambda: None).integration

    assert not made.is_over
    assert "You are nova on Palaver" in instructions_path(path).read_text()


async def test_missing_server_file_ends_the_lane(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "server.json"

    make = integrate_opencode(path, Held(name="nova"), clock=FakeClock(), spawn=lambda work: None)
    made = NativeLanes(QuietBus(), make, spawn=lambda work: None, on_status=lambda: None).integration

    assert made.is_over


async def test_decision_on_an_earlier_request_is_not_applied_to_the_current_one(
    stage: Stage, server: FakeOpenCode
) -> None:
    server.begin("ses_1")
    server.statuses["ses_1"] = {"type": "busy"}
    ask_leave(server)
    await stage.begin()
    given = {"patterns": ["rm -r x"], "input": {"command": "rm -r x", "workdir": "/y"}}
    digest = request_digest("ses_1", "bash", given)

    stage.lanes.decide(ReplyLine(push="decision", request="per_1", allowed=False, digest="of another"))
    stage.lanes.decide(ReplyLine(push="decision", request="per_1", allowed=True, digest=digest))

    assert await server.until_asked("/permission/per_1/reply") == {"reply": "once"}
