"""Progress of a question about the past, as the daemon pushes it."""

import asyncio
from pathlib import Path

from tests.client.fake import FakeDaemon

from palaver.client.view_link import ViewLink
from palaver.protocol.views import AskRooms, RoomsPage


async def test_progress_belongs_to_its_question(fake: FakeDaemon, home: Path) -> None:
    link = ViewLink(str(home))
    found: list[int] = []
    first = asyncio.create_task(link.ask(AskRooms(at=9), RoomsPage, found.append))
    peer = await fake.accept()
    asked = await peer.next()
    second = asyncio.create_task(link.ask(AskRooms(at=8), RoomsPage))
    other = await peer.next()

    for seq in (3, 6):
        peer.say(push="past", req=asked["req"], at=9, seq=seq)
    peer.say(push="past", req=other["req"], at=8, seq=4)
    peer.answer(other, seq=8, rows=[])
    peer.answer(asked, seq=9, rows=[])
    peer.say(push="past", req=asked["req"], at=9, seq=9)

    assert [(await first).seq, (await second).seq] == [9, 8]
    assert found == [3, 6]
    await link.close()
