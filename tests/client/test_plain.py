"""A connection without a name: results, refusals, losses, endings."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.bus import Bus
from tests.client.fake import FakeDaemon, FakePeer
from tests.limits import LIMIT_S

from palaver.client.connection import Plain
from palaver.client.values import fields_from_json
from palaver.errors import AlreadyRunning, Disconnected, RoomNotFound
from palaver.protocol.lines import EventsOp, RunnerOp, ToolOp, WhoamiOp

STATE = ToolOp(tool="get_room_state", arguments={"room_id": "shop"}, key="00" * 16)
WAIT = ToolOp(tool="wait_for_events", arguments={"room_id": "shop"}, key="11" * 16)


@pytest.fixture
async def plain(fake: FakeDaemon, home: Path) -> AsyncIterator[Plain]:
    async with Plain(str(home)) as opened:
        yield opened


async def test_results_match_their_requests_in_any_order(fake: FakeDaemon, plain: Plain) -> None:
    peer = await fake.accept()
    first, second = asyncio.ensure_future(plain.ask(WAIT)), asyncio.ensure_future(plain.ask(STATE))
    asked = [await peer.next(), await peer.next()]

    peer.answer(asked[1], room_id="shop")
    peer.say(push="event", req=99)  # No request has this number.
    peer.answer(asked[0], events=[])

    assert [one["tool"] for one in asked] == ["wait_for_events", "get_room_state"]
    assert fields_from_json(await second) == {"room_id": "shop"}
    assert fields_from_json(await first) == {"events": []}


async def test_refusal_is_raised_as_its_class_and_the_connection_stays(
    fake: FakeDaemon, plain: Plain
) -> None:
    peer = await fake.accept()
    asking = asyncio.ensure_future(plain.ask(STATE))
    peer.refuse(await peer.next(), "room_not_found", "no such room: shop", room="shop", nearest=[])

    with pytest.raises(RoomNotFound):
        await asking

    again = asyncio.ensure_future(plain.ask(WhoamiOp()))
    peer.answer(await peer.next(), name="human")
    assert fields_from_json(await again) == {"name": "human"}


async def test_unanswered_request_is_repeated_with_the_same_key_after_a_loss(
    fake: FakeDaemon, plain: Plain
) -> None:
    peer = await fake.accept()
    asking = [asyncio.ensure_future(plain.ask(request)) for request in (STATE, WAIT)]
    before = [(await peer.next())["key"] for _ in asking]

    peer.close()
    back = await fake.accept()
    again = [await back.next() for _ in asking]
    for one in again:
        back.answer(one, key=one["key"])

    assert sorted(one["key"] for one in again) == sorted(before)
    assert [fields_from_json(await one)["key"] for one in asking] == ["00" * 16, "11" * 16]


async def test_request_refused_by_a_stopping_daemon_goes_to_the_next_one(
    fake: FakeDaemon, plain: Plain
) -> None:
    peer = await fake.accept()
    asking = asyncio.ensure_future(plain.ask(WAIT))
    peer.refuse(await peer.next(), "shutting_down", "the bus is stopping; connect again")
    peer.close()

    back = await fake.accept()
    back.answer(await back.next(), events=[1])

    assert fields_from_json(await asking) == {"events": [1]}


async def test_one_reconnect_serves_all_waiting_requests(fake: FakeDaemon, plain: Plain) -> None:
    peer = await fake.accept()
    asking = [asyncio.ensure_future(plain.ask(STATE)) for _ in range(5)]
    for _ in asking:
        await peer.next()
    peer.close()

    back = await fake.accept()
    for _ in asking:
        back.answer(await back.next())

    await asyncio.gather(*asking)
    assert fake.is_idle


async def test_daemon_that_always_hangs_up_is_given_up(fake: FakeDaemon, plain: Plain) -> None:
    hanging_up = asyncio.ensure_future(hang_up(fake))

    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Disconnected):
            await plain.ask(STATE)

    hanging_up.cancel()


async def hang_up(fake: FakeDaemon) -> None:
    while True:
        peer: FakePeer = await fake.accept()
        peer.close()


async def test_foreign_listener_is_reported(fake: FakeDaemon, plain: Plain) -> None:
    async def babble() -> None:
        while True:
            (await fake.accept()).say_raw(b"220 mail ready\r\n")

    babbling = asyncio.ensure_future(babble())

    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Disconnected, match="not a Palaver daemon"):
            await plain.ask(STATE)

    babbling.cancel()


async def test_cancelled_request_disturbs_no_other(fake: FakeDaemon, plain: Plain) -> None:
    peer = await fake.accept()
    given_up, other = asyncio.ensure_future(plain.ask(WAIT)), asyncio.ensure_future(plain.ask(STATE))
    asked = [await peer.next(), await peer.next()]

    given_up.cancel()
    for one in asked:
        peer.answer(one, ok=True)

    assert fields_from_json(await other) == {"ok": True}
    assert given_up.cancelled()


async def test_nothing_can_be_requested_after_the_end(fake: FakeDaemon, home: Path) -> None:
    async with Plain(str(home)) as plain:
        await fake.accept()
        waiting = asyncio.ensure_future(plain.ask(WAIT))
        await asyncio.sleep(0)

    for asking in (waiting, plain.ask(STATE)):
        with pytest.raises(Disconnected, match="closed"):
            await asking


async def test_missing_bus_is_reported(home: Path) -> None:
    (home / "down").touch()

    with pytest.raises(Disconnected, match="pal up"):
        async with Plain(str(home)):
            raise AssertionError("there is no bus")


async def test_wait_continues_across_crashes_of_a_real_daemon(bus: Bus) -> None:
    async with bus.connect("luna") as luna, Plain(str(bus.home)) as plain:
        folder = bus.home / "work"
        folder.mkdir()
        room = str((await luna.call("join_path", context_path=str(folder)))["room_id"])
        arguments: dict[str, object] = {
            "room_id": room,
            "target_agent_id": "any",
            "event_type": "message_sent",
            "after_event_seq": 0,
        }
        request = ToolOp(tool="wait_for_events", arguments=arguments, key="22" * 16)
        waiting = asyncio.ensure_future(plain.ask(request))
        await plain.ask(
            EventsOp(last=1)
        )  # Sent after the wait on the same connection, so the wait has begun.

        bus.kill()
        await luna.call("send_message", room_id=room, body="after the crash")

        async with asyncio.timeout(LIMIT_S):
            found: dict[str, Any] = fields_from_json(await waiting)
        (event,) = found["events"]
        assert event["payload"]["body"] == "after the crash"


async def test_every_connection_begins_with_the_greeting(fake: FakeDaemon, home: Path) -> None:
    ticket = "t"

    def greeting() -> RunnerOp:
        return RunnerOp(secret="s", ticket=ticket)

    opened = Plain(str(home), greeting)
    opening = asyncio.ensure_future(opened.__aenter__())
    peer = await fake.accept()
    peer.answer(first := await peer.next())
    await opening
    asking = asyncio.ensure_future(opened.ask(WAIT))
    await peer.next()
    ticket = ""
    peer.close()
    back = await fake.accept()
    back.answer(second := await back.next())
    back.answer(await back.next(), key="again")

    assert [(one["op"], one.get("ticket", "")) for one in (first, second)] == [
        ("runner", "t"),
        ("runner", ""),
    ]
    assert fields_from_json(await asking) == {"key": "again"}
    await opened.__aexit__(None, None, None)


async def test_refused_greeting_is_raised_and_tried_again(fake: FakeDaemon, home: Path) -> None:
    opened = Plain(str(home), lambda: RunnerOp(secret="s"))
    opening = asyncio.ensure_future(opened.__aenter__())
    peer = await fake.accept()
    peer.refuse(await peer.next(), "already_running", "a runner is already running (pid 7)", pid=7)
    with pytest.raises(AlreadyRunning):
        await opening

    asking = asyncio.ensure_future(opened.ask(WhoamiOp()))
    back = await fake.accept()
    back.answer(await back.next())
    back.answer(await back.next(), name="human")

    assert fields_from_json(await asking) == {"name": "human"}
    await opened.__aexit__(None, None, None)


async def test_request_for_one_connection_is_not_repeated(fake: FakeDaemon, plain: Plain) -> None:
    peer = await fake.accept()
    asking = asyncio.ensure_future(plain.ask_here(STATE))
    await peer.next()
    peer.close()
    with pytest.raises(Disconnected):
        await asking

    with pytest.raises(Disconnected):
        await plain.ask_here(STATE)
