"""The times at which lanes are checked again."""

import pytest
from tests.fakes import FakeClock

from palaver.delivery.lanes import FIRST_PAUSE_S, LONGEST_PAUSE_S, Backoff
from palaver.protocol.lanes import Ability, Lane, LaneKind, LaneLevel, Offer
from palaver.protocol.requests import DIALOG

WITH_DIALOG = LaneLevel(is_open=False, reason=DIALOG)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def changes() -> list[None]:
    return []


@pytest.fixture
def backoff(clock: FakeClock, changes: list[None]) -> Backoff:
    return Backoff(clock, lambda: changes.append(None))


def terminal(level: LaneLevel | None = None) -> Lane:
    lane = Lane("nova", Ability(kind=LaneKind.TERMINAL, reaches_busy=True, wakes_idle=True), lambda _: None)
    lane.level = level or LaneLevel()
    return lane


def test_lane_without_a_reason_to_wait_has_no_wait(backoff: Backoff) -> None:
    backoff.watch(terminal())

    assert backoff.next_wait_s() is None
    assert backoff.take_deferred() == backoff.take_shut() == backoff.take_stuck() == []


def test_deferral_of_keys_and_of_mail_are_separate_and_end_together(backoff: Backoff) -> None:
    keys, mail = terminal(), terminal()

    backoff.defer(keys, is_raw=True)
    backoff.defer(mail, is_raw=False)

    assert (keys.are_keys_deferred, keys.is_deferred) == (True, False)
    assert (mail.are_keys_deferred, mail.is_deferred) == (False, True)
    for lane in (keys, mail):
        backoff.resume(lane)
        assert not lane.are_keys_deferred
        assert not lane.is_deferred
    assert backoff.next_wait_s() is None


def test_retry_neither_shortens_nor_extends_a_pause(backoff: Backoff, clock: FakeClock) -> None:
    lane = terminal()
    backoff.try_again(lane)
    clock.advance(FIRST_PAUSE_S - 1)
    backoff.try_again(lane)

    assert backoff.next_wait_s() == 1
    assert not lane.is_deferred
    clock.advance(1)
    assert backoff.take_deferred() == [lane]


def test_pause_stays_at_its_limit_however_often_a_lane_defers(backoff: Backoff, clock: FakeClock) -> None:
    lane = terminal()
    pauses = []

    for _ in range(2000):
        backoff.defer(lane, is_raw=False)
        pauses.append(backoff.next_wait_s())

    assert pauses[:5] == [5, 10, 20, 40, 60]
    assert set(pauses[5:]) == {LONGEST_PAUSE_S}


def test_due_lane_is_returned_once_and_the_soonest_wait_counts(
    backoff: Backoff, clock: FakeClock, changes: list[None]
) -> None:
    deferred, shut = terminal(), terminal(LaneLevel(is_open=False, reason="draft"))
    backoff.watch(shut)
    backoff.watch(shut)
    backoff.defer(deferred, is_raw=False)

    soonest = backoff.next_wait_s()
    clock.advance(31)

    assert soonest == 5
    assert len(changes) == 2
    assert backoff.next_wait_s() == 0
    assert (backoff.take_deferred(), backoff.take_deferred()) == ([deferred], [])
    assert (backoff.take_shut(), backoff.take_shut()) == ([shut], [])


def test_lane_that_opens_or_ends_is_not_watched_any_more(backoff: Backoff) -> None:
    lane = terminal(WITH_DIALOG)
    lane.offers[1] = Offer(1, (), {})
    backoff.watch(lane)
    backoff.watch(lane)
    assert backoff.next_wait_s() == 2

    lane.level = LaneLevel()
    backoff.watch(lane)

    assert backoff.next_wait_s() is None


def test_lane_that_is_watched_again_waits_no_longer_than_before(backoff: Backoff) -> None:
    lane = terminal(WITH_DIALOG)

    backoff.watch_again(lane, 1000)

    assert backoff.next_wait_s() == 30
    backoff.forget(lane)
    assert backoff.next_wait_s() is None
