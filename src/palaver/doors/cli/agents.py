"""The commands to join, leave and list agents."""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from palaver.broker.context import Joined, Outcome
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import ROLE, TAG, Command, Option, Positional
from palaver.errors import AlreadyJoined, UsageError
from palaver.identity.caller import who_joins
from palaver.protocol.address import parse_tag
from palaver.protocol.agents import SCRIPT_NAME, doing_text, full_name
from palaver.protocol.display import Column, Paint, Safe, ago, display_width, lay_out, truncate
from palaver.protocol.paths import readable_mailbox
from palaver.protocol.requests import Join, Leave, Register, SetStatus, TagAgent
from palaver.protocol.text import exact
from palaver.services.results import COMMON_WORDS, AgentDetails, AgentView, RecentMessage
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
            "name. At a person's terminal the command asks first, because the shell does not become a person "
            "again; to start an agent, use 'pal claude' or 'pal run' instead."
        ),
        notes=(
            "A name has lower-case letters, digits and _, and begins with a letter. --remote takes a name "
            "such as luna:BOXE.",
        ),
        options=(
            Option(
                name="--name",
                metavar="NAME",
                help="Agent name, such as luna_2 (default: a free name).",
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
                help="Register an agent of another machine. For a person only.",
            ),
            Option(name="--yes", help="Do not ask."),
        ),
        # These describe a process of this machine.
        exclusive=tuple(("--remote", name) for name in ("--name", "--tag", "--role", "--harness", "--pid")),
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
            "Shows one line per agent: name, state, how long it has had that state, the number of waiting "
            "messages, what it is doing and where: 'tool: Bash: make test', its folder and its rooms. "
            "'stale': active, but silent for half an hour. 'away': its process has ended, or its "
            "connection is lost. 'paused': gets only interrupts. 'asleep': idle, and nothing can wake it; "
            "it gets its messages with its next prompt. Sub-agents are listed below their parent; with -v, "
            "ended sub-agents are shown for an hour. A column without any content is left out, and in a "
            "narrow terminal the last columns that do not fit."
        ),
        notes=(
            "-v shows the seat of each agent, and who has read its newest three messages of the last day.",
            "--format replaces {name}, {unread} and the other fields of --json; \\t is a tab.",
        ),
        options=(
            Option(
                name="--verbose",
                short="-v",
                help="Include agents that left; show seats and recent readers.",
            ),
            Option(name="--stopped", help="Only agents that have left, the latest first."),
            Option(name="--names", help="Print only the names, one per line."),
            Option(
                name="--format",
                metavar="TEXT",
                help="Print this text for each agent, with fields in braces.",
            ),
        ),
        exclusive=(("--verbose", "--names", "--format"), ("--verbose", "--stopped")),
        examples=(
            ("pal list", "list the agents"),
            ("pal list -v", "also show who has read recent messages"),
            ("pal list --stopped", "which agents can 'pal resume' start again?"),
            ("pal list --format '{name} {unread}'", "names and numbers of waiting messages"),
            ("pal list --json", "for programs"),
        ),
        json=(
            "one object for each agent. 'tool' is the tool that it uses, 'detail' its command or file or "
            "another detail of the state, and 'doing' both in one text; 'folder' and 'cwd' are the folder "
            "in which it was started or joined, and 'rooms' are the ids of its rooms. 'recent' is a list of "
            "its newest messages ('seq', 'ts', 'text', 'read_by', 'total'), the newest first; 'last_sent' is "
            "your own newest message to it, with its state; 'stale' is true where it applies; 'by' is the "
            "caller that started the agent, and 'parent' the parent of a sub-agent."
        ),
        see=(
            ("latest messages of all agents", "receipts.md#latest-messages-of-all-agents"),
            ("sub-agents", "identity.md#sub-agents"),
        ),
    ),
    Command(
        path=("tag",),
        group=_GROUP,
        summary="Put an agent into a group.",
        description=(
            "'@TAG-' addresses all agents with the tag, and commands such as 'pal stop --tag TAG' select "
            "them. An agent has at most one tag; a new one replaces it. The name of the agent does not "
            "change: only a tag given at its start is part of its name. 'pal list' shows the tag. For the "
            "agent itself, the caller that started it, an operator or a person."
        ),
        positionals=(
            Positional(name="NAME", help="Full name of the agent.", completes="agents"),
            Positional(name="TAG", help="The tag.", optional=True, completes="tags"),
        ),
        options=(Option(name="--remove", help="Remove the agent from its group."),),
        examples=(
            ("pal tag luna api", "luna is now one of @api-"),
            ("pal tag luna --remove", "luna has no tag any more"),
        ),
        json="'name' and 'tag', which is null after --remove.",
        see=(("names and tags", "addresses.md#names"),),
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
                help="The file you are editing, for 'pal events sub --collision'.",
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
    if remote := call.parsed.reference("--remote"):
        joined = await call.submit(Register(name=remote))
    else:
        found = await _sit_down(call)
        if found is None:
            call.warn("nothing was changed; to start an agent, run 'pal claude --name luna'")
            return 1
        joined = found
    assert isinstance(joined, Joined)
    return await _say_joined(call, joined)


async def _sit_down(call: Call) -> Outcome | None:
    """Make the caller an agent; None if a person was asked and did not agree."""
    parsed, broker = call.parsed, call.services.broker
    # Most often an unset variable of a script, which would otherwise join under a free name.
    if parsed.value("--name") == "":
        raise UsageError("--name requires a name; to get a free name, leave it out")
    try:
        anchor = call.anchor_of(parsed.number("--pid"))
    except AlreadyJoined:
        # A client that lost the daemon repeats its request. If that request has joined, return its result.
        joined = await broker.outcome(Join, call.asked.key)
        if joined is None:
            raise
        return joined
    harness = parsed.value("--harness") or anchor.harness
    name, tag = parsed.value("--name") or parsed.as_name or "", parsed.value("--tag") or ""
    whom = f"the agent {full_name(name, tag)}" if name else "an agent"
    # After `anchor_of`, so that a person is not asked about a join that it refuses.
    if not (parsed.has("--yes") or await call.is_agreed(f"this makes your shell {whom}; continue?")):
        return None
    request = Join(
        name=name,
        tag=tag,
        role=parsed.value("--role") or "worker",
        harness=harness,
        seat=anchor.seat,
        session=free_session(call.services, harness, anchor.session),
        cwd=_storable(call.asked.cwd),
        takes_over=parsed.as_name is not None,
    )
    return await broker.submit(who_joins(call.caller), request, key=call.asked.key)


def _storable(path: str) -> str:
    """Return a folder as the log can store it; empty if its name is not UTF-8.

    An agent must be able to join in any folder, so this is not refused.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return ""
    return path


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
        # Only for the process that was the agent: with --as the caller is another one, and keeps its rights.
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
    parsed = call.parsed
    if parsed.has("--verbose"):
        return await _list_details(call)
    shape = _line_format(parsed.value("--format"))
    if shape is not None and parsed.form == "json":
        raise UsageError("--format and --json cannot be used together; choose one")
    is_stopped = parsed.has("--stopped")
    views = await agents_view(call.services, is_left=is_stopped)
    if is_stopped:
        views.sort(key=lambda view: -view.since)
    if parsed.has("--names"):
        if call.is_json:
            await call.say_json_lines({"name": view.name} for view in views)
        else:
            await call.say_lines(view.name for view in views)
        return 0
    if shape is not None:
        await call.say_lines(shape(view, call.paint) for view in views)
        return 0
    if call.is_json or not views:
        return await _say_views(call, views)
    now_ms = call.now_ms()
    make = partial(short_table, views, now_ms, width=call.width, paint=call.paint)
    # A long table takes some milliseconds, which are not taken from the event loop.
    await call.say_lines(make() if len(views) < _MANY else await asyncio.to_thread(make))
    return 0


async def _list_details(call: Call) -> int:
    services, name = call.services, call.caller.name
    views = await agents_with_messages(services, name)
    if call.is_json or not views:
        return await _say_views(call, views)
    # A person or a script is not in the list of agents: show the receipts of its messages separately.
    own = [] if any(view.name == name for view in views) else await recently_sent(services, name)
    now_ms = services.clock.now_ms()
    make = partial(long_table, views, own, now_ms, name=name, width=call.width, paint=call.paint)
    await call.say_lines(make() if len(views) < _MANY else await asyncio.to_thread(make))
    return 0


async def _say_views(call: Call, views: Sequence[AgentView]) -> int:
    """Write agents for programs. For people, write how to join an empty bus."""
    if call.is_json:
        await call.say_json_lines(views)
    elif call.parsed.has("--stopped"):
        await call.say("no agent has left")
    else:
        await call.say("no agents; to start one, run 'pal claude --name luna'")
    return 0


async def tag(call: Call) -> int:
    """Set or remove the tag of an agent."""
    name, *tags = call.parsed.positionals
    if bool(tags) == call.parsed.has("--remove"):
        raise UsageError("give a tag, or --remove: pal tag NAME TAG, pal tag NAME --remove")
    agent, new = call.agent(name), parse_tag(tags[0]) if tags else ""
    if tags and not new:
        raise UsageError("the tag is empty; to remove it, use --remove")
    await call.submit(TagAgent(name=agent.name, tag=new))
    if call.is_json:
        await call.say_json({"name": agent.name, "tag": new or None})
    else:
        word = f"has the tag {new}; @{new}- addresses its group" if new else "has no tag"
        await call.say(f"{agent.name} {word}")
    return 0


async def set_status(call: Call) -> int:
    """Store the caller's state, detail, tool and file."""
    state = call.parsed.positionals[0]
    request = SetStatus(
        state=state,
        detail=call.parsed.value("--detail") or "",
        tool=call.parsed.value("--tool") or "",
        # Absolute, because other agents read it in other working directories.
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
_LIMIT_DOING: Final = 60
_LIMIT_FOLDER: Final = 30
_KEPT_COLUMNS: Final = 4
"""The first columns of the short table, which are shown even if they are empty."""
_LEAST_COLUMNS: Final = 2
"""The first columns of the short table, which are shown even in a very narrow terminal."""
_WORKER: Final = "worker"
_MANY: Final = 100
"""Agents from which on a table is made in a thread, so that the event loop does not wait for it."""
_FIELD: Final = re.compile(r"\{(\w+)\}")
_LEAST_TEXT: Final = 8
"""Columns to which a text is shortened in a narrow terminal, before its readers are shortened."""


def short_table(views: Sequence[AgentView], now_ms: int, *, width: int | None, paint: Paint) -> list[str]:
    """Return a table with one line per agent below the titles, without empty columns."""
    columns = [
        Column(title="NAME", least=8, paint=paint.bold),
        Column(title="STATUS", least=8),
        Column(title="FOR", is_right=True),
        Column(title="UNREAD", is_right=True),
        Column(title="ROLE"),
        Column(title="TAG"),
        Column(title="HARNESS"),
        Column(title="DOING", least=12),
        Column(title="FOLDER", least=8),
        Column(title="ROOM", least=8),
    ]
    names, home = _indented(views), str(Path.home())
    rows = [
        [
            # Names of agents and rooms and our own words contain nothing that has to be escaped.
            Safe(name),
            Safe(state_words(view, now_ms)),
            Safe(_age(view, now_ms)),
            Safe(view.unread or ""),
            Safe(view.role if view.role != _WORKER else ""),
            Safe(later_tag(view)),
            view.harness or "",
            _doing(view),
            _folder(view.cwd or "", home),
            Safe(", ".join(view.rooms)),
        ]
        for name, view in zip(names, views, strict=True)
    ]
    # Most agents have no tag and no room: without empty columns the table fits a narrow terminal.
    used = [
        index for index in range(len(columns)) if index < _KEPT_COLUMNS or any(row[index] for row in rows)
    ]
    rows = [[row[index] for index in used] for row in rows]
    return lay_out([columns[index] for index in used], rows, width=width, paint=paint, kept=_LEAST_COLUMNS)


def _doing(view: AgentView) -> str:
    """Return what an agent does, or what it asks a person: `tool: Bash: make test`."""
    # `exact`, because it may be a question that a person decides.
    what = truncate(exact(doing_text(view.tool or "", view.detail or "")), _LIMIT_DOING)
    return f"tool: {what}" if view.tool else what


def later_tag(view: AgentView) -> str:
    """Return the tag of an agent, if its name does not show it: `pal tag` does not change the name."""
    return view.tag if view.tag and not view.name.startswith(f"{view.tag}-") else ""


def _folder(path: str, home: str) -> str:
    """Return a folder with ~ for the user's home directory; of a long one only the end."""
    short = f"~{path.removeprefix(home)}" if path == home or path.startswith(f"{home}/") else path
    # One column of the limit is for the ellipsis.
    return short if len(short) <= _LIMIT_FOLDER else f"…{short[1 - _LIMIT_FOLDER :]}"


Shape = Callable[[AgentView, Paint], Safe]
"""Returns the line of one agent."""


def _line_format(text: str | None) -> Shape | None:
    """Parse the text of --format; None without the option. Raises UsageError for an unknown field."""
    if text is None:
        return None
    # The queue is an object, which has no form on one line.
    fields = [field.encode_name for field in msgspec.structs.fields(AgentView) if field.name != "queue"]
    known = {name: name for name in fields}
    known |= {COMMON_WORDS[name]: name for name in fields if name in COMMON_WORDS}
    unknown = [name for name in _FIELD.findall(text) if name not in known]
    if unknown:
        raise UsageError(f"--format has no field {{{unknown[0]}}}; the fields are {', '.join(known)}")
    # A shell passes on '\t' as two characters, and a tab is the default separator of `cut`.
    text = text.replace("\\t", "\t").replace("\\n", "\n")

    def shape(view: AgentView, paint: Paint) -> Safe:
        line = _FIELD.sub(lambda found: _value(getattr(view, known[found[1]]), paint), text)
        return Safe(line)

    return shape


def _value(value: object, paint: Paint) -> str:
    """Return a field as text: nothing for null, yes or no for a truth value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return paint.safe(", ".join(map(str, value)) if isinstance(value, tuple) else str(value))


def _indented(views: Sequence[AgentView]) -> list[str]:
    """Return the names; a sub-agent is indented one step more than its parent, in one block below it."""
    above: list[str] = []  # the agent of the last line, after its parents
    shown = []
    for view in views:
        # In another order, such as by time, an unrelated agent may be between them.
        depth = above.index(view.parent) + 1 if view.parent in above else 0
        above[depth:] = [view.name]
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
    notes = [(_seat(view, now_ms), *(_waits(view) or (view.closed or "",))) for view in views]
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
        lines = [line for one in recent for line in _recent_lines(one, now_ms, room, paint)]
        lines += [one for one in note if one]
        # There is a first line: an agent has at least its age, and `own` at least one message.
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


_LIMIT_READERS: Final = 10
"""How many readers of a message are named."""


def receipt_line(recent: RecentMessage, now_ms: int, room: int | None, paint: Paint) -> Safe:
    """Return the readers of a message as one line: `#42(2m): "hello" read by nova, kira [2/3]`.

    If there is too little room, the text is shortened first, then the names; the count never is.
    """
    names = recent.read_by
    head, tail = f"#{recent.seq}({ago(now_ms - recent.ts)}): ", f" [{len(names)}/{recent.total}]"
    text = truncate(paint.safe(" ".join(recent.text.split())), _LIMIT_TEXT)
    readers = str(paint.names(map(readable_mailbox, names[:_LIMIT_READERS]))) or "none"
    if len(names) > _LIMIT_READERS:
        readers += f" and {len(names) - _LIMIT_READERS} more"
    if room is not None:
        left = room - display_width(f'{head}"" read by {tail}')
        text = truncate(text, max(left - display_width(readers), _LEAST_TEXT))
        readers = truncate(readers, max(left - display_width(text), 1))
    return Safe(f'{head}"{text}" read by {readers}{tail}')


def _recent_lines(recent: RecentMessage, now_ms: int, room: int | None, paint: Paint) -> list[str]:
    """Return the readers of a message, and why the first others have not seen it."""
    waits = [f"  {readable_mailbox(one.agent)} {one.state}: {one.wait.text}" for one in recent.waiting]
    return [receipt_line(recent, now_ms, room, paint), *waits]


def _waits(view: AgentDetails) -> tuple[str, ...]:
    """Return why an agent has not seen its first waiting message, and what would deliver it."""
    if view.wait is None:
        return ()
    return f"{view.wait.code}: {view.wait.text}", f"what moves it: {view.wait.moves}"


def _room(
    columns: Sequence[Column], heads: Sequence[Sequence[object]], width: int | None, paint: Paint
) -> int | None:
    """Return the columns that are left for receipts; None if lines may have any length.

    Measured before the receipts are made, because each receipt shortens itself to this width.
    """
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
    words = [f"for {_age(view, now_ms)}", view.role, f"tag {tag}" if (tag := later_tag(view)) else ""]
    words += [view.harness or ""]
    words += [] if view.pid is None else [f"process {view.pid}"]
    words += [_doing(view), view.cwd or "", *view.rooms]
    return ", ".join(word for word in words if word)


def _age(view: AgentView, now_ms: int) -> str:
    return ago(now_ms - view.since)
