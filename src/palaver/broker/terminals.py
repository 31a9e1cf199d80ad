"""Pause an agent, and record input at its terminal. Types nothing itself: its holder does."""

from palaver.broker.context import Context
from palaver.broker.outcome import Written
from palaver.errors import BadRequest, NotFound
from palaver.log.api import Rows
from palaver.log.state import read_agent
from palaver.model.agent import Caller
from palaver.model.envelope import Draft
from palaver.model.life import LIFE
from palaver.model.message import HUMAN
from palaver.model.terminal import PAUSED, TYPED, UNPAUSED, Pause, Typed, Unpause, secret_text
from palaver.model.text import check_text


async def pause(context: Context, caller: Caller, request: Pause, key: bytes | None) -> Written:
    """Write that an agent gets interrupts only; nothing if it is paused already."""
    return await _set_paused(context, caller, request.name, key, is_paused=True)


async def unpause(context: Context, caller: Caller, request: Unpause, key: bytes | None) -> Written:
    """Write that an agent gets its messages again; nothing if it is not paused."""
    return await _set_paused(context, caller, request.name, key, is_paused=False)


async def _set_paused(
    context: Context, caller: Caller, name: str, key: bytes | None, *, is_paused: bool
) -> Written:
    agent = context.directory.get(name)
    if agent is None:
        raise NotFound(f"agent {name}", "'pal list' shows the agents")
    draft = Draft(
        type=PAUSED if is_paused else UNPAUSED,
        sender=caller.name,
        payload={"agent": agent.name},
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.by,
    )

    def decide(rows: Rows) -> Draft | None:
        known = read_agent(rows, agent.name)
        return draft if known is not None and known.paused != is_paused else None

    return Written(event=(await context.log.commit(f"agent/{agent.name}", decide, request_key=key)).event)


async def typed(context: Context, caller: Caller, request: Typed, key: bytes | None) -> Written:
    """Write what a person typed at an agent's terminal. The door has checked that its holder reports it."""
    if request.text and request.secret:
        raise BadRequest("report either the typed text, or the number of characters of a secret")
    check_text(request.text, "the typed text")
    payload: dict[str, object] = {"action": TYPED, "agent": request.name, "text": request.text}
    if request.secret:
        payload |= {"text": secret_text(request.secret), "secret": request.secret}
    draft = Draft(
        type=LIFE,
        sender=request.name,
        payload=payload,
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=HUMAN,
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)
