"""Presence with a fake watch and a fake timer: no process, no clock."""

from collections.abc import Callable

import pytest

from palaver.identity.presence import LINK_GRACE_S, Presence
from palaver.protocol.agents import Agent, Seat

SEAT = Seat(pid=100, start=5, boot="b")
OTHER = Seat(pid=101, start=6, boot="b")


class FakeWatch:
    """Watched seats that a test ends."""

    def __init__(self) -> None:
        self.watched: dict[Seat, Callable[[], None]] = {}

    def add(self, seat: Seat, callback: Callable[[], None]) -> None:
        self.watched[seat] = callback

    def remove(self, seat: Seat) -> None:
        self.watched.pop(seat, None)

    def close(self) -> None:
        self.watched.clear()

    def end(self, seat: Seat) -> None:
        self.watched.pop(seat)()


class FakeTimer:
    def __init__(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.delay_s = delay_s
        self.fire = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class House:
    """A presence with fakes that the test controls."""

    def __init__(self) -> None:
        self.watch = FakeWatch()
        self.timers: list[FakeTimer] = []
        self.gone: list[tuple[str, Seat | None, str]] = []
        self.presence = Presence(self.watch, lambda *told: self.gone.append(told), self._call_later)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(delay_s, callback))
        return self.timers[-1]


@pytest.fixture
def house() -> House:
    return House()


def agent(*, seat: Seat | None = None, link: bool = False, left: bool = False, remote: bool = False) -> Agent:
    return Agent(name="luna", base="luna", seat=seat, link=link, left=left, remote=remote)


def test_agent_is_present_while_its_process_lives(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    was_present = house.presence.is_present("luna")

    house.watch.end(SEAT)

    assert was_present
    assert not house.presence.is_present("luna")
    assert house.gone == [("luna", SEAT, "its process ended")]


def test_agent_that_is_put_twice_is_watched_once(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    first = house.watch.watched[SEAT]

    house.presence.put(agent(seat=SEAT))

    assert house.watch.watched[SEAT] is first


def test_agent_that_moves_to_another_seat_is_watched_there(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    old_end = house.watch.watched[SEAT]

    house.presence.put(agent(seat=OTHER))
    old_end()

    assert list(house.watch.watched) == [OTHER]
    assert house.presence.is_present("luna")
    assert house.gone == []


def test_agent_that_left_is_not_watched(house: House) -> None:
    house.presence.put(agent(seat=SEAT))

    house.presence.put(agent(seat=SEAT, left=True))

    assert not house.watch.watched
    assert not house.presence.is_present("luna")


def test_remote_agent_is_not_watched(house: House) -> None:
    house.presence.put(agent(seat=SEAT, remote=True))

    assert not house.watch.watched


def test_agent_with_a_link_outlives_its_process(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    house.presence.link_opened("luna")

    house.watch.end(SEAT)

    assert house.presence.is_present("luna")
    assert house.gone == []


def test_last_link_that_closes_starts_the_grace_period(house: House) -> None:
    house.presence.link_opened("luna")
    house.presence.link_opened("luna")
    house.presence.link_closed("luna")
    has_link = house.presence.is_present("luna")

    house.presence.link_closed("luna")
    house.timers[0].fire()

    assert has_link
    assert [timer.delay_s for timer in house.timers] == [LINK_GRACE_S]
    assert house.gone == [("luna", None, "its connection was lost")]


def test_link_that_returns_within_the_grace_period_ends_it(house: House) -> None:
    house.presence.link_opened("luna")
    house.presence.link_closed("luna")

    house.presence.link_opened("luna")

    assert house.timers[0].is_cancelled
    assert house.presence.is_present("luna")


def test_agent_that_left_needs_no_grace_period(house: House) -> None:
    house.presence.link_opened("luna")
    house.presence.link_closed("luna")

    house.presence.put(agent(link=True, left=True))

    assert house.timers[0].is_cancelled


def test_linked_agent_has_a_grace_period_after_a_restart(house: House) -> None:
    house.presence.put(agent(link=True))
    house.presence.put(agent(link=True))

    assert len(house.timers) == 1


def test_agent_with_a_live_process_survives_the_loss_of_its_link(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    house.presence.link_opened("luna")
    house.presence.link_closed("luna")

    house.timers[0].fire()

    assert house.gone == []


def test_closed_presence_reports_nothing(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    house.presence.link_opened("nova")
    house.presence.link_closed("nova")

    house.presence.close()

    assert not house.watch.watched
    assert house.timers[0].is_cancelled


# Agents of holders


def held(seat: Seat = SEAT, *, left: bool = False) -> Agent:
    return Agent(name="luna", base="luna", seat=seat, holder="hash", left=left)


def test_end_of_a_held_agent_waits_for_the_report_of_its_holder(house: House) -> None:
    house.presence.put(held())

    house.watch.end(SEAT)

    assert not house.presence.is_present("luna")
    assert house.gone == []
    assert [timer.delay_s for timer in house.timers] == [LINK_GRACE_S]
    house.presence.put(held(left=True))
    assert house.timers[0].is_cancelled


def test_end_of_a_held_agent_is_reported_after_the_grace_period(house: House) -> None:
    house.presence.put(held())
    house.watch.end(SEAT)

    house.timers[0].fire()

    assert house.gone == [("luna", SEAT, "its process ended")]


def test_later_update_does_not_revive_an_ended_process(house: House) -> None:
    house.presence.put(held())
    house.watch.end(SEAT)

    house.presence.put(held())

    assert not house.watch.watched
    assert not house.presence.is_present("luna")
    assert len(house.timers) == 1


def test_next_process_of_a_holder_is_watched(house: House) -> None:
    house.presence.put(held())
    house.watch.end(SEAT)

    house.presence.put(held(OTHER))
    house.timers[0].fire()

    assert list(house.watch.watched) == [OTHER]
    assert house.presence.is_present("luna")
    assert house.gone == []


def test_sub_agent_is_present_as_long_as_its_parent(house: House) -> None:
    child = Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=SEAT)
    inner = Agent(name="luna_x_1_y_1", base="luna_x_1_y_1", parent="luna_x_1", seat=SEAT)
    for agent in (Agent(name="luna", base="luna", seat=SEAT), child, inner):
        house.presence.put(agent)

    assert all(map(house.presence.is_present, ("luna", "luna_x_1", "luna_x_1_y_1")))
    assert list(house.watch.watched) == [SEAT]

    house.watch.end(SEAT)

    assert not any(map(house.presence.is_present, ("luna", "luna_x_1", "luna_x_1_y_1")))
    assert house.gone == [("luna", SEAT, "its process ended")]


def test_ended_sub_agent_is_not_present(house: House) -> None:
    house.presence.put(Agent(name="luna", base="luna", seat=SEAT))
    house.presence.put(Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=SEAT))

    house.presence.put(Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=SEAT, left=True))

    assert not house.presence.is_present("luna_x_1")
    assert house.presence.is_present("luna")
