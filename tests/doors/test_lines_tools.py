"""Tool calls of one connection: waits end with it, and are refused when the daemon stops."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.limits import LIMIT_S

from palaver.doors.lines_ops import ToolCalls
from palaver.errors import BadRequest, RoomNotFound, ShuttingDown
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.lines import ToolOp
from palaver.services.services import Services

LUNA = Caller(name="luna", standing=Standing.WORKER, kind="instance")
WAIT = ToolOp(req=1, tool="wait_for_turn", arguments={"room_id": "shop"}, key="0a" * 16)
STATE = ToolOp(req=2, tool="get_room_state", arguments={"room_id": "shop"})


@dataclass
class WaitingRooms:
    """Room services with a wait that ends when the test says so."""

    came: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    keys: list[bytes] = field(default_factory=list)
    given_up: int = 0

    async def wait_for_turn(self, caller: Caller, *, key: bytes, **arguments: Any) -> dict[str, object]:
        self.keys.append(key)
        self.came.set()
        try:
            await self.turn.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return {"status": "your_turn", "for": caller.name}

    async def get_room_state(self, caller: Caller, *, room_id: str) -> dict[str, object]:
        if room_id != "shop":
            raise RoomNotFound(room_id)
        return {"room_id": room_id}


@dataclass
class FakeServices:
    rooms: WaitingRooms


@pytest.fixture
def rooms() -> WaitingRooms:
    return WaitingRooms()


@pytest.fixture
def tools(rooms: WaitingRooms) -> ToolCalls:
    return ToolCalls(cast("Services", FakeServices(rooms)))


async def begun(tools: ToolCalls, rooms: WaitingRooms) -> "asyncio.Task[dict[str, object]]":
    """Start a wait; it is running when this returns."""
    waiting = asyncio.ensure_future(tools.call(LUNA, WAIT))
    async with asyncio.timeout(LIMIT_S):
        await rooms.came.wait()
    return waiting


async def test_call_runs_the_tool_with_its_request_key(tools: ToolCalls, rooms: WaitingRooms) -> None:
    waiting = await begun(tools, rooms)

    rooms.turn.set()

    assert await waiting == {"status": "your_turn", "for": "luna"}
    assert rooms.keys == [b"\n" * 16]
    assert rooms.given_up == 0


async def test_error_of_a_tool_is_raised(tools: ToolCalls) -> None:
    with pytest.raises(RoomNotFound):
        await tools.call(LUNA, ToolOp(req=3, tool="get_room_state", arguments={"room_id": "attic"}))
    with pytest.raises(BadRequest, match="no such tool: dance"):
        await tools.call(LUNA, ToolOp(req=4, tool="dance"))


async def test_shutdown_ends_waits_with_an_error_that_says_to_retry(
    tools: ToolCalls, rooms: WaitingRooms
) -> None:
    waiting = await begun(tools, rooms)

    tools.end()

    with pytest.raises(ShuttingDown, match="connect again"):
        await waiting
    assert rooms.given_up == 1


async def test_shutdown_refuses_new_waits_and_serves_other_calls(
    tools: ToolCalls, rooms: WaitingRooms
) -> None:
    tools.end()

    with pytest.raises(ShuttingDown):
        await tools.call(LUNA, WAIT)

    assert rooms.keys == []
    assert await tools.call(LUNA, STATE) == {"room_id": "shop"}


@pytest.mark.parametrize("is_over", [False, True])
async def test_cancelled_call_cancels_the_tool(tools: ToolCalls, rooms: WaitingRooms, is_over: bool) -> None:
    waiting = await begun(tools, rooms)

    waiting.cancel()
    if is_over:
        tools.end()
    with suppress(asyncio.CancelledError):
        await waiting

    assert waiting.cancelled()
    assert rooms.given_up == 1


async def test_finished_wait_is_not_ended_again(tools: ToolCalls, rooms: WaitingRooms) -> None:
    waiting = await begun(tools, rooms)
    rooms.turn.set()
    await waiting

    tools.end()

    assert rooms.given_up == 0
