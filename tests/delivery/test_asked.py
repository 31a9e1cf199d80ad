"""Agents without a terminal whose status says that a person is asked: mail is held and released."""

import asyncio

import pytest
from tests.delivery.terminals import becomes, lane_of, notices
from tests.fakes import Bus, FakeLane, texts_of
from tests.limits import LIMIT_S

from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState
from palaver.protocol.lanes import Ability, LaneKind
from palaver.protocol.requests import SetStatus

HOOK = Ability(kind=LaneKind.HOOK, reaches_busy=True, wakes_idle=False, is_pulled=True)
NATIVE = Ability(kind=LaneKind.NATIVE, reaches_busy=True, wakes_idle=True)
ASKED = SetStatus(state="blocked", detail="permission: Bash: touch x")
BUSY = SetStatus(state="active", detail="thinking")


async def asked(bus: Bus, status: SetStatus = ASKED) -> tuple[Caller, Caller]:
    """Join nova, which waits for a person's decision, and luna, which writes to it."""
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await bus.submit(nova, status)
    return luna, nova


def reason(bus: Bus, event: Event) -> tuple[str, str, str]:
    entry = bus.entry(event, "nova")
    return (str(entry.state), entry.lane, entry.reason) if entry else ("queued", "", "")


async def passes(bus: Bus, seconds: float) -> None:
    bus.clock.advance(seconds)
    await bus.delivery.catch_up()


async def wait_for_notices(bus: Bus, count: int) -> list[str]:
    """Wait until luna has received this number of notices."""
    news = asyncio.Event()
    stop = bus.log.subscribe(lambda _: news.set())
    async with asyncio.timeout(LIMIT_S):
        while len(found := await notices(bus, "luna")) < count:
            await news.wait()
            news.clear()
    stop()
    return found


@pytest.mark.parametrize("detail", ["permission", "permission: Bash: ls", "permission_review", "question"])
async def test_interrupt_is_held_at_once_and_its_sender_is_notified(bus: Bus, detail: str) -> None:
    luna, _ = await asked(bus, SetStatus(state="blocked", detail=detail))
    FakeLane(bus, "nova", HOOK)

    urgent = await bus.send(luna, "stop", "@nova", priority="interrupt")
    await becomes(bus, urgent, "held")

    assert reason(bus, urgent) == ("held", "hook", "dialog")
    (notice,) = await wait_for_notices(bus, 1)
    assert notice.startswith(f"#{urgent.seq} is held for nova: a dialog is open")


async def test_waking_lane_gets_nothing_before_the_person_has_decided(bus: Bus) -> None:
    luna, nova = await asked(bus)
    FakeLane(bus, "nova", HOOK)
    native = FakeLane(bus, "nova", NATIVE)
    urgent = await bus.send(luna, "stop", "@nova", priority="interrupt")
    await becomes(bus, urgent, "held")
    was_empty = native.is_empty

    await bus.submit(nova, BUSY)

    assert (was_empty, await native.next_texts()) == (True, ["stop"])


async def test_other_mail_is_held_after_half_a_minute_until_the_answer(bus: Bus) -> None:
    luna, nova = await asked(bus)
    hook = FakeLane(bus, "nova", HOOK)
    message = await bus.send(luna, "hello", "@nova")

    await passes(bus, 29)
    before = reason(bus, message)
    await passes(bus, 1)
    behind = reason(bus, message)
    await bus.submit(nova, BUSY)
    await becomes(bus, message, "queued")

    assert (before[0], behind) == ("queued", ("held", "hook", "dialog"))
    assert len(await wait_for_notices(bus, 1)) == 1
    offer = await bus.delivery.draw(hook.lane, AgentState.ACTIVE)
    assert offer is not None
    assert offer.seqs == (message.seq,)


async def test_hook_after_the_answer_carries_the_held_mail(bus: Bus) -> None:
    luna, _ = await asked(bus)
    hook = FakeLane(bus, "nova", HOOK)
    urgent = await bus.send(luna, "stop", "@nova", priority="interrupt")
    await wait_for_notices(bus, 1)  # The row says `held` a little earlier than delivery knows it.

    offer = await bus.delivery.draw(hook.lane, AgentState.ACTIVE)

    assert offer is not None
    assert texts_of(offer.events) == ["stop"]
    assert reason(bus, urgent)[0] == "submitted"


async def test_mail_that_did_not_fit_is_held_again_without_a_second_notice(bus: Bus) -> None:
    luna, _ = await asked(bus)
    hook = FakeLane(bus, "nova", HOOK)
    first = await bus.send(luna, "a" * 30, "@nova", priority="interrupt")
    second = await bus.send(luna, "b" * 30, "@nova", priority="interrupt")
    await wait_for_notices(bus, 2)

    offer = await bus.delivery.draw(hook.lane, AgentState.ACTIVE, limit_text=40)
    assert offer is not None
    await becomes(bus, second, "held")
    third = await bus.send(luna, "c", "@nova", priority="interrupt")

    assert offer.seqs == (first.seq,)
    words = await wait_for_notices(bus, 3)
    assert [word.partition(" ")[0] for word in words] == [f"#{one.seq}" for one in (first, second, third)]


async def test_better_lane_keeps_held_mail_from_the_hook(bus: Bus) -> None:
    luna, _ = await asked(bus)
    hook = FakeLane(bus, "nova", HOOK)
    FakeLane(bus, "nova", NATIVE)
    urgent = await bus.send(luna, "stop", "@nova", priority="interrupt")
    await becomes(bus, urgent, "held")

    offer = await bus.delivery.draw(hook.lane, AgentState.ACTIVE)

    assert offer is None
    assert reason(bus, urgent) == ("held", "native", "dialog")


async def test_terminal_screen_decides_whether_a_dialog_is_open(bus: Bus) -> None:
    luna, _ = await asked(bus)
    terminal = lane_of(bus)

    await bus.send(luna, "stop", "@nova", priority="interrupt")

    assert await terminal.next_texts() == ["stop"]


async def test_agent_blocked_for_its_own_reason_is_still_interrupted(bus: Bus) -> None:
    luna, _ = await asked(bus, SetStatus(state="blocked", detail="waiting for a review"))
    native = FakeLane(bus, "nova", NATIVE)

    await bus.send(luna, "stop", "@nova", priority="interrupt")

    assert await native.next_texts() == ["stop"]
