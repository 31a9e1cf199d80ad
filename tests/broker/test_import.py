"""Importing exported events: stored once, as history; on both engines."""

from collections.abc import Sequence

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import SYSTEM_CALLER, Imported
from palaver.errors import DiskFull, NotAllowed, NotPerson
from palaver.log.api import Commit, Order
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query
from palaver.protocol.requests import Archive, Import, Redact, Send
from palaver.state.agents import read_agents, read_unread
from palaver.state.references import read_thread

BORROWED = Caller(name="human", standing=Standing.HUMAN, kind="human", by="nova")


def exported(seq: int, type: str = "message", *, id: str = "", **payload: object) -> Event:
    """Return an event of another log."""
    return Event(
        type=type, id=id or f"OLD{seq}", sender="kira", ts=5, payload=payload, seq=seq, device="MABU", by="x"
    )


async def take(bus: Bus, *events: Event) -> Imported:
    done = await bus.broker.submit(HUMAN, Import(events=events))
    assert isinstance(done, Imported)
    return done


async def imported(bus: Bus) -> list[Event]:
    return [event for event in await bus.log.read(Query(with_imported=True)) if event.imported]


async def test_import_keeps_everything_but_the_number(bus: Bus) -> None:
    await bus.join("luna")

    done = await take(bus, exported(7, text="hello"), exported(9, "foreign", a=[1]))

    assert done == Imported(count=2, known=0)
    first, second = await imported(bus)
    assert (first.id, first.sender, first.ts, first.device, first.by) == ("OLD7", "kira", 5, "MABU", "x")
    assert (first.payload, first.imported) == ({"text": "hello"}, 7)
    assert (second.payload, second.imported, second.type) == ({"a": [1]}, 9, "foreign")


async def test_known_events_are_skipped_also_when_they_are_archived(bus: Bus) -> None:
    await take(bus, exported(7), exported(8))
    await bus.broker.submit(HUMAN, Archive(before=bus.log.last() + 1))

    done = await take(bus, exported(7), exported(8), exported(9), exported(9))

    assert done == Imported(count=1, known=3)


async def test_other_event_with_the_same_id_is_returned(bus: Bus) -> None:
    await take(bus, exported(7))

    done = await take(bus, exported(8, "foreign", id="OLD7"))

    assert (done.count, done.known) == (0, 0)
    assert [event.seq for event in done.different] == [8]


async def test_only_a_person_can_import(bus: Bus) -> None:
    for caller, refusal in ((SCRIPT, NotAllowed), (SYSTEM_CALLER, NotAllowed), (BORROWED, NotPerson)):
        with pytest.raises(refusal):
            await bus.broker.submit(caller, Import(events=(exported(7),)))

    assert await imported(bus) == []


async def test_imported_events_change_only_their_thread(bus: Bus) -> None:
    await bus.join("luna")
    agents = read_agents(bus.log.rows)
    hello = exported(3, "agent.hello", agent={"name": "kira"}, runtime="x", version="1")

    await take(bus, hello, exported(4, text="a", thread="pr-1", delivered_to=["luna"]), exported(5, "status"))

    assert read_agents(bus.log.rows) == agents
    assert read_unread(bus.log.rows, "luna") == 0
    thread = read_thread(bus.log.rows, "pr-1")
    assert thread is not None
    assert (thread.count, thread.names) == (1, ("kira",))
    assert bus.log.rows.scan("skipped", "") == []


async def test_imported_reply_answers_no_message_of_this_log(bus: Bus) -> None:
    luna = await bus.join("luna")
    asked = await bus.submit(luna, Send(text="well?", to=("luna",)))
    assert asked is not None

    await take(bus, exported(4, text="yes", reply_to=str(asked.seq)))

    assert read_unread(bus.log.rows, "luna") == 1


async def test_imported_removal_removes_no_text_of_this_log(bus: Bus) -> None:
    await bus.join("luna")
    sent = await bus.submit(HUMAN, Send(text="keep this", to=("luna",)))
    last = await bus.submit(HUMAN, Send(text="hunter2", to=("luna",)))
    assert sent is not None
    assert last is not None
    record = exported(4, "redacted", event=sent.seq, id="x", of="message", hash="scrypt$1")
    await take(bus, record)

    await bus.broker.submit(HUMAN, Redact(event=str(last.seq), hash="scrypt$1"))

    kept, removed = bus.log.event(sent.seq), bus.log.event(last.seq)
    assert kept is not None
    assert removed is not None
    assert (kept.payload["text"], removed.payload["text"]) == ("keep this", "[redacted]")


async def test_copies_of_an_imported_text_are_found_by_its_old_number(bus: Bus) -> None:
    await bus.join("luna")
    own = await bus.submit(HUMAN, Send(text="mine", to=("luna",)))
    assert own is not None
    old = exported(own.seq, text="hunter2")
    notice = exported(50, text="event: hunter2", sub="1", event=own.seq)
    screen = exported(51, "delivery", agent="luna", messages=[own.seq], state="seen", evidence="hunter2")
    await take(bus, old, notice, screen)
    stored, *_ = await imported(bus)

    await bus.broker.submit(HUMAN, Redact(event=str(stored.seq), hash="scrypt$1"))
    await bus.broker.submit(HUMAN, Redact(event=str(own.seq), hash="scrypt$1"))

    texts = [event.payload.get("text", event.payload.get("evidence")) for event in await imported(bus)]
    assert "hunter2" not in str(texts)


async def test_full_disk_ends_an_import_with_its_error(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(orders: Sequence[Order]) -> list[Commit | Exception]:
        return [DiskFull("no disk space") for _ in orders]

    monkeypatch.setattr(bus.log, "commit_all", fail)

    with pytest.raises(DiskFull):
        await take(bus, exported(7))
