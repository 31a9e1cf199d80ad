"""An agent as the one who asks. Pure: whether somebody may speak for it is decided elsewhere."""

from palaver.model.agent import Agent, Caller, Standing, standing_of_role
from palaver.model.message import INSTANCE


def caller_for(agent: Agent, *, at_most: Standing = Standing.HUMAN) -> Caller:
    """Give an agent as the caller, with the standing of its role, or a lower one that is the limit."""
    return Caller(
        name=agent.name,
        standing=min(standing_of_role(agent.role), at_most),
        kind=INSTANCE,
        harness=agent.harness,
        seat=agent.seat,
    )
