"""The machine's clocks, and the one that tests advance."""

import time

from tests.fakes import START_MS, FakeClock

from palaver.clock import Clock, SystemClock


def test_the_system_clock_tells_unix_milliseconds() -> None:
    before = time.time_ns() // 1_000_000

    told = SystemClock().now_ms()

    assert before <= told <= time.time_ns() // 1_000_000


def test_the_system_clocks_seconds_never_step_back() -> None:
    clock = SystemClock()

    first, second = clock.monotonic_s(), clock.monotonic_s()

    assert first <= second


def test_a_fake_clock_moves_when_it_is_advanced_and_not_otherwise() -> None:
    fake = FakeClock()
    clock: Clock = fake

    still = clock.now_ms(), clock.monotonic_s()
    fake.advance(1.5)

    assert still == (START_MS, 0.0)
    assert (clock.now_ms(), clock.monotonic_s()) == (START_MS + 1500, 1.5)
