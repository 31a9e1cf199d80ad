"""The caller that a token names. Its agent may have left since the token was made, or have a new role."""

from palaver.doors.services import Services
from palaver.doors.tokens import Token
from palaver.errors import WhoAreYou
from palaver.model.agent import Caller, Standing
from palaver.model.caller import caller_for


def caller_of(services: Services, token: Token) -> Caller:
    """Return the agent of a token, with at most the token's standing, and record that it is active now.

    Raises WhoAreYou.
    """
    agent = services.broker.directory.find(token.name)
    if agent is None:
        raise WhoAreYou(f"this token is {token.name}'s, and there is no {token.name} any more")
    services.attendance.spoke(agent.name)
    return caller_for(agent, at_most=Standing[token.standing.upper()])
