"""Who a token names. The agent may have left since the token was made, or have another role by now."""

from palaver.doors.services import Services
from palaver.doors.tokens import Token
from palaver.errors import WhoAreYou
from palaver.model.agent import Caller, Standing, standing_of_role
from palaver.model.message import INSTANCE


def caller_of(services: Services, token: Token) -> Caller:
    """Name the holder of a token, with at most the rights it was made with: it is heard of now.

    Raises WhoAreYou.
    """
    agent = services.broker.directory.find(token.name)
    if agent is None:
        raise WhoAreYou(f"this token is {token.name}'s, and there is no {token.name} any more")
    services.attendance.spoke(agent.name)
    standing = min(Standing[token.standing.upper()], standing_of_role(agent.role))
    return Caller(name=agent.name, standing=standing, kind=INSTANCE, harness=agent.harness, seat=agent.seat)
