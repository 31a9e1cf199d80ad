"""Mail with lost content: it is not delivered, its sender is notified, and it can be restored."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import HUMAN, Bus, open_sqlite, opened_bus, texts_of
from tests.limits import LIMIT_S

from palaver.errors import BadRequest, DiskFull
from palaver.log.records import LIMIT_ROW_BYTES
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState
from palaver.protocol.lanes import Ability, LaneKind
from palaver.protocol.requests import Redeliver, Release
from palaver.state.agents import read_unread

LARGE = "x" * (LIMIT_ROW_BYTES + 1)
HOOK = Ability(kind=LaneKind.HOOK, reaches_busy=True, wakes_idle=False, is_pulled=True)


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_sqlite, tmp_path) as made:
        yield made


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


async def send_and_lose(bus: Bus, blobs: Path) -> Event:
    """Send a message too large for a row, and remove its content."""
    event = await bus.send(HUMAN, LARGE, "@nova")
    blob = the_one_in(blobs)
    blob.rename(blobs.parent / blob.name)
    return event


def the_one_in(blobs: Path) -> Path:
    (blob,) = blobs.iterdir()
    return blob


async def held(bus: Bus, event: Event) -> str:
    """Wait until a message is held, and return the reason."""
    heard = asyncio.Event()
    unsubscribe = bus.log.subscribe(lambda events: heard.set())
    async with asyncio.timeout(LIMIT_S):
        while bus.state(event, "nova") != "held":
            await heard.wait()
            heard.clear()
    unsubscribe()
    entry = bus.entry(event, "nova")
    assert entry is not None
    return entry.reason


async def notice_texts(bus: Bus) -> list[str]:
    """Wait for notices to the human and return their texts."""
    reader = bus.delivery.take("human")
    async with asyncio.timeout(LIMIT_S):
        return texts_of(await reader.wait(9))


async def test_lost_message_is_held_and_its_sender_is_notified(bus: Bus, blobs: Path) -> None:
    await bus.join("nova")
    lost = await send_and_lose(bus, blobs)
    await bus.send(HUMAN, "whole", "@nova")
    reader = bus.delivery.take("nova")

    taken = texts_of(reader.poll(9))

    assert taken == ["whole"]
    assert await held(bus, lost) == "its content is lost"
    why = "its content is lost, its file in blobs/ is gone or changed. Send it again"
    assert await notice_texts(bus) == [f"#{lost.seq} is held for nova: {why}"]
    assert read_unread(bus.log.rows, "nova") == 1


async def test_changed_content_is_lost(bus: Bus, blobs: Path) -> None:
    await bus.join("nova")
    lost = await bus.send(HUMAN, LARGE, "@nova")
    blob = the_one_in(blobs)
    blob.write_bytes(blob.read_bytes().replace(b"xx", b"yy"))

    assert bus.texts("nova") == []
    assert await held(bus, lost) == "its content is lost"


async def test_lost_message_uses_no_lane_and_blocks_no_later_mail(bus: Bus, blobs: Path) -> None:
    await bus.join("nova")
    lost = await send_and_lose(bus, blobs)
    await bus.send(HUMAN, "whole", "@nova")

    lane = bus.open_lane("nova")

    assert await lane.next_texts() == ["whole"]
    assert bus.state(lost, "nova") == "held"


async def test_pulling_lane_does_not_get_a_lost_message(bus: Bus, blobs: Path) -> None:
    await bus.join("nova")
    lane = bus.delivery.open_lane("nova", HOOK, lambda offer: None)
    lost = await send_and_lose(bus, blobs)

    nothing = await bus.delivery.draw(lane, AgentState.ACTIVE)
    await bus.send(HUMAN, "whole", "@nova")
    offer = await bus.delivery.draw(lane, AgentState.ACTIVE)

    assert nothing is None
    assert bus.state(lost, "nova") == "held"
    assert offer is not None
    assert texts_of(offer.events) == ["whole"]


async def test_lost_message_that_was_answered_unread_stays_answered(bus: Bus, blobs: Path) -> None:
    nova = await bus.join("nova")
    lost = await send_and_lose(bus, blobs)
    await bus.send(nova, "yes", reply_to=str(lost.seq))

    assert bus.texts("nova") == []
    assert bus.asked == []
    assert bus.state(lost, "nova") == "answered"


async def test_failed_hold_of_a_lost_message_is_repeated_by_the_next_reader(bus: Bus, blobs: Path) -> None:
    await bus.join("nova")
    lost = await send_and_lose(bus, blobs)
    reader = bus.delivery.take("nova")
    bus.failure = DiskFull("there is no room")

    before = reader.poll(9)
    async with asyncio.timeout(LIMIT_S):
        await bus.has_failed.wait()
    bus.failure = None
    reader.close()

    assert before == []
    assert bus.texts("nova") == []
    assert await held(bus, lost) == "its content is lost"


async def test_person_releases_a_lost_message_after_its_file_is_restored(bus: Bus, blobs: Path) -> None:
    await bus.join("nova")
    lost = await send_and_lose(bus, blobs)
    bus.texts("nova")
    await held(bus, lost)

    with pytest.raises(BadRequest, match=f"the content of #{lost.seq} is lost: restore [0-9a-f]{{64}} in"):
        await bus.submit(HUMAN, Release(message=str(lost.seq)))
    with pytest.raises(BadRequest, match="is lost"):
        await bus.submit(HUMAN, Redeliver(message=str(lost.seq)))
    found = bus.log.event(lost.seq)
    assert found is not None
    blob = str(found.payload["missing_blob"])
    (blobs.parent / blob).rename(blobs / blob)
    await bus.submit(HUMAN, Release(message=str(lost.seq)))

    assert bus.texts("nova") == [lost.payload["text"]]
