"""Leaving: each agent leaves once, or the bus writes it, decided on the single key `agent/<name>`."""

from palaver.broker.context import Context
from palaver.broker.life import tell
from palaver.broker.outcome import Written
from palaver.broker.rooms import LEFT, leave_all_rooms
from palaver.errors import WhoAreYou
from palaver.log.api import Rows
from palaver.log.state import read_agent
from palaver.model.agent import Caller, Seat
from palaver.model.envelope import Draft
from palaver.model.life import BYE, STOPPED
from palaver.model.message import INSTANCE
from palaver.model.request import Gone, Leave
from palaver.model.text import check_text


async def leave(context: Context, caller: Caller, request: Leave, key: bytes | None) -> Written:
    """Write that the caller leaves; a repeat writes nothing."""
    if caller.kind != INSTANCE:
        raise WhoAreYou("you have no name to leave; 'pal list' shows who is here")
    if request.reason == LEFT:  # It leaves by request. An agent that only ends may come back.
        await leave_all_rooms(context, caller)
    return await say_goodbye(context, caller.name, request.reason, key, by=caller.by)


async def gone(context: Context, caller: Caller, request: Gone, key: bytes | None) -> Written:
    """Write that an offline agent has left, unless it is back or has another seat by now."""
    known = context.directory.get(request.name)
    if known is None:
        return Written(event=None)
    return await say_goodbye(context, request.name, request.reason, key, only_at=(request.seat, known.seq))


async def say_goodbye(
    context: Context,
    name: str,
    reason: str,
    key: bytes | None,
    *,
    by: str | None = None,
    id: str = "",
    only_at: tuple[Seat | None, int] | None = None,
) -> Written:
    """Write that an agent has left, once; with `only_at` only if its seat and seq are unchanged."""
    check_text(reason, "the reason", 1024)
    draft = Draft(
        type=BYE,
        sender=name,
        payload={"reason": reason},
        id=id or context.ids.next(),
        ts=context.clock.now_ms(),
        by=by,
    )

    def decide(rows: Rows) -> Draft | None:
        known = read_agent(rows, name)
        if known is None or known.left:
            return None
        is_there = only_at is None or only_at == (known.seat, known.seq)
        return draft if is_there else None

    event = (await context.log.commit(f"agent/{name}", decide, request_key=key)).event
    if event is not None and event.type == BYE:
        await tell(context, event, STOPPED, reason=reason)
    return Written(event=event)
