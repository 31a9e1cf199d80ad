"""The door without a network: limits of time and of waiting frames, and any frame that a client can send."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message
from tests.doors.parts import SlowFollowers
from tests.fakes import HUMAN, LIMIT_A_MINUTE, Bus, FakeClock, open_memory, opened_bus
from tests.limits import LIMIT_S

from palaver.doors.http.websocket import (
    REQUESTS,
    BadFrame,
    SocketLimits,
    WebSocketDoor,
    answer_frame,
    encode_frame,
    read_frame,
)
from palaver.errors import RateLimited
from palaver.identity.accounts import Token, TokenBook
from palaver.protocol.agents import Caller
from palaver.protocol.paths import Content
from palaver.protocol.requests import Release
from palaver.services.paths import PathService
from palaver.services.queries import Queries
from palaver.services.services import Services


class Wire:
    """The client's end of one connection. It reads only while `reads` is set."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.frames: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self.status = 0
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self._sent.put_nowait({"type": "websocket.connect"})
        self._news = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self.closed is not None

    async def receive(self) -> Message:
        return await self._sent.get()

    async def send(self, message: Message) -> None:
        """Take a message of the door. Like the real protocol, a close never waits."""
        kind = message["type"]
        if kind == "websocket.close":
            self.closed = message["code"], message["reason"]
            self._sent.put_nowait({"type": "websocket.disconnect"})
        elif kind == "websocket.http.response.start":
            self.status = message["status"]
        elif kind == "websocket.send":
            await self.reads.wait()
            self.frames.append(json.loads(message["text"]))
        self._news.set()

    def ask(self, frame: object) -> None:
        self._sent.put_nowait({"type": "websocket.receive", "text": json.dumps(frame)})

    async def until(self, number: int) -> list[dict[str, Any]]:
        """Wait until this many frames have arrived."""
        async with asyncio.timeout(LIMIT_S):
            while len(self.frames) < number:
                self._news.clear()
                await self._news.wait()
        return self.frames


class Stage:
    """A bus in memory with two agents, and a door."""

    def __init__(self, bus: Bus, home: Path, limits: SocketLimits) -> None:
        self.bus = bus
        self.tokens = TokenBook(home, FakeClock())
        queries = Queries(bus.log)
        self.paths = PathService(bus.broker, queries, bus.delivery)
        self.metrics = SlowFollowers()
        services = SimpleNamespace(
            broker=bus.broker,
            metrics=self.metrics,
            queries=queries,
            paths=self.paths,
            clock=bus.clock,
            callers=SimpleNamespace(tokens=self.tokens),
        )
        self.services = cast("Services", services)
        self.door = WebSocketDoor(self.services, limits)
        self.nova: Caller | None = None

    def open(self, tasks: asyncio.TaskGroup, secret: str = "") -> Wire:
        wire = Wire()
        headers = [(b"authorization", f"Bearer {secret}".encode())] if secret else []
        scope = {"type": "websocket", "headers": headers}
        tasks.create_task(self.door(scope, wire.receive, wire.send))
        return wire

    async def token(self, *names: str) -> tuple[str, Token]:
        return await self.tokens.create("", standing="operator", by="human", acts_for=names)

    async def push(self, number: int, *, payload: object = None) -> None:
        """Let nova send luna messages."""
        assert self.nova is not None
        for _ in range(number):
            await self.paths.route(self.nova, "agent/luna", Content(payload=payload))


@asynccontextmanager
async def opened_stage(home: Path, **limits: Any) -> AsyncIterator[Stage]:
    async with opened_bus(open_memory, home) as bus:
        stage = Stage(bus, home, SocketLimits(**limits))
        await bus.join("luna")
        stage.nova = await bus.join("nova")
        yield stage


async def test_client_that_does_not_identify_itself_is_disconnected_in_time(tmp_path: Path) -> None:
    async with opened_stage(tmp_path, auth_s=0.01) as stage, asyncio.TaskGroup() as tasks:
        wire = stage.open(tasks)
        wire.ask({"type": "ping"})
        frames = await wire.until(2)

    assert [frame["error"] for frame in frames] == ["Must authenticate first", "Authentication timeout"]
    assert wire.closed == (4001, "Authentication timeout")
    assert SocketLimits().auth_s == 5.0


async def test_client_that_never_reads_cannot_stay_unidentified(tmp_path: Path) -> None:
    async with (
        opened_stage(tmp_path, auth_s=0.01, refuse_s=0.01) as stage,
        asyncio.timeout(LIMIT_S),
        asyncio.TaskGroup() as tasks,
    ):
        wire = stage.open(tasks)
        wire.reads.clear()
        wire.ask({"type": "ping"})

    assert wire.closed == (4001, "Authentication timeout")
    assert stage.door.unidentified == 0


async def test_connection_that_was_refused_is_not_counted(tmp_path: Path) -> None:
    async with opened_stage(tmp_path, auth_s=0.01, unidentified=1) as stage:
        async with asyncio.TaskGroup() as tasks:
            first, second = stage.open(tasks), stage.open(tasks)
        async with asyncio.TaskGroup() as tasks:
            third = stage.open(tasks)

    assert (first.status, second.status, third.status) == (0, 503, 0)


@pytest.mark.parametrize(
    ("limits", "payload", "number"),
    [({"frames": 10}, None, 11), ({"waiting_bytes": 5000}, "x" * 2000, 3)],
    ids=["frames", "bytes"],
)
async def test_client_with_too_much_waiting_is_disconnected(
    tmp_path: Path, limits: dict[str, int], payload: object, number: int
) -> None:
    async with opened_stage(tmp_path, **limits) as stage, asyncio.TaskGroup() as tasks:
        secret, _ = await stage.token("luna")
        slow, quick = stage.open(tasks, secret), stage.open(tasks, secret)
        for wire in (slow, quick):
            wire.ask({"type": "msg.listen", "agentId": "luna"})
            await wire.until(1)
        slow.reads.clear()
        await stage.push(number - 1, payload=payload)
        assert not slow.is_closed
        await stage.push(2, payload=payload)
        seqs = [frame["seq"] for frame in (await quick.until(number + 2))[1:]]
        assert slow.closed == (4008, f"too slow; continue with after {seqs[0] - 1}")
        assert quick.closed is None
        assert stage.metrics.doors == ["websocket"]
        quick.ask({"type": "ping"})
        assert (await quick.until(number + 3))[-1] == {"type": "pong"}
        await quick.send({"type": "websocket.close", "code": 1000, "reason": ""})


async def test_batch_of_messages_does_not_make_a_client_slow(tmp_path: Path) -> None:
    async with opened_stage(tmp_path, frames=10) as stage, asyncio.TaskGroup() as tasks:
        secret, _ = await stage.token("luna")
        wire = stage.open(tasks, secret)
        wire.ask({"type": "msg.listen", "agentId": "luna"})
        await wire.until(1)
        async with asyncio.TaskGroup() as senders:
            for _ in range(100):
                senders.create_task(stage.push(1))
        await wire.until(101)
        assert wire.closed is None
        await wire.send({"type": "websocket.close", "code": 1000, "reason": ""})


async def test_replay_waits_for_a_slow_client(tmp_path: Path) -> None:
    async with opened_stage(tmp_path, frames=10) as stage, asyncio.TaskGroup() as tasks:
        secret, _ = await stage.token("luna")
        await stage.push(50)
        wire = stage.open(tasks, secret)
        wire.reads.clear()
        wire.ask({"type": "msg.listen", "agentId": "luna", "after": 0})
        await stage.push(5)
        wire.reads.set()
        seqs = [frame["seq"] for frame in (await wire.until(56))[1:]]
        assert wire.closed is None
        assert seqs == sorted(set(seqs))
        await wire.send({"type": "websocket.close", "code": 1000, "reason": ""})


async def test_connection_listens_to_a_limited_number_of_mailboxes(tmp_path: Path) -> None:
    async with opened_stage(tmp_path, mailboxes=2) as stage, asyncio.TaskGroup() as tasks:
        secret, _ = await stage.token("luna")
        wire = stage.open(tasks, secret)
        for session in "abcb":
            wire.ask({"type": "msg.session.listen", "agentId": "luna", "sessionId": session})
        replies = await wire.until(4)
        await wire.send({"type": "websocket.close", "code": 1000, "reason": ""})

    assert [reply["type"].rpartition(".")[2] for reply in replies] == ["ok", "ok", "error", "ok"]
    assert "at most 2 mailboxes" in replies[2]["error"]


async def test_log_is_read_only_while_a_connection_listens(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        watched: list[bool] = []
        watch = stage.paths.watch

        def counted(hear: Any) -> Any:
            watched.append(True)
            stop = watch(hear)
            return lambda: (watched.pop(), stop())

        stage.paths.watch = counted  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as tasks:
            secret, _ = await stage.token("luna")
            wires = [stage.open(tasks, secret) for _ in range(3)]
            for wire in wires:
                wire.ask({"type": "msg.listen", "agentId": "luna"})
                await wire.until(1)
            assert watched == [True]
            for wire in wires:
                await wire.send({"type": "websocket.close", "code": 1000, "reason": ""})

        assert watched == []


async def test_message_that_a_brake_holds_is_pushed_when_it_is_released(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage, asyncio.TaskGroup() as tasks:
        orla = replace(await stage.bus.join("orla", harness="codex"), harness="codex")
        secret, _ = await stage.token("luna")
        wire = stage.open(tasks, secret)
        wire.ask({"type": "msg.listen", "agentId": "luna"})
        for number in range(LIMIT_A_MINUTE):
            await stage.paths.route(orla, "agent/luna", Content(payload=number + 1))
        with pytest.raises(RateLimited) as held:
            await stage.paths.route(orla, "agent/luna", Content(payload="held"))
        last = (await wire.until(LIMIT_A_MINUTE + 1))[-1]
        wire.ask({"type": "ping"})
        assert (await wire.until(LIMIT_A_MINUTE + 2))[-1] == {"type": "pong"}

        late = stage.open(tasks, secret)
        late.ask({"type": "msg.listen", "agentId": "luna", "after": last["seq"]})
        late.ask({"type": "ping"})
        assert (await late.until(2))[-1] == {"type": "pong"}
        await stage.bus.submit(HUMAN, Release(message=str(held.value.message)))

        for client, number in ((wire, LIMIT_A_MINUTE + 3), (late, 3)):
            push = (await client.until(number))[-1]
            assert push["message"]["payload"] == "held"
            assert push["seq"] > held.value.message
            await client.send({"type": "websocket.close", "code": 1000, "reason": ""})


# Any frame

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_names = st.sampled_from(["luna", "nova", "Luna", "@nova", "ghost", "human", "", "a b", "slack-bridge"])
_fields = st.fixed_dictionaries(
    {},
    optional={
        "reqId": _json,
        "from": _names | _json,
        "to": _names | _json,
        "agentId": _names | _json,
        "sessionId": st.sampled_from(["main", "mon", "a+b", "a/b"]) | _json,
        "path": st.sampled_from(["/", "a/b", "agent/**", "**", "agent/luna"]) | _json,
        "pattern": st.sampled_from(["/", "a/b", "slack/**", "agent/*"]) | _json,
        "command": _json,
        "payload": _json,
        "source": _json,
        "externalId": _json,
        "after": _json,
        "messageIds": _json,
        "options": st.fixed_dictionaries({}, optional={"limit": _json, "fromTime": _json}) | _json,
    },
)
_types = st.sampled_from([*REQUESTS, "ping", "auth", "__proto__", "toString"]) | _json


@given(st.text() | _json.map(json.dumps))
def test_any_text_is_a_frame_or_a_bad_frame(text: str) -> None:
    with suppress(BadFrame):
        frame = read_frame(text)
        assert isinstance(json.loads(text), dict)
        assert isinstance(frame.type, str)


@given(st.lists(st.tuples(_types, _fields), min_size=1, max_size=5))
def test_any_frame_gets_one_reply(tmp_path_factory: pytest.TempPathFactory, asked: Any) -> None:
    async def run() -> None:
        async with opened_stage(tmp_path_factory.mktemp("home")) as stage:
            _, token = await stage.token("luna", "slack-bridge")
            for kind, fields in asked:
                await _check_reply(stage, token, {"type": kind, **fields})

    asyncio.run(run())


async def _check_reply(stage: Stage, token: Token, sent: dict[str, Any]) -> None:
    try:
        frame = read_frame(json.dumps(sent))
    except BadFrame:
        return
    reply = json.loads(encode_frame((await answer_frame(stage.services, token, frame))[0]))
    kind = frame.type
    if kind == "ping":
        assert reply["type"] == "pong"
    elif kind in REQUESTS:
        assert reply["type"] in (f"{kind}.ok", f"{kind}.error")
    else:
        assert reply["type"] == "error"
    if reply["type"].endswith("error"):
        assert reply["error"]
        assert reply["code"]
    assert reply.get("reqId") == sent.get("reqId")
    if not reply["type"].endswith("error") and "from" in sent and kind in REQUESTS and "messageId" in reply:
        assert sent["from"].lower().removeprefix("@") in token.acts_for
