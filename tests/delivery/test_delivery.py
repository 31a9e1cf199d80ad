"""The reactor: lanes, their outcomes and their ends, on both engines."""

import asyncio

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus, seat, texts_of
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.delivery.lanes import FIRST_PAUSE_S
from palaver.errors import DiskFull
from palaver.protocol.envelope import Draft
from palaver.protocol.lanes import LaneKind, OfferOutcome
from palaver.protocol.requests import (
    DaemonStarted,
    Gone,
    Join,
    Leave,
    Put,
    Redeliver,
    ReportDelivery,
    SetStatus,
)
from palaver.state.agents import read_carried, read_unsure


async def test_submitted_is_written_before_an_offer_is_sent(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "a", "@nova")

    offer = await lane.next()

    assert offer.events == (event,)
    assert lane.states == [["submitted"]]
    entry = bus.entry(event, "nova")
    assert entry is not None
    assert (entry.lane, entry.submitted) == ("native", bus.clock.now_ms())


async def test_offer_contains_at_most_fifty_waiting_messages(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    for number in range(60):
        await bus.send(luna, str(number), "@nova")
    lane = bus.open_lane("nova")

    first = await lane.next()
    await bus.delivery.answer(lane.lane, first.number, OfferOutcome.SEEN, grade="context")
    second = await lane.next()

    assert texts_of(first.events + second.events) == [str(number) for number in range(60)]
    assert len(first.events) == 50
    entry = bus.entry(first.events[0], "nova")
    assert entry is not None
    assert (entry.state, entry.grade) == ("seen", "context")


async def test_nothing_else_is_offered_while_an_offer_is_open(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane, worse = bus.open_lane("nova"), bus.open_lane("nova", LaneKind.TERMINAL)
    await bus.send(luna, "a", "@nova")
    first = await lane.next()
    await bus.send(luna, "b", "@nova")

    await bus.delivery.answer(lane.lane, first.number, OfferOutcome.SEEN)

    assert await lane.next_texts() == ["b"]
    assert worse.is_empty


async def test_repeated_outcome_changes_nothing(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "a", "@nova")
    offer = await lane.next()

    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.REFUSED)

    assert bus.state(event, "nova") == "seen"


async def test_refused_mail_is_queued_again_and_offered_on_the_next_lane(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    best, next_best = bus.open_lane("nova"), bus.open_lane("nova", LaneKind.TERMINAL)
    event = await bus.send(luna, "a", "@nova")
    offer = await best.next()

    await bus.delivery.answer(best.lane, offer.number, OfferOutcome.REFUSED, reason="no session")

    assert await next_best.next_texts() == ["a"]
    assert best.is_empty
    entry = bus.entry(event, "nova")
    assert entry is not None
    assert entry.lane == "terminal"


async def test_mail_that_every_lane_refused_goes_to_a_waiting_reader(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane = bus.open_lane("nova")
    await bus.send(luna, "a", "@nova")
    offer = await lane.next()
    reader = bus.delivery.take("nova")
    waiting = asyncio.ensure_future(reader.wait(9))
    await asyncio.sleep(0)

    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.REFUSED)

    async with asyncio.timeout(LIMIT_S):
        assert texts_of(await waiting) == ["a"]
    reader.close()


async def test_deferred_mail_waits_for_a_status_change_and_not_for_a_worse_lane(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    lane, worse = bus.open_lane("nova"), bus.open_lane("nova", LaneKind.TERMINAL)
    event = await bus.send(luna, "a", "@nova")
    offer = await lane.next()

    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.DEFERRED, reason="compacting")
    waiting = bus.state(event, "nova")
    await bus.send(luna, "b", "@nova")
    await bus.submit(nova, SetStatus(state="active"))

    assert waiting == "queued"
    assert await lane.next_texts() == ["a", "b"]
    assert worse.is_empty


async def test_closed_lane_leaves_its_mail_unconfirmed_and_notifies_the_sender(
    bus: Bus,
) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane, other = bus.open_lane("nova"), bus.open_lane("nova", LaneKind.TERMINAL)
    event = await bus.send(luna, "a", "@nova")
    await lane.next()

    await bus.delivery.close_lane(lane.lane)
    await bus.delivery.close_lane(lane.lane)
    await bus.send(luna, "b", "@nova")

    assert await other.next_texts() == ["b"]
    entry = bus.entry(event, "nova")
    assert entry is not None
    assert (entry.state, entry.unconfirmed, entry.lane) == ("submitted", True, "native")
    assert read_unsure(bus.log.rows, "nova") == [event.seq]
    (notice,) = bus.texts("luna")
    assert notice.startswith(f"#{event.seq} was submitted to nova but never confirmed")


async def test_outcome_after_the_end_of_its_lane_changes_nothing(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "a", "@nova")
    offer = await lane.next()

    await bus.delivery.close_lane(lane.lane)
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.REFUSED)

    assert bus.state(event, "nova") == "submitted"


async def test_outcome_and_end_of_the_lane_at_once_lose_nothing(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "a", "@nova")
    offer = await lane.next()

    await asyncio.gather(
        bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN), bus.delivery.close_lane(lane.lane)
    )

    assert bus.state(event, "nova") == "seen"
    assert read_unsure(bus.log.rows, "nova") == []


async def test_sender_of_a_broadcast_is_notified_once_however_many_lanes_end(bus: Bus) -> None:
    luna = await bus.join("luna")
    lanes = []
    for name in ("nova", "kira"):
        await bus.join(name)
        lanes.append(bus.open_lane(name))
    await bus.send(luna, "all", "@all")

    for lane in lanes:
        await lane.next()
        await bus.delivery.close_lane(lane.lane)

    assert len(bus.texts("luna")) == 1


async def test_message_that_is_unconfirmed_twice_is_reported_twice(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")

    for _ in range(2):
        lane = bus.open_lane("nova")
        await lane.next()
        await bus.delivery.close_lane(lane.lane)
        bus.clock.advance(1)
        await bus.submit(HUMAN, Redeliver(message=str(event.seq)))

    assert len(bus.texts("luna")) == 2
    assert bus.texts("nova") == ["a"]


async def test_lane_that_closes_before_its_offer_is_sent_returns_the_mail(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")
    lane = bus.open_lane("nova")
    await asyncio.sleep(0)  # The offer is being written now.

    await bus.delivery.close_lane(lane.lane)
    other = bus.open_lane("nova", LaneKind.TERMINAL)

    assert await other.next_texts() == ["a"]
    assert lane.is_empty
    assert bus.texts("luna") == []
    assert bus.state(event, "nova") == "submitted"


async def test_message_seen_while_its_offer_is_written_is_not_sent(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    first, second = await bus.send(luna, "a", "@nova"), await bus.send(luna, "b", "@nova")

    ack = asyncio.ensure_future(bus.ack(nova, first.seq))
    await asyncio.sleep(0)
    lane = bus.open_lane("nova")
    await ack

    assert await lane.next_texts() == ["b"]
    assert (bus.state(first, "nova"), bus.state(second, "nova")) == ("seen", "submitted")


async def test_offer_whose_messages_were_all_seen_meanwhile_is_not_sent(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    event = await bus.send(luna, "a", "@nova")

    ack = asyncio.ensure_future(bus.ack(nova, event.seq))
    await asyncio.sleep(0)
    lane = bus.open_lane("nova")
    await ack
    await bus.send(luna, "b", "@nova")

    assert await lane.next_texts() == ["b"]


async def test_reader_and_lane_never_have_the_same_message(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    await bus.send(luna, "a", "@nova")
    reader = bus.delivery.take("nova")
    taken = texts_of(reader.poll(9))
    lane = bus.open_lane("nova")
    await bus.send(luna, "b", "@nova")
    offer = await lane.next()

    reader.close()
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)

    assert taken == ["a"]
    assert texts_of(offer.events) == ["b"]
    assert await lane.next_texts() == ["a"]


async def test_outcomes_that_a_holder_remembers_are_recorded(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    events = [await bus.send(luna, text, "@nova") for text in "abc"]
    await bus.report("nova", "submitted", *(event.seq for event in events), lane="native")
    lane = bus.open_lane("nova")

    await bus.delivery.recover(lane.lane, [events[0].seq], OfferOutcome.SEEN)
    await bus.delivery.recover(lane.lane, [events[1].seq], OfferOutcome.REFUSED)
    await bus.delivery.recover(lane.lane, [events[2].seq], OfferOutcome.DEFERRED)

    assert await lane.next_texts() == ["c"]
    assert [bus.state(event, "nova") for event in events] == ["seen", "queued", "submitted"]


async def test_offers_that_a_holder_does_not_remember_are_unconfirmed(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    by_hook, by_terminal = await bus.send(luna, "a", "@nova"), await bus.send(luna, "b", "@nova")
    await bus.report("nova", "submitted", by_hook.seq, lane="hook")
    await bus.report("nova", "submitted", by_terminal.seq, lane="terminal")
    lane = bus.open_lane("nova", LaneKind.HOOK)

    await bus.delivery.recovered(lane.lane)

    assert read_unsure(bus.log.rows, "nova") == [by_hook.seq]
    assert read_carried(bus.log.rows, "nova") == [by_terminal.seq]
    assert len(bus.texts("luna")) == 1


@pytest.mark.parametrize("how", ["bye", "hello", "resumed"])
async def test_end_of_a_session_settles_what_earlier_lanes_carried(bus: Bus, how: str) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova", seat=seat(1), session="s")
    event = await bus.send(luna, "a", "@nova", priority="idle")
    await bus.report("nova", "submitted", event.seq, lane="hook")
    for number in range(300):
        await bus.send(luna, str(number), "@nova", priority="interrupt")

    bus.present.discard("nova")
    if how == "bye":
        await bus.submit(nova, Leave())
    elif how == "hello":
        await bus.join("nova", seat=seat(2))
    else:
        await bus.join("nova", by=SCRIPT, seat=seat(2), session="s")
    reader = bus.delivery.take("luna")
    async with asyncio.timeout(LIMIT_S):
        (notice,) = await reader.wait(9)

    assert "never confirmed" in str(notice.payload["text"])
    assert read_unsure(bus.log.rows, "nova") == [event.seq]
    reader.close()


async def test_new_session_keeps_an_offer_that_a_lane_still_carries(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova", seat=seat(1))
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "a", "@nova")
    offer = await lane.next()

    await bus.submit(nova, Leave())
    await bus.broker.submit(SCRIPT, Join(name="nova", seat=seat(1)))
    await bus.submit(SYSTEM_CALLER, DaemonStarted(pid=1, version="1"))
    carried = read_carried(bus.log.rows, "nova")
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)

    assert carried == [event.seq]
    assert bus.state(event, "nova") == "seen"
    assert bus.texts("luna") == []


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("idle", ["interrupt", "normal", "idle-first", "idle"]),
        ("active", ["interrupt", "normal"]),
        ("starting", ["interrupt", "normal"]),
        ("blocked", ["interrupt"]),
    ],
)
async def test_status_lets_its_allowed_priorities_pass(bus: Bus, state: str, expected: list[str]) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await bus.submit(nova, SetStatus(state=state))
    for word in ("idle", "idle-first", "normal", "interrupt"):
        await bus.send(luna, word, "@nova", priority=word)

    lane = bus.open_lane("nova")

    assert await lane.next_texts() == expected


async def test_paused_agent_gets_only_interrupts_until_it_is_unpaused(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    await write(bus, "agent.paused")
    lane = bus.open_lane("nova")
    await bus.send(luna, "normal", "@nova")
    await bus.send(luna, "interrupt", "@nova", priority="interrupt")

    offer = await lane.next()
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)
    await write(bus, "agent.unpaused")

    assert texts_of(offer.events) == ["interrupt"]
    assert await lane.next_texts() == ["normal"]


async def write(bus: Bus, type_: str) -> None:
    draft = Draft(type=type_, sender="human", payload={"agent": "nova"}, id=type_, ts=1)
    await bus.log.commit("agent/nova", lambda rows: draft)


async def test_lane_that_cannot_wake_waits_until_its_agent_is_active(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    hook = bus.open_lane("nova", LaneKind.HOOK, wakes_idle=False)
    await bus.send(luna, "a", "@nova")

    await bus.submit(nova, SetStatus(state="active"))

    assert await hook.next_texts() == ["a"]


async def test_lane_of_an_unknown_agent_is_offered_nothing(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    stranger, lane = bus.open_lane("human"), bus.open_lane("nova")

    await bus.send(luna, "a", "@human", "@nova")

    assert await lane.next_texts() == ["a"]
    assert stranger.is_empty


async def test_foreign_envelope_goes_through_a_lane_like_a_message(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane = bus.open_lane("nova")
    payload: dict[str, object] = {"dead": "x/y", "expires": 5, "reply_to": "1", "delivered_to": 7}

    await bus.submit(
        luna, Put(envelope=Draft(type="x", id="e", sender="luna", to=("nova",), payload=payload))
    )

    assert await lane.next_texts() == ["x"]


async def test_envelope_without_recipients_is_not_mail(bus: Bus) -> None:
    luna = await bus.join("luna")

    event = await bus.submit(luna, Put(envelope=Draft(type="x", id="e", sender="luna", to=("@observers",))))

    assert event is not None
    assert bus.state(event, "luna") == ""
    assert bus.texts("luna") == []


async def test_unmatched_path_has_a_dead_receipt_and_its_sender_is_notified(bus: Bus) -> None:
    luna = await bus.join("luna")
    reader = bus.delivery.take("luna")

    event = await bus.send(luna, "a", "ticket/7", "ticket/8")
    async with asyncio.timeout(LIMIT_S):
        (notice,) = await reader.wait(9)

    assert bus.state(event, "ticket/7") == bus.state(event, "ticket/8") == "dead"
    assert notice.payload["text"] == f"#{event.seq} reached no agent: none is subscribed to ticket/7 (+1)"
    reader.close()


async def test_failed_report_of_a_dead_letter_is_retried_after_a_pause(bus: Bus) -> None:
    luna = await bus.join("luna")
    bus.failure = DiskFull("no room")
    event = await bus.send(luna, "a", "ticket/7")
    async with asyncio.timeout(LIMIT_S):
        await bus.has_failed.wait()
    first_wait_s = bus.delivery.next_wait_s()
    bus.clock.advance(5)
    with pytest.raises(DiskFull):
        await bus.delivery.catch_up()
    second_wait_s = bus.delivery.next_wait_s()
    bus.failure = None

    bus.clock.advance(5)
    await bus.delivery.catch_up()

    assert (first_wait_s, second_wait_s, bus.delivery.next_wait_s()) == (5, 5, None)
    assert bus.state(event, "ticket/7") == "dead"
    assert bus.texts("luna") == [f"#{event.seq} reached no agent: none is subscribed to ticket/7"]


async def test_expiring_message_changes_the_deadline(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    before = bus.deadlines

    await bus.send(luna, "a", "@nova", expires_in_ms=1000)

    assert bus.deadlines == before + 1


async def test_offer_that_cannot_be_recorded_is_neither_sent_nor_lost(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane = bus.open_lane("nova")
    bus.failure = DiskFull("no room")
    await bus.send(luna, "a", "@nova")
    async with asyncio.timeout(LIMIT_S):
        await bus.has_failed.wait()
    bus.failure = None

    await bus.send(luna, "b", "@nova")

    assert await lane.next_texts() == ["a", "b"]


async def test_failed_offer_is_retried_after_a_pause(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane = bus.open_lane("nova")
    is_due_later = asyncio.Event()
    bus.delivery.deadline_changed = is_due_later.set
    bus.failure = DiskFull("no room")
    await bus.send(luna, "a", "@nova")
    async with asyncio.timeout(LIMIT_S):
        await is_due_later.wait()
    bus.failure = None

    bus.clock.advance(FIRST_PAUSE_S)
    await bus.delivery.catch_up()

    assert await lane.next_texts() == ["a"]


async def test_outcome_that_could_not_be_recorded_can_be_repeated(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "a", "@nova")
    offer = await lane.next()
    bus.failure = DiskFull("no room")

    with pytest.raises(DiskFull):
        await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)
    bus.failure = None
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)

    assert bus.state(event, "nova") == "seen"


async def test_ended_agent_keeps_its_mail(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova", seat=seat(1))
    await bus.send(luna, "a", "@nova")

    await bus.submit(SYSTEM_CALLER, Gone(name="nova", reason="its process ended", seat=seat(1)))

    assert bus.texts("nova") == ["a"]


async def test_closed_delivery_ignores_events(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    reader = bus.delivery.take("nova")
    bus.delivery.close()

    await bus.send(luna, "a", "@nova", expires_in_ms=5)

    assert bus.deadlines == 0
    assert [request for request in bus.asked if isinstance(request, ReportDelivery)] == []
    reader.close()
