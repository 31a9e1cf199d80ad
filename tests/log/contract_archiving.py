"""The contract suite of every log: events that move to an archive, and what stays."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.limits import LIMIT_S
from tests.log.logs import Engine, all_rows, draft, opened, put, writes

from palaver.errors import BadQuery, ShuttingDown
from palaver.log.api import Archived, Log
from palaver.log.follow import follow, pages, seq_before_newest
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query


async def put_many(log: Log, count: int) -> list[Event]:
    return [await put(log, f"number {number}") for number in range(count)]


async def everything(log: Log, query: Query, *, with_archives: bool = True) -> list[Event]:
    return [event async for page in pages(log, query, with_archives=with_archives) for event in page]


async def test_archived_events_leave_the_log(log: Log) -> None:
    events = await put_many(log, 6)

    moved = await log.archive(events[4].seq)

    assert (moved.count, moved.last) == (4, events[3].seq)
    assert log.archived() == events[3].seq
    assert await log.read(Query()) == events[4:]


async def test_archived_events_are_not_found_by_their_recipients(log: Log) -> None:
    first, second, third = [await put(log, delivered_to=["nova"]) for _ in range(3)]
    await log.read(Query(search="hello"))  # a search indexes the events that it covers

    await log.archive(second.seq)

    assert first.seq < second.seq
    assert await log.read(Query(targets=("nova",))) == [second, third]


async def test_archived_event_is_found_by_its_seq_or_id_or_the_end_of_its_id(log: Log) -> None:
    events = await put_many(log, 6)

    await log.archive(events[4].seq)

    for event in events:
        assert log.event(event.seq) == event
        assert log.find(event.id) == [event]
        assert log.find(event.id[-12:].lower()) == [event]
    assert log.event(events[-1].seq + 1) is None
    assert log.find("nowhere") == []


async def test_ends_of_ids_are_found_in_log_and_archive_newest_first(log: Log) -> None:
    events = [await put(log, id=f"{letter}-same-end") for letter in "abcdefg"]

    await log.archive(events[4].seq)

    assert log.find("same-end") == events[:1:-1]


async def test_time_of_the_sender_is_kept_in_log_and_archive(log: Log) -> None:
    events = [await put(log, sent_ts=time) for time in (None, 0, -5, 2**62)]

    await log.archive(events[2].seq)

    assert [event.sent_ts for event in events] == [None, 0, -5, 2**62]
    assert [log.recall(event.seq) for event in events] == events


async def test_rows_stay_unchanged_when_events_are_archived(log: Log) -> None:
    events = await put_many(log, 4)
    await put(log, type="claim", room="attic")
    before = all_rows(log)

    await log.archive(log.last() + 1)

    assert all_rows(log) == before
    assert log.rows.get("mail", f"nova/{events[0].seq:012d}") is not None


async def test_seq_is_not_reused_after_archiving(log: Log) -> None:
    events = await put_many(log, 3)

    await log.archive(log.last() + 1)

    assert log.last() == events[-1].seq
    assert (await put(log)).seq > events[-1].seq


async def test_sender_and_id_are_recognised_in_the_archive(log: Log) -> None:
    first = await put(log, "first", id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    await put(log)
    await log.archive(log.last() + 1)

    again = await log.commit(None, writes(draft("again", id=first.id)))
    other = await log.commit(None, writes(draft("other", sender="kira", id=first.id)))

    assert (again.event, again.is_repeat) == (first, True)
    assert other.event is not None
    assert not other.is_repeat
    assert log.find(first.id) == [other.event, first]


async def test_repeated_request_is_recognised_in_the_archive(log: Log) -> None:
    first = await log.commit(None, writes(draft("first")), request_key=b"k" * 16)
    await put(log)
    await log.archive(log.last() + 1)

    again = await log.commit(None, writes(draft("again")), request_key=b"k" * 16)
    other = await log.commit(None, writes(draft("other")), request_key=b"o" * 16)

    assert (again.event, again.is_repeat) == (first.event, True)
    assert not other.is_repeat


async def test_small_contents_are_not_stored_as_blobs(log: Log) -> None:
    await put_many(log, 3)

    found = await log.check_blobs()

    assert (found.count, list(found.lost)) == (0, [])


async def test_check_of_archives_counts_their_events(log: Log) -> None:
    events = await put_many(log, 6)

    assert await log.check_archives() == 0
    await log.archive(events[4].seq)

    assert await log.check_archives() == 4
    assert [log.recall(event.seq) for event in events] == events
    assert log.recall(events[-1].seq + 1) is None
    assert [await log.fetch(event.seq) for event in events] == events
    assert await log.fetch(events[-1].seq + 1) is None


async def test_largest_id_is_known_after_it_was_archived(log: Log) -> None:
    largest = "7ARZ3NDEKTSV4RRFFQ69G5FAV0"
    await put(log, id=largest)
    await put(log)

    await log.archive(log.last() + 1)

    assert log.largest_id() == largest
    assert (await put(log)).id < log.largest_id()


async def test_archiving_again_continues_where_it_ended(log: Log) -> None:
    events = await put_many(log, 6)
    await log.archive(events[2].seq)

    nothing = await log.archive(events[1].seq)
    more = await log.archive(events[5].seq)

    assert nothing == Archived(0, events[1].seq)
    assert (more.count, more.last) == (3, events[4].seq)
    assert [log.event(event.seq) for event in events] == events


async def test_empty_log_has_nothing_to_archive(log: Log) -> None:
    assert await log.archive(100) == Archived(0, 0)

    assert log.archived() == 0
    assert await everything(log, Query()) == []


async def test_rebuild_reads_archives_and_then_the_log(log: Log) -> None:
    events = await put_many(log, 4)
    await put(log, type="claim", room="attic")
    await put(log, type="release", room="attic")
    grown = all_rows(log)
    await log.archive(events[3].seq)

    count = await log.rebuild()

    assert count == 6
    assert all_rows(log) == grown


async def test_pages_contain_the_archive_and_then_the_log(log: Log) -> None:
    events = await put_many(log, 9)
    await log.archive(events[5].seq)

    assert await everything(log, Query(limit=2)) == events
    assert await everything(log, Query(limit=2, after=events[1].seq, before=events[7].seq)) == events[2:7]
    assert await everything(log, Query(before=events[3].seq)) == events[:3]
    assert await everything(log, Query(search='"number 3"')) == [events[3]]
    assert await everything(log, Query(search='"number 8"', senders=("luna",))) == [events[8]]
    assert await everything(log, Query(senders=("kira",))) == []
    assert await everything(log, Query(), with_archives=False) == events[5:]


async def test_pages_lose_nothing_that_is_archived_during_the_read(log: Log) -> None:
    events = await put_many(log, 12)

    found: list[Event] = []
    async for page in pages(log, Query(limit=3)):
        found += page
        await log.archive(events[len(found) // 2 + 5].seq)

    assert found == events


async def test_read_during_archiving_is_repeated_from_the_archive(log: Log) -> None:
    events = await put_many(log, 12)

    found, _ = await asyncio.gather(everything(log, Query(limit=5)), log.archive(events[9].seq))

    assert found == events


async def test_archive_supports_neither_sql_nor_an_empty_search(log: Log) -> None:
    await put_many(log, 2)
    await log.archive(log.last() + 1)

    with pytest.raises(BadQuery, match="SQL"):
        await log.read_archived(Query(sql="1"))
    with pytest.raises(BadQuery, match="no word"):
        await log.read_archived(Query(search="?"))


async def test_closed_log_archives_nothing(log: Log) -> None:
    await put_many(log, 2)
    await log.close()

    with pytest.raises(ShuttingDown):
        await log.archive(2)


async def test_commits_continue_while_events_are_archived(log: Log) -> None:
    events = await put_many(log, 30)

    archiving = asyncio.ensure_future(log.archive(events[20].seq))
    more = await asyncio.gather(*(put(log) for _ in range(30)))
    moved = await archiving

    assert moved.count == 20
    assert await everything(log, Query()) == [*events, *sorted(more, key=lambda event: event.seq)]


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.sampled_from(["message", "claim", "release", "purge", "odd"])),
            st.tuples(st.just("archive"), st.integers(0, 60)),
        ),
        max_size=30,
    )
)
async def test_log_with_archived_events_reads_the_same(
    engine: Engine, steps: list[tuple[str, object]]
) -> None:
    async with opened(engine) as log:
        events: list[Event] = []
        for step, value in steps:
            if step == "put":
                events.append(await put(log, type=value, room="attic"))
            else:
                assert isinstance(value, int)
                await log.archive(value)
        grown = all_rows(log)

        assert await everything(log, Query(limit=2)) == events
        assert [log.event(event.seq) for event in events] == events
        assert await log.rebuild() == len(events)
        assert all_rows(log) == grown


async def test_follower_with_archives_gets_events_archived_before_and_meanwhile(log: Log) -> None:
    events = await put_many(log, 6)
    await log.archive(events[2].seq)
    seen: list[Event] = []

    async with aclosing(follow(log, Query(), after=0, with_archives=True)) as batches:
        async with asyncio.timeout(LIMIT_S):
            seen += await anext(batches)
            await log.archive(events[4].seq)
            last = await put(log)
            while seen[-1] != last:
                seen += await anext(batches)

    assert seen == [*events, last]


async def test_follower_that_reads_during_archiving_misses_nothing(engine: Engine) -> None:
    async with opened(engine) as log:
        events = await put_many(log, 8)
        seen: list[Event] = []

        async def follow_all() -> None:
            async with aclosing(follow(log, Query(), after=0, with_archives=True)) as batches:
                while not seen or seen[-1].seq < events[-1].seq:
                    seen.extend(await anext(batches))

        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(follow_all())
            tasks.create_task(log.archive(events[5].seq))

        assert seen == events


async def test_newest_events_come_after_the_seq_found_for_them(log: Log) -> None:
    events = await put_many(log, 7)
    query = Query(limit=2)

    assert await seq_before_newest(log, query, 0) == events[-1].seq
    assert await seq_before_newest(log, query, 5) == events[2].seq - 1
    assert await seq_before_newest(log, query, 100) <= events[0].seq - 1
    assert events[4].seq <= await seq_before_newest(log, Query(after=events[4].seq), 5) < events[5].seq
    assert await seq_before_newest(log, Query(before=events[3].seq), 2) == events[1].seq - 1


# Messages of one place, archived or not


async def put_in_channels(log: Log) -> list[Event]:
    """Store messages in two channels by turns, and events that are in none."""
    found = []
    for number in range(12):
        channel = "#dev" if number % 2 else "#ops"
        found.append(await put(log, f"{number}", to=(f"irc/local/{channel}",)))
        await put(log, type="status", to=(), state="idle")
    return found


@pytest.mark.parametrize("archived", [0, 5, 12])
async def test_messages_of_a_channel_are_found_in_log_and_archive(log: Log, archived: int) -> None:
    events = await put_in_channels(log)
    in_dev = events[1::2]
    if archived:
        await log.archive(events[archived - 1].seq + 1)

    shown = Query(shown=("#dev",))

    assert await log.read_shown(shown) == in_dev
    assert await log.read_shown(replace(shown, last=2)) == in_dev[-2:]
    assert await log.read_shown(replace(shown, limit=2)) == in_dev[:2]
    assert await log.read_shown(replace(shown, last=2, before=in_dev[3].seq)) == in_dev[1:3]
    assert await log.read_shown(replace(shown, limit=2, after=in_dev[3].seq)) == in_dev[4:]
    assert await log.read_shown(replace(shown, after=in_dev[1].seq, before=in_dev[4].seq)) == in_dev[2:4]
    assert await log.read_shown(replace(shown, last=0)) == []
    assert await log.read_shown(Query(shown=("#none",))) == []


async def test_closed_log_shows_no_channel(log: Log) -> None:
    events = await put_in_channels(log)
    await log.archive(events[5].seq)
    await log.close()

    with pytest.raises(ShuttingDown):
        await log.read_shown(Query(shown=("#dev",)))
