"""Helpers for tests of terminal lanes."""

import asyncio

from tests.fakes import Bus, FakeLane, texts_of
from tests.limits import LIMIT_S

from palaver.protocol.envelope import Event
from palaver.protocol.lanes import LaneKind, LaneLevel, OfferOutcome
from palaver.protocol.query import Query
from palaver.protocol.requests import DIALOG

CLOSED = LaneLevel(is_open=False, reason="draft")
WITH_DIALOG = LaneLevel(is_open=False, reason=DIALOG)
OPEN = LaneLevel()


def lane_of(bus: Bus, level: LaneLevel | None = OPEN) -> FakeLane:
    return bus.open_lane("nova", LaneKind.TERMINAL, level)


async def take(bus: Bus, lane: FakeLane, answer: OfferOutcome = OfferOutcome.SEEN, **fields: str) -> str:
    offer = await lane.next()
    (text,) = texts_of(offer.events)
    await bus.delivery.answer(lane.lane, offer.number, answer, **fields)
    return text


async def becomes(bus: Bus, event: Event, state: str) -> None:
    """Wait until a message has a state for nova."""
    news = asyncio.Event()
    stop = bus.log.subscribe(lambda _: news.set())
    async with asyncio.timeout(LIMIT_S):
        while bus.state(event, "nova") != state:
            news.clear()
            await news.wait()
    stop()


async def notices(bus: Bus, name: str) -> list[str]:
    found = await bus.log.read(Query(types=("message",)))
    return [str(e.payload["text"]) for e in found if e.to == (name,) and e.sender == "[pal-events]"]
