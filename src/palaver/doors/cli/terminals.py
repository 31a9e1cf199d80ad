"""The commands for agents that run in a terminal."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from palaver.domain.rights import has_started, may_resume, require
from palaver.doors.cli.call import Call
from palaver.doors.cli.spec import COUNT, DETACH, NAME, ROLE, TAG, WINDOW, Command, Option, Positional, shown
from palaver.errors import (
    BadRequest,
    MessageTooLarge,
    NameTaken,
    NotAllowed,
    NotFound,
    NotPerson,
    PalaverError,
    Unavailable,
    UsageError,
    WhoAreYou,
    error_from_wire,
)
from palaver.harness.base import ASKING, compile_rule
from palaver.harness.registry import FORKABLE
from palaver.identity.accounts import Ticket
from palaver.identity.process import HARNESS_WORDS
from palaver.protocol.address import parse_tag
from palaver.protocol.agents import (
    LAUNCHED,
    Agent,
    Caller,
    Standing,
    check_name,
    full_name,
    split_name,
    standing_of_role,
)
from palaver.protocol.envelope import Event
from palaver.protocol.requests import Pause, Unpause
from palaver.protocol.text import check_text
from palaver.services.agents import KILL, PEEK, STOP

# --------------------
# Rows of the commands for agents that run in a terminal.

_GROUP: Final = "Terminals"

_NAME: Final = Positional(name="NAME", help="Full name of the agent.", completes="agents")

_NAMES: Final = Positional(
    name="NAME", help="Full name of an agent.", many=True, optional=True, completes="agents"
)
_GROUP_OPTIONS: Final = (
    Option(name="--tag", metavar="TAG", help="Every agent with this tag.", many=True, completes="tags"),
    Option(name="--all", help="All agents except yourself. Asks at a person's terminal."),
    Option(name="--yes", help="Do not ask."),
)

_PROMPT: Final = Option(
    name="--prompt",
    metavar="REGEX",
    help="Prompt of an unknown program, as a regular expression.",
)

TERMINAL_COMMANDS: Final = (
    Command(
        path=("run",),
        group=_GROUP,
        summary="Run a program as an agent in its own terminal.",
        description=(
            "The program and all processes that it starts are that agent. Closing your window only "
            "detaches: the terminal keeps running. At a terminal you see the program at once; otherwise "
            "the command waits for its end and exits with its status. Messages are typed when the program "
            "can accept them, and never into a dialog, a shell, a tool that the program started, or a "
            "draft of a person. For a program that Palaver does not know, describe its prompt with "
            "--prompt. With --detach, the command waits until the program shows that it runs, at most a "
            "second (a harness: 30 seconds); if the program fails before that, its output is printed, and "
            "the exit status is that of the program."
        ),
        rest="COMMAND...",
        options=(
            NAME,
            TAG,
            ROLE,
            Option(
                name="--harness",
                metavar="HARNESS",
                help="Harness of the program (default: detected from its name).",
                completes="harnesses",
            ),
            _PROMPT,
            DETACH,
            COUNT,
            WINDOW,
        ),
        exclusive=((DETACH.name, WINDOW.name), (COUNT.name, WINDOW.name)),
        examples=(
            ("pal run --name luna -- claude", "run Claude Code; detach with Ctrl-\\ d"),
            ("pal run --detach --tag api -- codex", "run Codex in the background"),
            ("pal run --prompt 'you> ' -- ./chat.py", "your own program, with the prompt 'you> '"),
        ),
        see=(
            ("terminals", "terminals.md"),
            ("programs without a profile", "terminals.md#programs-without-a-profile"),
        ),
    ),
    Command(
        path=("attach",),
        group=_GROUP,
        summary="Show an agent's terminal and type into it.",
        description=(
            "Shows the screen, a status line and an input bar. Ctrl-\\ opens a menu. Ctrl-\\ d detaches; the "
            "agent keeps running. Ctrl-\\ n shows another agent. If the agent fails, you can start it again "
            "with one key. For a person only."
        ),
        positionals=(_NAME,),
        options=(
            Option(
                name="--plain",
                help="Only the terminal, which gets all keys. Ctrl-\\ d detaches.",
            ),
            WINDOW,
        ),
        exclusive=(("--plain", WINDOW.name),),
        examples=(
            ("pal attach luna", "open luna's terminal"),
            ("pal attach luna --plain", "without status line and input bar"),
        ),
        see=(("attaching", "attach.md"),),
    ),
    Command(
        path=("peek",),
        group=_GROUP,
        summary="Print the current screen of an agent's terminal.",
        description="Prints the screen as text, with --lines also the scrollback. It changes nothing.",
        positionals=(_NAME,),
        options=(
            Option(
                name="--lines",
                metavar="N",
                help="Last N lines, at most 10,000 (default: the screen).",
            ),
        ),
        examples=(
            ("pal peek luna", "see what luna is doing"),
            ("pal peek luna --lines 200", "with earlier lines"),
        ),
        json="'name', 'text', 'cols' and 'rows'.",
    ),
    Command(
        path=("pause",),
        group=_GROUP,
        summary="Pause delivery to an agent, except interrupts.",
        description=(
            "Other messages wait until 'pal unpause', or until the agent reads them with 'pal recv'. This "
            "holds on every path: terminals, programs on the SDK, 'pal recv --follow'. For an operator "
            "or a person."
        ),
        positionals=(_NAMES,),
        options=_GROUP_OPTIONS,
        examples=(
            ("pal pause luna", "let luna work undisturbed"),
            ("pal pause --tag api", "and all agents with the tag api"),
        ),
    ),
    Command(
        path=("unpause",),
        group=_GROUP,
        summary="Resume delivery to a paused agent.",
        description="Waiting messages are delivered now. For an operator or a person.",
        positionals=(_NAMES,),
        options=_GROUP_OPTIONS,
        examples=(
            ("pal unpause luna", "deliver luna's waiting messages"),
            ("pal unpause --all", "of all paused agents"),
        ),
    ),
    Command(
        path=("stop",),
        group=_GROUP,
        summary="Stop an agent gracefully.",
        description=(
            "Uses the program's own quit command, then SIGTERM, then SIGKILL. A shell ignores SIGTERM, so it "
            "gets SIGHUP first. Processes that the agent has started and left running end with it. The steps "
            "are printed on standard error, the way the program ended on standard output. With --tag or "
            "--all, agents that 'pal' did not start are "
            "left alone. Several agents are stopped at the same time; if one cannot be stopped, the exit "
            "status is 1. For an operator or a person."
        ),
        positionals=(_NAMES,),
        options=_GROUP_OPTIONS,
        examples=(
            ("pal stop luna nova", "stop luna and nova"),
            ("pal stop --tag api", "stop all agents with the tag api"),
        ),
        json="one object for each agent: 'name' and 'reason'. An agent that could not be stopped has none.",
    ),
    Command(
        path=("kill",),
        group=_GROUP,
        summary="Kill an agent immediately.",
        description=(
            "Sends SIGKILL and prints how the program ended. With --tag or --all, agents that 'pal' did not "
            "start are left alone. For an operator or a person."
        ),
        positionals=(_NAMES,),
        options=_GROUP_OPTIONS,
        examples=(
            ("pal kill luna", "luna no longer reacts"),
            ("pal kill --all", "end every agent now"),
        ),
        json="one object for each agent: 'name' and 'reason'. An agent that could not be killed has none.",
    ),
    Command(
        path=("resume",),
        group=_GROUP,
        summary="Restart an agent's program under the same name.",
        description=(
            "Runs the same command line in the same folder, with your environment. For the caller that "
            "started the agent, an operator or a person."
        ),
        positionals=(
            replace(
                _NAME,
                help="Full name of the agent, or the id of its last session.",
                completes="all agents",
            ),
        ),
        options=(_PROMPT, DETACH, WINDOW),
        exclusive=((DETACH.name, WINDOW.name),),
        examples=(("pal resume luna", "start luna again"),),
    ),
    Command(
        path=("fork",),
        group=_GROUP,
        summary="Continue a copy of an agent's session under a new name.",
        description=(
            "The copy has the whole conversation so far. Both agents run on their own from then on, in the "
            "same folder; the session of the first one does not change. The options of its command line are "
            "used again, without its first prompt. Claude Code, Codex and OpenCode can do this. For the "
            "caller that started the agent, an operator or a person."
        ),
        positionals=(replace(_NAME, completes="all agents"),),
        options=(replace(NAME, help="Name of the copy (default: a free name)."), TAG, ROLE, DETACH, WINDOW),
        exclusive=((DETACH.name, WINDOW.name),),
        examples=(
            ("pal fork luna", "under a free name"),
            ("pal fork luna --name nova --window", "choose the name; in a new window"),
        ),
    ),
)


# --------------------
# Functions of the commands. They check the request; the client and the holder do the work.

_SESSION_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|ses_\w+")
"""The forms of session ids of harnesses: no agent has such a name."""
# Bytes. An event in the log contains the whole command line.
_LIMIT_ARGV_BYTES: Final = 64 * 1024
_LIMIT_LINES: Final = 10_000
_LIMIT_COUNT: Final = 20
_PEEK_S: Final = 5.0
"""Seconds. A holder that works replies at once; one that hangs must not hold up the command."""
_SHOWN_NAMES: Final = 10
"""Names in a question; the others are counted."""
_END_S: Final = 120.0
"""Seconds. A holder ends its program well within this time, whatever the program does."""


async def run(call: Call) -> int:
    """Check the request, and let the client run the command as an agent."""
    parsed = call.parsed
    require(call.caller, Standing.WORKER, "run")
    if parsed.positionals or not parsed.after:
        raise UsageError("there is no command after --: pal run [OPTIONS] -- COMMAND...")
    argv = tuple(parsed.after)
    _check_command(argv, call.asked.cwd)
    role = parsed.value("--role") or "worker"
    _check_role(call, role)
    name, tag = parsed.reference("--name").lower(), (parsed.value("--tag") or "").lower()
    if name:
        _check_free(call, full_name(name, tag))
    ticket = Ticket(
        by=call.caller,
        asker=_asker(call),
        name=name,
        tag=tag,
        role=role,
        harness=parsed.value("--harness") or _harness_of(argv),
        argv=argv,
        cwd=call.asked.cwd,
    )
    return _let_run(call, ticket, is_again=False, prompt=parsed.value("--prompt"))


def launch(call: Call, harness: str, args: tuple[str, ...]) -> int:
    """Check the request, and let the client start a harness as an agent, with its integration."""
    name, tag = call.parsed.reference("--name").lower(), (call.parsed.value("--tag") or "").lower()
    ticket = _ticket_for(call, harness, args, name, tag)
    if name:
        _check_free(call, full_name(name, tag))
    return _let_run(call, ticket, is_again=False)


async def start(call: Call) -> int:
    """Check the request, and let the client start harnesses as agents in the background."""
    harnesses = [harness for word in call.parsed.positionals for harness in _harnesses_from(call, word)]
    if len(harnesses) > _LIMIT_COUNT:
        raise UsageError(f"{len(harnesses)} agents are too many; start at most {_LIMIT_COUNT} at once")
    tag = (call.parsed.value("--tag") or "").lower()
    # All are checked before the first ticket is made: if one cannot be started, none is.
    kinds = {harness: _ticket_for(call, harness, (), "", tag) for harness in harnesses}
    tickets = [call.services.callers.tickets.mint(kinds[harness]) for harness in harnesses]
    may_ask = _is_person(call) and any(harness in ASKING for harness in harnesses)
    call.connection.run_here(
        *("__run", "--ticket", " ".join(tickets), "--detach", "--each"),
        *("--hooks", _hooks_of(call, is_again=False), "--commands", _commands_of(call, may_ask=may_ask)),
        *(["--json"] if call.is_json else []),
        *("--", *harnesses),
    )
    return 0


def _harnesses_from(call: Call, word: str) -> list[str]:
    """Return a harness as often as its word says: `claude:2` twice, and `codex` once. Raises UsageError."""
    harness, colon, count = word.lower().partition(":")
    if harness not in HARNESS_WORDS:
        hint = f"choose from {', '.join(sorted(HARNESS_WORDS))}, such as claude:2"
        if call.services.broker.directory.find(word) is not None:
            hint = f"it is an agent: 'pal resume {word}' restarts it"
        raise UsageError(f"unknown harness {shown(word)}; {hint}")
    if not colon:
        return [harness]
    # `isdecimal` alone accepts digits of other scripts, and `int` raises for thousands of digits.
    is_number = count.isdecimal() and count.isascii() and len(count) <= 9
    if not is_number or not 1 <= int(count) <= _LIMIT_COUNT:
        raise UsageError(f"{shown(word)} has no valid number; write {harness}:N, with 1 to {_LIMIT_COUNT}")
    return [harness] * int(count)


def _ticket_for(call: Call, harness: str, args: tuple[str, ...], name: str, tag: str) -> Ticket:
    """Return the right to start a harness as an agent, if the caller may do that."""
    require(call.caller, Standing.WORKER, call.parsed.command.path[0])
    argv = (*LAUNCHED, harness, *args)
    _check_command(argv, call.asked.cwd)
    role = call.parsed.value("--role") or "worker"
    _check_role(call, role)
    return Ticket(
        by=call.caller,
        asker=_asker(call),
        name=name,
        tag=tag,
        role=role,
        harness=harness,
        argv=argv,
        cwd=call.asked.cwd,
    )


async def resume(call: Call) -> int:
    """Let the client start the command of an earlier agent again, under the same name."""
    agent = _agent_of(call, call.parsed.positionals[0])
    caller = call.caller
    _check_may_start(caller, agent, "resume")
    if agent.parent:
        raise BadRequest(f"{agent.name} is a sub-agent: only {agent.parent} can resume it")
    if not agent.argv:
        raise BadRequest(f"{agent.name} was not started with 'pal run', so its command is not known")
    if not agent.left and call.services.callers.presence.is_present(agent.name):
        raise NameTaken(agent.name, "it is running; 'pal attach' shows it")
    call.services.turns.check_free(agent)  # Two processes must not write one session.
    _check_role(call, agent.role)
    ticket = Ticket(
        by=caller,
        asker=_asker(call),
        name=agent.name,
        role=agent.role,
        harness=agent.harness,
        argv=agent.argv,
        cwd=agent.cwd,
        is_resumed=True,
    )
    prompt = call.parsed.value("--prompt")
    return _let_run(call, ticket, is_again=True, session=agent.session, prompt=prompt)


async def fork(call: Call) -> int:
    """Let the client continue a copy of an agent's session, as another agent."""
    agent, parsed = call.agent(call.parsed.positionals[0]), call.parsed
    _check_may_start(call.caller, agent, "fork")
    if agent.parent or agent.remote:
        where = f"inside the session of {agent.parent}" if agent.parent else "on another machine"
        raise BadRequest(f"{agent.name} is {where}, so its session cannot be continued here")
    if agent.harness not in FORKABLE:
        raise BadRequest(
            f"{agent.harness or 'the program'} of {agent.name} cannot continue a copy of a session; these "
            f"can: {', '.join(FORKABLE)}"
        )
    if not agent.session or agent.link:
        raise BadRequest(f"{agent.name} has no session yet: there is nothing to continue")
    role = parsed.value("--role") or "worker"
    _check_role(call, role)
    name, tag = parsed.reference("--name").lower(), (parsed.value("--tag") or "").lower()
    if name:
        _check_free(call, full_name(name, tag))
    # The stored command begins with `pal` and the name of the harness; only the rest is for the harness.
    is_launched = agent.argv[: len(LAUNCHED)] == LAUNCHED
    args = FORKABLE[agent.harness](agent.argv[len(LAUNCHED) + 1 :] if is_launched else ())
    ticket = Ticket(
        by=call.caller,
        asker=_asker(call),
        name=name,
        tag=tag,
        role=role,
        harness=agent.harness,
        argv=(*LAUNCHED, agent.harness, *args),
        cwd=agent.cwd or call.asked.cwd,
    )
    return _let_run(call, ticket, is_again=True, session=agent.session, is_fork=True)


def _agent_of(call: Call, text: str) -> Agent:
    """Return the agent with this name, or else the one whose last session has this id. Raises NotFound."""
    directory = call.services.broker.directory
    if directory.find(text) is None:
        # For an agent that exists only on a connection, `session` is the hash of a secret. A sub-agent cannot
        # be resumed.
        found = [one for one in directory.all() if one.session == text and not one.link and not one.parent]
        if found:
            return max(found, key=lambda one: one.seq)
        if _SESSION_ID.fullmatch(text):
            raise NotFound(
                f"session {text} on the bus",
                "continue it as a new agent with your harness: 'pal claude --resume ID', 'pal codex resume "
                "ID', 'pal opencode --session ID' or 'pal gemini --resume ID'",
            )
    return call.agent(text)


def _check_may_start(caller: Caller, agent: Agent, verb: str) -> None:
    if not may_resume(caller, agent):
        raise NotAllowed(verb, caller.standing.word, "an operator, or the caller that started it")


def _asker(call: Call) -> tuple[int, int]:
    """Return the pid and start time of the client's process. The client runs the command in this process."""
    # The chain ends with its first process: only the client itself is needed.
    chain = call.connection.peer.chain(lambda process: True)
    if not chain:
        raise WhoAreYou(
            "the calling process has ended or runs in another container, so it cannot run an agent"
        )
    # With the start time, because the system gives the pid of an ended process to another one.
    return chain[0].pid, chain[0].start


def _let_run(
    call: Call,
    ticket: Ticket,
    *,
    is_again: bool,
    session: str = "",
    is_fork: bool = False,
    prompt: str | None = None,
) -> int:
    _check_window(call)
    count = 1 if is_again else _count(call)
    # A ticket for each agent, because each can be claimed only once.
    tickets = [call.services.callers.tickets.mint(ticket) for _ in range(count)]
    words = ["__run", "--ticket", " ".join(tickets)]  # One argument, because no ticket contains a space.
    if call.parsed.has("--detach") or count > 1:
        words.append("--detach")
    words += [WINDOW.name] if call.parsed.has(WINDOW.name) else []
    words += ["--fork"] if is_fork else []
    if ticket.name:
        words += ["--name", ticket.name]
    if ticket.harness:
        words += ["--harness", ticket.harness]
    if prompt:
        compile_rule(prompt, "--prompt")  # A wrong pattern must fail here, before anything is started.
        words += ["--prompt", prompt]
    if is_again:
        words += ["--cwd", ticket.cwd]
    if call.is_json:
        words.append("--json")
    argv = ticket.argv
    if argv[: len(LAUNCHED)] == LAUNCHED:
        argv = argv[len(LAUNCHED) :]
        words += ["--launch", argv[0], *(["--session", session] if session else [])]
        words += ["--hooks", _hooks_of(call, is_again=is_again)] if argv[0] == "codex" else []
        may_ask = argv[0] in ASKING and not is_again and _is_person(call)
        words += ["--commands", _commands_of(call, may_ask=may_ask)]
    call.connection.run_here(*words, "--", *argv)
    return 0


def _count(call: Call) -> int:
    """Return how many agents to start."""
    count = call.parsed.number("--count", 1) or 1
    if count > _LIMIT_COUNT:
        raise UsageError(f"--count must be at most {_LIMIT_COUNT}")
    if count > 1 and call.parsed.has("--name"):
        raise UsageError("--count gives each agent a free name; use --tag to name the group")
    return count


def _check_window(call: Call) -> None:
    """Refuse a window to an agent: a program in a new window has no agent above it, so it is a person's."""
    if call.parsed.has(WINDOW.name) and not _is_person(call):
        raise NotPerson("only a person can open a window; leave out --window, or use --detach")


def _hooks_of(call: Call, *, is_again: bool) -> str:
    """Return which hooks Codex may have: only a person is asked, and only a person can agree.

    On resume no question is asked: the earlier decision still applies.
    """
    has_options = not is_again and "--hooks" in call.parsed.command.option_names
    if not call.services.daemon.settings.now.codex_hooks or (has_options and call.parsed.has("--no-hooks")):
        return "off"
    if is_again or not _is_person(call):
        return "known"
    return "again" if has_options and call.parsed.has("--hooks") else "ask"


def _commands_of(call: Call, *, may_ask: bool) -> str:
    """Return whether agents may use the safe commands without a prompt: yes, no, or ask the person.

    `known`: no question is asked, and only an earlier decision counts.
    """
    known = call.services.daemon.settings.now.agent_commands
    return "known" if known == "ask" and not may_ask else known


def _is_person(call: Call) -> bool:
    """Whether the caller is a person, and not an agent or script that acts for one."""
    return call.caller.is_person and call.caller.by is None


def _check_command(argv: tuple[str, ...], cwd: str) -> None:
    """Refuse a command that the log could not store: `pal resume` starts it from the log."""
    check_text(cwd, "the name of this folder")
    size = sum(len(word.encode()) + 1 for word in argv)
    if size > _LIMIT_ARGV_BYTES:
        raise MessageTooLarge("the command", size, _LIMIT_ARGV_BYTES)
    if not argv[0]:
        raise UsageError("the command is empty: pal run [OPTIONS] -- COMMAND...")


def _check_role(call: Call, role: str) -> None:
    # Otherwise an agent could start another one with more rights than its own.
    if standing_of_role(role) > Standing.WORKER and not call.caller.is_person:
        raise NotPerson(f"only a person can assign the role {role}; run it as a worker")


def _check_free(call: Call, name: str) -> None:
    """Refuse a name that the caller could not get, before anything is started."""
    parts = split_name(name)
    known = call.services.broker.directory.get(name)
    if known is None:
        check_name(parts.base, parts.tag)
        return
    if not known.left and call.services.callers.presence.is_present(name):
        raise NameTaken(name, "it is in use now; choose another with --name")
    # The new program would get the waiting messages of the earlier one.
    if not call.caller.is_person and not has_started(call.caller, known):
        raise NameTaken(name, "it was used before; 'pal resume' restarts its program")


def _harness_of(argv: tuple[str, ...]) -> str:
    program = PurePath(argv[0]).name
    return program if program in HARNESS_WORDS else ""


async def attach(call: Call) -> int:
    """Let the client attach to an agent's terminal. Only the human may use its keyboard."""
    if not _is_person(call):
        raise NotPerson("only a person can attach to an agent's terminal; to see its screen, run 'pal peek'")
    agent = await _in_terminal(call, call.parsed.positionals[0])
    flags = [flag for flag in ("--plain", WINDOW.name) if call.parsed.has(flag)]
    call.connection.run_here("__attach", agent.name, *flags)
    return 0


async def peek(call: Call) -> int:
    """Print the screen of an agent's terminal."""
    lines = call.parsed.number("--lines") or 0
    if not 0 <= lines <= _LIMIT_LINES:
        raise UsageError(f"--lines must be at most {_LIMIT_LINES}")
    agent = await _in_terminal(call, call.parsed.positionals[0])
    reply = await call.services.agents.holds.ask_once(agent.name, PEEK, limit_s=_PEEK_S, lines=lines)
    if reply.error:
        raise error_from_wire(reply.error, reply.message, {})
    if call.is_json:
        await call.say_json({"name": agent.name, **reply.ok})
    else:
        await call.say(call.safe(str(reply.ok.get("text", "")), keep_lines=True))
    return 0


async def pause(call: Call) -> int:
    """Deliver only interrupts to an agent."""
    return await _set_paused(call, is_paused=True)


async def unpause(call: Call) -> int:
    """Deliver all messages to an agent again."""
    return await _set_paused(call, is_paused=False)


async def _set_paused(call: Call, *, is_paused: bool) -> int:
    verb = "pause" if is_paused else "unpause"
    require(call.caller, Standing.OPERATOR, verb)
    chosen = _chosen(call)
    # Of a group only the agents that change; a named agent is reported in any case.
    agents = [agent for agent in chosen if agent.paused != is_paused] if _is_group(call) else chosen
    if not await _may_change(call, verb, agents):
        return 1
    for agent in agents:
        request = Pause(name=agent.name) if is_paused else Unpause(name=agent.name)
        await call.submit_for(agent.name, request)
        if call.is_json:
            await call.say_json({"name": agent.name, "paused": is_paused})
        else:
            word = (
                "is paused: it gets only interrupts"
                if is_paused
                else "is no longer paused: it gets all messages"
            )
            await call.say(f"{agent.name} {word}")
    return 0


async def stop(call: Call) -> int:
    """End an agent: ask its program to stop, and kill it if it continues."""
    return await _end(call, STOP)


async def kill(call: Call) -> int:
    """End an agent at once."""
    return await _end(call, KILL)


async def _end(call: Call, verb: str) -> int:
    require(call.caller, Standing.OPERATOR, verb)
    chosen = _chosen(call)
    if not _is_group(call):
        agents = [await _held(call, agent.name) for agent in chosen]
    else:
        # All at once: each wait for a holder may take several seconds.
        await asyncio.gather(*(wait_for_holder(call, agent.name) for agent in chosen))
        agents = [one for one in chosen if call.services.agents.holds.get(one.name) is not None]
        if others := [one.name for one in chosen if one not in agents]:
            call.warn(f"not started by pal, so left alone: {', '.join(others)}")
    if not await _may_change(call, verb, agents):
        return 1
    # All at once, because a program may take long to end.
    results = await asyncio.gather(*(_end_one(call, agent, verb, len(agents)) for agent in agents))
    return max(results, default=0)


async def _end_one(call: Call, agent: Agent, verb: str, count: int) -> int:
    """End one agent and print how it ended. Of several agents, one that does not end stops no other."""
    try:
        async with asyncio.timeout(_END_S):
            reason = await end_of(call, agent, verb)
    except (TimeoutError, PalaverError) as error:
        failure = error if isinstance(error, PalaverError) else _unended(agent)
        # For one agent it is the error of the command, with its code for programs.
        if count == 1:
            raise failure from None
        call.warn(str(failure))
        return 1
    if call.is_json:
        await call.say_json({"name": agent.name, "reason": reason})
    else:
        await call.say(f"{agent.name} has ended: {call.safe(reason)}")
    return 0


def _unended(agent: Agent) -> Unavailable:
    return Unavailable(f"{agent.name} has not ended within {_END_S:g} seconds; try 'pal kill'")


# --------------------
# The agents that a command is about: by name, by tag, or all of them.


def _is_group(call: Call) -> bool:
    return call.parsed.has("--all") or call.parsed.has("--tag")


def _chosen(call: Call) -> list[Agent]:
    """Return the agents of a command, each once. Raises NotFound before anything is done to one of them.

    A tag and --all select agents that have not left, without sub-agents and the caller.
    """
    parsed, directory = call.parsed, call.services.broker.directory
    tags = list(map(parse_tag, parsed.values("--tag")))
    if parsed.has("--all") and (tags or parsed.positionals):
        raise UsageError("--all selects every agent; use it without names and tags")
    if not (parsed.positionals or _is_group(call)):
        raise UsageError("name the agents, or select them with --tag TAG or --all")
    if unknown := [tag for tag in tags if not directory.has_tag(tag)]:
        raise NotFound(f"agent with the tag {unknown[0]}", "'pal list' shows the agents")
    found = {agent.name: agent for agent in map(call.agent, parsed.positionals)}
    members = (
        directory.all() if parsed.has("--all") else (one for tag in tags for one in directory.by_tag(tag))
    )
    for agent in members:
        if not (agent.left or agent.parent or agent.name == call.caller.name):
            found.setdefault(agent.name, agent)
    return list(found.values())


async def _may_change(call: Call, verb: str, agents: Sequence[Agent]) -> bool:
    """Ask a person before a command for all agents; say so if there are no agents at all."""
    if not agents:
        call.warn(f"there is no agent to {verb}")
        return True
    if not call.parsed.has("--all") or call.parsed.has("--yes"):
        return True
    names = ", ".join(agent.name for agent in agents[:_SHOWN_NAMES])
    more = f" and {len(agents) - _SHOWN_NAMES} more" if len(agents) > _SHOWN_NAMES else ""
    one_or_more = "1 agent" if len(agents) == 1 else f"{len(agents)} agents"
    if await call.is_agreed(f"{verb} {one_or_more}: {names}{more}?"):
        return True
    call.warn(f"nothing was done; to {verb} some of them, name them")
    return False


async def _in_terminal(call: Call, name: str) -> Agent:
    """Return an agent with a terminal; raise NotFound for an agent that its holder runs without one."""
    agent = await _held(call, name)
    hold = call.services.agents.holds.get(agent.name)
    if hold is not None and not hold.cols:
        raise NotFound(f"terminal of {agent.name}", "it runs without one")
    return agent


async def _held(call: Call, name: str) -> Agent:
    agent = call.agent(name)
    await wait_for_holder(call, agent.name)
    if call.services.agents.holds.get(agent.name) is None:
        hint = "its holder is not connected" if agent.holder and not agent.left else "start it with 'pal run'"
        hint = f"it is a sub-agent, inside the session of {agent.parent}" if agent.parent else hint
        raise NotFound(f"terminal of {agent.name}", hint)
    return agent


# --------------------
# The end of an agent: ask its holder, and wait. Does not check the caller's rights.
#
# A holder whose connection breaks while its program ends connects again to report the end. The caller waits
# for that too: the end counts, not the connection.

BACK_S: Final = 10.0
"""Seconds that a lost holder may take to reconnect, or that the end of its agent may take to be noticed."""
_WRITTEN_S: Final = 2.0
"""Seconds that the end of an agent may take to be stored, after its program has ended."""


async def end_of(call: Call, agent: Agent, verb: str) -> str:
    """Ask the holder to end the agent, print its progress, and return how the program ended.

    Raises Unavailable if the holder is lost, and it neither reconnects nor is the agent's end stored in time.
    """
    # Watched before the holder is asked: an end that comes at once must not be missed.
    with _watching(call, agent.name) as changed:
        while True:
            try:
                reason = await _asked(call, agent, verb)
                await _until_left(call, agent, changed)
                return reason
            except Unavailable as lost:  # The holder was lost; it may come back, and is asked again.
                last_word = await _after(call, agent, changed, lost)
            if last_word is not None:
                return last_word


async def wait_for_holder(call: Call, name: str) -> None:
    """Wait until the holder of an agent is connected, for at most BACK_S; return at once without a holder.

    After a start of the daemon every holder reconnects by itself, and a command may come before that.
    """
    # After the time limit the caller itself reports that there is no holder.
    with _watching(call, name) as changed, suppress(TimeoutError):
        async with asyncio.timeout(BACK_S):
            while True:
                # Cleared before the state is read, so that a change after the read ends the wait.
                changed.clear()
                known = call.services.broker.directory.get(name)
                if known is None or known.left or not known.holder:
                    return
                if call.services.agents.holds.get(name) is not None:
                    return
                await changed.wait()


async def _asked(call: Call, agent: Agent, verb: str) -> str:
    async with aclosing(call.services.agents.holds.ask(agent.name, verb, by=call.caller.name)) as words:
        with call.connection.waiting():
            async for reply in words:
                if reply.error:
                    raise error_from_wire(reply.error, reply.message, {})
                if reply.done:
                    return str(reply.ok.get("reason", "ended"))
                call.warn(f"{agent.name}: {reply.message}")
    raise AssertionError("the last status is done or an error")


async def _until_left(call: Call, agent: Agent, changed: asyncio.Event) -> None:
    """Wait a short time until the end is stored, so that the next command sees that the agent has left."""
    # The program has ended already, so a missing event is no failure of the command.
    with suppress(TimeoutError):
        async with asyncio.timeout(_WRITTEN_S):
            while True:
                changed.clear()
                known = call.services.broker.directory.get(agent.name)
                if known is None or known.left:
                    return
                await changed.wait()


async def _after(call: Call, agent: Agent, changed: asyncio.Event, lost: Unavailable) -> str | None:
    """Wait until the agent has left, and return its last detail; None if its holder has reconnected."""
    try:
        async with asyncio.timeout(BACK_S):
            while True:
                changed.clear()
                known = call.services.broker.directory.get(agent.name)
                if known is None or known.left:
                    return known.detail if known is not None else "ended"
                if call.services.agents.holds.get(agent.name) is not None:
                    return None
                await changed.wait()
    except TimeoutError:
        raise lost from None


@contextmanager
def _watching(call: Call, name: str) -> Iterator[asyncio.Event]:
    """Yield an event that is set whenever an agent may have left, or may have a holder again."""
    changed = asyncio.Event()

    def hear(events: Sequence[Event]) -> None:
        # The end of an agent is an event of the agent itself.
        if any(event.sender == name for event in events):
            changed.set()

    unsubscribe = call.services.queries.subscribe(hear)
    unwatch = call.services.agents.holds.watch(changed.set)
    try:
        yield changed
    finally:
        unwatch()
        unsubscribe()
