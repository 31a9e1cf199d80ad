"""The system clock, and the fake clock of the tests."""

import time

from tests.fakes import START_MS, FakeClock

from palaver.clock import Clock, SystemClock


def test_system_clock_returns_unix_milliseconds() -> None:
    before = time.time_ns() // 1_000_000

    now_ms = SystemClock().now_ms()

    assert before <= now_ms <= time.time_ns() // 1_000_000


def test_monotonic_seconds_never_go_back() -> None:
    clock = SystemClock()

    first, second = clock.monotonic_s(), clock.monotonic_s()

    assert first <= second


def test_fake_clock_moves_only_when_advanced() -> None:
    fake = FakeClock()
    clock: Clock = fake

    still = clock.now_ms(), clock.monotonic_s()
    fake.advance(1.5)

    assert still == (START_MS, 0.0)
    assert (clock.now_ms(), clock.monotonic_s()) == (START_MS + 1500, 1.5)
