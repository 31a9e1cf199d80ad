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


class PresenceStage:
    """A presence with fakes that the test controls."""

    def __init__(self) -> None:
        self.watch = FakeWatch()
        self.timers: list[FakeTimer] = []
        self.gone: list[tuple[str, Seat | None, str]] = []
        self.presence = Presence(self.watch, lambda *change: self.gone.append(change), self._call_later)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(delay_s, callback))
        return self.timers[-1]


@pytest.fixture
def stage() -> PresenceStage:
    return PresenceStage()


def agent(*, seat: Seat | None = None, link: bool = False, left: bool = False, remote: bool = False) -> Agent:
    return Agent(name="luna", base="luna", seat=seat, link=link, left=left, remote=remote)


def test_agent_is_present_while_its_process_lives(stage: PresenceStage) -> None:
    stage.presence.put(agent(seat=SEAT))
    was_present = stage.presence.is_present("luna")

    stage.watch.end(SEAT)

    assert was_present
    assert not stage.presence.is_present("luna")
    assert stage.gone == [("luna", SEAT, "its process ended")]


def test_change_of_a_process_or_a_connection_is_reported(stage: PresenceStage) -> None:
    changed: list[str] = []
    stage.presence.changed = changed.append
    stage.presence.put(agent(seat=SEAT))

    stage.watch.end(SEAT)
    stage.presence.link_opened("luna")
    stage.presence.link_opened("luna")
    stage.presence.link_closed("luna")
    stage.presence.link_closed("luna")

    assert changed == ["luna"] * 4


def test_agent_that_is_put_twice_is_watched_once(stage: PresenceStage) -> None:
    stage.presence.put(agent(seat=SEAT))
    first = stage.watch.watched[SEAT]

    stage.presence.put(agent(seat=SEAT))

    assert stage.watch.watched[SEAT] is first


def test_agent_that_moves_to_another_seat_is_watched_there(stage: PresenceStage) -> None:
    stage.presence.put(agent(seat=SEAT))
    old_end = stage.watch.watched[SEAT]

    stage.presence.put(agent(seat=OTHER))
    old_end()

    assert list(stage.watch.watched) == [OTHER]
    assert stage.presence.is_present("luna")
    assert stage.gone == []


def test_agent_that_left_is_not_watched(stage: PresenceStage) -> None:
    stage.presence.put(agent(seat=SEAT))

    stage.presence.put(agent(seat=SEAT, left=True))

    assert not stage.watch.watched
    assert not stage.presence.is_present("luna")


def test_remote_agent_is_not_watched(stage: PresenceStage) -> None:
    stage.presence.put(agent(seat=SEAT, remote=True))

    assert not stage.watch.watched


def test_agent_with_a_link_outlives_its_process(stage: PresenceStage) -> None:
    stage.presence.put(agent(seat=SEAT))
    stage.presence.link_opened("luna")

    stage.watch.end(SEAT)

    assert stage.presence.is_present("luna")
    assert stage.gone == []


def test_last_link_that_closes_starts_the_grace_period(stage: PresenceStage) -> None:
    stage.presence.link_opened("luna")
    stage.presence.link_opened("luna")
    stage.presence.link_closed("luna")
    has_link = stage.presence.is_present("luna")

    stage.presence.link_closed("luna")
    stage.timers[0].fire()

    assert has_link
    assert [timer.delay_s for timer in stage.timers] == [LINK_GRACE_S]
    assert stage.gone == [("luna", None, "its connection was lost")]


def test_link_that_returns_within_the_grace_period_ends_it(stage: PresenceStage) -> None:
    stage.presence.link_opened("luna")
    stage.presence.link_closed("luna")

    stage.presence.link_opened("luna")

    assert stage.timers[0].is_cancelled
    assert stage.presence.is_present("luna")


def test_agent_that_left_needs_no_grace_period(stage: PresenceStage) -> None:
    stage.presence.link_opened("luna")
    stage.presence.link_closed("luna")

    stage.presence.put(agent(link=True, left=True))

    assert stage.timers[0].is_cancelled


def test_linked_agent_has_a_grace_period_after_a_restart(stage: PresenceStage) -> None:
    stage.presence.put(agent(link=True))
    stage.presence.put(agent(link=True))

    assert len(stage.timers) == 1


def test_agent_with_a_live_process_survives_the_loss_of_its_link(stage: PresenceStage) -> None:
    stage.presence.put(agent(seat=SEAT))
    stage.presence.link_opened("luna")
    stage.presence.link_closed("luna")

    stage.timers[0].fire()

    assert stage.gone == []


def test_closed_presence_reports_nothing(stage: PresenceStage) -> None:
    stage.presence.put(agent(seat=SEAT))
    stage.presence.link_opened("nova")
    stage.presence.link_closed("nova")

    stage.presence.close()

    assert not stage.watch.watched
    assert stage.timers[0].is_cancelled


# Agents of holders


def held(seat: Seat = SEAT, *, left: bool = False) -> Agent:
    return Agent(name="luna", base="luna", seat=seat, holder="hash", left=left)


def test_end_of_a_held_agent_waits_for_the_report_of_its_holder(stage: PresenceStage) -> None:
    stage.presence.put(held())

    stage.watch.end(SEAT)

    assert not stage.presence.is_present("luna")
    assert stage.gone == []
    assert [timer.delay_s for timer in stage.timers] == [LINK_GRACE_S]
    stage.presence.put(held(left=True))
    assert stage.timers[0].is_cancelled


def test_end_of_a_held_agent_is_reported_after_the_grace_period(stage: PresenceStage) -> None:
    stage.presence.put(held())
    stage.watch.end(SEAT)

    stage.timers[0].fire()

    assert stage.gone == [("luna", SEAT, "its process ended")]


def test_later_update_does_not_revive_an_ended_process(stage: PresenceStage) -> None:
    stage.presence.put(held())
    stage.watch.end(SEAT)

    stage.presence.put(held())

    assert not stage.watch.watched
    assert not stage.presence.is_present("luna")
    assert len(stage.timers) == 1


def test_connection_in_the_grace_period_only_delays_the_report(stage: PresenceStage) -> None:
    stage.presence.put(held())
    stage.watch.end(SEAT)
    stage.presence.link_opened("luna")
    stage.presence.link_closed("luna")

    stage.timers[-1].fire()

    assert [timer.is_cancelled for timer in stage.timers] == [True, False]
    assert stage.gone == [("luna", SEAT, "its process ended")]


def test_connection_that_closes_in_the_grace_period_replaces_it(stage: PresenceStage) -> None:
    stage.presence.put(held())
    stage.presence.link_opened("luna")
    stage.watch.end(SEAT)

    stage.presence.link_closed("luna")

    assert [timer.is_cancelled for timer in stage.timers] == [True, False]


def test_agent_without_its_process_has_left_its_seat_while_connected(stage: PresenceStage) -> None:
    stage.presence.put(agent(seat=SEAT))
    stage.presence.link_opened("luna")
    stage.watch.end(SEAT)
    stage.presence.link_closed("luna")

    stage.timers[-1].fire()

    assert stage.gone == [("luna", SEAT, "its process ended")]


def test_next_process_of_a_holder_is_watched(stage: PresenceStage) -> None:
    stage.presence.put(held())
    stage.watch.end(SEAT)

    stage.presence.put(held(OTHER))
    stage.timers[0].fire()

    assert list(stage.watch.watched) == [OTHER]
    assert stage.presence.is_present("luna")
    assert stage.gone == []


def test_sub_agent_is_present_as_long_as_its_parent(stage: PresenceStage) -> None:
    child = Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=SEAT)
    inner = Agent(name="luna_x_1_y_1", base="luna_x_1_y_1", parent="luna_x_1", seat=SEAT)
    for agent in (Agent(name="luna", base="luna", seat=SEAT), child, inner):
        stage.presence.put(agent)

    assert all(map(stage.presence.is_present, ("luna", "luna_x_1", "luna_x_1_y_1")))
    assert list(stage.watch.watched) == [SEAT]

    stage.watch.end(SEAT)

    assert not any(map(stage.presence.is_present, ("luna", "luna_x_1", "luna_x_1_y_1")))
    assert stage.gone == [("luna", SEAT, "its process ended")]


def test_ended_sub_agent_is_not_present(stage: PresenceStage) -> None:
    stage.presence.put(Agent(name="luna", base="luna", seat=SEAT))
    stage.presence.put(Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=SEAT))

    stage.presence.put(Agent(name="luna_x_1", base="luna_x_1", parent="luna", seat=SEAT, left=True))

    assert not stage.presence.is_present("luna_x_1")
    assert stage.presence.is_present("luna")
