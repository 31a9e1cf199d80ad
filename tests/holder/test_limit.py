"""A usage limit that only the screen shows."""

import asyncio
from datetime import UTC, datetime

from tests.fakes import FakeClock
from tests.limits import LIMIT_S

from palaver.harness.base import AgentReport
from palaver.holder.integration import GRACE_MS, LimitWatch
from palaver.protocol.events import AgentState

SHOWN = AgentReport(state=AgentState.IDLE, detail="usage limit, resets in 90s")
ASKED = AgentReport(state=AgentState.BLOCKED, detail="usage limit: flash; Keep trying / Stop?")
ACTIVE = AgentReport(state=AgentState.ACTIVE)
IDLE = AgentReport(state=AgentState.IDLE)


def time_of_day(moment_s: int) -> str:
    return datetime.fromtimestamp(moment_s, UTC).strftime("%H:%M")


async def test_limit_blocks_until_the_end_computed_when_it_was_first_seen() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None)

    first = watch.see(SHOWN)
    clock.advance(60)
    later = watch.see(SHOWN)
    clock.advance(30)
    behind = watch.see(SHOWN)
    watch.close()

    assert first == later == AgentReport(state=AgentState.BLOCKED, detail=SHOWN.detail)
    assert behind == IDLE


async def test_distant_limit_end_includes_its_time_zone() -> None:
    watch = LimitWatch(FakeClock(), lambda: None)

    seen = watch.see(AgentReport(state=AgentState.IDLE, detail="usage limit, resets in 7200s"))
    watch.close()

    assert seen.state is AgentState.BLOCKED
    assert seen.detail.endswith("(UTC)")


async def test_end_of_the_limit_is_notified() -> None:
    told = asyncio.Event()
    watch = LimitWatch(FakeClock(), told.set)

    watch.see(AgentReport(state=AgentState.IDLE, detail="usage limit, resets in 0s"))

    async with asyncio.timeout(LIMIT_S):
        await told.wait()
    watch.close()


async def test_limit_without_an_end_lasts_until_the_screen_changes() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None)
    watch.see(AgentReport(state=AgentState.IDLE, detail="usage limit"))
    clock.advance(100_000)

    still = watch.see(AgentReport(state=AgentState.IDLE, detail="usage limit"))

    assert still == AgentReport(state=AgentState.BLOCKED, detail="usage limit")
    assert watch.see(ACTIVE) == ACTIVE
    assert watch.see(IDLE) == IDLE


async def test_same_limit_after_work_starts_again() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None)
    watch.see(SHOWN)
    clock.advance(100)
    assert watch.see(SHOWN) == IDLE
    watch.see(ACTIVE)

    again = watch.see(SHOWN)
    watch.close()

    assert again.state is AgentState.BLOCKED


async def test_same_time_of_day_after_work_is_still_the_old_limit() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None)
    ends_s = clock.now_ms() // 1000 + 7200
    shown = AgentReport(state=AgentState.IDLE, detail=f"usage limit, resets {time_of_day(ends_s)} (UTC)")
    first = watch.see(shown)
    clock.advance(7200 + 3600)

    work, behind = watch.see(ACTIVE), watch.see(shown)
    clock.advance(12 * 3600)
    watch.see(ACTIVE)
    next_day = watch.see(shown)
    watch.close()

    assert first.state is next_day.state is AgentState.BLOCKED
    assert (work, behind) == (ACTIVE, IDLE)


async def test_answered_limit_dialog_counts_only_after_the_grace_period() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None)
    assert watch.see(ASKED) == ASKED

    just_answered = watch.see(ACTIVE)
    clock.advance(GRACE_MS / 1000)
    at_work = watch.see(ACTIVE)
    watch.close()

    assert just_answered == ASKED
    assert at_work == ACTIVE
    assert watch.see(ACTIVE) == ACTIVE


async def test_turn_that_ends_after_a_limit_dialog_ends_the_grace_period() -> None:
    watch = LimitWatch(FakeClock(), lambda: None)
    watch.see(ASKED)
    watch.see(ACTIVE)

    stopped = watch.see(SHOWN)

    assert stopped == AgentReport(state=AgentState.BLOCKED, detail=SHOWN.detail)
    watch.see(ASKED)
    assert watch.see(IDLE) == IDLE
    assert watch.see(ACTIVE) == ACTIVE
    watch.close()


async def test_usage_limit_in_another_notation_does_not_block() -> None:
    known = AgentReport(state=AgentState.IDLE, detail="usage_limit")

    assert LimitWatch(FakeClock(), lambda: None).see(known) == known
