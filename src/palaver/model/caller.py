"""An agent as the caller. Pure: other modules decide which callers may act for it."""

from palaver.model.agent import Agent, Caller, Standing, standing_of_role
from palaver.model.message import INSTANCE


def caller_for(agent: Agent, *, at_most: Standing = Standing.HUMAN) -> Caller:
    """Return an agent as the caller, with the standing of its role, or with `at_most` if that is lower."""
    return Caller(
        name=agent.name,
        standing=min(standing_of_role(agent.role), at_most),
        kind=INSTANCE,
        harness=agent.harness,
        seat=agent.seat,
    )
