"""Which priorities an agent's status lets pass to a pushed reader."""

import pytest

from palaver.delivery.lanes import gate_of_pushed
from palaver.protocol.agents import Agent
from palaver.protocol.message import Priority

EVERYTHING = list(Priority)


@pytest.mark.parametrize(
    ("state", "passing"),
    [
        ("idle", EVERYTHING),
        ("exited", EVERYTHING),
        ("active", [Priority.INTERRUPT, Priority.NORMAL]),
        ("starting", [Priority.INTERRUPT, Priority.NORMAL]),
        ("blocked", [Priority.INTERRUPT]),
    ],
)
def test_status_lets_the_priorities_of_the_table_pass(state: str, passing: list[Priority]) -> None:
    gate = gate_of_pushed(Agent(name="nova", base="nova", state=state))

    assert [priority for priority in Priority if gate.can_pass(priority)] == passing


def test_pause_lets_only_interrupts_pass() -> None:
    gate = gate_of_pushed(Agent(name="nova", base="nova", paused=True))

    assert [priority for priority in Priority if gate.can_pass(priority)] == [Priority.INTERRUPT]


@pytest.mark.parametrize("agent", [None, Agent(name="nova", base="nova")])
def test_agent_without_a_reported_status_gets_everything(agent: Agent | None) -> None:
    gate = gate_of_pushed(agent)

    assert all(map(gate.can_pass, Priority))
