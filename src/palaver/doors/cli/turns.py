"""The commands for automatic turns: their configuration, their runner, and turns on demand."""

from typing import Final

import msgspec

from palaver.domain.rights import require
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import Command, Option, Parsed, Positional, shown
from palaver.errors import AlreadyRunning, NotPerson, UsageError, WhoAreYou, nearest
from palaver.protocol.agents import Standing
from palaver.protocol.display import Column
from palaver.protocol.paths import MAIN
from palaver.protocol.text import counted
from palaver.protocol.turns import DEFAULT_MODEL, TurnConfig
from palaver.services.turns import TurnSessionView

# --------------------
# Rows of the commands.

_GROUP: Final = "Automatic turns"
_SEE: Final = (("automatic turns", "turns.md"),)
_AGENT: Final = Positional(name="AGENT", help="The agent: its full name.", completes="all agents")
_SESSION: Final = Positional(
    name="SESSION", help=f"One of its sessions (default: {MAIN}).", optional=True, completes="sessions"
)
_RUNNER: Final = "__runner"
"""The verb of the client that starts or ends the runner."""

TURN_COMMANDS: Final = (
    Command(
        path=("turn",),
        group=_GROUP,
        summary="Let agents act on messages without a person.",
        description=(
            "An automatic turn runs the harness of an absent agent for a batch of messages. A cheap triage "
            "decides first whether the batch deserves a turn. The runner, which a person starts, runs both."
        ),
        is_group=True,
        examples=(("pal turn list", "sessions with automatic turns, and what they wait for"),),
        see=_SEE,
    ),
    Command(
        path=("turn", "start"),
        group=_GROUP,
        summary="Start the runner of automatic turns.",
        description=(
            "The runner runs the programs of automatic turns with your environment: your PATH and your keys. "
            "It runs in the background until 'pal turn stop', also when the bus is restarted, and writes to "
            "runner.log in the home of the bus. There is one runner for a home; if it is running already, "
            "the command says so and starts nothing. Only a person can do this."
        ),
        options=(
            Option(name="--foreground", help="Stay in this terminal and show each job; Ctrl-C ends it."),
        ),
        examples=(
            ("pal turn start", "in the background"),
            ("pal turn start --foreground", "watch the jobs"),
        ),
        json="'pid', and 'new': false if the runner was running already.",
        see=_SEE,
    ),
    Command(
        path=("turn", "stop"),
        group=_GROUP,
        summary="End the runner of automatic turns.",
        description=(
            "Running turns end with it, and their messages are tried again when a runner is started. Without "
            "a runner the command does nothing. Only a person can do this."
        ),
        examples=(("pal turn stop", "end it"),),
        json="'pid', which is null without a runner.",
    ),
    Command(
        path=("turn", "set"),
        group=_GROUP,
        summary="Turn automatic turns of an agent on or off.",
        description=(
            "Sets the whole configuration of an agent, or of one of its sessions: options that you omit get "
            "their defaults. The value of a session takes precedence over that of its agent; "
            "'inherit' removes it. Options without 'on' or 'off' mean 'on', and the number 0 means the "
            "default. The configuration can also be a JSON object with the keys 'enabled', 'triageModel', "
            "'debounceMs', 'maxBatchSize', 'triageTimeoutMs', 'executionTimeoutMs', 'accept' and 'reject', "
            "or 'true', 'false' or 'null'. A person or an operator can do this for every agent, an agent for "
            "itself, and a script without a name for agents whose role is worker."
        ),
        positionals=(
            _AGENT,
            Positional(
                name="SESSION",
                help="One of its sessions (default: the agent).",
                optional=True,
                completes="sessions",
            ),
            Positional(name="VALUE", help="on, off, inherit, or JSON.", optional=True),
        ),
        options=(
            Option(
                name="--triage-model",
                metavar="MODEL",
                help=f"Model of the triage (default: {DEFAULT_MODEL}).",
            ),
            Option(name="--debounce-ms", metavar="N", help="Wait N ms for further messages (default: 3000)."),
            Option(name="--max-batch", metavar="N", help="At most N messages in a turn (default: 20)."),
            Option(name="--triage-timeout", metavar="TIME", help="Limit of a triage (default: 30 s)."),
            Option(name="--timeout", metavar="TIME", help="Limit of a turn (default: 300 s)."),
            Option(name="--accept", metavar="A,B", help="Commands and sources that run without a triage."),
            Option(name="--reject", metavar="A,B", help="Commands and sources that start no turn."),
        ),
        examples=(
            ("pal turn set luna on", "luna acts on its messages"),
            ("pal turn set luna ci --debounce-ms 10000 --reject ping,ci", "for one session, with options"),
            ("pal turn set luna --json '{\"enabled\":true}'", "as JSON"),
            ("pal turn set luna ci inherit", "use the value of luna again"),
        ),
        json="the resulting configuration.",
        see=_SEE,
    ),
    Command(
        path=("turn", "run"),
        group=_GROUP,
        summary="Run a turn now, without a triage.",
        description=(
            "Waits until a running turn of that session has ended, then runs this one to its end and prints "
            "the reply. Requires --message, --text or both, and the runner. After an error the exit status "
            "is 1. The same callers as for 'pal turn set' can do this."
        ),
        positionals=(_AGENT, _SESSION),
        options=(
            Option(
                name="--message",
                metavar="ID",
                help="A message of the session for this turn.",
                many=True,
                completes="ids",
            ),
            Option(name="--text", metavar="TEXT", help="A text for the agent.", shadows_global=True),
        ),
        examples=(
            ('pal turn run luna --text "list open tasks"', "a task"),
            ("pal turn run luna ci --message 42", "act on a message that was skipped"),
        ),
        json="'agent', 'session', 'turn' (its seq), 'text', 'error' and 'messages' (how many).",
        see=_SEE,
    ),
    Command(
        path=("turn", "stats"),
        group=_GROUP,
        summary="Show the counters of automatic turns.",
        description=(
            "Counts the triages and turns of this home, and the sessions that run or wait now. "
            "'pendingReruns' are sessions with messages that arrived during their turn."
        ),
        examples=(("pal turn stats --json", "for programs"),),
    ),
    Command(
        path=("turn", "list"),
        group=_GROUP,
        summary="List the sessions with automatic turns.",
        description="Shows what each session does now, how many messages wait, and what they wait for.",
        examples=(("pal turn list", "why does nothing run?"),),
        json="one object for each session: 'state', 'waiting', 'until_ms', 'reason' and its configuration.",
        see=_SEE,
    ),
)


# --------------------
# The runner. The daemon starts no programs: the client does, as the person.


async def start(call: Call) -> int:
    """Let the client start the runner, unless there is one."""
    require(call.caller, Standing.HUMAN, "turn start")
    _check_person(call, "start")
    chain = call.connection.peer.chain(lambda process: True)  # the client: it or its child claims the ticket
    if not chain:
        raise WhoAreYou(
            "the calling process has ended or runs in another container, so it cannot start the runner"
        )
    try:
        # With the start time, because the system gives the pid of an ended process to another one.
        ticket = call.services.turns.mint_ticket(call.caller, (chain[0].pid, chain[0].start))
    except AlreadyRunning as error:  # Not a failure: the caller has the runner that it wants.
        if call.is_json:
            await call.say_json({"pid": error.pid, "new": False})
        else:
            await call.say(str(error))
        return 0
    foreground = ["--foreground"] if call.parsed.has("--foreground") else []
    call.connection.run_here(_RUNNER, "--ticket", ticket, *foreground, *(["--json"] if call.is_json else []))
    return 0


async def stop(call: Call) -> int:
    """Let the client end the runner."""
    require(call.caller, Standing.HUMAN, "turn stop")
    _check_person(call, "stop")
    runner = call.services.turns.runner()
    if runner is None:
        if call.is_json:
            await call.say_json({"pid": None})
        else:
            await call.say("no runner is running")
        return 0
    call.connection.run_here(_RUNNER, "--stop", str(runner.pid), *(["--json"] if call.is_json else []))
    return 0


def _check_person(call: Call, verb: str) -> None:
    """Refuse an agent that acts for a person: the runner's programs have the rights of the person."""
    if not call.caller.is_person or call.caller.by is not None:
        raise NotPerson(f"only a person can {verb} the runner")


# --------------------
# Configuration.

_VALUES: Final[dict[str, object]] = {
    "on": True,
    "off": False,
    "inherit": None,
    "true": True,
    "false": False,
    "null": None,
}
_JSON_STARTS: Final = ("{", "[", '"')
"""Characters with which JSON begins, and never the id of a session."""
_KEYS: Final = frozenset(one.encode_name for one in msgspec.structs.fields(TurnConfig)) | {"triageRules"}
"""The keys of a configuration. `triageRules` is the path broker's form of `accept` and `reject`."""
_OPTIONS: Final = (
    *("--triage-model", "--debounce-ms", "--max-batch", "--triage-timeout", "--timeout", "--accept"),
    "--reject",
)


async def set_auto_run(call: Call) -> int:
    """Change the configuration of an agent or of one of its sessions."""
    agent, session, value = wanted_config(call.parsed)
    config = await call.services.turns.set_auto_run(call.caller, agent, session, value, key=call.asked.key)
    for key in sorted(value.keys() - _KEYS) if isinstance(value, dict) else ():
        near = nearest(key, _KEYS)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        call.warn(f"there is no key {shown(key)}, so it has no effect{hint}")
    if call.is_json:
        view: dict[str, object] = msgspec.to_builtins(config)
        await call.say_json({"agent": agent, "session": session or None, **view})
        return 0
    whom = call.safe(f"{agent} (session {session})" if session else agent)
    await call.say(f"automatic turns of {whom} are {_config_text(call, config)}")
    if config.enabled and call.services.turns.runner() is None:
        call.warn("no runner is running: a person can start it with 'pal turn start'")
    return 0


def wanted_config(parsed: Parsed) -> tuple[str, str, object]:
    """Return the agent, the session (empty for the agent) and the value of `pal turn set`."""
    agent, *rest = parsed.positionals
    value: object = None
    # The session is optional and comes before the value, so the last argument is looked at first.
    has_value = bool(rest) and (rest[-1] in _VALUES or rest[-1].startswith(_JSON_STARTS))
    is_json = False
    if has_value:
        written = rest.pop()
        is_json = written.startswith(_JSON_STARTS)
        value = _json_value(written) if is_json else _VALUES[written]
    if len(rest) > 1:
        raise UsageError(f"{shown(rest[1])} is not on, off, inherit or JSON; nothing was changed")
    session = rest[0] if rest else ""
    given = [name for name in _OPTIONS if parsed.has(name)]
    if not given and not has_value:
        which = f"{shown(session)} is not a value: " if session else ""
        raise UsageError(f"{which}add on, off, inherit, JSON or options; nothing was changed")
    # Options imply 'on'. With any other value it would be unclear which of both counts.
    if given and (is_json or (has_value and value is not True)):
        raise UsageError(f"{given[0]} is possible only with 'on'; nothing was changed")
    return agent, session, _options_value(parsed) if given else value


def _json_value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    # The decoder raises RecursionError for deep nesting, and not its own error.
    except (msgspec.DecodeError, RecursionError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise UsageError(f"the configuration is not JSON ({why}); nothing was changed") from None


def _options_value(parsed: Parsed) -> dict[str, object]:
    value: dict[str, object] = {"enabled": True}
    if (model := parsed.value("--triage-model")) is not None:
        value["triageModel"] = model
    for name, key in (("--debounce-ms", "debounceMs"), ("--max-batch", "maxBatchSize")):
        if (number := parsed.number(name)) is not None:
            value[key] = number
    for name, key in (("--triage-timeout", "triageTimeoutMs"), ("--timeout", "executionTimeoutMs")):
        if (limit_s := parsed.duration_s(name)) is not None:
            value[key] = round(limit_s * 1000)
    for name, key in (("--accept", "accept"), ("--reject", "reject")):
        if (words := parsed.value(name)) is not None:
            value[key] = [word.strip() for word in words.split(",") if word.strip()]
    return value


def _config_text(call: Call, config: TurnConfig) -> str:
    if not config.enabled:
        return "off"
    parts = [
        f"triage by {config.triage_model} within {config.triage_timeout_ms / 1000:g} s",
        f"debounce {config.debounce_ms} ms",
        f"at most {counted(config.max_batch_size, 'message')}",
        f"at most {config.execution_timeout_ms / 1000:g} s",
        *([f"accepts {', '.join(config.accept)}"] if config.accept else []),
        *([f"rejects {', '.join(config.reject)}"] if config.reject else []),
    ]
    return call.safe(f"on: {', '.join(parts)}")


# --------------------
# Turns on demand, counters, and the list of sessions.

_TIMED: Final = {"waiting": "until", "running": "since"}
"""The states with a time, and its preposition."""


async def run(call: Call) -> int:
    """Run a turn and print its reply."""
    agent, *session = call.parsed.positionals
    with call.connection.waiting():
        done = await call.services.turns.run(
            call.caller,
            agent,
            session[0] if session else "",
            call.parsed.values("--message"),
            call.parsed.value("--text") or "",
            key=call.asked.key,
        )
    if call.is_json:
        view: dict[str, object] = msgspec.to_builtins(done)
        await call.say_json({"agent": agent, **view})
    elif done.error:
        call.warn(done.error)
    else:
        await call.say(call.safe(done.text, keep_lines=True))
    return 1 if done.error else 0


async def stats(call: Call) -> int:
    """Print the counters."""
    view: dict[str, object] = msgspec.to_builtins(call.services.turns.stats())
    if call.is_json:
        await call.say_json(view)
    else:
        await call.say_lines(f"{name} {value}" for name, value in view.items())
    return 0


async def list_sessions(call: Call) -> int:
    """List the sessions with automatic turns."""
    found = call.services.turns.sessions()
    if call.is_json:
        await call.say_json_lines(found)
        return 0
    runner = call.services.turns.runner()
    if not found:
        call.warn("no agent has automatic turns; 'pal turn set AGENT on' turns them on")
    elif runner is None:
        call.warn("no runner is running: a person can start it with 'pal turn start'")
    columns = [
        Column(title="AGENT"),
        Column(title="SESSION"),
        Column(title="STATE"),
        Column(title="WAITING", is_right=True),
        Column(title="WHY", least=12),
    ]
    rows = [[one.agent, one.session, _state(call, one), str(one.waiting), one.reason] for one in found]
    if rows:
        await call.say_table(columns, rows)
    return 0


def _state(call: Call, one: TurnSessionView) -> str:
    if not one.until_ms or one.state not in _TIMED:
        return one.state
    return f"{one.state} {_TIMED[one.state]} {call.clock_time(one.until_ms)}"
