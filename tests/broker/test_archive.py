"""Events that leave the log, on both engines."""

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.errors import NotAllowed
from palaver.log.api import Archived
from palaver.protocol.query import Query
from palaver.protocol.requests import Archive, SetStatus


async def test_operator_archives_the_events_before_a_seq(bus: Bus) -> None:
    boss = await bus.join("boss", role="operator")
    event = await bus.submit(boss, SetStatus(state="active"))
    assert event is not None

    moved = await bus.broker.submit(boss, Archive(before=event.seq), key=b"k" * 16)
    again = await bus.broker.submit(boss, Archive(before=event.seq), key=b"k" * 16)

    assert isinstance(moved, Archived)
    assert moved.last == bus.log.archived() < event.seq
    assert isinstance(again, Archived)
    assert again.count == 0
    assert (await bus.log.read(Query(limit=1)))[0].seq == event.seq


async def test_callers_below_an_operator_cannot_archive(bus: Bus) -> None:
    luna = await bus.join("luna")

    for asking in (luna, SCRIPT):
        with pytest.raises(NotAllowed, match="archive"):
            await bus.broker.submit(asking, Archive(before=1000))

    assert bus.log.archived() == 0
    assert isinstance(await bus.broker.submit(HUMAN, Archive(before=1000)), Archived)
