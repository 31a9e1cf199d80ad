"""Lanes of terminals: one message at a time, a gate with a level, and mail that waits for a dialog."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.delivery.terminals import CLOSED, OPEN, WITH_DIALOG, becomes, lane_of, notices, take
from tests.fakes import HUMAN, Bus, FakeLane, seat, texts_of
from tests.limits import LIMIT_S

from palaver.delivery.lanes import NATIVE_S
from palaver.errors import DiskFull
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.lanes import LaneKind, LaneLevel, OfferOutcome
from palaver.protocol.query import Query
from palaver.protocol.requests import DIALOG, Leave, Pause, Release, Send, SetStatus, Unpause

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "priority_queue.json").read_text())["cases"]


@pytest.fixture
async def luna(bus: Bus) -> Caller:
    return await bus.join("luna")


@pytest.fixture
async def nova(bus: Bus) -> Caller:
    return await bus.join("nova", holder="hash", seat=seat(7))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
async def test_terminal_gets_what_the_case_says(
    bus: Bus, luna: Caller, nova: Caller, case: dict[str, list[list[object]]]
) -> None:
    lane = lane_of(bus)
    bus.delivery.set_level(lane.lane, CLOSED)
    for op, *given in case["ops"]:
        if op == "enq":
            await bus.send(luna, str(given[0]), "@nova", priority=str(given[1]))
        elif op == "deq":
            idle, blocked, expected = given
            state = "blocked" if blocked else "idle" if idle else "active"
            await bus.submit(nova, SetStatus(state=state))
            if expected is None:
                # No waiting mail may pass: the marker passes first.
                expected = "marker"
                await bus.send(luna, "marker", "@nova", priority="interrupt")
            bus.delivery.set_level(lane.lane, OPEN)
            offer = await lane.next()
            bus.delivery.set_level(lane.lane, CLOSED)
            await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)
            assert texts_of(offer.events) == [expected]
        else:
            request = Pause(name="nova") if op == "pause" else Unpause(name="nova")
            await bus.submit(HUMAN, request)


async def test_terminal_lane_starts_closed_and_other_lanes_start_open(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    await bus.send(luna, "hello", "@nova")

    lane = lane_of(bus, None)

    assert bus.delivery.levels("nova") == [("terminal", LaneLevel(is_open=False, reason="starting"))]
    assert bus.delivery.levels("luna") == []
    native = bus.open_lane("nova", level=None)
    assert await native.next_texts() == ["hello"]
    assert lane.is_empty
    assert [(ability.kind, level.is_open) for ability, level in bus.delivery.lanes("nova")] == [
        (LaneKind.NATIVE, True),
        (LaneKind.TERMINAL, False),
    ]


async def test_submitted_is_written_before_anything_is_typed(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus)

    await bus.send(luna, "hello", "@nova")
    await take(bus, lane)

    assert lane.states == [["submitted"]]


async def test_message_counts_as_typed_until_its_outcome_is_known(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus)
    bus.open_lane("nova", LaneKind.HOOK, wakes_idle=False)
    message = await bus.send(luna, "hello", "@nova")
    offer = await lane.next()

    before = bus.delivery.typing("nova"), bus.delivery.typing("luna")
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)

    assert before == (frozenset({message.seq}), frozenset())
    assert bus.delivery.typing("nova") == frozenset()


async def test_busy_terminal_is_not_skipped_for_a_closed_one(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane, other = lane_of(bus), lane_of(bus, CLOSED)
    await bus.send(luna, "one", "@nova")
    offer = await lane.next()

    await bus.send(luna, "two", "@nova")
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)

    assert await take(bus, lane) == "two"
    assert other.is_empty


async def test_evidence_is_stored_with_the_outcome(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus)
    await bus.send(luna, "hello", "@nova")

    await take(bus, lane, evidence="the screen")

    steps = await bus.log.read(Query(types=("delivery",)))
    assert [step.payload.get("evidence") for step in steps] == [None, "the screen"]


# During a dialog


async def test_interrupt_is_held_and_comes_first_after_the_dialog(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus, WITH_DIALOG)
    await bus.send(luna, "normal", "@nova")
    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")

    await becomes(bus, interrupt, "held")
    entry = bus.entry(interrupt, "nova")
    bus.delivery.set_level(lane.lane, OPEN)

    assert entry is not None
    assert entry.reason == DIALOG
    assert [await take(bus, lane), await take(bus, lane)] == ["stop!", "normal"]
    (notice,) = await notices(bus, "luna")
    assert notice.startswith(f"#{interrupt.seq} is held for nova: a dialog is open")


async def test_sender_is_notified_once_and_a_release_does_not_change_the_hold(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = lane_of(bus, WITH_DIALOG)
    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")
    await becomes(bus, interrupt, "held")

    await bus.submit(HUMAN, Release(message=str(interrupt.seq)))
    await becomes(bus, interrupt, "held")
    bus.delivery.set_level(lane.lane, OPEN)
    await take(bus, lane, OfferOutcome.DEFERRED, reason=DIALOG)
    bus.delivery.set_level(lane.lane, WITH_DIALOG)
    await becomes(bus, interrupt, "held")
    bus.delivery.set_level(lane.lane, OPEN)

    assert await take(bus, lane) == "stop!"
    assert len(await notices(bus, "luna")) == 1


async def test_message_held_by_a_brake_is_not_released_with_a_dialog(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    braked = await bus.send(luna, "braked", "@nova", priority="interrupt")
    await bus.report("nova", "held", braked.seq, reason="too fast")
    lane = lane_of(bus, WITH_DIALOG)
    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")
    await becomes(bus, interrupt, "held")

    bus.delivery.set_level(lane.lane, OPEN)

    assert await take(bus, lane) == "stop!"
    assert bus.state(braked, "nova") == "held"


async def test_interrupt_uses_another_lane_that_reaches_the_agent(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane_of(bus, WITH_DIALOG)
    native = bus.open_lane("nova")

    await bus.send(luna, "stop!", "@nova", priority="interrupt")

    assert await native.next_texts() == ["stop!"]


async def test_closed_terminal_ends_the_hold_of_its_dialog(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus, WITH_DIALOG)
    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")
    await becomes(bus, interrupt, "held")

    await bus.delivery.close_lane(lane.lane)

    await becomes(bus, interrupt, "queued")  # at once, or when the hold in progress is written
    entry = bus.entry(interrupt, "nova")
    assert entry is not None
    assert entry.reason == "the agent has no lane now"
    assert bus.texts("nova") == ["stop!"]


async def test_hold_of_an_earlier_daemon_is_released(bus: Bus, luna: Caller, nova: Caller) -> None:
    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")
    await bus.report("nova", "held", interrupt.seq, lane="terminal", reason=DIALOG)

    lane = lane_of(bus)

    assert await take(bus, lane) == "stop!"


async def test_mail_held_for_an_ended_agent_is_released(bus: Bus, luna: Caller, nova: Caller) -> None:
    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")
    await bus.report("nova", "held", interrupt.seq, lane="terminal", reason=DIALOG)

    await bus.submit(nova, Leave())

    await becomes(bus, interrupt, "queued")


async def test_held_quiet_mail_is_released_too(bus: Bus, luna: Caller, nova: Caller) -> None:
    await bus.submit(nova, SetStatus(state="active"))
    payload: dict[str, object] = {
        "text": "quiet",
        "scope": "mentions",
        "sender_kind": "instance",
        "mentions": [],
        "delivered_to": ["nova"],
        "priority": "interrupt",
        "wakes": [],
    }
    draft = Draft(type="message", sender="luna", payload=payload, id="q", ts=1)
    lane = lane_of(bus, WITH_DIALOG)
    quiet = (await bus.log.commit(None, lambda rows: draft)).event
    assert quiet is not None
    await becomes(bus, quiet, "held")

    bus.delivery.set_level(lane.lane, OPEN)

    assert await take(bus, lane) == "quiet"


async def test_submitted_interrupt_is_not_held(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus)
    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")
    offer = await lane.next()

    bus.delivery.set_level(lane.lane, WITH_DIALOG)
    was = bus.state(interrupt, "nova")
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.DEFERRED)

    assert was == "submitted"
    await becomes(bus, interrupt, "held")


async def test_failed_hold_is_repeated(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus, WITH_DIALOG)
    bus.failure = DiskFull("no room")
    interrupt = await bus.send(luna, "stop!", "@nova", priority="interrupt")
    async with asyncio.timeout(LIMIT_S):
        await bus.has_failed.wait()

    bus.failure = None
    bus.delivery.set_level(lane.lane, WITH_DIALOG)

    await becomes(bus, interrupt, "held")


# Keys


async def keys(bus: Bus, data: bytes = b"y") -> Event:
    event = await bus.submit(HUMAN, Send(text="", raw=data, recipient="nova"))
    assert event is not None
    return event


@pytest.mark.parametrize("level", [CLOSED, WITH_DIALOG, LaneLevel(is_paused=True)])
async def test_keys_pass_every_gate_and_a_pause(
    bus: Bus, luna: Caller, nova: Caller, level: LaneLevel
) -> None:
    await bus.submit(HUMAN, Pause(name="nova"))
    lane = lane_of(bus, level)
    native = bus.open_lane("nova")

    await keys(bus)

    assert await take(bus, lane) == "y"
    assert native.is_empty


async def test_keys_are_offered_one_by_one_during_an_open_offer(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus)
    await bus.send(luna, "hello", "@nova")
    await lane.next()
    bus.delivery.set_level(lane.lane, WITH_DIALOG)

    await keys(bus)
    first = await lane.next()
    await keys(bus, b"n")
    await bus.delivery.answer(lane.lane, first.number, OfferOutcome.SEEN)

    assert texts_of(first.events) == ["y"]
    assert await take(bus, lane) == "n"


async def test_deferred_keys_wait_for_the_end_of_the_open_offer(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus)
    await bus.send(luna, "hello", "@nova")
    typing = await lane.next()
    await keys(bus)
    await take(bus, lane, OfferOutcome.DEFERRED)
    await bus.send(luna, "more", "@nova")

    await bus.delivery.answer(lane.lane, typing.number, OfferOutcome.SEEN)

    assert await take(bus, lane) == "y"
    assert await take(bus, lane) == "more"


async def test_refused_keys_are_not_retried(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = lane_of(bus)
    event = await keys(bus)

    await take(bus, lane, OfferOutcome.REFUSED, reason="a shell", evidence="$ ")

    entry = bus.entry(event, "nova")
    assert entry is not None
    assert (entry.state, entry.reason) == ("refused", "a shell")
    assert await notices(bus, "human") == [f"#{event.seq} was refused for nova: a shell"]
    await bus.send(luna, "hello", "@nova")
    assert await take(bus, lane) == "hello"


async def test_keys_are_not_taken_as_mail(bus: Bus, luna: Caller, nova: Caller) -> None:
    await keys(bus)
    await bus.send(luna, "hello", "@nova")

    assert bus.texts("nova") == ["hello"]


async def test_keys_expire_if_no_terminal_takes_them(bus: Bus, luna: Caller, nova: Caller) -> None:
    event = await keys(bus)

    bus.clock.advance(10)
    await bus.delivery.expire()
    lane_of(bus)

    assert bus.state(event, "nova") == "expired"


# Before a native lane reconnects


def expecting(bus: Bus, kind: LaneKind = LaneKind.NATIVE) -> FakeLane:
    return bus.open_lane("nova", LaneKind.TERMINAL, OPEN, awaits=kind)


async def test_native_lane_that_reconnects_in_time_gets_the_message_first(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    terminal = expecting(bus)
    await bus.send(luna, "hello", "@nova")
    assert bus.delivery.levels("nova") == [("terminal", LaneLevel(is_open=False, reason="native"))]
    assert bus.delivery.next_wait_s() == NATIVE_S

    native = bus.open_lane("nova")

    assert await native.next_texts() == ["hello"]
    assert terminal.is_empty
    assert bus.delivery.levels("nova") == [("terminal", OPEN), ("native", OPEN)]


async def test_message_is_typed_if_no_native_lane_reconnects_in_time(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    terminal = expecting(bus)
    await bus.send(luna, "hello", "@nova")
    bus.clock.advance(NATIVE_S - 1)
    await bus.delivery.catch_up()
    assert bus.delivery.levels("nova") == [("terminal", LaneLevel(is_open=False, reason="native"))]

    bus.clock.advance(1)
    await bus.delivery.catch_up()

    assert await terminal.next_texts() == ["hello"]
    assert bus.delivery.levels("nova") == [("terminal", OPEN)]


async def test_terminal_next_to_a_native_lane_does_not_wait(bus: Bus, luna: Caller, nova: Caller) -> None:
    bus.open_lane("nova")

    expecting(bus)

    assert bus.delivery.levels("nova") == [("native", OPEN), ("terminal", OPEN)]


# Before the first hook of a busy agent


async def test_first_hook_gets_the_message_before_the_terminal(bus: Bus, luna: Caller, nova: Caller) -> None:
    await bus.submit(nova, SetStatus(state="active"))
    terminal = expecting(bus, LaneKind.HOOK)
    await bus.send(luna, "hello", "@nova")
    assert bus.delivery.levels("nova") == [("terminal", LaneLevel(is_open=False, reason="hook"))]

    hook = bus.open_lane("nova", LaneKind.HOOK)

    assert await hook.next_texts() == ["hello"]
    assert terminal.is_empty


async def test_native_lane_does_not_end_the_wait_for_a_hook(bus: Bus, luna: Caller, nova: Caller) -> None:
    await bus.submit(nova, SetStatus(state="active"))
    expecting(bus, LaneKind.HOOK)

    bus.open_lane("nova")

    assert ("terminal", LaneLevel(is_open=False, reason="hook")) in bus.delivery.levels("nova")


async def test_terminal_waits_for_no_hook_of_an_idle_agent(bus: Bus, luna: Caller, nova: Caller) -> None:
    await bus.submit(nova, SetStatus(state="active"))
    terminal = expecting(bus, LaneKind.HOOK)
    await bus.send(luna, "hello", "@nova")
    await bus.submit(nova, SetStatus(state="active", detail="thinking"))
    assert terminal.is_empty

    await bus.submit(nova, SetStatus(state="idle"))

    assert await terminal.next_texts() == ["hello"]


# Offers that a holder remembers


def remembering(bus: Bus, level: LaneLevel | None = OPEN) -> FakeLane:
    return bus.open_lane("nova", LaneKind.TERMINAL, level, remembers=True)


async def test_offer_that_never_reached_its_holder_is_queued_again(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    came, lost = await bus.send(luna, "came", "@nova"), await bus.send(luna, "lost", "@nova")
    await bus.report("nova", "submitted", came.seq, lost.seq, lane="terminal")
    lane = remembering(bus)

    await bus.delivery.recover(lane.lane, [came.seq], OfferOutcome.SEEN)
    await bus.delivery.recovered(lane.lane)

    assert await take(bus, lane) == "lost"
    assert await notices(bus, "luna") == []


async def test_keys_that_never_arrived_are_unconfirmed(bus: Bus, luna: Caller, nova: Caller) -> None:
    pressed = await keys(bus)
    await bus.report("nova", "submitted", pressed.seq, lane="terminal")
    lane = remembering(bus)

    await bus.delivery.recovered(lane.lane)

    entry = bus.entry(pressed, "nova")
    assert entry is not None
    assert (entry.state, entry.unconfirmed) == ("submitted", True)


async def test_lost_connection_does_not_settle_what_a_holder_remembers(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = remembering(bus)
    event = await bus.send(luna, "a", "@nova")
    await lane.next()

    await bus.delivery.close_lane(lane.lane)

    entry = bus.entry(event, "nova")
    assert entry is not None
    assert (entry.state, entry.unconfirmed) == ("submitted", False)
    assert await notices(bus, "luna") == []


async def test_end_of_the_agent_settles_what_its_holder_remembers(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = remembering(bus)
    await bus.send(luna, "a", "@nova")
    await lane.next()

    await bus.submit(nova, Leave())
    await bus.delivery.close_lane(lane.lane)

    (notice,) = await notices(bus, "luna")
    assert "never confirmed" in notice


async def test_lane_can_report_an_unconfirmed_outcome(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = remembering(bus)
    doubtful = await bus.send(luna, "a", "@nova")
    await bus.send(luna, "b", "@nova")

    await take(bus, lane, OfferOutcome.UNCONFIRMED)

    assert await take(bus, lane) == "b"
    entry = bus.entry(doubtful, "nova")
    assert entry is not None
    assert (entry.state, entry.unconfirmed) == ("submitted", True)
    assert len(await notices(bus, "luna")) == 1
