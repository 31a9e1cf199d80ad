"""Which view tells the person: once for each event, not if it is in view, and not too often."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.fakes import FakeClock, Ring
from tests.services.metric_stage import live_settings

from palaver.protocol.lines import NoticeReply
from palaver.services import permissions
from palaver.services.permissions import EVERY_S, SETTLE_S, NoticeBook


class Stage:
    """A book whose timer the test fires."""

    def __init__(self, **settings: object) -> None:
        self.clock = FakeClock()
        self.timers: list[Ring] = []
        self.book = NoticeBook(live_settings(**settings), self.clock, self._later)

    def _later(self, pause_s: float, ring: Callable[[], None]) -> Ring:
        self.timers.append(Ring(pause_s, ring))
        return self.timers[-1]

    async def claim(self, key: str, *, is_in_view: bool = False) -> "asyncio.Task[NoticeReply]":
        """Let a view ask, and wait until the book has its question."""
        task = asyncio.ensure_future(_call(self.book.claim(key, is_in_view=is_in_view)))
        await asyncio.sleep(0)
        return task

    def decide(self) -> float:
        """Let the time of the open timer pass; return how long it was."""
        timer = self.timers.pop()
        assert not timer.is_over
        self.clock.advance(timer.moment_s)
        timer.ring()
        return timer.moment_s


async def _call(work: Coroutine[Any, Any, NoticeReply]) -> NoticeReply:
    return await work


async def test_first_of_several_views_tells_the_person() -> None:
    stage = Stage(notify="osc9", notify_command="notify-send '{title}' {text}", notify_text=1)
    first, second = await stage.claim("a"), await stage.claim("a")

    assert stage.decide() == SETTLE_S

    assert await first == NoticeReply(
        send=True,
        keys=("a",),
        notify="osc9",
        command=("notify-send", "{title}", "{text}"),
        has_text=True,
    )
    assert await second == NoticeReply(send=False)


@pytest.mark.parametrize("is_first", [True, False])
async def test_event_that_one_view_shows_causes_no_notice(is_first: bool) -> None:
    stage = Stage()
    views = [await stage.claim("a", is_in_view=is_first), await stage.claim("a", is_in_view=not is_first)]
    stage.decide()

    assert [(await view).send for view in views] == [False, False]


async def test_view_that_asks_late_gets_no() -> None:
    stage = Stage()
    first = await stage.claim("a")
    stage.decide()

    assert ((await first).send, (await stage.book.claim("a", is_in_view=False)).send) == (True, False)
    assert stage.timers == []


async def test_events_within_five_seconds_are_joined_into_the_next_notice() -> None:
    stage = Stage()
    first = await stage.claim("a")
    stage.decide()
    await first
    stage.clock.advance(1)
    second, third = await stage.claim("b"), await stage.claim("c")

    assert stage.decide() == pytest.approx(EVERY_S - 1)

    assert (await second).keys == ("b", "c")
    assert not (await third).send


async def test_notice_after_a_pause_waits_only_for_other_views() -> None:
    stage = Stage()
    first = await stage.claim("a")
    stage.decide()
    await first
    stage.clock.advance(60)
    second = await stage.claim("b")

    assert stage.decide() == SETTLE_S
    assert (await second).send


async def test_next_view_tells_if_the_first_one_ends() -> None:
    stage = Stage()
    first, second = await stage.claim("a"), await stage.claim("a")
    first.cancel()
    await asyncio.sleep(0)
    stage.decide()

    assert (await second).send


async def test_event_without_a_view_to_tell_it_uses_up_no_time() -> None:
    stage = Stage()
    shown = await stage.claim("a", is_in_view=True)
    stage.decide()
    await shown
    other = await stage.claim("b")

    assert stage.decide() == SETTLE_S
    assert (await other).keys == ("b",)


async def test_joined_notice_leaves_out_what_is_in_view() -> None:
    stage = Stage()
    first, second = await stage.claim("a"), await stage.claim("b")
    await stage.claim("a", is_in_view=True)
    stage.decide()

    assert ((await first).send, (await second).keys) == (False, ("b",))


async def test_waiting_and_known_events_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "LIMIT_WAITING", 2)
    monkeypatch.setattr(permissions, "LIMIT_KNOWN", 2)
    stage = Stage()
    first, second = await stage.claim("a"), await stage.claim("b")

    assert not (await stage.book.claim("c", is_in_view=False)).send
    stage.decide()
    assert (await first).keys == ("a", "b")
    await second
    again = await stage.claim("c")
    stage.decide()
    assert (await again).send
    forgotten = await stage.claim("a")
    stage.book.close()
    assert stage.timers.pop().is_over
    forgotten.cancel()
