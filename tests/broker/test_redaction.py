"""Removing a text on a person's order; on both engines."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import SYSTEM_CALLER, Redacted
from palaver.errors import BadRequest, NotAllowed, NotFound, NotPerson, StorageFailed
from palaver.log.api import Archived, Scrub
from palaver.log.archive import LIMIT_FOUND
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.query import Query
from palaver.protocol.requests import Archive, Redact, Send
from palaver.protocol.tasks import CreateTask
from palaver.state.references import read_tasks

BORROWED = Caller(name="human", standing=Standing.HUMAN, kind="human", by="nova")


async def redact(bus: Bus, seq: object, key: bytes | None = None) -> Redacted:
    done = await bus.broker.submit(HUMAN, Redact(event=str(seq), hash="scrypt$1"), key=key)
    assert isinstance(done, Redacted)
    return done


async def test_redaction_removes_the_text_and_records_the_person_and_the_event(bus: Bus) -> None:
    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None

    done = await redact(bus, sent.seq)

    assert done.event is not None
    assert done.event.payload == {"event": sent.seq, "id": sent.id, "of": "message", "hash": "scrypt$1"}
    assert done.event.sender == "human"
    found = bus.log.event(sent.seq)
    assert found is not None
    assert found.payload == {**sent.payload, "text": "[redacted]"}


async def test_same_redaction_again_writes_nothing(bus: Bus) -> None:
    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None
    first = await redact(bus, sent.seq, b"k" * 16)

    again = await redact(bus, sent.seq, b"k" * 16)

    # The event of the key counts, whatever the repeated request names.
    lost = await redact(bus, 9999, b"k" * 16)

    assert again.event == lost.event == first.event
    assert again.of.payload["text"] == lost.of.payload["text"] == "[redacted]"


async def test_other_events_with_the_same_text_are_named_and_kept(bus: Bus) -> None:
    luna = await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    quote = await bus.submit(luna, Send(text="he said hunter2", to=("human",)))
    short = await bus.submit(HUMAN, Send(text="ab", to=("luna",)))
    assert sent is not None
    assert quote is not None
    assert short is not None

    done = await redact(bus, sent.seq)

    assert [one.seq for one in done.quotes] == [quote.seq]
    assert bus.log.event(quote.seq) == quote
    assert (await redact(bus, short.seq)).quotes == ()


async def test_rows_that_contain_the_text_are_rebuilt(bus: Bus) -> None:
    luna = await bus.join("luna")
    made = await bus.submit(luna, CreateTask(title="hunter2"))
    assert made is not None

    await redact(bus, made.seq)

    (task,) = read_tasks(bus.log.rows, is_open=True, limit=10)
    assert task.title == "[redacted]"


async def test_stored_screens_and_quoting_notices_are_copies(bus: Bus) -> None:
    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None
    kept: list[tuple[str, dict[str, object]]] = [
        ("delivery", {"agent": "luna", "messages": [sent.seq], "state": "seen", "evidence": "hunter2"}),
        ("delivery", {"agent": "luna", "messages": [99], "state": "seen", "evidence": "other"}),
        ("message", {**sent.payload, "event": sent.seq, "sub": "s1"}),
        ("message", {**sent.payload, "text": "nothing", "event": sent.seq}),
    ]
    seqs: list[int] = []
    for type_, payload in kept:
        draft = Draft(type=type_, sender="x", payload=payload, id=f"id{len(seqs)}", ts=1)
        written = await bus.log.commit(None, lambda rows, draft=draft: draft)  # type: ignore[misc]  # bound here
        assert written.event is not None
        seqs.append(written.event.seq)

    done = await redact(bus, sent.seq)

    assert [copy.seq for copy in done.copies] == [seqs[0], seqs[2]]
    assert done.event is not None
    assert done.event.payload["copies"] == [seqs[0], seqs[2]]
    screen = bus.log.event(seqs[0])
    assert screen is not None
    assert screen.payload["evidence"] == "[redacted]"


async def test_copies_are_found_among_any_number_of_other_screens(bus: Bus) -> None:
    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None

    async def keep_screen(number: int, messages: list[int]) -> Event:
        payload: dict[str, object] = {"agent": "luna", "messages": messages, "evidence": "x", "state": "seen"}
        draft = Draft(type="delivery", sender="x", payload=payload, id=f"id{number}", ts=1)
        written = await bus.log.commit(None, lambda rows: draft)
        assert written.event is not None
        return written.event

    for begin in range(0, LIMIT_FOUND, 1000):
        await asyncio.gather(*(keep_screen(number, [999_999]) for number in range(begin, begin + 1000)))
    copies = [
        await keep_screen(LIMIT_FOUND + at, [sent.seq, 999_999][::step]) for at, step in ((0, 1), (1, -1))
    ]

    done = await redact(bus, sent.seq)

    assert [copy.seq for copy in done.copies] == [copy.seq for copy in copies]


async def test_only_the_human_in_person_redacts(bus: Bus) -> None:
    luna = await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None

    for asking in (luna, SCRIPT, SYSTEM_CALLER):
        with pytest.raises(NotAllowed):
            await bus.submit(asking, Redact(event=str(sent.seq), hash="h"))
    with pytest.raises(NotPerson):
        await bus.submit(BORROWED, Redact(event=str(sent.seq), hash="h"))


async def test_event_without_a_text_or_unknown_event_is_refused(bus: Bus) -> None:
    await bus.join("luna")

    with pytest.raises(BadRequest, match="no text"):
        await redact(bus, bus.log.last())
    with pytest.raises(NotFound):
        await redact(bus, 9999)


async def test_interrupted_redaction_is_finished_with_its_copies_and_files(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.join("luna")
    first = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    second = await bus.submit(HUMAN, Send(text="hunter3", to=("luna",)))
    assert first is not None
    assert second is not None
    with monkeypatch.context() as cut:
        cut.setattr(bus.log, "redact", _fail)
        for seq in (first.seq, second.seq):
            with pytest.raises(StorageFailed):
                await redact(bus, seq)
    forgotten: list[str] = []

    async def forget(ids: Sequence[str]) -> None:
        forgotten.extend(ids)

    await bus.broker.finish_redactions(forget)
    await bus.broker.finish_redactions(forget)

    assert forgotten == [first.id, second.id]
    for seq in (first.seq, second.seq):
        found = bus.log.event(seq)
        assert found is not None
        assert found.payload["text"] == "[redacted]"


async def test_interrupted_redaction_is_finished_before_its_record_is_archived(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None
    with monkeypatch.context() as cut:
        cut.setattr(bus.log, "redact", _fail)
        with pytest.raises(StorageFailed):
            await redact(bus, sent.seq)

    await bus.broker.submit(HUMAN, Archive(before=bus.log.last() + 1))

    found = bus.log.event(sent.seq)
    assert found is not None
    assert found.payload["text"] == "[redacted]"


async def test_redaction_waits_until_running_archiving_has_ended(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.join("luna")
    sent = await bus.send(HUMAN, "hunter2", "luna")
    order: list[str] = []
    redactions: list[asyncio.Task[Redacted]] = []
    archive, fetch = bus.log.archive, bus.log.fetch

    async def archive_while_redacting(before: int) -> Archived:
        redactions.append(asyncio.create_task(redact(bus, sent.seq)))
        await bus.send(HUMAN, "another", "luna")
        moved = await archive(before)
        order.append("archived")
        return moved

    async def fetch_for_redaction(seq: int) -> Event | None:
        order.append("redacting")
        return await fetch(seq)

    monkeypatch.setattr(bus.log, "archive", archive_while_redacting)
    monkeypatch.setattr(bus.log, "fetch", fetch_for_redaction)

    await bus.broker.submit(HUMAN, Archive(before=sent.seq + 1))
    (done,) = await asyncio.gather(*redactions)

    assert order[:2] == ["archived", "redacting"]
    assert done.unredacted == {}
    found = bus.log.recall(sent.seq)
    assert found is not None
    assert found.payload["text"] == "[redacted]"


async def _fail(seqs: Sequence[int], scrub: Scrub) -> int:
    raise StorageFailed("the disk is gone")


async def test_repeat_of_a_redacted_message_returns_it_without_its_text(bus: Bus) -> None:
    await bus.join("luna")
    order = Send(text="hunter2", to=("luna",), id="01K0ABCDEFGHJKMNPQRSTVWXYZ")
    sent = await bus.submit(HUMAN, order)
    assert sent is not None
    await redact(bus, sent.seq)

    again = await bus.submit(HUMAN, order)

    assert again == bus.log.event(sent.seq)
    assert again is not None
    assert again.payload["text"] == "[redacted]"


async def test_second_redaction_writes_nothing(bus: Bus) -> None:
    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None
    await redact(bus, sent.seq)
    last = bus.log.last()

    again = await redact(bus, sent.seq)

    assert (again.event, again.of.seq, bus.log.last()) == (None, sent.seq, last)


async def test_simultaneous_redactions_write_one_record_and_report_the_first(bus: Bus) -> None:
    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None

    done = await asyncio.gather(*(redact(bus, sent.seq, bytes([n]) * 16) for n in range(3)))

    records = await bus.log.read(Query(types=("redacted",)))
    assert [one.event for one in done] == [*records, None, None]
    assert all(one.of.seq == sent.seq and not one.unredacted for one in done)
    found = bus.log.event(sent.seq)
    assert found is not None
    assert found.payload["text"] == "[redacted]"


async def test_ordered_redaction_is_finished_without_a_second_record(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None
    with monkeypatch.context() as cut:
        cut.setattr(bus.log, "redact", _fail)
        with pytest.raises(StorageFailed):
            await redact(bus, sent.seq)
    last = bus.log.last()

    again = await redact(bus, sent.seq)

    assert (again.event, bus.log.last()) == (None, last)
    found = bus.log.event(sent.seq)
    assert found is not None
    assert found.payload["text"] == "[redacted]"


async def test_event_that_cannot_be_read_is_left_and_tried_again(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bus.join("luna")
    first = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    second = await bus.submit(HUMAN, Send(text="hunter3", to=("luna",)))
    assert first is not None
    assert second is not None
    fetch = bus.log.fetch

    async def fetch_some(seq: int) -> Event | None:
        if seq == first.seq:
            raise StorageFailed("the archive is gone")
        return await fetch(seq)

    with monkeypatch.context() as cut:
        cut.setattr(bus.log, "fetch", fetch_some)
        left = (await redact(bus, first.id)).unredacted
        other = await redact(bus, second.id)
        archived = await bus.broker.submit(HUMAN, Archive(before=bus.log.last() + 1))

    assert left == other.unredacted == {first.seq: "the archive is gone"}
    assert isinstance(archived, Archived)
    assert archived.unredacted == left
    assert bus.log.recall(first.seq) == first
    assert (await redact(bus, second.seq)).unredacted == {}
    found = bus.log.recall(first.seq)
    assert found is not None
    assert found.payload["text"] == "[redacted]"


async def test_state_that_cannot_be_rebuilt_is_tried_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> int:
        raise StorageFailed("the archive is gone")

    luna = await bus.join("luna")
    made = await bus.submit(luna, CreateTask(title="hunter2"))
    assert made is not None
    with monkeypatch.context() as cut:
        cut.setattr(bus.log, "rebuild", fail)
        left = (await redact(bus, made.seq)).unredacted

    assert left == {made.seq: "the state cannot be rebuilt without its text: the archive is gone"}
    assert (await redact(bus, made.seq)).unredacted == {}
    (task,) = read_tasks(bus.log.rows, is_open=True, limit=10)
    assert task.title == "[redacted]"


async def test_removal_of_an_event_that_was_lost_is_finished(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(seq: int) -> None:
        return None

    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None
    with monkeypatch.context() as cut:
        cut.setattr(bus.log, "fetch", lost)
        assert (await redact(bus, sent.id)).unredacted == {}
