"""Messages that a client carries as lines: truncated ones, and ones that were never sent."""

import asyncio
from pathlib import Path

from tests.fakes import open_memory, opened_bus

from palaver.doors.cli.harness import Offers, give_back, remember_cut
from palaver.services.evidence import Conversation


async def test_only_truncated_messages_are_remembered(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus:
        luna, _ = await bus.join("luna"), await bus.join("nova")
        for text in ("one", "two"):
            await bus.send(luna, text, "@nova")
        offer = await bus.open_lane("nova").next()
        conversation = Conversation("nova", bus.open_lane("nova").lane, bus.delivery)

        remember_cut(conversation, offer, [("one", True), ("t", False)])
        remember_cut(None, offer, [("o", False), ("t", False)])

        assert conversation.cut == {offer.seqs[1]}


async def test_unsent_offer_is_queued_again_and_an_end_marker_is_ignored(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus:
        luna, _ = await bus.join("luna"), await bus.join("nova")
        lane, message = bus.open_lane("nova"), await bus.send(luna, "one", "@nova")
        offers: Offers = asyncio.Queue()
        offers.put_nowait(await lane.next())
        offers.put_nowait(None)

        await give_back(bus.delivery, lane.lane, offers, "it ended")

        assert offers.empty()
        assert lane.lane.offers == {}
        assert bus.state(message, "nova") in ("queued", "held")
