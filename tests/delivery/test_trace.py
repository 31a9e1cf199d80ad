"""Delivery records each step of a message in its trace."""

from collections.abc import Sequence

import pytest
from tests.fakes import HUMAN, Bus

from palaver.protocol.events import AgentState
from palaver.protocol.lanes import LaneKind, LaneLevel, OfferOutcome

Steps = list[tuple[str, tuple[int, ...], str, str, str]]


@pytest.fixture
def steps(bus: Bus) -> Steps:
    reported: Steps = []

    def trace(agent: str, seqs: Sequence[int], step: str, lane: str, detail: str) -> None:
        reported.append((agent, tuple(seqs), step, lane, detail))

    bus.delivery.trace = trace
    return reported


async def test_offers_outcomes_and_gates_are_traced(bus: Bus, steps: Steps) -> None:
    await bus.join("nova")
    sent = await bus.send(HUMAN, "hello", "@nova")
    lane = bus.open_lane("nova", LaneKind.TERMINAL, level=None)
    bus.delivery.set_level(lane.lane, LaneLevel(is_open=False, reason="draft"))
    bus.delivery.set_level(lane.lane, LaneLevel(is_open=False, reason="draft"))
    bus.delivery.set_level(lane.lane, LaneLevel())
    offer = await lane.next()
    bus.delivery.arrived(lane.lane, offer.number)
    bus.delivery.arrived(lane.lane, offer.number + 1)
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN, grade="context")
    bus.delivery.set_level(lane.lane, LaneLevel(is_paused=True, reason="pause"))
    await bus.delivery.close_lane(lane.lane)

    assert steps == [
        ("nova", (), "lane opened", "terminal", "starting"),
        ("nova", (), "gate closed", "terminal", "draft"),
        ("nova", (), "gate open", "terminal", ""),
        ("nova", (sent.seq,), "offered", "terminal", ""),
        ("nova", (sent.seq,), "arrived", "terminal", ""),
        ("nova", (sent.seq,), "answered seen", "terminal", "context"),
        ("nova", (), "gate paused", "terminal", "pause"),
        ("nova", (), "lane closed", "terminal", ""),
    ]


async def test_messages_that_a_hook_draws_are_traced(bus: Bus, steps: Steps) -> None:
    await bus.join("nova")
    lane = bus.open_lane("nova", LaneKind.HOOK, is_pulled=True).lane
    sent = await bus.send(HUMAN, "hello", "@nova")

    await bus.delivery.draw(lane, AgentState.ACTIVE)

    assert [step[1:4] for step in steps if step[1]] == [((sent.seq,), "offered", "hook")]


async def test_outcomes_that_a_holder_remembers_are_traced(bus: Bus, steps: Steps) -> None:
    await bus.join("nova")
    sent = await bus.send(HUMAN, "hello", "@nova")
    lane = bus.open_lane("nova", remembers=True)
    await lane.next()
    other = bus.open_lane("nova", remembers=True).lane

    bus.delivery.take_up(other, [sent.seq])
    await bus.delivery.recover(other, [sent.seq], OfferOutcome.SEEN)

    assert [step[2] for step in steps if step[1]] == ["offered", "still in progress", "remembered seen"]


async def test_lanes_and_their_gate_states_are_reported_once(bus: Bus) -> None:
    reported: list[str] = []
    await bus.join("nova")
    bus.delivery.level_changed = reported.append

    lane = bus.open_lane("nova", LaneKind.TERMINAL, level=None)
    for reason in ("draft", "draft", "dialog"):
        bus.delivery.set_level(lane.lane, LaneLevel(is_open=False, reason=reason))

    await bus.delivery.close_lane(lane.lane)

    assert reported == ["nova"] * 4
