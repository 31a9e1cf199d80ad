"""`pal join`, `leave`, `whoami`, `list` and `status set`."""

from typing import Final

from palaver.broker.outcome import Joined, Outcome
from palaver.doors.argv.agent_page import long_table, short_table
from palaver.doors.argv.call import Call
from palaver.doors.sessions import free_session
from palaver.doors.terminal_view import closed_gates
from palaver.doors.views import agents_view, caller_view, last_sent, recently_sent
from palaver.errors import AlreadyJoined, UsageError
from palaver.links.identity import who_joins
from palaver.log.state import read_unread, read_unsure
from palaver.model.names import SCRIPT_NAME
from palaver.model.request import Join, Leave, Register, SetStatus

_STAYS_SCRIPT: Final = "this process and its children are a script from now on: a person needs a new shell"


async def join(call: Call) -> int:
    """Join the caller as an agent; with --remote register an agent of another machine."""
    if remote := call.parsed.value("--remote"):
        joined = await call.services.broker.submit(call.caller, Register(name=remote), key=call.asked.key)
    else:
        joined = await _sit_down(call)
    assert isinstance(joined, Joined)
    return await _say_joined(call, joined)


async def _sit_down(call: Call) -> Outcome:
    parsed, broker = call.parsed, call.services.broker
    if parsed.value("--name") == "":
        raise UsageError("--name needs a name; leave it out, and you are given one that is free")
    try:
        anchor = call.place(parsed.number("--pid"))
    except AlreadyJoined:
        # A client that lost the daemon repeats its request. If that request has joined, return its result.
        joined = await broker.outcome(Join, call.asked.key)
        if joined is None:
            raise
        return joined
    harness = parsed.value("--harness") or anchor.harness
    request = Join(
        name=parsed.value("--name") or parsed.as_name or "",
        tag=parsed.value("--tag") or "",
        role=parsed.value("--role") or "worker",
        harness=harness,
        seat=anchor.seat,
        session=free_session(call.services, harness, anchor.session),
        takes_over=parsed.as_name is not None,
    )
    return await broker.submit(who_joins(call.caller), request, key=call.asked.key)


async def _say_joined(call: Call, joined: Joined) -> int:
    agent, rows = joined.agent, call.services.log.rows
    unread, unsure = read_unread(rows, agent.name), read_unsure(rows, agent.name)
    if call.is_json:
        view: dict[str, object] = {
            "name": agent.name,
            "role": agent.role,
            "harness": agent.harness or None,
            "unread": unread,
            "unconfirmed": unsure,
            "new": joined.is_new,
        }
        if agent.seat is not None:
            view |= {"pid": agent.seat.pid, "seat": call.services.seats.mark(agent.seat, agent.name)}
        await call.say_json(view)
        return 0
    lines = [f"you are {agent.name}" if not agent.remote else f"{agent.name} is known here"]
    if unread:
        lines.append(f"{unread} message{'s' if unread > 1 else ''} waiting: pal recv")
    if unsure:
        lines.append(f"maybe read before, never confirmed: {', '.join(f'#{seq}' for seq in unsure)}")
    await call.say_lines(lines)
    return 0


async def leave(call: Call) -> int:
    """Let the caller's agent leave the bus."""
    await call.services.broker.submit(call.caller, Leave(), key=call.asked.key)
    if call.is_json:
        await call.say_json({"name": call.caller.name})
    else:
        await call.say(f"{call.caller.name} has left")
        if call.caller.seat is not None and call.caller.by is None:
            await call.say(_STAYS_SCRIPT)
    return 0


async def whoami(call: Call) -> int:
    """Show the caller's name, standing and seat."""
    view = caller_view(call.services, call.caller)
    if call.is_json:
        await call.say_json(view)
        return 0
    parts = [call.caller.name, f"standing {view['standing']}"]
    if "pid" in view:
        parts.append(f"seat at process {view['pid']}")
    if "by" in view:
        parts.append(f"spoken for by {view['by']}")
    if call.caller.name == SCRIPT_NAME:
        parts.append("not joined: 'pal join' gives this process a name")
    await call.say(", ".join(parts))
    return 0


async def list_agents(call: Call) -> int:
    """Show the agents; with --verbose also agents that left, and who read the latest messages of each."""
    services, is_verbose = call.services, call.parsed.has("--verbose")
    views = [view for view in await agents_view(services) if is_verbose or "left" not in view]
    if is_verbose:
        sent = await last_sent(services, call.caller.name)
        for view in views:
            name = str(view["name"])
            view |= {"last_sent": sent.get(name), "recent": await recently_sent(services, name)}
            if closed := closed_gates(services, name):
                view["closed"] = closed
    if call.is_json:
        for view in views:
            await call.say_json(view)
        return 0
    if not views:
        await call.say("nobody is here; 'pal join' takes a name")
        return 0
    now, name = services.clock.now_ms(), call.caller.name
    if not is_verbose:
        await call.say_lines(short_table(views, now, width=call.width, paint=call.paint))
        return 0
    # A person or a script is not in the list of agents: show the receipts of its messages separately.
    own = [] if any(view["name"] == name for view in views) else await recently_sent(services, name)
    await call.say_lines(long_table(views, own, now, name=name, width=call.width, paint=call.paint))
    return 0


async def set_status(call: Call) -> int:
    """Store the caller's state, detail, tool and file."""
    state = call.parsed.positionals[0]
    request = SetStatus(
        state=state,
        detail=call.parsed.value("--detail") or "",
        tool=call.parsed.value("--tool") or "",
        file=call.absolute(file) if (file := call.parsed.value("--file")) else "",
    )
    await call.services.broker.submit(call.caller, request, key=call.asked.key)
    if call.is_json:
        await call.say_json({"name": call.caller.name, "state": state})
    return 0
