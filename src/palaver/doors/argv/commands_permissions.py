"""`pal pending`, `approve` and `deny`: show permission requests to all; only the human in person decides."""

import asyncio
import json
from typing import Final

from palaver.broker.permissions import check_person
from palaver.doors.argv.call import Call
from palaver.doors.argv.held_page import held_lines, held_messages, held_view
from palaver.doors.argv.style import ago
from palaver.doors.permissions import Pending
from palaver.errors import BadRequest, Unavailable
from palaver.harness.hook_states import USED_UP, USED_UP_ASKED
from palaver.model.agent import Agent
from palaver.model.delivery import AgentState
from palaver.model.permission import ALLOW, DENY, AnswerPermission
from palaver.model.visible import exact

_ARRIVE_S: Final = 30.0
"""Seconds that a harness may take to accept a decision; some must first confirm that the request is open."""


async def pending(call: Call) -> int:
    """Show everything that waits for a person: requests, then blocked agents, then held messages.

    Only the requests, which come first, can be answered here.
    """
    now, services = call.services.clock.now_ms(), call.services
    asked = services.permissions.all()
    names = {one.agent for one in asked}
    others = [agent for agent in services.broker.directory.all() if _is_asking(call, agent, names)]
    held = held_messages(call)
    if call.is_json:
        for one in asked:
            await call.say_json(_view(one))
        for agent in others:
            await call.say_json(_agent_view(agent))
        for message in held:
            await call.say_json(held_view(message))
        return 0
    if not asked and not others and not held:
        await call.say("no agent asks leave for anything")
    for one in asked:
        left = ago(max(0, one.until_ms - now))
        await call.say_lines(
            [
                f"{call.paint.bold(one.id)}  {call.safe(f'{one.agent} asks: {exact(one.text)}')}",
                *(f"    {call.safe(line)}" for line in _input_lines(one)),
                f"    since {ago(now - one.since_ms)}, denied in {left}:",
                f"    pal approve {one.id} | pal deny {one.id}",
            ]
        )
    for agent in others:
        await call.say_lines(
            [
                call.safe(f"{agent.name} is blocked: {exact(agent.detail) or 'it does not say on what'}"),
                f"    since {ago(now - agent.since)}, {_where(call, agent)}",
            ]
        )
    for message in held:
        await call.say_lines(held_lines(call, message))
    return 0


async def approve(call: Call) -> int:
    """Allow a permission request."""
    return await _answer(call, is_allowed=True)


async def deny(call: Call) -> int:
    """Deny a permission request."""
    return await _answer(call, is_allowed=False)


async def _answer(call: Call, *, is_allowed: bool) -> int:
    check_person(call.caller)
    asked = call.parsed.positionals[0].lower()
    _check_answerable(call, asked, "approve" if is_allowed else "deny")
    one = call.services.permissions.take(asked)
    request = AnswerPermission(name=one.agent, permission=one.id, digest=one.digest, is_allowed=is_allowed)
    try:
        await call.services.broker.submit(call.caller, request, key=call.asked.key)
    except BaseException:
        one.is_taken = False
        one.leave()  # the harness then shows its own dialog
        raise
    if not one.decided.done():
        one.decided.set_result(is_allowed)
    await asyncio.wait({one.arrived}, timeout=_ARRIVE_S)
    if not one.arrived.done() or not one.arrived.result():
        raise Unavailable(f"{one.agent} did not take the answer: it was answered elsewhere, or has gone")
    decision = ALLOW if is_allowed else DENY
    if call.is_json:
        await call.say_json({**_view(one), "decision": decision})
    else:
        word = "allowed" if is_allowed else "denied"
        await call.say(call.safe(f"{word}: {one.agent}, {exact(one.text)}"))
    return 0


def _check_answerable(call: Call, asked: str, verb: str) -> None:
    """Refuse the name of an agent, with the ids of its requests or the terminal: a decision needs an id."""
    agent = call.services.broker.directory.get(asked)
    if agent is None:
        return
    ids = [one.id for one in call.services.permissions.all() if one.agent == agent.name]
    if ids:
        ways = " | ".join(f"pal {verb} {id}" for id in ids)
        raise BadRequest(f"{agent.name} asks {', '.join(ids)}: {ways}")
    if _is_asking(call, agent, set()):
        raise BadRequest(
            f"{agent.name} asks at its own terminal, where no answer from here reaches it: "
            f"{_where(call, agent)}"
        )


def _where(call: Call, agent: Agent) -> str:
    """Return the terminal to answer at; for a sub-agent it is that of the agent whose session it is in."""
    above, known = agent, call.services.broker.directory
    while above.parent and (parent := known.get(above.parent)) is not None:
        above = parent
    whose = "its terminal" if above is agent else f"the terminal of {above.name}"
    return f"answer at {whose}: pal attach {above.name}" if above.holder else f"answer at {whose}"


def _is_asking(call: Call, agent: Agent, names: set[str]) -> bool:
    return (
        agent.state == AgentState.BLOCKED
        and not agent.left
        and agent.name not in names
        and not (agent.detail.startswith(USED_UP) and not agent.detail.startswith(USED_UP_ASKED))
        and call.services.presence.is_present(agent.name)
    )


def _view(one: Pending) -> dict[str, object]:
    return {
        "id": one.id,
        "agent": one.agent,
        "harness": one.harness,
        "session": one.session,
        "text": one.text,
        "tool": one.tool,
        "input": one.input,
        "digest": one.digest,
        "since": one.since_ms,
        "until": one.until_ms,
        "answerable": True,
    }


def _agent_view(agent: Agent) -> dict[str, object]:
    return {
        "id": None,
        "agent": agent.name,
        "harness": agent.harness or None,
        "session": agent.session or None,
        "text": agent.detail,
        "since": agent.since,
        "answerable": False,
    }


def _input_lines(one: Pending) -> list[str]:
    """Return the complete input of a request: a person must not allow anything that was not shown."""
    written = json.dumps(one.input, indent=2, ensure_ascii=False, default=str)
    return [exact(line) for line in written.split("\n")]
