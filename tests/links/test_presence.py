"""Presence over a fake watch and a fake timer: no process, no clock."""

from collections.abc import Callable

import pytest

from palaver.links.presence import LINK_GRACE_S, Presence
from palaver.model.agent import Agent, Seat

SEAT = Seat(pid=100, start=5, boot="b")
OTHER = Seat(pid=101, start=6, boot="b")


class FakeWatch:
    """Seats whose end a test brings about."""

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
    """A presence with everything around it in a test's hand."""

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


def test_an_agent_is_present_while_its_process_lives(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    was_present = house.presence.is_present("luna")

    house.watch.end(SEAT)

    assert was_present
    assert not house.presence.is_present("luna")
    assert house.gone == [("luna", SEAT, "its process ended")]


def test_an_agent_that_is_told_of_twice_is_watched_once(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    first = house.watch.watched[SEAT]

    house.presence.put(agent(seat=SEAT))

    assert house.watch.watched[SEAT] is first


def test_an_agent_that_moves_to_another_seat_is_watched_there(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    old_end = house.watch.watched[SEAT]

    house.presence.put(agent(seat=OTHER))
    old_end()

    assert list(house.watch.watched) == [OTHER]
    assert house.presence.is_present("luna")
    assert house.gone == []


def test_an_agent_that_left_is_not_watched(house: House) -> None:
    house.presence.put(agent(seat=SEAT))

    house.presence.put(agent(seat=SEAT, left=True))

    assert not house.watch.watched
    assert not house.presence.is_present("luna")


def test_an_agent_of_another_machine_is_not_watched(house: House) -> None:
    house.presence.put(agent(seat=SEAT, remote=True))

    assert not house.watch.watched


def test_an_agent_with_a_link_outlives_its_process(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    house.presence.link_opened("luna")

    house.watch.end(SEAT)

    assert house.presence.is_present("luna")
    assert house.gone == []


def test_the_last_link_that_closes_begins_the_grace(house: House) -> None:
    house.presence.link_opened("luna")
    house.presence.link_opened("luna")
    house.presence.link_closed("luna")
    has_link = house.presence.is_present("luna")

    house.presence.link_closed("luna")
    house.timers[0].fire()

    assert has_link
    assert [timer.delay_s for timer in house.timers] == [LINK_GRACE_S]
    assert house.gone == [("luna", None, "its connection was lost")]


def test_who_comes_back_within_the_grace_was_never_gone(house: House) -> None:
    house.presence.link_opened("luna")
    house.presence.link_closed("luna")

    house.presence.link_opened("luna")

    assert house.timers[0].is_cancelled
    assert house.presence.is_present("luna")


def test_an_agent_that_left_needs_no_grace(house: House) -> None:
    house.presence.link_opened("luna")
    house.presence.link_closed("luna")

    house.presence.put(agent(link=True, left=True))

    assert house.timers[0].is_cancelled


def test_after_a_restart_an_agent_on_a_connection_has_the_grace_to_come_back(house: House) -> None:
    house.presence.put(agent(link=True))
    house.presence.put(agent(link=True))

    assert len(house.timers) == 1


def test_an_agent_with_a_living_process_survives_the_loss_of_its_link(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    house.presence.link_opened("luna")
    house.presence.link_closed("luna")

    house.timers[0].fire()

    assert house.gone == []


def test_a_closed_presence_tells_nothing(house: House) -> None:
    house.presence.put(agent(seat=SEAT))
    house.presence.link_opened("nova")
    house.presence.link_closed("nova")

    house.presence.close()

    assert not house.watch.watched
    assert house.timers[0].is_cancelled


# What a holder runs


def held(seat: Seat = SEAT, *, left: bool = False) -> Agent:
    return Agent(name="luna", base="luna", seat=seat, holder="hash", left=left)


def test_of_what_a_holder_runs_the_holder_may_say_how_it_ended(house: House) -> None:
    house.presence.put(held())

    house.watch.end(SEAT)

    assert not house.presence.is_present("luna")
    assert house.gone == []
    assert [timer.delay_s for timer in house.timers] == [LINK_GRACE_S]
    house.presence.put(held(left=True))
    assert house.timers[0].is_cancelled


def test_a_holder_that_says_nothing_has_had_its_time(house: House) -> None:
    house.presence.put(held())
    house.watch.end(SEAT)

    house.timers[0].fire()

    assert house.gone == [("luna", SEAT, "its process ended")]


def test_news_of_one_whose_process_has_ended_do_not_bring_it_back(house: House) -> None:
    house.presence.put(held())
    house.watch.end(SEAT)

    house.presence.put(held())

    assert not house.watch.watched
    assert not house.presence.is_present("luna")
    assert len(house.timers) == 1


def test_what_a_holder_runs_next_is_watched_anew(house: House) -> None:
    house.presence.put(held())
    house.watch.end(SEAT)

    house.presence.put(held(OTHER))
    house.timers[0].fire()

    assert list(house.watch.watched) == [OTHER]
    assert house.presence.is_present("luna")
    assert house.gone == []


def test_a_sub_agent_is_there_as_long_as_its_parent_is(house: House) -> None:
    child = Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=SEAT)
    inner = Agent(name="luna_x_1_y_1", base="luna_x_1_y_1", parent="luna_x_1", seat=SEAT)
    for agent in (Agent(name="luna", base="luna", seat=SEAT), child, inner):
        house.presence.put(agent)

    assert all(map(house.presence.is_present, ("luna", "luna_x_1", "luna_x_1_y_1")))
    assert list(house.watch.watched) == [SEAT]

    house.watch.end(SEAT)

    assert not any(map(house.presence.is_present, ("luna", "luna_x_1", "luna_x_1_y_1")))
    assert house.gone == [("luna", SEAT, "its process ended")]


def test_a_sub_agent_that_has_ended_is_not_there(house: House) -> None:
    house.presence.put(Agent(name="luna", base="luna", seat=SEAT))
    house.presence.put(Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=SEAT))

    house.presence.put(Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=SEAT, left=True))

    assert not house.presence.is_present("luna_x_1")
    assert house.presence.is_present("luna")
