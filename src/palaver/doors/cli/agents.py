"""The commands to join, leave and list agents."""

from collections.abc import Sequence
from typing import Final

from palaver.broker.context import Joined, Outcome
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import ROLE, TAG, Command, Option, Positional
from palaver.errors import AlreadyJoined, UsageError
from palaver.identity.caller import who_joins
from palaver.protocol.agents import SCRIPT_NAME
from palaver.protocol.display import Column, Paint, Safe, ago, display_width, lay_out, truncate
from palaver.protocol.events import AgentState
from palaver.protocol.requests import Join, Leave, Register, SetStatus
from palaver.protocol.text import exact
from palaver.services.results import AgentDetails, AgentView, RecentMessage
from palaver.services.views import (
    agents_view,
    agents_with_messages,
    caller_view,
    free_session,
    recently_sent,
)
from palaver.state.agents import read_unread, read_unsure

# --------------------
# Rows of the commands to join, leave and list agents.

_GROUP: Final = "Agents"

AGENT_COMMANDS: Final = (
    Command(
        path=("join",),
        group=_GROUP,
        summary="Join the bus under a name.",
        description=(
            "From now on, this process and all processes that it starts are that agent: it can receive "
            "messages, and the messages it sends carry its name. An agent keeps its name when it is "
            "restarted. If the process is already an agent, the command fails and prints that agent's "
            "name."
        ),
        options=(
            Option(
                name="--name",
                metavar="NAME",
                help="Name: a lower-case letter, then such letters, digits and _ (default: a free name).",
            ),
            TAG,
            ROLE,
            Option(
                name="--harness",
                metavar="HARNESS",
                help="Harness it runs in (default: detected).",
                completes="harnesses",
            ),
            Option(
                name="--pid", metavar="PID", help="Bind the name to this process, an ancestor of the caller."
            ),
            Option(
                name="--remote",
                metavar="NAME:DEVICE",
                help="Register an agent of another machine, such as luna:BOXE.",
            ),
        ),
        examples=(
            ("pal join", "join under a free name"),
            ("pal join --name luna --tag api", "join as api-luna"),
        ),
        see=(("identity", "identity.md"),),
    ),
    Command(
        path=("leave",),
        group=_GROUP,
        summary="Leave the bus and give up your name.",
        description=(
            "You no longer appear in the list. Messages to your name are still stored. The process that had "
            "the name, and its child processes, count as a script until they end: to act as a person again, "
            "open a new shell."
        ),
        examples=(("pal leave", "leave the bus"), ("pal leave --as luna", "remove luna")),
        see=(("who a process is", "identity.md#four-rules"),),
    ),
    Command(
        path=("whoami",),
        group=_GROUP,
        summary="Show your own name and rights.",
        description="Shows your name, your level of rights, and how they were determined.",
        examples=(("pal whoami", "who am I?"),),
        see=(("identity", "identity.md"),),
    ),
    Command(
        path=("list",),
        group=_GROUP,
        summary="List the agents on the bus.",
        description=(
            "Shows one line per agent: name, state, how long it has had that state, and the number of "
            "waiting messages. 'stale': active, but silent for half an hour. 'away': its process has "
            "ended, or its connection is lost. 'paused': gets only interrupts. 'asleep': idle, and "
            "nothing can wake it; it gets its messages with its next prompt. Sub-agents are listed below "
            "their parent; with -v, ended sub-agents are shown for an hour."
        ),
        options=(
            Option(
                name="--verbose",
                short="-v",
                help=(
                    "Include agents that left, and show the seat of each agent and who has read its newest "
                    "three messages of the last day."
                ),
            ),
        ),
        examples=(
            ("pal list", "list the agents"),
            ("pal list -v", "also show who has read recent messages"),
            ("pal list --json", "for programs"),
        ),
        json=(
            "one object for each agent. 'recent' is a list of its newest messages ('seq', 'ts', 'text', "
            "'read_by', 'total'), the newest first; 'last_sent' is your own newest message to it, with "
            "its state; 'stale' is true where it applies; 'by' is the caller that started the agent, and "
            "'parent' the parent of a sub-agent."
        ),
        see=(
            ("latest messages of all agents", "receipts.md#latest-messages-of-all-agents"),
            ("sub-agents", "identity.md#sub-agents"),
        ),
    ),
    Command(
        path=("status", "set"),
        group=_GROUP,
        summary="Set your own state.",
        description=(
            "Your state decides which messages are delivered now: an idle agent gets all messages, an active "
            "one all except those for idle agents, a blocked one only interrupts. 'pal recv' reads all "
            "waiting messages in any state. 'listening' is an alias of idle, 'inactive' of exited. Agents in "
            "a harness do not need this command: their state is detected."
        ),
        positionals=(
            Positional(
                name="STATE",
                help="Your new state.",
                choices=("starting", "active", "idle", "blocked", "exited", "listening", "inactive"),
            ),
        ),
        options=(
            Option(name="--detail", metavar="TEXT", help="A short description of the work or the reason."),
            Option(name="--tool", metavar="TOOL", help="The tool you are using."),
            Option(
                name="--file",
                metavar="PATH",
                help="The file you are editing (see 'pal events sub --collision').",
                completes="files",
            ),
        ),
        examples=(
            ('pal status set active --detail "running the tests"', "show other agents that you are busy"),
        ),
        see=(("priorities", "delivery.md#priorities"),),
    ),
)


# --------------------
# Functions of `pal join`, `leave`, `whoami`, `list` and `status set`.

_STAYS_SCRIPT: Final = (
    "this process and its children now count as a script; to act as a person, open a new shell"
)


async def join(call: Call) -> int:
    """Join the caller as an agent; with --remote register an agent of another machine."""
    if remote := call.parsed.value("--remote"):
        joined = await call.submit(Register(name=remote))
    else:
        joined = await _sit_down(call)
    assert isinstance(joined, Joined)
    return await _say_joined(call, joined)


async def _sit_down(call: Call) -> Outcome:
    parsed, broker = call.parsed, call.services.broker
    if parsed.value("--name") == "":
        raise UsageError("--name requires a name; to get a free name, leave it out")
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
    agent, rows = joined.agent, call.services.queries.rows
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
            view |= {"pid": agent.seat.pid, "seat": call.services.callers.seats.mark(agent.seat, agent.name)}
        await call.say_json(view)
        return 0
    lines = [f"you are {agent.name}" if not agent.remote else f"{agent.name} is registered here"]
    if unread:
        lines.append(f"{unread} message{'s' if unread > 1 else ''} waiting: pal recv")
    if unsure:
        lines.append(f"maybe already read, never confirmed: {', '.join(f'#{seq}' for seq in unsure)}")
    await call.say_lines(lines)
    return 0


async def leave(call: Call) -> int:
    """Let the caller's agent leave the bus."""
    await call.submit(Leave())
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
    parts = [call.caller.name, f"standing {view.standing}"]
    if view.pid is not None:
        parts.append(f"bound to process {view.pid}")
    if view.by is not None:
        parts.append(f"called by {view.by}")
    if call.caller.name == SCRIPT_NAME:
        parts.append("not joined; to get a name, run 'pal join'")
    await call.say(", ".join(parts))
    return 0


async def list_agents(call: Call) -> int:
    """Show the agents; with --verbose also agents that left, and who read the latest messages of each."""
    if call.parsed.has("--verbose"):
        return await _list_details(call)
    views = [view for view in await agents_view(call.services) if not view.left]
    if call.is_json or not views:
        return await _say_views(call, views)
    now_ms = call.services.clock.now_ms()
    await call.say_lines(short_table(views, now_ms, width=call.width, paint=call.paint))
    return 0


async def _list_details(call: Call) -> int:
    services, name = call.services, call.caller.name
    views = await agents_with_messages(services, name)
    if call.is_json or not views:
        return await _say_views(call, views)
    # A person or a script is not in the list of agents: show the receipts of its messages separately.
    own = [] if any(view.name == name for view in views) else await recently_sent(services, name)
    now_ms = services.clock.now_ms()
    await call.say_lines(long_table(views, own, now_ms, name=name, width=call.width, paint=call.paint))
    return 0


async def _say_views(call: Call, views: Sequence[AgentView]) -> int:
    """Write agents for programs. For people, write how to join an empty bus."""
    if not call.is_json:
        await call.say("no agents; to join, run 'pal join'")
    else:
        for view in views:
            await call.say_json(view)
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
    await call.submit(request)
    if call.is_json:
        await call.say_json({"name": call.caller.name, "state": state})
    return 0


# --------------------
# Rendering: a short table of agents, and a long one with the receipts of their latest messages.

_BELOW: Final = "└ "
_GAPS: Final = len("  " * 3)
_LEAST_ROOM: Final = 30
_LIMIT_TEXT: Final = 30
_LIMIT_ASKED: Final = 60
_LEAST_TEXT: Final = 8
"""Columns to which a text is shortened in a narrow terminal, before its readers are shortened."""


def short_table(views: Sequence[AgentView], now_ms: int, *, width: int | None, paint: Paint) -> list[str]:
    """Return a table with one line per agent below the titles."""
    columns = [
        Column(title="NAME", least=8, paint=paint.bold),
        Column(title="STATUS", least=8),
        Column(title="FOR", is_right=True),
        Column(title="UNREAD", is_right=True),
        Column(title="ROLE"),
        Column(title="HARNESS"),
    ]
    names = _indented(views)
    rows = [
        [
            name,
            _state_with_reason(view, now_ms),
            _age(view, now_ms),
            str(view.unread or ""),
            view.role,
            view.harness or "",
        ]
        for name, view in zip(names, views, strict=True)
    ]
    return lay_out(columns, rows, width=width, paint=paint)


def _indented(views: Sequence[AgentView]) -> list[str]:
    """Return the names; each sub-agent is indented one step more than its parent above it."""
    depths: dict[str | None, int] = {}
    shown = []
    for view in views:
        depth = depths[view.name] = depths.get(view.parent, -1) + 1
        shown.append(f"{'  ' * (depth - 1)}{_BELOW if depth else ''}{view.name}")
    return shown


def long_table(
    views: Sequence[AgentDetails],
    own: Sequence[RecentMessage],
    now_ms: int,
    *,
    name: str,
    width: int | None,
    paint: Paint,
) -> list[str]:
    """Return a table of agents with the receipts of their latest messages, and further details.

    `own` are the messages of a caller that is not in the list of agents; they are shown under `name`.
    """
    heads = [
        (name, state_words(view, now_ms), str(view.unread), view.recent)
        for name, view in zip(_indented(views), views, strict=True)
    ]
    notes = [(_seat(view, now_ms), view.closed or "") for view in views]
    if own:
        heads.append((name, "(you)", "", tuple(own)))
        notes.append(("", ""))
    columns = [
        Column(title="NAME", least=8, paint=paint.bold),
        Column(title="STATUS", least=18),
        Column(title="UNREAD", is_right=True, least=6),
        Column(title="RECENT MESSAGES", least=_LEAST_ROOM),
    ]
    room = _room(columns, heads, width, paint)
    rows: list[list[str]] = []
    for (who, state, unread, recent), note in zip(heads, notes, strict=True):
        lines = [receipt_line(one, now_ms, room, paint) for one in recent] + [one for one in note if one]
        rows.append([who, state, unread, lines[0]])
        rows += [["", "", "", line] for line in lines[1:]]
    return lay_out(columns, rows, width=width, paint=paint)


def state_words(view: AgentView, now_ms: int) -> str:
    """Return the state in words, with a remark if the agent is away, asleep, paused or silent."""
    if view.stale:
        paused = ", paused" if view.paused else ""
        return f"{view.state} (stale {_age(view, now_ms)}{paused})"
    is_away = not view.present and not view.left
    remarks = (("away", is_away), ("asleep", view.asleep), ("paused", view.paused))
    words = [word for word, applies in remarks if applies]
    return f"{view.state} ({', '.join(words)})" if words else view.state


def _state_with_reason(view: AgentView, now_ms: int) -> str:
    """Return the state in words; for an agent that waits for a person also its question."""
    words = state_words(view, now_ms)
    is_asking = view.state == AgentState.BLOCKED and view.detail
    return f"{words}: {truncate(exact(view.detail or ''), _LIMIT_ASKED)}" if is_asking else words


_LIMIT_READERS: Final = 10
"""How many readers of a message are named."""


def receipt_line(recent: RecentMessage, now_ms: int, room: int | None, paint: Paint) -> Safe:
    """Return the readers of a message as one line: `#42(2m): "hello" read by nova, kira [2/3]`.

    If there is too little room, the text is shortened first, then the names; the count never is.
    """
    names = recent.read_by
    head, tail = f"#{recent.seq}({ago(now_ms - recent.ts)}): ", f" [{len(names)}/{recent.total}]"
    text = truncate(paint.safe(" ".join(recent.text.split())), _LIMIT_TEXT)
    readers = str(paint.names(names[:_LIMIT_READERS])) or "none"
    if len(names) > _LIMIT_READERS:
        readers += f" and {len(names) - _LIMIT_READERS} more"
    if room is not None:
        left = room - display_width(f'{head}"" read by {tail}')
        text = truncate(text, max(left - display_width(readers), _LEAST_TEXT))
        readers = truncate(readers, max(left - display_width(text), 1))
    return Safe(f'{head}"{text}" read by {readers}{tail}')


def _room(
    columns: Sequence[Column], heads: Sequence[Sequence[object]], width: int | None, paint: Paint
) -> int | None:
    """Return the columns that are left for receipts; None if lines may have any length."""
    if width is None:
        return None
    used = 0
    for index, column in enumerate(columns[:-1]):
        used += max(
            display_width(paint.safe(str(word))) for word in (column.title, *(head[index] for head in heads))
        )
    return max(width - used - _GAPS, _LEAST_ROOM)


def _seat(view: AgentView, now_ms: int) -> str:
    """Return further details of an agent: age of its state, role, harness, process and status detail."""
    words = [f"for {_age(view, now_ms)}", view.role, view.harness or ""]
    words += [] if view.pid is None else [f"process {view.pid}"]
    words.append(exact(view.detail or ""))
    return ", ".join(word for word in words if word)


def _age(view: AgentView, now_ms: int) -> str:
    return ago(now_ms - view.since)
