"""An agent as the caller."""

import pytest

from palaver.protocol.agents import Agent, Seat, Standing, caller_for

SEAT = Seat(pid=7, start=70, boot="boot")


def test_agent_is_a_caller_as_itself() -> None:
    found = caller_for(Agent(name="luna", base="luna", role="operator", harness="claude", seat=SEAT))

    assert (found.name, found.standing, found.kind) == ("luna", Standing.OPERATOR, "instance")
    assert (found.harness, found.seat, found.by) == ("claude", SEAT, None)


@pytest.mark.parametrize(
    ("role", "standing"), [("operator", Standing.WORKER), ("observer", Standing.OBSERVER)]
)
def test_limit_lowers_and_never_raises_the_standing(role: str, standing: Standing) -> None:
    agent = Agent(name="luna", base="luna", role=role)

    assert caller_for(agent, at_most=Standing.WORKER).standing is standing
