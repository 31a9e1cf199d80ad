"""The contract suite of every log: subscribing, following, and closing."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from msgspec.structs import replace
from tests.limits import LIMIT_S
from tests.log.logs import begun, draft, put, writes

from palaver.errors import ShuttingDown
from palaver.log.api import LIMIT_NEWEST, Commit, Log
from palaver.log.follow import follow
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query


async def test_subscribers_are_called_before_the_commit_returns(log: Log) -> None:
    order: list[str] = []
    log.subscribe(lambda events: order.extend(f"heard {event.payload['text']}" for event in events))

    async def commit(text: str) -> None:
        await put(log, text)
        order.append(f"returned {text}")

    await asyncio.gather(*(commit(str(number)) for number in range(20)))

    for number in range(20):
        assert order.index(f"heard {number}") < order.index(f"returned {number}")
    assert len(order) == 40


async def test_each_event_is_published_once_and_in_seq_order(log: Log) -> None:
    heard: list[Event] = []
    log.subscribe(heard.extend)

    await asyncio.gather(*(put(log) for _ in range(100)), *(put(log, id="same") for _ in range(5)))

    assert heard == await log.read(Query())
    assert len(heard) == 101


async def test_published_event_can_be_read_at_once(log: Log) -> None:
    seen: list[bool] = []
    log.subscribe(lambda events: seen.extend(log.event(event.seq) == event for event in events))

    await asyncio.gather(*(put(log) for _ in range(10)))

    assert seen == [True] * 10


async def test_removed_subscriber_is_not_called_any_more(log: Log) -> None:
    heard: list[Event] = []
    stop = log.subscribe(heard.extend)
    first = await put(log)

    stop()
    stop()
    await put(log)

    assert heard == [first]


async def test_failing_subscriber_does_not_affect_the_others(log: Log) -> None:
    heard: list[Event] = []
    reports: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    def fail(events: Sequence[Event]) -> None:
        raise ZeroDivisionError

    log.subscribe(fail)
    log.subscribe(heard.extend)

    event = await put(log)

    assert heard == [event]
    assert isinstance(reports[0]["exception"], ZeroDivisionError)


async def test_tail_returns_the_newest_events_from_memory(log: Log) -> None:
    events = [await put(log) for _ in range(5)]

    assert log.tail(0, 100) == events
    assert log.tail(events[1].seq, 2) == events[2:4]
    assert log.tail(events[-1].seq, 100) == []


async def test_tail_reports_that_it_does_not_reach_back_far_enough(log: Log) -> None:
    commits = await asyncio.gather(*(put(log) for _ in range(LIMIT_NEWEST + 10)))

    assert log.tail(commits[8].seq, 1) is None
    assert log.tail(commits[9].seq, 1) == [commits[10]]


# Following


async def collect(log: Log, query: Query, *, after: int, number: int) -> list[Event]:
    found: list[Event] = []
    async with asyncio.timeout(LIMIT_S), aclosing(follow(log, query, after=after)) as batches:
        async for batch in batches:
            assert batch
            found.extend(batch)
            if len(found) >= number:
                break
    return found


async def test_follower_gets_existing_and_new_events(log: Log) -> None:
    old = [await put(log) for _ in range(3)]
    following = asyncio.ensure_future(collect(log, Query(), after=old[0].seq, number=4))
    await begun()

    new = [await put(log) for _ in range(2)]

    assert await following == old[1:] + new


@pytest.mark.parametrize("query", [Query(senders=("nova",)), Query(search="apple")], ids=["filter", "search"])
async def test_follower_gets_only_matching_events(log: Log, query: Query) -> None:
    following = asyncio.ensure_future(collect(log, query, after=0, number=2))

    events = [await put(log, text, sender=name) for text, name in (("x", "luna"), ("apple", "nova")) * 3]

    assert (await following)[:2] == [events[1], events[3]]


async def test_follower_far_back_continues_from_its_seq(log: Log) -> None:
    events = await asyncio.gather(*(put(log) for _ in range(LIMIT_NEWEST + 600)))

    found = await collect(log, Query(), after=events[10].seq, number=len(events) - 11)

    assert found == list(events[11:])


@pytest.mark.parametrize("search", ["", "apple"])
async def test_follower_with_an_end_finishes_there(log: Log, search: str) -> None:
    events = [await put(log, "apple") for _ in range(4)]

    query = Query(before=events[3].seq, search=search)
    batches = [batch async for batch in follow(log, query, after=events[0].seq)]

    assert [event for batch in batches for event in batch] == events[1:3]


async def test_followers_miss_nothing_during_many_writes(log: Log) -> None:
    followers = [asyncio.ensure_future(collect(log, Query(), after=0, number=200)) for _ in range(3)]

    await asyncio.gather(*(put(log) for _ in range(200)))

    everything = await log.read(Query())
    for follower in followers:
        assert await follower == everything


# Closing


async def test_closed_log_accepts_nothing(log: Log) -> None:
    await log.close()

    with pytest.raises(ShuttingDown):
        await put(log)
    with pytest.raises(ShuttingDown):
        await log.read(Query())
    with pytest.raises(ShuttingDown):
        await log.rebuild()


async def test_closing_twice_is_harmless(log: Log) -> None:
    await asyncio.gather(log.close(), log.close())

    await log.close()


async def test_commits_waiting_at_the_close_are_written_or_refused(log: Log) -> None:
    heard: list[Event] = []
    log.subscribe(heard.extend)
    commits = [asyncio.ensure_future(log.commit(None, writes(draft()))) for _ in range(500)]
    await begun()

    async with asyncio.timeout(LIMIT_S):
        await log.close()
        results = await asyncio.gather(*commits, return_exceptions=True)

    written = [result.event for result in results if isinstance(result, Commit)]
    refused = [result for result in results if isinstance(result, ShuttingDown)]
    assert len(written) + len(refused) == 500
    assert written == heard


async def test_imported_event_keeps_its_origin_and_calls_no_handler(log: Log) -> None:
    heard: list[Event] = []
    log.subscribe(heard.extend)
    old = replace(draft("old", type="claim", room="r1"), imported=7, device="MABU", delivered_to=("nova",))

    written = (await log.commit(None, writes(old))).event
    await put(log, "new")

    assert written is not None
    assert (written.imported, written.device) == (7, "MABU")
    assert [event.payload["text"] for event in heard] == ["new"]
    assert log.event(written.seq) == written


async def test_imported_event_is_returned_only_on_request(log: Log) -> None:
    old = replace(draft("old"), imported=7, device="MABU")
    await log.commit(None, writes(old))
    await put(log, "new")

    async def texts(*, with_imported: bool) -> list[object]:
        query = Query(with_imported=with_imported)
        found = [*await log.read(query), *(await log.read_archived(query)).events]
        return [event.payload["text"] for event in found]

    in_log = [await texts(with_imported=False), await texts(with_imported=True)]
    await log.archive(log.last() + 1)

    assert in_log == [["new"], ["old", "new"]]
    assert [await texts(with_imported=False), await texts(with_imported=True)] == in_log
