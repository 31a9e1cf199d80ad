"""Mail over time: after a deferral, at a gate that stays closed, and on a new connection."""

import asyncio

import pytest
from tests.delivery.terminals import CLOSED, OPEN, WITH_DIALOG, becomes, lane_of, notices, take
from tests.fakes import HUMAN, Bus, FakeLane, seat, texts_of
from tests.limits import LIMIT_S

from palaver.delivery.lanes import CLAIM_S
from palaver.errors import DiskFull
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.lanes import LaneKind, LaneLevel, OfferOutcome
from palaver.protocol.query import Query
from palaver.protocol.requests import DIALOG, Leave, Pause, Send, SetStatus


@pytest.fixture
async def luna(bus: Bus) -> Caller:
    return await bus.join("luna")


@pytest.fixture
async def nova(bus: Bus) -> Caller:
    return await bus.join("nova", holder="hash", seat=seat(7))


async def passes(bus: Bus, seconds: float) -> None:
    """Let time pass, as the daemon's clock does."""
    bus.clock.advance(seconds)
    await bus.delivery.catch_up()


async def settled(bus: Bus) -> None:
    """Let all started work finish by writing later messages to another agent."""
    for _ in range(3):
        await bus.send(HUMAN, "marker", "@luna")


async def last_notice(bus: Bus, name: str) -> str:
    """Wait for the first notice of the bus to a sender."""
    news = asyncio.Event()
    stop = bus.log.subscribe(lambda _: news.set())
    async with asyncio.timeout(LIMIT_S):
        while not (words := await notices(bus, name)):
            await news.wait()
            news.clear()
    stop()
    return words[0]


# After a deferral


async def test_deferral_ends_after_a_pause(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus)
    await bus.send(luna, "hello", "@nova")
    await take(bus, lane, OfferOutcome.DEFERRED, reason="its file cannot be written")

    await passes(bus, 4.9)
    too_early = lane.is_empty
    await passes(bus, 0.1)

    assert too_early
    assert await take(bus, lane) == "hello"


async def test_pause_doubles_up_to_a_minute_and_is_reset_by_another_outcome(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus)
    await bus.send(luna, "hello", "@nova")
    waits = []
    for _ in range(6):
        await take(bus, lane, OfferOutcome.DEFERRED)
        waits.append(bus.delivery.next_wait_s())
        await passes(bus, waits[-1] or 0)
    await take(bus, lane)

    await bus.send(luna, "more", "@nova")
    await take(bus, lane, OfferOutcome.DEFERRED)

    assert waits == [5, 10, 20, 40, 60, 60]
    assert bus.delivery.next_wait_s() == 5


async def test_new_mail_and_a_status_change_end_a_deferral_at_once(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus)
    await bus.send(luna, "hello", "@nova")
    await take(bus, lane, OfferOutcome.DEFERRED)

    await bus.send(luna, "more", "@nova")
    by_mail = await take(bus, lane, OfferOutcome.DEFERRED)
    await bus.submit(nova, SetStatus(state="active"))

    assert by_mail == "hello"
    assert await take(bus, lane) == "hello"
    assert await take(bus, lane) == "more"


async def test_same_level_ends_a_deferral_once_and_another_level_always(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus)
    await bus.send(luna, "hello", "@nova")
    await take(bus, lane, OfferOutcome.DEFERRED)

    bus.delivery.set_level(lane.lane, OPEN)
    await take(bus, lane, OfferOutcome.DEFERRED)
    # An agent that repeats its level must not cause an endless loop of offers.
    bus.delivery.set_level(lane.lane, OPEN)
    await settled(bus)
    is_asked = not lane.is_empty
    bus.delivery.set_level(lane.lane, CLOSED)
    bus.delivery.set_level(lane.lane, OPEN)

    assert not is_asked
    assert await take(bus, lane) == "hello"


async def test_deferred_keys_are_retried_after_the_pause(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus, CLOSED)
    await bus.submit(HUMAN, Send(text="", raw=b"y", recipient="nova"))
    await take(bus, lane, OfferOutcome.DEFERRED)

    await passes(bus, 5)

    assert await take(bus, lane) == "y"


async def test_expiry_counts_for_the_next_wait(bus: Bus, luna: Caller, nova: Caller) -> None:
    brief = await bus.send(luna, "brief", "@nova", expires_in_ms=3000)
    wait_s = bus.delivery.next_wait_s()

    await passes(bus, 3)

    assert wait_s == 3
    assert bus.state(brief, "nova") == "expired"


async def test_closed_lane_has_no_pending_wait(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus)
    await bus.send(luna, "hello", "@nova")
    await take(bus, lane, OfferOutcome.DEFERRED)
    bus.delivery.set_level(lane.lane, CLOSED)

    await bus.delivery.close_lane(lane.lane)

    assert bus.delivery.next_wait_s() is None


# At a gate that stays closed


async def test_mail_at_a_closed_gate_is_held_after_a_while_and_reported(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus, CLOSED)
    event = await bus.send(luna, "hello", "@nova")

    await passes(bus, 29)
    before = bus.state(event, "nova")
    await passes(bus, 1)

    entry = bus.entry(event, "nova")
    assert before == "queued"
    assert entry is not None
    assert (entry.state, entry.reason, entry.lane) == ("held", "draft", "terminal")
    (notice,) = await notices(bus, "luna")
    assert notice.startswith(f"#{event.seq} is held for nova: its terminal accepts no messages now (draft)")
    bus.delivery.set_level(lane.lane, OPEN)
    assert await take(bus, lane) == "hello"


async def test_each_message_has_its_own_waiting_time(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane_of(bus, CLOSED)
    await passes(bus, 20)
    late = await bus.send(luna, "late", "@nova")

    await passes(bus, 10)
    before = bus.state(late, "nova")
    wait_s = bus.delivery.next_wait_s()
    await passes(bus, 20)

    assert (before, wait_s) == ("queued", 20)
    assert bus.state(late, "nova") == "held"
    assert len(await notices(bus, "luna")) == 1


async def test_held_mail_is_reported_in_one_notice_per_sender(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus, CLOSED)
    one = await bus.send(luna, "one", "@nova")
    many = [await bus.send(HUMAN, str(number), "@nova") for number in range(60)]

    await passes(bus, 30)

    heads = [notice.partition(":")[0] for name in ("luna", "human") for notice in await notices(bus, name)]
    assert heads == [
        f"#{one.seq} is held for nova",
        f"#{many[0].seq} and 48 more are held for nova",
        f"#{many[49].seq} and 10 more are held for nova",
    ]
    bus.delivery.set_level(lane.lane, OPEN)
    assert [await take(bus, lane) for _ in range(61)] == ["one", *map(str, range(60))]


async def test_sender_is_notified_once_per_message(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus, CLOSED)
    events = [await bus.send(luna, text, "@nova") for text in ("one", "two", "three")]
    await passes(bus, 30)
    bus.delivery.set_level(lane.lane, OPEN)
    await take(bus, lane)
    await lane.next()
    bus.delivery.set_level(lane.lane, LaneLevel(is_open=False, reason="shell"))

    await passes(bus, 30)

    await becomes(bus, events[2], "held")
    assert len(await notices(bus, "luna")) == 1


async def test_pause_holds_nothing(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus, LaneLevel(is_open=False, is_paused=True, reason="passthrough"))
    normal = await bus.send(luna, "normal", "@nova")
    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")
    await bus.submit(HUMAN, Pause(name="nova"))
    bus.delivery.set_level(lane.lane, LaneLevel(is_open=False, is_paused=True, reason="passthrough"))

    await passes(bus, 30)

    assert (bus.state(normal, "nova"), bus.state(interrupt, "nova")) == ("queued", "held")


async def test_mail_that_waits_for_the_agent_and_not_for_the_gate_is_not_held(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    await bus.submit(nova, SetStatus(state="blocked"))
    lane_of(bus, WITH_DIALOG)
    idle = await bus.send(luna, "when idle", "@nova", priority="idle")
    normal = await bus.send(luna, "normal", "@nova")

    await passes(bus, 30)

    assert (bus.state(idle, "nova"), bus.state(normal, "nova")) == ("queued", "held")


async def test_mail_does_not_wait_for_the_gate_if_a_better_lane_exists(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane_of(bus, CLOSED)
    native = bus.open_lane("nova")
    await bus.send(luna, "one", "@nova")
    await native.next()
    waiting = await bus.send(luna, "two", "@nova")

    await passes(bus, 30)

    assert bus.state(waiting, "nova") == "queued"


async def test_better_lane_that_opens_releases_held_mail(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane_of(bus, CLOSED)
    held = await bus.send(luna, "hello", "@nova")
    await passes(bus, 30)
    assert bus.state(held, "nova") == "held"

    native = bus.open_lane("nova")

    assert await native.next_texts() == ["hello"]


async def test_reader_gets_mail_that_waits_at_a_gate(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus, CLOSED)
    held = await bus.send(luna, "hello", "@nova")
    await passes(bus, 30)

    fetched = bus.texts("nova")
    await bus.ack(nova, held.seq)
    bus.delivery.set_level(lane.lane, OPEN)
    await bus.send(luna, "more", "@nova")

    assert fetched == ["hello"]
    assert await take(bus, lane) == "more"
    assert bus.state(held, "nova") == "seen"


async def test_failed_release_is_repeated_later(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus, CLOSED)
    await bus.send(luna, "hello", "@nova")
    await passes(bus, 30)
    bus.failure = DiskFull("no room")
    bus.delivery.set_level(lane.lane, OPEN)
    async with asyncio.timeout(LIMIT_S):
        await bus.has_failed.wait()

    bus.failure = None
    bus.delivery.set_level(lane.lane, OPEN)

    assert await take(bus, lane) == "hello"


async def test_failed_release_of_a_closed_lane_is_repeated_by_time(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus, CLOSED)
    held = await bus.send(luna, "hello", "@nova")
    await passes(bus, 30)
    bus.failure = DiskFull("no room")
    with pytest.raises(DiskFull):
        await bus.delivery.close_lane(lane.lane)
    bus.failure = None
    before = bus.state(held, "nova")

    await passes(bus, CLAIM_S)

    assert (before, bus.state(held, "nova")) == ("held", "queued")


async def test_failed_release_after_the_end_of_a_session_is_repeated_by_time(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    held = await bus.send(luna, "hello", "@nova")
    await bus.report("nova", "held", held.seq, lane="terminal", reason="draft")
    bus.failure = DiskFull("no room")
    await bus.submit(nova, Leave())
    async with asyncio.timeout(LIMIT_S):
        await bus.has_failed.wait()
    bus.failure = None
    before = bus.state(held, "nova")

    await passes(bus, CLAIM_S)

    assert (before, bus.state(held, "nova")) == ("held", "queued")


async def test_mail_held_by_an_earlier_daemon_is_released(bus: Bus, luna: Caller, nova: Caller) -> None:
    held = await bus.send(luna, "hello", "@nova", priority="idle")
    braked = await bus.send(luna, "braked", "@nova")
    await bus.report("nova", "held", held.seq, lane="terminal", reason="draft")
    await bus.report("nova", "held", braked.seq, reason="too fast")

    lane = lane_of(bus)

    assert await take(bus, lane) == "hello"
    assert bus.state(braked, "nova") == "held"


# During an open offer


async def offered(bus: Bus, lane: FakeLane, luna: Caller) -> Event:
    """Send a message that is in the composer when a dialog opens."""
    event = await bus.send(luna, "hello", "@nova")
    await lane.next()
    bus.delivery.set_level(lane.lane, WITH_DIALOG)
    return event


async def test_interrupt_during_a_dialog_is_held_although_an_offer_is_open(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus)
    await offered(bus, lane, luna)

    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")

    await becomes(bus, interrupt, "held")
    assert (await last_notice(bus, "luna")).startswith(f"#{interrupt.seq} is held for nova: a dialog is open")


async def test_sender_of_a_message_in_the_composer_is_notified_of_a_dialog(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus)
    event = await offered(bus, lane, luna)
    await bus.submit(HUMAN, Send(text="", raw=b"y", recipient="nova"))
    await lane.next()

    await passes(bus, 2)
    bus.delivery.set_level(lane.lane, WITH_DIALOG)
    await passes(bus, 2)

    (notice,) = await notices(bus, "luna")
    assert notice.startswith(f"#{event.seq} is held for nova: a dialog is open")
    assert await notices(bus, "human") == []
    assert bus.state(event, "nova") == "submitted"


async def test_dialog_that_a_message_itself_opened_is_not_reported(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus)
    await bus.send(luna, "hello", "@nova")
    offer = await lane.next()
    bus.delivery.set_level(lane.lane, WITH_DIALOG)
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)

    await passes(bus, 2)

    assert await notices(bus, "luna") == []


async def test_closed_dialog_is_not_reported(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus)
    await offered(bus, lane, luna)
    bus.clock.advance(2)
    lane.lane.level = OPEN

    await bus.delivery.catch_up()

    assert await notices(bus, "luna") == []


async def test_message_answered_while_it_was_typed_is_not_typed_again(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus)
    event = await bus.send(luna, "hello", "@nova")
    offer = await lane.next()

    await bus.send(nova, "yes", reply_to=str(event.seq))
    await bus.send(luna, "more", "@nova")
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.DEFERRED)
    await passes(bus, 5)

    assert await take(bus, lane) == "more"
    assert bus.state(event, "nova") == "answered"


# On a new connection


def again(bus: Bus, level: LaneLevel | None = OPEN) -> FakeLane:
    return bus.open_lane("nova", LaneKind.TERMINAL, level, remembers=True)


async def test_message_that_a_holder_still_has_is_an_offer_of_its_next_lane(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    first = again(bus)
    event = await bus.send(luna, "hello", "@nova")
    await first.next()
    await bus.delivery.close_lane(first.lane)

    second = again(bus)
    offer = bus.delivery.take_up(second.lane, [event.seq])
    await bus.delivery.recovered(second.lane)
    await bus.send(luna, "more", "@nova")
    await settled(bus)

    assert offer is not None
    assert texts_of(offer.events) == ["hello"]
    assert (bus.state(event, "nova"), second.is_empty) == ("submitted", True)
    await bus.delivery.answer(second.lane, offer.number, OfferOutcome.SEEN)
    assert await take(bus, second) == "more"
    assert bus.state(event, "nova") == "seen"


async def test_newer_connection_counts_before_the_older_one_is_closed(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    first = again(bus)
    event = await bus.send(luna, "hello", "@nova")
    old = await first.next()

    second = again(bus)
    offer = bus.delivery.take_up(second.lane, [event.seq])
    await bus.delivery.answer(first.lane, old.number, OfferOutcome.REFUSED)
    await bus.delivery.close_lane(first.lane)

    assert offer is not None
    assert bus.state(event, "nova") == "submitted"
    await bus.delivery.answer(second.lane, offer.number, OfferOutcome.SEEN)
    assert bus.state(event, "nova") == "seen"


async def test_settled_message_or_message_in_another_hand_is_not_taken_up(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    native = bus.open_lane("nova")
    seen = await bus.send(luna, "seen", "@nova")
    await bus.delivery.answer(native.lane, (await native.next()).number, OfferOutcome.SEEN)
    on_its_way = await bus.send(luna, "on its way", "@nova")
    await native.next()

    lane = again(bus)

    assert bus.delivery.take_up(lane.lane, [seen.seq, on_its_way.seq, 10_000]) is None
    assert bus.delivery.take_up(lane.lane, []) is None


async def test_agent_that_ends_leaves_no_mail_held_at_a_gate(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus, CLOSED)
    held = await bus.send(luna, "hello", "@nova")
    await passes(bus, 30)

    await bus.submit(nova, Leave())
    await bus.delivery.close_lane(lane.lane)

    assert bus.state(held, "nova") == "queued"
    reports = await bus.log.read(Query(types=("delivery",)))
    assert [report.payload["state"] for report in reports] == ["held", "queued"]
    assert DIALOG not in str(reports)
