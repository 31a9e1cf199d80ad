"""Following events: the cursor, the limit of waiting events, refusals, and endings."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.client.fake import FakeDaemon, FakePeer

from palaver.client.connection import LIMIT_WAITING, Follower
from palaver.errors import BadQuery
from palaver.protocol.envelope import Event
from palaver.protocol.lines import EventsOp

FROM_THE_START = EventsOp(types=("message",), follow=True)


def push(peer: FakePeer, seq: int, text: str = "") -> None:
    event = {"v": 1, "type": "message", "id": f"{seq}", "from": "nova", "seq": seq, "device": "BOXE"}
    peer.say(push="event", req=1, event={**event, "payload": {"text": text}})


async def begun(fake: FakeDaemon) -> tuple[FakePeer, int]:
    """Accept a follower; return its connection and its start seq."""
    peer = await fake.accept()
    asked = await peer.next()
    assert (asked["op"], asked["follow"], asked["types"]) == ("events", True, ["message"])
    peer.answer(asked, following=asked["req"])
    return peer, asked.get("after", 0)


async def test_lost_follower_continues_after_the_last_event_it_returned(fake: FakeDaemon, home: Path) -> None:
    events = Follower(str(home), FROM_THE_START).events()
    first = asyncio.ensure_future(anext(events))
    peer, start = await begun(fake)
    push(peer, 3)
    push(peer, 4)
    peer.close()

    given = [(await first).seq, (await anext(events)).seq]
    third = asyncio.ensure_future(anext(events))
    back, again = await begun(fake)
    push(back, 9)

    assert [*given, (await third).seq] == [3, 4, 9]
    assert (start, again) == (0, 4)
    await events.aclose()


async def test_slow_reader_leaves_the_rest_with_the_daemon_and_misses_nothing(
    fake: FakeDaemon, home: Path
) -> None:
    text = "x" * 10_000
    async with aclosing(Follower(str(home), FROM_THE_START).events()) as events:
        first = asyncio.ensure_future(anext(events))
        peer, _ = await begun(fake)
        for seq in range(1, LIMIT_WAITING + 1001):
            push(peer, seq, text)
        await peer.drained(left_bytes=990 * len(text))
        left_bytes = peer.unsent_bytes

        given = [await first, *[await anext(events) for _ in range(LIMIT_WAITING + 999)]]

    assert left_bytes > 900 * len(text)
    assert [event.seq for event in given] == list(range(1, LIMIT_WAITING + 1001))


async def test_refusal_is_raised_as_its_class(fake: FakeDaemon, home: Path) -> None:
    events = Follower(str(home), FROM_THE_START).events()
    first = asyncio.ensure_future(anext(events))
    peer = await fake.accept()

    peer.refuse(await peer.next(), "bad_query", "that cannot be followed")

    with pytest.raises(BadQuery, match="cannot be followed"):
        await first


async def test_connection_is_closed_when_reading_stops(fake: FakeDaemon, home: Path) -> None:
    async def read_one() -> Event | None:
        async with aclosing(Follower(str(home), FROM_THE_START).events()) as events:
            async for event in events:
                return event
        return None

    reading = asyncio.ensure_future(read_one())
    peer, _ = await begun(fake)

    push(peer, 1)

    assert (await reading) is not None
    assert await peer.at_end() == b""


async def test_closing_ends_a_waiting_reader(fake: FakeDaemon, home: Path) -> None:
    follower = Follower(str(home), FROM_THE_START)
    reading = asyncio.ensure_future(anext(follower.events(), None))
    peer, _ = await begun(fake)

    follower.close()

    assert await reading is None
    assert await peer.at_end() == b""


async def test_unreadable_event_is_skipped_and_counted(fake: FakeDaemon, home: Path) -> None:
    skipped: list[None] = []
    async with aclosing(Follower(str(home), FROM_THE_START, lambda: skipped.append(None)).events()) as events:
        first = asyncio.ensure_future(anext(events))
        peer, _ = await begun(fake)
        event = {"v": 1, "type": "message", "id": "7", "from": "", "seq": 7, "device": "BOXE"}
        peer.say(push="event", req=1, event=event)
        peer.say(push="event", req=1, event={"seq": "seven"})
        push(peer, 8)
        peer.say(push="event", req=1, event={**event, "seq": 9})
        given = await first
        peer.close()
        second = asyncio.ensure_future(anext(events))
        back, again = await begun(fake)
        push(back, 10)

        assert [given.seq, (await second).seq] == [8, 10]
        assert again in (8, 9)
        assert len(skipped) == 3


async def test_follower_waits_longer_after_each_empty_connection(
    fake: FakeDaemon, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def no_pause(follower: Follower, pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr(Follower, "_pause", no_pause)
    async with aclosing(Follower(str(home), FROM_THE_START).events()) as events:
        first = asyncio.ensure_future(anext(events))
        for _ in range(9):
            peer, _ = await begun(fake)
            peer.close()
        peer, _ = await begun(fake)
        push(peer, 1)
        await first

    assert pauses == [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]


async def test_closing_ends_a_pause(fake: FakeDaemon, home: Path) -> None:
    follower = Follower(str(home), FROM_THE_START)
    reading = asyncio.ensure_future(anext(follower.events(), None))
    for _ in range(4):
        peer, _ = await begun(fake)
        peer.close()

    follower.close()

    assert await reading is None
