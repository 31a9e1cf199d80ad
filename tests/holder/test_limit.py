"""A usage limit that only the screen shows."""

from collections.abc import Callable
from datetime import UTC, datetime

from tests.fakes import FakeClock

from palaver.harness.base import AgentReport
from palaver.holder.integration import GRACE_MS, LimitWatch
from palaver.protocol.events import AgentState

SHOWN = AgentReport(state=AgentState.IDLE, detail="usage limit, resets in 90s")
ASKED = AgentReport(state=AgentState.BLOCKED, detail="usage limit: flash; Keep trying / Stop?")
ACTIVE = AgentReport(state=AgentState.ACTIVE)
IDLE = AgentReport(state=AgentState.IDLE)


class Timers:
    """One timer that rings when the test says so."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.next: Callable[[], None] | None = None

    def call_later(self, wait_s: float, ring: Callable[[], None]) -> "Timers":
        self.waits_s.append(wait_s)
        self.next = ring
        return self

    def cancel(self) -> None:
        self.next = None

    def ring(self) -> None:
        assert self.next is not None
        ring, self.next = self.next, None
        ring()


def time_of_day(moment_s: int) -> str:
    return datetime.fromtimestamp(moment_s, UTC).strftime("%H:%M")


def test_limit_blocks_until_the_end_computed_when_it_was_first_seen() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None, Timers().call_later)

    first = watch.see(SHOWN)
    clock.advance(60)
    later = watch.see(SHOWN)
    clock.advance(30)
    behind = watch.see(SHOWN)
    watch.close()

    assert first == later == AgentReport(state=AgentState.BLOCKED, detail=SHOWN.detail)
    assert behind == IDLE


def test_distant_limit_end_includes_its_time_zone() -> None:
    watch = LimitWatch(FakeClock(), lambda: None, Timers().call_later)

    seen = watch.see(AgentReport(state=AgentState.IDLE, detail="usage limit, resets in 7200s"))
    watch.close()

    assert seen.state is AgentState.BLOCKED
    assert seen.detail.endswith("(UTC)")


def test_end_of_the_limit_is_checked_by_the_clock_in_steps_of_a_minute() -> None:
    clock, timers = FakeClock(), Timers()
    watch = LimitWatch(clock, lambda: seen.append(watch.see(SHOWN).state), timers.call_later)
    seen = [watch.see(SHOWN).state]

    clock.suspend(60)
    timers.ring()
    clock.suspend(30)
    timers.ring()

    assert seen == [AgentState.BLOCKED, AgentState.BLOCKED, AgentState.IDLE]
    assert timers.waits_s == [60, 30]
    assert timers.next is None


def test_limit_ends_also_after_the_clock_was_set_back() -> None:
    clock, timers = FakeClock(), Timers()
    watch = LimitWatch(clock, lambda: seen.append(watch.see(SHOWN).state), timers.call_later)
    seen = [watch.see(SHOWN).state]

    clock.suspend(-3600)  # It is set back by an hour.
    for _ in range(62):
        clock.advance(60)
        timers.ring()

    assert seen.count(AgentState.BLOCKED) == 62
    assert seen[-1] is AgentState.IDLE


def test_limit_without_an_end_lasts_until_the_screen_changes() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None, Timers().call_later)
    watch.see(AgentReport(state=AgentState.IDLE, detail="usage limit"))
    clock.advance(100_000)

    still = watch.see(AgentReport(state=AgentState.IDLE, detail="usage limit"))

    assert still == AgentReport(state=AgentState.BLOCKED, detail="usage limit")
    assert watch.see(ACTIVE) == ACTIVE
    assert watch.see(IDLE) == IDLE


def test_same_limit_after_work_starts_again() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None, Timers().call_later)
    watch.see(SHOWN)
    clock.advance(100)
    assert watch.see(SHOWN) == IDLE
    watch.see(ACTIVE)

    again = watch.see(SHOWN)
    watch.close()

    assert again.state is AgentState.BLOCKED


def test_same_time_of_day_after_work_is_still_the_old_limit() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None, Timers().call_later)
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


def test_answered_limit_dialog_counts_only_after_the_grace_period() -> None:
    clock = FakeClock()
    watch = LimitWatch(clock, lambda: None, Timers().call_later)
    assert watch.see(ASKED) == ASKED

    just_answered = watch.see(ACTIVE)
    clock.advance(GRACE_MS / 1000)
    at_work = watch.see(ACTIVE)
    watch.close()

    assert just_answered == ASKED
    assert at_work == ACTIVE
    assert watch.see(ACTIVE) == ACTIVE


def test_turn_that_ends_after_a_limit_dialog_ends_the_grace_period() -> None:
    watch = LimitWatch(FakeClock(), lambda: None, Timers().call_later)
    watch.see(ASKED)
    watch.see(ACTIVE)

    stopped = watch.see(SHOWN)

    assert stopped == AgentReport(state=AgentState.BLOCKED, detail=SHOWN.detail)
    watch.see(ASKED)
    assert watch.see(IDLE) == IDLE
    assert watch.see(ACTIVE) == ACTIVE
    watch.close()


def test_usage_limit_in_another_notation_does_not_block() -> None:
    known = AgentReport(state=AgentState.IDLE, detail="usage_limit")

    assert LimitWatch(FakeClock(), lambda: None, Timers().call_later).see(known) == known
