"""A follower of a log that changes during its reads; behaviour of every engine is in the contract suite."""

import asyncio
from contextlib import aclosing

from tests.limits import LIMIT_S
from tests.log.logs import begun, fold, put

from palaver.log.follow import HandlerSwitch, follow
from palaver.log.memory import MemoryLog
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query


async def first(log: MemoryLog, query: Query) -> Event:
    async with asyncio.timeout(LIMIT_S), aclosing(follow(log, query, after=0)) as batches:
        async for batch in batches:
            return batch[0]
    raise AssertionError("the follower came to an end")


async def test_event_that_arrives_during_a_read_is_not_missed() -> None:
    log = MemoryLog(apply=fold)
    await put(log, "pear")
    following = asyncio.ensure_future(first(log, Query(search="apple")))
    # The follower waits in a read, which will find nothing, when the event arrives.
    await begun()

    apple = await put(log, "apple")

    assert await following == apple


async def test_closed_follower_is_not_woken_again() -> None:
    log = MemoryLog(apply=fold)
    event = await put(log)

    assert await first(log, Query()) == event

    assert log._newest.handlers._table == {}


async def test_follower_is_woken_only_by_its_types() -> None:
    log = MemoryLog(apply=fold)
    following = asyncio.ensure_future(
        anext(follow(log, Query(types=("status",)), after=0, woken_by=("status",)))
    )
    await begun()
    await put(log)

    assert set(log._newest.handlers._table) == {"status"}
    meant = await put(log, type="status")

    assert await asyncio.wait_for(following, LIMIT_S) == [meant]


async def test_switched_handler_is_called_only_while_it_is_on() -> None:
    log = MemoryLog(apply=fold)
    heard: list[Event] = []
    switch = HandlerSwitch(log, heard.extend, ("message",))
    await put(log)

    for _ in range(2):
        switch.turn(is_on=True)
    meant = await put(log)
    for _ in range(2):
        switch.turn(is_on=False)
    await put(log)

    assert heard == [meant]


async def test_follower_skips_many_events_that_do_not_match() -> None:
    log = MemoryLog(apply=fold)
    await asyncio.gather(*(put(log, sender="luna") for _ in range(1200)))
    meant = await put(log, sender="nova")

    assert await first(log, Query(senders=("nova",))) == meant


class ArchivedMeanwhile(MemoryLog):
    """A log that is archived in the middle of a read."""

    async def read(self, query: Query) -> list[Event]:
        await self.archive(self.last() + 1)
        return await super().read(query)


async def test_event_archived_during_a_read_is_not_missed() -> None:
    log = ArchivedMeanwhile(apply=fold)
    apple = await put(log, "apple")
    query = Query(search="apple")

    async with asyncio.timeout(LIMIT_S), aclosing(follow(log, query, after=0, with_archives=True)) as batches:
        found = await anext(batches)

    assert found == [apple]


async def test_query_with_an_end_finishes_if_its_last_event_does_not_match() -> None:
    log = MemoryLog(apply=fold)
    meant = await put(log, sender="luna")
    other = await put(log, sender="nova")
    query = Query(senders=("luna",), before=other.seq + 1)

    async with asyncio.timeout(LIMIT_S), aclosing(follow(log, query, after=0)) as batches:
        found = [event async for batch in batches for event in batch]

    assert found == [meant]


async def test_query_with_an_end_finishes_although_nothing_matches() -> None:
    log = MemoryLog(apply=fold)
    last = await put(log, sender="nova")
    query = Query(senders=("luna",), before=last.seq + 1)

    async with asyncio.timeout(LIMIT_S), aclosing(follow(log, query, after=0)) as batches:
        found = [event async for batch in batches for event in batch]

    assert found == []
