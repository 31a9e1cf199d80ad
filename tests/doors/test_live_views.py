"""Views that stay open: no gap, no repeat, little cost. Time is handed in."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.doors.view_stage import (
    EPOCH,
    Model,
    ViewParts,
    decode,
    opened_views,
    settle,
    take,
    take_in_time,
    take_until,
)
from tests.fakes import HUMAN, OpenLog, open_memory, open_sqlite
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import StorageFailed
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState, OpenPermission
from palaver.protocol.lanes import Ability, LaneKind, LaneLevel
from palaver.protocol.query import Query
from palaver.protocol.requests import Claim, JoinRoom, Redact, SetStatus
from palaver.protocol.views import AgentPage, AskAgent, Changes, Snapshot
from palaver.services.view_hub import FLOOD_A_SECOND, LIMIT_WAITING_BYTES, MOST_A_SECOND
from palaver.state.rooms import read_open_rooms

TYPED = Ability(kind=LaneKind.TERMINAL, reaches_busy=False, wakes_idle=True)


@pytest.fixture(params=[open_memory, open_sqlite], ids=["memory", "sqlite"])
async def parts(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ViewParts]:
    open_log: OpenLog = request.param
    async with opened_views(open_log, tmp_path) as opened:
        yield opened


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[ViewParts]:
    async with opened_views(open_memory, tmp_path, stale_after_s=600) as opened:
        yield opened


# The snapshot, and the changes after it


async def test_view_begins_with_a_snapshot_of_the_bus(parts: ViewParts) -> None:
    luna = await parts.bus.join("luna")
    await parts.bus.send(luna, "may I deploy?", "@human", intent="request")

    snapshot = await take(parts.views.open())

    assert isinstance(snapshot, Snapshot)
    assert snapshot.seq == parts.queries.last()
    assert [row.name for row in snapshot.agents] == ["luna"]
    assert [entry.what for entry in snapshot.attention] == ["may I deploy?"]
    assert [row.key for row in snapshot.talks] == ["@human@luna"]
    assert snapshot.counts.agents == {"idle": 1}
    assert (snapshot.counts.attention, snapshot.counts.unread, snapshot.me) == (1, 1, "human")
    assert snapshot.events[-1].text == "may I deploy?"
    assert not snapshot.is_continued


async def test_change_has_everything_that_an_event_changed(parts: ViewParts) -> None:
    luna = await parts.bus.join("luna")
    view = parts.views.open()
    await take(view)

    sent = await parts.bus.send(luna, "may I deploy?", "@human", intent="request")
    change = await take_in_time(parts, view)

    assert isinstance(change, Changes)
    assert [event.text for event in change.events] == ["may I deploy?"]
    assert [(row.name, row.last, row.last_seq) for row in change.agents] == [
        ("luna", "may I deploy?", sent.seq)
    ]
    assert [(row.key, row.unread) for row in change.talks] == [("@human@luna", 1)]
    assert [entry.key for entry in change.attention] == [f"request/{sent.seq}"]
    assert change.counts is not None
    assert change.counts.attention == 1


async def test_reply_settles_the_request_and_moves_its_marks(parts: ViewParts) -> None:
    luna = await parts.bus.join("luna")
    asked = await parts.bus.send(luna, "may I?", "@human", intent="request")
    view = parts.views.open()
    await take(view)

    reply = await parts.bus.send(HUMAN, "yes", "@luna", reply_to=str(asked.seq))
    records = await take_until(parts, view, reply.seq)

    changes = [record for record in records if isinstance(record, Changes)]
    assert [key for change in changes for key in change.settled] == [f"request/{asked.seq}"]
    assert asked.seq in [seq for change in changes for seq in change.moved]
    assert changes[-1].counts is not None
    assert changes[-1].counts.attention == 0


async def test_every_event_is_in_one_record_and_rows_end_up_equal(parts: ViewParts) -> None:
    agents = [await parts.bus.join(name) for name in ("luna", "nova", "mira")]
    view, model = parts.views.open(), Model()
    model.apply(await take(view))
    first = model.seq

    for step in range(60):
        writer = agents[step % 3]
        reader = agents[(step + 1) % 3]
        sent = await parts.bus.send(
            writer,
            f"text {step}",
            "@human" if step % 7 == 0 else f"@{reader.name}",
            intent="request" if step % 2 else "",
        )
        if step % 5 == 0 and sent.to != ("@human",):
            await parts.bus.ack(reader, sent.seq)
        if step % 4 == 0:
            await parts.broker.submit(writer, SetStatus(state=["active", "blocked", "idle"][step % 3]))
        if step % 11 == 0:
            parts.timers.advance(0.02)
    for record in await take_until(parts, view, parts.queries.last()):
        model.apply(record)
    fresh = await take(parts.views.open())

    assert isinstance(fresh, Snapshot)
    stored = await parts.log.read(Query(after=first, limit=1000))
    assert [seq for seq in model.events if seq > first] == [event.seq for event in stored]
    assert _without_seq(model.agents.values()) == _without_seq(fresh.agents)
    assert sorted(model.attention) == sorted(entry.key for entry in fresh.attention)
    assert {**model.attention} == {entry.key: entry for entry in fresh.attention}
    assert {**model.talks} == {row.key: row for row in fresh.talks}
    assert model.counts == fresh.counts


def _without_seq(rows: object) -> object:
    return sorted(msgspec.to_builtins([msgspec.structs.replace(row, seq=0) for row in rows]), key=str)  # type: ignore[attr-defined]  # rows of agents


async def test_presence_changes_without_an_event(quick: ViewParts) -> None:
    await quick.bus.join("luna")
    view = quick.views.open()
    await take(view)

    quick.presence.part("luna")
    change = await take_in_time(quick, view)

    assert isinstance(change, Changes)
    assert change.after == change.seq
    assert [(row.name, row.is_present) for row in change.agents] == [("luna", False)]


async def test_gate_that_closes_moves_the_marks_of_waiting_messages(quick: ViewParts) -> None:
    """Both views then read the messages again, with the new reason."""
    nova = await quick.bus.join("nova")
    await quick.bus.join("luna")
    lane = quick.delivery.open_lane("luna", TYPED, lambda offer: None)
    sent = await quick.bus.send(nova, "hello", "@luna")
    view = quick.views.open()
    await take(view)

    quick.delivery.set_level(lane, LaneLevel(is_open=False, reason="draft"))
    change = await take_in_time(quick, view)

    assert isinstance(change, Changes)
    assert (change.after, change.moved) == (change.seq, (sent.seq,))
    assert [row.name for row in change.agents] == ["luna"]
    page = await quick.views.answer(AskAgent(name="luna"))
    assert isinstance(page, AgentPage)
    assert page.queue[0].reason.code == "gate_draft"
    view.close()
    await settle()
    quick.delivery.set_level(lane, LaneLevel(is_open=False, reason="dialog"))
    assert quick.views.is_idle


async def test_gate_of_an_agent_without_messages_makes_no_record(quick: ViewParts) -> None:
    await quick.bus.join("luna")
    lane = quick.delivery.open_lane("luna", TYPED, lambda offer: None)
    view = quick.views.open()
    await take(view)

    quick.delivery.set_level(lane, LaneLevel(is_open=False, reason="draft"))
    quick.presence.part("luna")  # It makes the next record.
    change = await take_in_time(quick, view)

    assert isinstance(change, Changes)
    assert change.moved == ()


# Cost


async def test_changes_are_encoded_once_for_all_views(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    views = [quick.views.open() for _ in range(5)]
    snapshots = await asyncio.gather(*map(anext, views))

    await quick.bus.send(luna, "hello", "@human")
    changes = [await anext(view) for view in views]

    assert len({id(record.data) for record in snapshots}) == 1
    assert len({id(record.data) for record in changes}) == 1
    assert isinstance(decode(changes[0]), Changes)


async def test_thousand_events_a_second_are_bundled(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    view = quick.views.open()
    await take(view)
    records = []

    async def read() -> None:
        async for record in view:
            records.append(decode(record))

    reading = asyncio.create_task(read())
    for number in range(1000):
        await quick.bus.send(luna, f"text {number}", "@luna")
        quick.timers.advance(0.001)
        await settle()
    last = quick.queries.last()
    async with asyncio.timeout(LIMIT_S):
        while records[-1].seq < last:
            quick.timers.advance(0.05)
            await settle()
    view.close()
    await reading

    assert len(records) <= MOST_A_SECOND + 3
    events = [event.seq for record in records for event in record.events]
    assert events == sorted(set(events))
    assert len(events) >= 1000


@pytest.mark.parametrize(("waiting", "is_early"), [(60, False), (600, True)])
async def test_only_a_full_record_does_not_wait_longer_in_a_flood(
    quick: ViewParts, waiting: int, is_early: bool
) -> None:
    luna = await quick.bus.join("luna")
    view = quick.views.open()
    await take(view)
    for number in range(200):
        await quick.bus.send(luna, f"text {number}", "@luna")
    quick.timers.advance(1)
    await settle()
    while (await anext(view)).seq < quick.queries.last():
        pass

    for number in range(waiting):
        await quick.bus.send(luna, f"text {number}", "@luna")
    record = asyncio.ensure_future(anext(view))
    quick.timers.advance(1 / MOST_A_SECOND + 0.001)
    await settle()

    assert record.done() == is_early
    quick.timers.advance(1 / FLOOD_A_SECOND)
    await settle()
    assert len(decode(await record).events) == waiting


async def test_agent_that_changes_its_state_often_has_one_row_in_a_record(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    view = quick.views.open()
    first = await take(view)
    states = [AgentState.ACTIVE, AgentState.IDLE, AgentState.BLOCKED]

    for step in range(100):
        await quick.broker.submit(luna, SetStatus(state=states[step % 3]))
        quick.timers.advance(0.01)
    records = await take_until(quick, view, quick.queries.last())

    assert all(len(record.agents) <= 1 for record in records)
    last = [row for record in records for row in record.agents][-1]
    assert last.state == quick.bus.agent("luna").state
    stored = await quick.log.read(Query(after=first.seq))
    assert [event.seq for record in records for event in record.events] == [event.seq for event in stored]


async def test_view_that_does_not_read_gets_a_new_snapshot(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    view = quick.views.open()
    await take(view)
    other = quick.views.open()
    await take(other)
    text = "x" * 290

    for number in range(9000):
        await quick.bus.send(luna, text, "@luna")
        if number % 300 == 0:
            quick.timers.advance(0.05)
            await settle()
            await take_in_time(quick, other)
            assert view._waiting_bytes <= LIMIT_WAITING_BYTES
    await take_until(quick, other, quick.queries.last())
    waiting = sum(len(record.data) for record in view._records)
    record = await take_in_time(quick, view)

    assert waiting == 0
    assert quick.slow == ["view"]
    assert isinstance(record, Snapshot)
    assert record.seq == quick.queries.last()
    assert not record.is_continued


async def test_view_that_is_a_little_late_continues(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    view = quick.views.open()
    first = await take(view)

    view.needs_snapshot = True
    for number in range(10):
        await quick.bus.send(luna, f"text {number}", "@luna")
    quick.timers.advance(1)
    await settle()
    record = await take_in_time(quick, view)

    assert isinstance(record, Snapshot)
    assert record.is_continued
    stored = await quick.log.read(Query(after=first.seq, before=record.seq + 1))
    assert [event.seq for event in record.events] == [event.seq for event in stored]


async def test_nothing_follows_the_log_without_a_view(quick: ViewParts) -> None:
    await quick.bus.join("luna")
    view = quick.views.open()
    await take(view)
    was_idle = quick.views.is_idle

    view.close()
    await settle()

    assert (was_idle, quick.views.is_idle) == (False, True)
    assert quick.timers.waiting == []
    assert isinstance(await take(quick.views.open()), Snapshot)


async def test_long_lists_are_sent_in_parts(quick: ViewParts) -> None:
    agents = [await quick.bus.join(f"agent{number}") for number in range(350)]
    view, model = quick.views.open(), Model()
    snapshot = await take(view)
    model.apply(snapshot)
    assert isinstance(snapshot, Snapshot)
    assert (len(snapshot.agents), snapshot.agents_total) == (200, 350)

    await quick.bus.send(agents[0], "hello all", "@all")
    records = []
    while len(model.agents) < 350 or any(
        row.unread != 1 for row in model.agents.values() if row.name != "agent0"
    ):
        records.append(await take_in_time(quick, view))
        model.apply(records[-1])

    assert max(len(record.agents) for record in records) <= 100


# Time


async def test_agent_becomes_stale_without_an_event(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    await quick.broker.submit(luna, SetStatus(state=AgentState.ACTIVE))
    view, model = quick.views.open(), Model()
    model.apply(await take(view))
    quick.timers.advance(500)
    await quick.broker.submit(luna, SetStatus(state=AgentState.ACTIVE, detail="still at it"))
    for record in await take_until(quick, view, quick.queries.last()):
        model.apply(record)

    for _ in range(11):
        quick.timers.advance(60)
        await settle()
    while "agent/luna" not in model.attention:
        model.apply(await take_in_time(quick, view))

    assert model.attention["agent/luna"].kind == "stale"
    assert model.agents["luna"].is_stale


async def test_clock_that_is_set_back_neither_loses_nor_repeats_events(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    await quick.broker.submit(luna, SetStatus(state=AgentState.ACTIVE))
    view, model = quick.views.open(), Model()
    model.apply(await take(view))

    quick.clock.suspend(-3600)
    for number in range(5):
        await quick.bus.send(luna, f"text {number}", "@human")
        for record in await take_until(quick, view, quick.queries.last()):
            model.apply(record)
    quick.clock.suspend(7200)
    quick.timers.advance(60)
    await settle()
    model.apply(await take_in_time(quick, view))

    assert model.attention["agent/luna"].kind == "stale"


# Continuing


async def test_view_continues_after_the_seq_that_it_gives(parts: ViewParts) -> None:
    luna = await parts.bus.join("luna")
    seq = parts.queries.last()
    sent = [await parts.bus.send(luna, f"text {number}", "@human") for number in range(3)]

    record = await take(parts.views.open(seq, f"{parts.queries.device}-older"))

    assert isinstance(record, Snapshot)
    assert record.is_continued
    assert [event.seq for event in record.events] == [event.seq for event in sent]


@pytest.mark.parametrize(
    ("after", "epoch"),
    [(10**15 - 1, ""), (10**12, "{device}-abc"), (1, "OTHER-abc"), (2, "nonsense"), (0, "")],
)
async def test_wrong_or_future_seq_gets_the_newest_events(parts: ViewParts, after: int, epoch: str) -> None:
    luna = await parts.bus.join("luna")
    await parts.bus.send(luna, "hello", "@human")

    record = await take(parts.views.open(after, epoch.format(device=parts.queries.device)))

    assert isinstance(record, Snapshot)
    assert not record.is_continued
    assert record.seq == parts.queries.last()
    assert record.events[-1].text == "hello"


async def test_empty_view_continues_from_the_beginning(quick: ViewParts) -> None:
    await quick.bus.join("luna")

    record = await take(quick.views.open(0, f"{quick.queries.device}-{EPOCH}"))

    assert isinstance(record, Snapshot)
    assert record.is_continued
    assert record.events


async def test_log_that_is_archived_under_a_view_leaves_no_gap(tmp_path: Path) -> None:
    async with opened_views(open_sqlite, tmp_path) as parts:
        luna = await parts.bus.join("luna")
        view, model = parts.views.open(), Model()
        model.apply(await take(view))
        first = model.seq
        for number in range(50):
            await parts.bus.send(luna, f"text {number}", "@luna")
        await parts.log.archive(parts.queries.last())
        await parts.bus.send(luna, "the last one", "@luna")

        for record in await take_until(parts, view, parts.queries.last()):
            model.apply(record)
        continued = await take(parts.views.open(first, f"{parts.queries.device}-x"))

        new = [seq for seq in model.events if seq > first]
        assert new == list(range(first + 1, parts.queries.last() + 1))
        assert isinstance(continued, Snapshot)
        assert continued.is_continued
        assert [event.seq for event in continued.events] == new


async def test_closed_daemon_ends_its_views(quick: ViewParts) -> None:
    view = quick.views.open()
    await take(view)

    quick.views.close()

    with pytest.raises(StopAsyncIteration):
        await anext(view)
    with pytest.raises(StopAsyncIteration):
        await anext(quick.views.open())


# Other causes of changes


async def test_wait_for_the_stick_changes_the_room_and_the_agent(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    await quick.broker.submit(luna, JoinRoom(workspaces=("/home/ada/project",)))
    (room,) = read_open_rooms(quick.queries.rows)
    view = quick.views.open()
    await take(view)

    quick.member_presence.wait(room.id, "luna")
    change = await take_in_time(quick, view)

    assert isinstance(change, Changes)
    assert change.rooms == (room.id,)
    assert change.agents[0].waits_for == f"the stick of #{room.id}"


async def test_lease_that_ends_is_reported_without_an_event(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    await quick.broker.submit(luna, JoinRoom(workspaces=("/home/ada/project",)))
    (room,) = read_open_rooms(quick.queries.rows)
    await quick.broker.submit(luna, Claim(room=room.id))
    view, model = quick.views.open(), Model()
    model.apply(await take(view))

    for _ in range(60):
        quick.timers.advance(60)
        await settle()
    while f"stick/{room.id}" not in model.attention:
        model.apply(await take_in_time(quick, view))

    assert model.attention[f"stick/{room.id}"].who == "luna"


async def test_permission_request_begins_and_ends_in_the_list(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    view, model = quick.views.open(), Model()
    model.apply(await take(view))
    pending = quick.permissions.add(luna, "s", "Bash", {}, now_ms=1, wait_ms=1000)
    asked = OpenPermission(
        name="luna", permission=pending.id, tool="Bash", text="rm", digest=pending.digest, until=1001
    )
    await quick.broker.submit(SYSTEM_CALLER, asked)
    key = f"permission/{pending.id}"
    while key not in model.attention:
        model.apply(await take_in_time(quick, view))

    quick.permissions.close(pending, "its session has ended")
    change = await take_in_time(quick, view)

    assert isinstance(change, Changes)
    assert change.after == change.seq
    assert change.settled == (key,)


async def test_presence_of_an_agent_is_that_of_its_subagents(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    made = await quick.subagents.begun("luna", "a1", "reviewer")
    assert made is not None
    view = quick.views.open()
    await take(view)

    quick.presence.part(luna.name)
    change = await take_in_time(quick, view)

    assert isinstance(change, Changes)
    assert [row.name for row in change.agents] == ["luna", made.name]


async def test_text_that_is_removed_is_read_again(quick: ViewParts) -> None:
    luna = await quick.bus.join("luna")
    sent = await quick.bus.send(luna, "my password is hunter2", "@human", intent="request")
    view, model = quick.views.open(), Model()
    model.apply(await take(view))

    await quick.broker.submit(HUMAN, Redact(event=str(sent.seq), hash="x"))
    records = await take_until(quick, view, quick.queries.last())
    for record in records:
        model.apply(record)
    while "hunter2" in f"{model.attention} {model.talks} {model.agents}":
        model.apply(await take_in_time(quick, view))

    assert sent.seq in [seq for record in records if isinstance(record, Changes) for seq in record.moved]


# Failures


async def test_lost_archive_leads_to_a_new_snapshot(tmp_path: Path) -> None:
    async with opened_views(open_sqlite, tmp_path) as parts:
        luna = await parts.bus.join("luna")
        first = parts.queries.last()
        for number in range(20):
            await parts.bus.send(luna, f"text {number}", "@luna")
        archived = await parts.log.archive(parts.queries.last())
        assert archived.path is not None
        archived.path.unlink()

        record = await take(parts.views.open(first - 1, f"{parts.queries.device}-x"))

        assert isinstance(record, Snapshot)
        assert record.seq == parts.queries.last()


async def test_failing_storage_ends_a_view_with_its_error(
    quick: ViewParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(query: Query) -> list[Event]:
        raise StorageFailed("the disk is on fire")

    monkeypatch.setattr(quick.log, "read", fail)
    view = quick.views.open()

    with pytest.raises(StorageFailed, match="on fire"):
        await take(view)
    monkeypatch.undo()

    assert quick.views.is_idle
    assert isinstance(await take(quick.views.open()), Snapshot)
