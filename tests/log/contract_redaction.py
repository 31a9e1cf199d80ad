"""The contract suite of every log: texts that are removed permanently."""

from msgspec.structs import replace
from tests.log.logs import all_rows, draft, put, writes

from palaver.log.api import Log
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query


def scrub(event: Event) -> Event:
    return replace(event, payload={**event.payload, "text": "[redacted]"})


async def test_redacted_event_has_its_new_payload_everywhere(log: Log) -> None:
    first = await put(log, "hunter2")
    second = await put(log, "hello")
    before = all_rows(log)

    await log.redact([first.seq], scrub)

    assert log.event(first.seq) == scrub(first)
    assert log.find(first.id) == [scrub(first)]
    assert log.tail(0, 10) in (None, [scrub(first), second])
    assert await log.read(Query()) == [scrub(first), second]
    assert await log.read(Query(search="hunter2")) == []
    assert await log.read(Query(search="redacted")) == [scrub(first)]
    assert all_rows(log) == before


async def test_archived_event_is_redacted_in_its_file(log: Log) -> None:
    first, second, third = [await put(log, text) for text in ("hunter2", "hunter3", "hunter4")]
    await log.archive(third.seq)

    await log.redact([second.seq, third.seq], scrub)

    assert [log.recall(event.seq) for event in (first, second, third)] == [first, scrub(second), scrub(third)]
    assert await log.check_archives() == 2
    await log.rebuild()


async def test_rows_rebuilt_from_redacted_events_are_the_same(log: Log) -> None:
    events = [await put(log, f"hunter{number}") for number in range(6)]
    await log.archive(events[3].seq)
    await log.redact([event.seq for event in events[::2]], scrub)
    before = all_rows(log)

    await log.rebuild()

    assert all_rows(log) == before


async def test_repeat_finds_the_redacted_event(log: Log) -> None:
    made, other = draft("hunter2", id="own-id"), draft("hunter2", id="other-id")
    first = (await log.commit(None, writes(made), request_key=b"k" * 16)).event
    await put(log, "hello")
    assert first is not None
    await log.redact([first.seq], scrub)

    by_key = await log.commit(None, writes(other), request_key=b"k" * 16)
    by_id = await log.commit(None, writes(made))

    assert by_key.event == by_id.event == scrub(first)


async def test_redacting_twice_or_nothing_is_harmless(log: Log) -> None:
    first = await put(log, "hunter2")

    await log.redact([first.seq], scrub)
    await log.redact([first.seq], scrub)
    await log.redact([first.seq + 1000], scrub)

    assert log.event(first.seq) == scrub(first)


async def test_events_are_found_by_a_part_of_their_payload(log: Log) -> None:
    events = [await put(log, text) for text in ('say "hunter2" now', "hunter3", "nothing")]
    await log.archive(events[1].seq)

    assert (await log.find_containing(["hunter2", "hunter3"])).events == events[:2]
    assert (await log.find_containing(['\\"hunter2\\"'])).events == events[:1]
    assert (await log.find_containing(["elsewhere"])).events == []


async def test_mark_of_finished_redactions_is_stored_and_never_decreases(log: Log) -> None:
    assert log.redacted() == 0

    await log.mark_redacted(7)
    await log.mark_redacted(3)

    assert log.redacted() == 7


async def test_events_whose_removal_is_not_finished_are_kept(log: Log) -> None:
    assert list(log.unfinished_redactions()) == []

    await log.mark_redacted(7, [2, 5])
    await log.mark_redacted(8, [5])

    assert list(log.unfinished_redactions()) == [5]
    assert log.redacted() == 8


async def test_redacted_event_is_found_by_its_new_fields(log: Log) -> None:
    event = await put(log, "hunter2", delivered_to=["nova"], tool="Bash")
    later = await put(log, "hello", delivered_to=["nova"])
    await log.read(Query(search="hunter2"))  # a search indexes the events that it covers

    await log.redact([event.seq], lambda old: replace(old, payload={"text": "", "delivered_to": ["nova"]}))

    assert [one.seq for one in await log.read(Query(targets=("nova",)))] == [event.seq, later.seq]
    assert await log.read(Query(tools=("Bash",))) == []
