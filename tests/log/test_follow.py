"""A follower on a log that moves on while it reads; what holds for every engine is in the contract suite."""

import asyncio
from contextlib import aclosing

from tests.limits import LIMIT_S
from tests.log.logs import begun, fold, put

from palaver.log.follow import follow
from palaver.log.memory import MemoryLog
from palaver.model.envelope import Event
from palaver.model.query import Query


async def first(log: MemoryLog, query: Query) -> Event:
    async with asyncio.timeout(LIMIT_S), aclosing(follow(log, query, after=0)) as batches:
        async for batch in batches:
            return batch[0]
    raise AssertionError("the follower came to an end")


async def test_what_comes_while_a_follower_reads_is_not_missed() -> None:
    log = MemoryLog(apply=fold)
    await put(log, "pear")
    following = asyncio.ensure_future(first(log, Query(search="apple")))
    # The follower stands in its read, which will find nothing, when the apple comes.
    await begun()

    apple = await put(log, "apple")

    assert await following == apple


async def test_a_follower_that_is_closed_is_not_woken_again() -> None:
    log = MemoryLog(apply=fold)
    event = await put(log)

    assert await first(log, Query()) == event

    assert log._newest._hearers == {}


async def test_a_follower_passes_over_many_events_that_do_not_match() -> None:
    log = MemoryLog(apply=fold)
    await asyncio.gather(*(put(log, sender="luna") for _ in range(1200)))
    meant = await put(log, sender="nova")

    assert await first(log, Query(senders=("nova",))) == meant


class ArchivedMeanwhile(MemoryLog):
    """A log that is archived in the middle of a read."""

    async def read(self, query: Query) -> list[Event]:
        await self.archive(self.last() + 1)
        return await super().read(query)


async def test_what_is_archived_in_the_middle_of_a_read_is_not_missed() -> None:
    log = ArchivedMeanwhile(apply=fold)
    apple = await put(log, "apple")
    query = Query(search="apple")

    async with asyncio.timeout(LIMIT_S), aclosing(follow(log, query, after=0, with_archives=True)) as batches:
        found = await anext(batches)

    assert found == [apple]


async def test_a_query_with_an_end_is_over_there_although_nothing_at_its_end_matches() -> None:
    log = MemoryLog(apply=fold)
    meant = await put(log, sender="luna")
    other = await put(log, sender="nova")
    query = Query(senders=("luna",), before=other.seq + 1)

    async with asyncio.timeout(LIMIT_S), aclosing(follow(log, query, after=0)) as batches:
        found = [event async for batch in batches for event in batch]

    assert found == [meant]


async def test_a_query_with_an_end_is_over_there_although_nothing_matches_at_all() -> None:
    log = MemoryLog(apply=fold)
    last = await put(log, sender="nova")
    query = Query(senders=("luna",), before=last.seq + 1)

    async with asyncio.timeout(LIMIT_S), aclosing(follow(log, query, after=0)) as batches:
        found = [event async for batch in batches for event in batch]

    assert found == []
