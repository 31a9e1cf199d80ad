"""Events about an agent's life, each written once after the event that causes it."""

from palaver.broker.context import Context
from palaver.log.api import Rows
from palaver.log.state import read_agent
from palaver.model.envelope import Draft, Event
from palaver.model.ids import derived_id
from palaver.model.life import LIFE, READY


async def tell(context: Context, cause: Event, action: str, *, reason: str = "") -> None:
    """Write a life event that follows from an event of the agent itself. A repeat writes nothing.

    It is a separate event. A daemon that is killed in between does not write it later: only the cause is
    guaranteed.
    """
    draft = _draft(context, cause, action, reason)
    await context.log.commit(None, lambda rows: draft)


async def tell_ready(context: Context, cause: Event) -> None:
    """Write that an agent is ready: it is idle for the first time since it joined."""
    known = context.directory.get(cause.sender)
    if known is not None and known.ready:
        return
    draft = _draft(context, cause, READY, "")

    def decide(rows: Rows) -> Draft | None:
        agent = read_agent(rows, cause.sender)
        return draft if agent is not None and not agent.ready and not agent.left else None

    await context.log.commit(f"agent/{cause.sender}", decide)


def _draft(context: Context, cause: Event, action: str, reason: str) -> Draft:
    payload: dict[str, object] = {"action": action, "name": cause.sender}
    if reason:
        payload["reason"] = reason
    return Draft(
        type=LIFE,
        sender=cause.sender,
        payload=payload,
        id=derived_id(cause.id, LIFE, action),
        ts=context.clock.now_ms(),
        by=cause.by,
    )
