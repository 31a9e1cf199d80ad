"""A holder's connection to the bus: it reconnects indefinitely, and requests on a lost connection fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.holder.stage import Stage
from tests.limits import LIMIT_S

from palaver.client.wire import ReplyLine
from palaver.errors import Disconnected, NotYou, PalaverError, Unavailable
from palaver.holder.connection import Held, HolderConnection
from palaver.protocol.lines import HoldOp, TypedOp

HOLD = HoldOp(pid=1, ticket="ticket", secret="secret")


class Listener:
    """Collects the callbacks of a bus connection."""

    def __init__(self) -> None:
        self.helds: asyncio.Queue[Held] = asyncio.Queue()
        self.pushes: asyncio.Queue[ReplyLine] = asyncio.Queue()

    async def on_held(self, held: Held) -> None:
        self.helds.put_nowait(held)

    async def held(self) -> Held:
        async with asyncio.timeout(LIMIT_S):
            return await self.helds.get()


@asynccontextmanager
async def running(stage: Stage) -> AsyncIterator[tuple[HolderConnection, Listener]]:
    listener = Listener()
    bus = HolderConnection(str(stage.home), HOLD, listener.on_held, listener.pushes.put_nowait)
    task = asyncio.create_task(bus.run())
    try:
        yield bus, listener
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_bus_claims_with_its_ticket_and_reconnects_with_its_secret(stage: Stage) -> None:
    async with running(stage) as (bus, listener):
        assert (await listener.held()).name == "luna"

        await stage.daemon.close()
        await stage.daemon.open()
        await listener.held()

        first, second = [one for one in stage.daemon.said if one["op"] == "hold"]
        assert (first["ticket"], first["secret"], first.get("name")) == ("ticket", "secret", None)
        assert (second.get("ticket"), second["secret"], second["name"]) == (None, "secret", "luna")
        assert bus.is_connected


async def test_bus_is_connected_only_after_the_daemon_confirms_the_hold(stage: Stage) -> None:
    async with running(stage) as (bus, listener):
        await listener.held()
        stage.daemon.silent.add("hold")
        bus.drop()
        await stage.daemon.heard("hold", count=2)
        unanswered = bus.is_connected

        stage.daemon.silent.clear()
        bus.drop()
        await listener.held()

        assert (unanswered, bus.is_connected) == (False, True)


async def test_first_refusal_is_raised(stage: Stage) -> None:
    stage.daemon.refusals["hold"] = {
        "error": "not_you",
        "message": "no",
        "details": {"name": "a", "you": "b"},
    }
    listener = Listener()
    bus = HolderConnection(str(stage.home), HOLD, listener.on_held, listener.pushes.put_nowait)

    with pytest.raises(PalaverError) as caught:
        await bus.run()

    assert caught.value.code == NotYou.code


NOT_YOU = {"error": "not_you", "message": "no", "details": {"claimed": "luna", "actual": "another holder"}}


async def test_bus_gives_up_when_another_holder_has_the_agent(stage: Stage) -> None:
    listener = Listener()
    bus = HolderConnection(str(stage.home), HOLD, listener.on_held, listener.pushes.put_nowait)
    task = asyncio.create_task(bus.run())
    await listener.held()

    stage.daemon.refusals["hold"] = NOT_YOU
    bus.drop()

    with pytest.raises(NotYou):
        await asyncio.wait_for(task, LIMIT_S)
    assert not bus.is_connected
    assert bus.connections == 2


async def test_request_on_a_lost_connection_fails(stage: Stage) -> None:
    async with running(stage) as (bus, listener):
        await listener.held()
        stage.daemon.silent.add("typed")
        answer = bus.ask(TypedOp(text="x"))
        await stage.daemon.heard("typed")

        await stage.daemon.close()

        with pytest.raises(Disconnected):
            await answer
        await stage.daemon.open()
        await listener.held()


async def test_request_without_a_daemon_fails_at_once(stage: Stage) -> None:
    bus = HolderConnection(str(stage.home), HOLD, Listener().on_held, print)

    with pytest.raises(Disconnected, match="no connection"):
        await bus.ask(TypedOp(text="x"))


async def test_missing_daemon_is_started_unless_the_agent_has_ended(stage: Stage) -> None:
    asked: list[int] = []

    async def start() -> bool:
        asked.append(1)
        await stage.daemon.open()
        return True

    listener = Listener()
    bus = HolderConnection(str(stage.home), HOLD, listener.on_held, listener.pushes.put_nowait, start)
    await stage.daemon.close()
    task = asyncio.create_task(bus.run())
    await listener.held()
    assert (asked, bus.connections) == ([1], 1)

    bus.hurry()
    await stage.daemon.close()
    await asyncio.sleep(0)
    await stage.daemon.open()
    await listener.held()

    assert (asked, bus.connections) == ([1], 2)
    task.cancel()
    await asyncio.wait([task])


async def test_dropped_connection_is_opened_again(stage: Stage) -> None:
    async with running(stage) as (bus, listener):
        await listener.held()

        bus.drop()

        assert not bus.is_connected
        await listener.held()
        assert bus.is_connected


async def test_new_size_is_sent_with_the_next_connection(stage: Stage) -> None:
    async with running(stage) as (bus, listener):
        await listener.held()

        bus.resized(100, 30)
        bus.drop()
        await listener.held()

        assert (stage.daemon.last("hold")["cols"], stage.daemon.last("hold")["rows"]) == (100, 30)


async def test_session_is_sent_at_once_and_with_every_connection(stage: Stage) -> None:
    async with running(stage) as (bus, listener):
        await listener.held()

        bus.bind("ses_1")
        bus.bind("ses_1")
        await bus.ask(TypedOp(text="behind it"))
        bus.drop()
        await listener.held()

        report = [one for one in stage.daemon.said if one["op"] == "hold"]
        assert [one.get("session") for one in report] == [None, "ses_1", "ses_1"]
        assert (report[-1]["name"], report[-1].get("ticket")) == ("luna", None)


async def test_pushes_are_passed_to_the_listener(stage: Stage) -> None:
    async with running(stage) as (_, listener):
        await listener.held()

        stage.daemon.push("control", ask=3, verb="peek", lines=7)

        async with asyncio.timeout(LIMIT_S):
            line = await listener.pushes.get()
        assert (line.push, line.ask, line.verb, line.lines) == ("control", 3, "peek", 7)


async def test_later_refusal_is_retried(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.holder.connection._LONGEST_PAUSE_S", 0.0)
    async with running(stage) as (bus, listener):
        await listener.held()
        stage.daemon.refusals["hold"] = {
            "error": "not_you",
            "message": "no",
            "details": {"name": "a", "you": "b"},
        }
        bus.drop()
        await stage.daemon.heard("hold", count=3)

        stage.daemon.refusals.clear()

        await listener.held()


async def test_pauses_grow_while_the_daemon_refuses_what_follows_the_hold(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    enough = asyncio.Event()

    async def fail(held: Held) -> None:
        raise Unavailable("the disk is full")

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            enough.set()
            await asyncio.Event().wait()

    bus = HolderConnection(str(stage.home), HOLD, fail, lambda line: None)
    monkeypatch.setattr(bus, "_pause", pause)
    task = asyncio.create_task(bus.run())
    async with asyncio.timeout(LIMIT_S):
        await enough.wait()
    task.cancel()
    await asyncio.wait([task])

    assert pauses == sorted(set(pauses))
