"""The commands for permission requests of agents."""

import json
import shlex
import textwrap
from collections.abc import Iterator
from typing import Final

import msgspec

from palaver.broker.permissions import check_person
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import Command, Positional
from palaver.errors import BadRequest
from palaver.harness.hooks import USED_UP, USED_UP_ASKED
from palaver.protocol.agents import Agent
from palaver.protocol.display import ago, truncate
from palaver.protocol.events import ALLOW, DENY, AgentState
from palaver.protocol.paths import readable_mailbox
from palaver.protocol.text import exact
from palaver.protocol.views import Action, Attention, AttentionKind
from palaver.services.permissions import Pending, decide_permission
from palaver.services.views import attention_view
from palaver.state.agents import read_entry

# --------------------
# Rows of the commands for permission requests of agents.

_GROUP: Final = "Permissions"

_ID: Final = Positional(name="ID", help="The request, as 'pal pending' shows it.", completes="permissions")

PERMISSION_COMMANDS: Final = (
    Command(
        path=("pending",),
        group=_GROUP,
        summary="List everything that waits for a person.",
        description=(
            "Shows, oldest first: permission requests, requests to you without a reply, messages that are "
            "held until 'pal release', unconfirmed messages, dead letters, sticks whose owner is offline or "
            "out of time, and agents that are blocked or silent. Each entry says since when, why, and which "
            "commands are possible. A permission request has an id for 'pal approve' and 'pal deny' if the "
            "setting 'approvals' is on and the harness supports it; others are answered in the agent's own "
            "terminal. Of each kind the newest 500 are shown."
        ),
        examples=(
            ("pal pending", "what waits for me?"),
            ("pal pending --json", "with the full text of each request"),
        ),
        json=(
            "one object for each: 'kind' is permission, request, held, unconfirmed, dead, stick, blocked or "
            "stale; 'what', 'why' and 'actions' (with 'word' and 'command') are sentences and commands, and "
            "'key' is unique. Only a permission request has an 'id' and is 'answerable'. For a held message "
            "'text' is the reason and 'held' its number."
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
    """Show everything that waits for a person, oldest first."""
    found = await attention_view(call.services)
    if call.is_json:
        for entry in found:
            await call.say_json(_attention_json(call, entry))
        return 0
    if not found:
        await call.say("nothing waits for you")
    for entry in found:
        await call.say_lines(_attention_lines(call, entry))
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
        call.services.agents.permissions,
        asked,
        is_allowed=is_allowed,
        submit=call.submit,
        where=f"with 'pal {'approve' if is_allowed else 'deny'}'",
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
        raise BadRequest(f"{agent.name} has open requests; choose one: {ways}")
    if _is_asking(call, agent, set()):
        raise BadRequest(
            f"{agent.name} asks in its own terminal and cannot be answered from here: {_where(call, agent)}"
        )


def _where(call: Call, agent: Agent) -> str:
    """Return the terminal to answer at; for a sub-agent it is that of the agent whose session it is in."""
    above, known = agent, call.services.broker.directory
    # Sub-agents may have sub-agents; only the agent at the top has a terminal.
    while above.parent and (parent := known.get(above.parent)) is not None:
        above = parent
    whose = "its terminal" if above is agent else f"the terminal of {above.name}"
    return f"answer at {whose}: pal attach {above.name}" if above.holder else f"answer at {whose}"


def _is_asking(call: Call, agent: Agent, names: set[str]) -> bool:
    return (
        agent.state == AgentState.BLOCKED
        and not agent.left
        and agent.name not in names
        # An agent at its usage limit is blocked too, but asks nothing, unless its harness shows a dialog.
        and not (agent.detail.startswith(USED_UP) and not agent.detail.startswith(USED_UP_ASKED))
        and call.services.callers.presence.is_present(agent.name)
    )


# --------------------
# Rendering: the entries of `pal pending`, for programs and for people.

_DEAD_LETTER: Final = "dead letter"


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


def _attention_json(call: Call, entry: Attention) -> dict[str, object]:
    """Return an entry for JSON output, in the form of a permission request."""
    agent = call.services.broker.directory.get(entry.who) if not entry.seq else None
    view: dict[str, object] = {
        "id": None,
        "agent": entry.who,
        "harness": (agent.harness or None) if agent is not None else None,
        "session": (agent.session or None) if agent is not None else None,
        "text": entry.what,
        "since": entry.since,
        "answerable": False,
    }
    asked = call.services.agents.permissions.get(entry.id) if entry.id else None
    if asked is not None:
        view |= _view(asked)
    if entry.kind == AttentionKind.HELD:
        view |= {"text": _held_reason(call, entry), "held": entry.seq}
    view |= {"key": entry.key, "kind": entry.kind, "what": entry.what, "why": entry.why}
    view |= {name: value for name in ("seq", "to", "until", "room") if (value := getattr(entry, name))}
    return view | {"actions": msgspec.to_builtins(entry.actions)}


def _held_reason(call: Call, entry: Attention) -> str:
    found = (read_entry(call.services.queries.rows, entry.seq, name) for name in entry.to)
    return next((one.reason for one in found if one is not None and one.reason), entry.why)


def _attention_lines(call: Call, entry: Attention) -> Iterator[str]:
    """Yield an entry: its head, the input of a permission request, its age and reason, and its commands."""
    now = call.now_ms()
    yield _head(call, entry)
    asked = call.services.agents.permissions.get(entry.id) if entry.id else None
    if asked is not None:
        yield from (f"    {call.safe(line)}" for line in _input_lines(asked))
    left = f", denied in {ago(max(0, asked.until_ms - now))}" if asked is not None else ""
    yield from _wrapped(call, f"since {ago(max(0, now - entry.since))}{left}: {entry.why}")
    if commands := " | ".join(map(_command, entry.actions)):
        yield f"    {call.safe(commands)}"


def _head(call: Call, entry: Attention) -> str:
    """Return one line: the kind of the entry, its agent, and the beginning of its text."""
    paint, what = call.paint, exact(entry.what)
    if entry.kind == AttentionKind.PERMISSION:  # Never cut: a person must see what is approved.
        return f"{paint.bold(entry.id)}  {call.safe(f'{entry.who} asks: {what}')}"
    if entry.seq:
        kind = _DEAD_LETTER if entry.kind == AttentionKind.DEAD else entry.kind
        to = "you" if entry.kind == AttentionKind.REQUEST else paint.names(map(readable_mailbox, entry.to))
        head, rest = f"#{entry.seq}", f" {kind}, {paint.name(entry.who)} → {to}: {call.safe(what)}"
    else:
        state = "has the stick" if entry.kind == AttentionKind.STICK else f"is {entry.kind}"
        head, rest = paint.name(entry.who), call.safe(f" {state}: {what}")
    if call.width is not None:
        rest = truncate(rest, max(20, call.width - len(head)))
    # Painted after it was cut, because escape sequences would count as columns.
    return f"{paint.bold(head)}{rest}"


def _command(action: Action) -> str:
    """Return an action as a line for a shell. A reply needs a text."""
    return shlex.join(action.command) + (" -- TEXT" if action.word == "reply" else "")


def _wrapped(call: Call, text: str) -> list[str]:
    safe = call.safe(text)
    width = None if call.width is None else max(10, call.width - 4)
    pieces = [safe] if width is None else textwrap.wrap(safe, width, break_on_hyphens=False)
    return [f"    {piece}" for piece in pieces]


def _input_lines(one: Pending) -> list[str]:
    """Return the complete input of a request: a person must not allow anything that was not shown."""
    written = json.dumps(one.input, indent=2, ensure_ascii=False, default=str)
    return [exact(line) for line in written.split("\n")]
