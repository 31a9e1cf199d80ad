"""The log in memory is the strict one: it provides no more than the contract guarantees."""

import asyncio

import pytest
from tests.log.logs import draft, fold, put, writes

from palaver.errors import BadQuery, ShuttingDown
from palaver.log.api import Commit
from palaver.log.memory import MemoryLog
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.query import Query
from palaver.state.rows import Rows


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(apply=fold)


async def test_seqs_have_gaps(log: MemoryLog) -> None:
    events = [await put(log) for _ in range(5)]

    assert [event.seq for event in events] == [1, 4, 6, 13, 14]


async def test_every_decision_is_made_twice(log: MemoryLog) -> None:
    calls: list[Rows] = []

    def decide(rows: Rows) -> Draft:
        calls.append(rows)
        return draft()

    await log.commit(None, decide)

    assert len(calls) == 2
    assert len(await log.read(Query())) == 1


async def test_conflict_on_a_key_decides_again_with_the_new_rows(log: MemoryLog) -> None:
    counts: list[bytes | None] = []

    def decide(rows: Rows) -> Draft:
        counts.append(rows.get("count", "message"))
        return draft()

    await asyncio.gather(log.commit("agent/luna", decide), log.commit("agent/luna", decide))

    assert counts == [None, None, None, None, b"1", b"1"]


async def test_different_key_is_not_a_conflict(log: MemoryLog) -> None:
    calls: list[Rows] = []

    def decide(rows: Rows) -> Draft:
        calls.append(rows)
        return draft()

    await asyncio.gather(
        log.commit("agent/luna", decide), log.commit("agent/nova", decide), log.commit(None, decide)
    )

    assert len(calls) == 6


async def test_event_is_visible_only_when_its_commit_returns(log: MemoryLog) -> None:
    seen: list[int] = []

    async def look() -> None:
        seen.append(log.last())

    commit = asyncio.ensure_future(log.commit(None, writes(draft())))
    await asyncio.gather(look(), look())
    event = (await commit).event

    assert event is not None
    assert seen == [0, 0]
    assert log.last() == event.seq


async def test_payload_is_not_shared_with_the_log(log: MemoryLog) -> None:
    made = draft(names=["luna"])
    event = (await log.commit(None, writes(made))).event
    assert event is not None

    made.payload["names"] = "changed"

    assert log.event(event.seq) == event
    assert event.payload["names"] == ["luna"]


async def test_request_key_that_wins_in_between_is_a_repeat(log: MemoryLog) -> None:
    first, second = await asyncio.gather(
        log.commit(None, writes(draft("one")), request_key=b"k"),
        log.commit(None, writes(draft("two")), request_key=b"k"),
    )

    assert second == Commit(first.event, is_repeat=True)


async def test_log_that_closes_in_between_writes_nothing(log: MemoryLog) -> None:
    heard: list[Event] = []
    log.subscribe(heard.extend)
    commit = asyncio.ensure_future(put(log))
    await asyncio.sleep(0)  # the commit has begun and not written: one loop iteration, without delay

    await log.close()

    with pytest.raises(ShuttingDown):
        await commit
    assert heard == []


async def test_memory_log_has_no_sql(log: MemoryLog) -> None:
    with pytest.raises(BadQuery, match="not support SQL"):
        await log.read(Query(sql="1"))
