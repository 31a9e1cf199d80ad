"""The state that an agent, or the daemon, reports. Written as reported: no decision depends on it."""

from palaver.broker.context import Context
from palaver.broker.goodbyes import say_goodbye
from palaver.broker.life import tell_ready
from palaver.broker.outcome import Written
from palaver.errors import WhoAreYou
from palaver.model.agent import Caller
from palaver.model.delivery import AgentState, parse_state
from palaver.model.envelope import Draft
from palaver.model.life import DAEMON_STARTED, LIFE
from palaver.model.message import INSTANCE
from palaver.model.request import SetStatus, Started
from palaver.model.text import check_text


async def set_status(context: Context, caller: Caller, request: SetStatus, key: bytes | None) -> Written:
    """Write what the caller is doing. `exited` means that it leaves."""
    if caller.kind != INSTANCE:
        raise WhoAreYou("only an agent can report a state; join first with 'pal join'")
    payload: dict[str, object] = {"state": parse_state(request.state).value}
    for name in ("detail", "tool", "command", "file"):
        if value := getattr(request, name):
            check_text(value, f"the {name}", 4096)
            payload[name] = value
    if payload["state"] == AgentState.EXITED:
        return await say_goodbye(context, caller.name, request.detail or "exited", key, by=caller.by)
    written = await _write(context, caller, "status", payload, key)
    assert written.event is not None  # a state is always written
    if payload["state"] == AgentState.IDLE:
        await tell_ready(context, written.event)
    return written


async def started(context: Context, caller: Caller, request: Started, key: bytes | None) -> Written:
    """Write that the daemon has started: everything that depended on connections has ended."""
    payload: dict[str, object] = {
        "action": DAEMON_STARTED,
        "pid": request.pid,
        "version": request.version,
    }
    return await _write(context, caller, LIFE, payload, key)


async def _write(
    context: Context, caller: Caller, type_: str, payload: dict[str, object], key: bytes | None
) -> Written:
    draft = Draft(
        type=type_,
        sender=caller.name,
        payload=payload,
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.by,
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)
