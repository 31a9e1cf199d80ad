"""The commands for permission requests of agents."""

import json
from dataclasses import dataclass
from typing import Final

from palaver.broker.permissions import check_person
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import Command, Positional
from palaver.errors import BadRequest
from palaver.harness.hooks import USED_UP, USED_UP_ASKED
from palaver.protocol.agents import Agent
from palaver.protocol.display import ago
from palaver.protocol.envelope import Event
from palaver.protocol.events import ALLOW, DENY, AgentState
from palaver.protocol.message import LOST
from palaver.protocol.text import exact
from palaver.services.permissions import Pending, decide_permission
from palaver.state.agents import read_entry, read_held

# --------------------
# Rows of the commands for permission requests of agents.

_GROUP: Final = "Permissions"

_ID: Final = Positional(name="ID", help="The request, as 'pal pending' shows it.", completes="permissions")

PERMISSION_COMMANDS: Final = (
    Command(
        path=("pending",),
        group=_GROUP,
        summary="List requests that wait for a person's decision.",
        description=(
            "Shows blocked agents and their permission requests. Requests with an id can be answered with "
            "'pal approve' or 'pal deny'; this requires the setting 'approvals' and a harness that "
            "supports it. Answer all others in the agent's own terminal. Then it shows the newest 50 "
            "messages that are held until 'pal release', by brakes or because their content is lost."
        ),
        examples=(
            ("pal pending", "what must I decide?"),
            ("pal pending --json", "with the full text of each request"),
        ),
        json=(
            "one object for each. For a held message 'id' is null, 'agent' the sender, 'text' the reason, "
            "'answerable' false, 'held' its number and 'to' its recipients; 'since' is the time."
        ),
        see=(
            ("permissions", "permissions.md"),
            ("brakes", "delivery.md#brakes"),
            ("what survives", "log.md#what-survives"),
        ),
    ),
    Command(
        path=("approve",),
        group=_GROUP,
        summary="Approve a permission request of an agent.",
        description=(
            "Approves exactly the request that 'pal pending' shows, once. A request that has ended cannot be "
            "answered. No keys are typed. Only a person can do this: agents and scripts are refused, even "
            "with --as."
        ),
        positionals=(_ID,),
        examples=(("pal approve 3f9c2a1", "allow it this time"),),
    ),
    Command(
        path=("deny",),
        group=_GROUP,
        summary="Deny a permission request of an agent.",
        description="Works like 'pal approve'. A request that is not answered in time is denied too.",
        positionals=(_ID,),
        examples=(("pal deny 3f9c2a1", "refuse it"),),
    ),
)


# --------------------
# Functions of `pal pending`, `approve` and `deny`. Only the human in person decides.


async def pending(call: Call) -> int:
    """Show everything that waits for a person: requests, then blocked agents, then held messages.

    Only the requests, which come first, can be answered here.
    """
    now, services = call.services.clock.now_ms(), call.services
    asked = services.agents.permissions.all()
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
        await call.say("no permission requests and no held messages")
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
                call.safe(f"{agent.name} is blocked: {exact(agent.detail) or 'the reason is not known'}"),
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
    one = await decide_permission(
        call.services.agents.permissions, asked, is_allowed=is_allowed, submit=call.submit
    )
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
    ids = [one.id for one in call.services.agents.permissions.all() if one.agent == agent.name]
    if ids:
        ways = " | ".join(f"pal {verb} {id}" for id in ids)
        raise BadRequest(f"{agent.name} asks {', '.join(ids)}: {ways}")
    if _is_asking(call, agent, set()):
        raise BadRequest(
            f"{agent.name} asks in its own terminal and cannot be answered from here: {_where(call, agent)}"
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
        and call.services.callers.presence.is_present(agent.name)
    )


# --------------------
# Messages that are held until a person releases them, for `pal pending`. Changes nothing.
#
# Messages that are held because of a usage limit are left out: they continue by themselves.

_SHOWN: Final = 50
"""How many messages are shown; the newest ones."""


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message, the recipients it is held for, and the reason."""

    event: Event
    names: list[str]
    reason: str
    since_ms: int


def held_messages(call: Call) -> list[HeldMessage]:
    """Return the messages that a person must release, oldest first; above the limit only the newest."""
    queries = call.services.queries
    found: list[HeldMessage] = []
    for seq, names in read_held(queries.rows).items():
        entries = {name: read_entry(queries.rows, seq, name) for name in sorted(names)}
        waiting = {name: one for name, one in entries.items() if one and not one.reason.startswith(USED_UP)}
        event = queries.event(seq) if waiting else None
        if event is not None:
            first = next(iter(waiting.values()))
            found.append(HeldMessage(event, list(waiting), first.reason, first.ts))
        if len(found) == _SHOWN:
            break
    return found[::-1]


# --------------------
# Rendering: permission requests and held messages, for programs and for people.


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


def held_view(one: HeldMessage) -> dict[str, object]:
    """Return a held message for JSON output, in the form of a permission request."""
    return {
        "id": None,
        "agent": one.event.sender,
        "harness": None,
        "session": None,
        "text": one.reason,
        "since": one.since_ms,
        "answerable": False,
        "held": one.event.seq,
        "to": one.names,
    }


def held_lines(call: Call, one: HeldMessage) -> list[str]:
    """Return lines with the message, the reason, and the command that releases it."""
    paint, seq = call.paint, one.event.seq
    sender, names = paint.name(one.event.sender), paint.names(one.names)
    since = ago(call.services.clock.now_ms() - one.since_ms)
    way = f"pal show {seq} | pal release {seq}"
    if one.reason == LOST:
        way = f"restore its file in blobs/ ('pal doctor' names it); then: pal release {seq}"
    return [
        f"{paint.bold(f'#{seq}')} from {sender} to {names} is held: {paint.safe(one.reason)}",
        f"    since {since}: {way}",
    ]
