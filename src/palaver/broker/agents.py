"""Joining and leaving: who may have which name, decided on the one key `agent/<name>`.

A name is its agent's for good. Somebody else gets it only from the human, by bringing the same session again, or, for
a worker that is away, as a script that says so.
"""

from typing import Final

import msgspec

from palaver.broker.context import Context
from palaver.broker.outcome import Joined, Written
from palaver.errors import BadName, NameTaken, NotPerson, WhoAreYou
from palaver.log.api import Decide, Rows
from palaver.log.fold import read_agent
from palaver.model.agent import Agent, Caller, Standing, standing_of_role
from palaver.model.delivery import AgentState, parse_state
from palaver.model.envelope import Draft
from palaver.model.message import HUMAN, INSTANCE
from palaver.model.names import check_name, full_name, spare_name, split_name
from palaver.model.request import Gone, Join, Leave, Register, SetStatus, Started
from palaver.model.text import check_text

SCRIPT: Final = "script"
_TRIES: Final = 10_000


async def join(context: Context, caller: Caller, request: Join, key: bytes | None) -> Joined:
    """Give the caller a name, a new one or its own again."""
    standing = standing_of_role(request.role)
    name = request.name.lower() or _draw_name(context, request.tag.lower())
    parts = split_name(full_name(name, request.tag.lower()))
    check_name(parts.base, parts.tag)
    if parts.device:
        raise BadName(name, "an agent here has no device suffix; --remote registers one of another machine")
    agent = Agent(
        name=full_name(parts.base, parts.tag),
        base=parts.base,
        tag=parts.tag,
        role=request.role,
        harness=request.harness,
        device=context.log.device,
        runtime=request.runtime or request.harness,
        version=request.version,
        seat=request.seat,
        link=request.has_link,
        session=request.session,
        by="" if caller.kind == HUMAN else caller.name,
    )
    known = context.directory.get(agent.name)
    if known is not None and _is_same(known, agent) and standing <= standing_of_role(known.role):
        agent = msgspec.structs.replace(agent, role=known.role, by=known.by)
        return await _rejoin(context, caller, agent, key)
    _check_standing(caller, standing, request)
    commit = await context.log.commit(
        f"agent/{agent.name}", _decide_join(context, caller, request, agent), request_key=key
    )
    assert commit.event is not None
    joined = read_agent(context.log.rows, agent.name) or agent
    return Joined(agent=joined, is_new=not commit.is_repeat)


def _decide_join(context: Context, caller: Caller, request: Join, agent: Agent) -> Decide:
    draft = Draft(
        type="agent.hello",
        sender=agent.name,
        payload={
            "runtime": agent.runtime,
            "version": agent.version,
            "agent": msgspec.to_builtins(agent),
        },
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=agent.by or None,
    )

    def decide(rows: Rows) -> Draft:
        known = read_agent(rows, agent.name)
        if known is not None:
            _check_name_free(context, caller, request, known)
        return draft

    return decide


def _check_name_free(context: Context, caller: Caller, request: Join, known: Agent) -> None:
    if not known.left and context.is_present(known.name):
        raise NameTaken(known.name, "it is in use now; choose another with --name")
    if caller.kind == HUMAN or known.by == caller.name != SCRIPT:
        return
    if caller.name == SCRIPT and request.takes_over and standing_of_role(known.role) <= Standing.WORKER:
        return
    raise NameTaken(
        known.name,
        "it has a history; only the human, or the same harness session again, can have it back "
        f"(a script says so outright: pal join --as {known.name})",
    )


def _check_standing(caller: Caller, standing: Standing, request: Join) -> None:
    if standing > Standing.WORKER and caller.kind != HUMAN:
        raise NotPerson(f"the role {request.role} is given by the human; join as a worker")
    if standing > caller.standing:
        raise NotPerson(f"nobody can open a name above its own standing ({caller.standing.word})")


def _is_same(known: Agent, agent: Agent) -> bool:
    """Whether the one who asks is the one who has the name: the same seat, or the same session again."""
    if agent.seat is not None and known.seat == agent.seat:
        return True
    return bool(agent.session) and known.session == agent.session and known.harness == agent.harness


async def _rejoin(context: Context, caller: Caller, agent: Agent, key: bytes | None) -> Joined:
    """The same one is back: the seat moves, and no hello is written."""
    id_, now = context.ids.next(), context.clock.now_ms()

    def decide(rows: Rows) -> Draft | None:
        known = read_agent(rows, agent.name)
        if known is not None and not known.left and (known.seat, known.link) == (agent.seat, agent.link):
            return None
        return Draft(
            type="life",
            sender=agent.name,
            payload={"action": "resumed", "name": agent.name, "agent": msgspec.to_builtins(agent)},
            id=id_,
            ts=now,
        )

    await context.log.commit(f"agent/{agent.name}", decide, request_key=key)
    return Joined(agent=read_agent(context.log.rows, agent.name) or agent, is_new=False)


def _draw_name(context: Context, tag: str) -> str:
    """Draw a name that nobody has had."""
    start = context.draw()
    for step in range(_TRIES):
        name = spare_name(start + step)
        if context.directory.get(full_name(name, tag)) is None and not context.directory.by_base(name):
            return name
    raise NameTaken("*", "every short name is in use; choose one with --name")


async def register(context: Context, caller: Caller, request: Register, key: bytes | None) -> Joined:
    """Make an agent of another machine known."""
    parts = split_name(request.name)
    if not parts.device or parts.device == context.log.device:
        raise BadName(request.name, "a remote agent is written NAME:DEVICE, with the other machine's device id")
    check_name(parts.base, parts.tag)
    agent = Agent(
        name=full_name(parts.base, parts.tag, parts.device),
        base=parts.base,
        tag=parts.tag,
        device=parts.device,
        remote=True,
    )
    draft = Draft(
        type="agent.hello",
        sender=agent.name,
        payload={"runtime": "", "version": "", "agent": msgspec.to_builtins(agent)},
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.name,
    )
    commit = await context.log.commit(
        f"agent/{agent.name}",
        lambda rows: None if read_agent(rows, agent.name) else draft,
        request_key=key,
    )
    return Joined(agent=agent, is_new=commit.event is not None)


async def leave(context: Context, caller: Caller, request: Leave, key: bytes | None) -> Written:
    """Write a goodbye; a second one writes nothing."""
    if caller.kind != INSTANCE:
        raise WhoAreYou("you have no name to leave; 'pal list' shows who is here")
    return await _goodbye(context, caller.name, request.reason, key, by=caller.by)


async def gone(context: Context, caller: Caller, request: Gone, key: bytes | None) -> Written:
    """Write the goodbye of an agent whose process has ended, unless it sits somewhere else by now."""
    known = context.directory.get(request.name)
    if known is None or known.seat != request.seat:
        return Written(event=None)
    return await _goodbye(context, request.name, request.reason, key)


async def _goodbye(
    context: Context, name: str, reason: str, key: bytes | None, by: str | None = None
) -> Written:
    check_text(reason, "the reason", 1024)
    id_, now = context.ids.next(), context.clock.now_ms()

    def decide(rows: Rows) -> Draft | None:
        known = read_agent(rows, name)
        if known is None or known.left:
            return None
        return Draft(
            type="agent.bye",
            sender=name,
            payload={"reason": reason},
            id=id_,
            ts=now,
            by=by,
        )

    return Written(event=(await context.log.commit(f"agent/{name}", decide, request_key=key)).event)


async def set_status(context: Context, caller: Caller, request: SetStatus, key: bytes | None) -> Written:
    """Write what the caller is doing, when it is news."""
    if caller.kind != INSTANCE:
        raise WhoAreYou("only an agent has a state; join first with 'pal join'")
    check_text(request.detail, "the detail", 1024)
    state = parse_state(request.state)
    if state is AgentState.EXITED:
        return await _goodbye(context, caller.name, request.detail or "exited", key, by=caller.by)
    payload: dict[str, object] = {"state": state.value}
    for name, value in (("detail", request.detail), ("tool", request.tool), ("file", request.file)):
        if value:
            check_text(value, f"the {name}", 4096)
            payload[name] = value
    draft = Draft(
        type="status",
        sender=caller.name,
        payload=payload,
        id=context.ids.next(),
        ts=context.clock.now_ms(),
        by=caller.by,
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)


async def started(context: Context, caller: Caller, request: Started, key: bytes | None) -> Written:
    """Write that the daemon is up: all that hung on connections is over."""
    now = context.clock.now_ms()
    draft = Draft(
        type="life",
        sender=caller.name,
        payload={"action": "daemon_started", "pid": request.pid, "version": request.version},
        id=context.ids.next(),
        ts=now,
    )
    return Written(event=(await context.log.commit(None, lambda rows: draft, request_key=key)).event)
