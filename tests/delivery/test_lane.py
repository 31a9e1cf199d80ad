"""The order of lanes."""

from palaver.delivery.lanes import lanes_in_order
from palaver.protocol.lanes import Ability, Lane, LaneKind, Offer


def lane(kind: LaneKind, *, reaches_busy: bool = True, wakes_idle: bool = True) -> Lane:
    ability = Ability(kind=kind, reaches_busy=reaches_busy, wakes_idle=wakes_idle)
    return Lane("luna", ability, lambda offer: None)


def test_native_precedes_hook_precedes_terminal_and_then_older_lanes() -> None:
    terminal, hook, other_hook, native = map(
        lane, (LaneKind.TERMINAL, LaneKind.HOOK, LaneKind.HOOK, LaneKind.NATIVE)
    )

    assert lanes_in_order([terminal, hook, other_hook, native], idle=True) == [
        native,
        hook,
        other_hook,
        terminal,
    ]


def test_lane_that_cannot_wake_or_cannot_interrupt_is_left_out() -> None:
    sleeper = lane(LaneKind.HOOK, wakes_idle=False)
    waker = lane(LaneKind.TERMINAL, reaches_busy=False)

    assert lanes_in_order([sleeper, waker], idle=True) == [waker]
    assert lanes_in_order([sleeper, waker], idle=False) == [sleeper]


def test_lane_with_an_open_or_deferred_offer_is_busy() -> None:
    free, offered, deferred = map(lane, (LaneKind.HOOK,) * 3)
    offered.offers[1] = Offer(1, (), {})
    deferred.is_deferred = True

    assert [one.is_busy for one in (free, offered, deferred)] == [False, True, True]
    assert free.word == "hook"


def test_spent_lane_is_left_out() -> None:
    spent, fresh = lane(LaneKind.NATIVE), lane(LaneKind.TERMINAL)
    spent.is_spent = True

    assert lanes_in_order([spent, fresh], idle=True) == [fresh]
    assert lanes_in_order([spent, fresh], idle=False) == [fresh]
