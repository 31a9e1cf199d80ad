"""What an agent's state lets pass to whoever is pushed its mail."""

import pytest

from palaver.delivery.gate import gate_of_pushed
from palaver.model.agent import Agent
from palaver.model.priority import Priority

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
def test_a_state_lets_pass_what_the_table_of_priorities_says(state: str, passing: list[Priority]) -> None:
    gate = gate_of_pushed(Agent(name="nova", base="nova", state=state))

    assert [priority for priority in Priority if gate.can_pass(priority)] == passing


def test_a_pause_lets_nothing_pass_but_interrupts() -> None:
    gate = gate_of_pushed(Agent(name="nova", base="nova", paused=True))

    assert [priority for priority in Priority if gate.can_pass(priority)] == [Priority.INTERRUPT]


@pytest.mark.parametrize("agent", [None, Agent(name="nova", base="nova")])
def test_who_never_said_what_it_does_gets_everything(agent: Agent | None) -> None:
    gate = gate_of_pushed(agent)

    assert all(map(gate.can_pass, Priority))
