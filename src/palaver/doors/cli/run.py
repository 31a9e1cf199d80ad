"""Run a request: parse it, identify the caller, call its command, and report errors.

Only this module of the door turns errors into exit statuses.
"""

import logging
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from palaver.doors.cli import agents as commands_agents
from palaver.doors.cli import archive as commands_archive
from palaver.doors.cli import bundles as commands_bundles
from palaver.doors.cli import bus as commands_bus
from palaver.doors.cli import config as commands_config
from palaver.doors.cli import events as commands_events
from palaver.doors.cli import harness as commands_harness
from palaver.doors.cli import http as commands_http
from palaver.doors.cli import messages as commands_messages
from palaver.doors.cli import permissions as commands_permissions
from palaver.doors.cli import rooms as commands_rooms
from palaver.doors.cli import stick as commands_stick
from palaver.doors.cli import subscriptions as commands_subscriptions
from palaver.doors.cli import tasks as commands_tasks
from palaver.doors.cli import terminals as commands_terminals
from palaver.doors.cli import threads as commands_threads
from palaver.doors.cli.agents import AGENT_COMMANDS
from palaver.doors.cli.archive import ARCHIVE_COMMANDS
from palaver.doors.cli.bundles import BUNDLE_COMMANDS
from palaver.doors.cli.bus import BUS_COMMANDS
from palaver.doors.cli.call import Call, check_utf8, no_agent
from palaver.doors.cli.config import CONFIG_COMMANDS
from palaver.doors.cli.connection import ArgvConnection
from palaver.doors.cli.events import LOG_COMMANDS
from palaver.doors.cli.harness import HARNESS_COMMANDS, INSTALL_COMMANDS
from palaver.doors.cli.help import render_help
from palaver.doors.cli.http import DOOR_COMMANDS
from palaver.doors.cli.messages import MESSAGE_COMMANDS
from palaver.doors.cli.parser import Parsed, parse, trace
from palaver.doors.cli.permissions import PERMISSION_COMMANDS
from palaver.doors.cli.render import before_the_text, format_refusal, status_of
from palaver.doors.cli.rooms import CHAT_COMMANDS, NOTE_COMMANDS, ROOM_COMMANDS
from palaver.doors.cli.spec import Command, Positional, Table, build_table
from palaver.doors.cli.stick import STICK_COMMANDS
from palaver.doors.cli.subscriptions import SUBSCRIPTION_COMMANDS
from palaver.doors.cli.tasks import TASK_COMMANDS
from palaver.doors.cli.terminals import TERMINAL_COMMANDS
from palaver.doors.cli.threads import THREAD_COMMANDS, TRANSCRIPT_COMMANDS
from palaver.errors import PalaverError, UsageError, WhoAreYou
from palaver.harness.hooks import MARKS, SEAT_MARK, harness_of
from palaver.identity.caller import CallerClaim, Doorstep, act_as
from palaver.identity.process import Process
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.display import paint_for, safe, wants_colour
from palaver.protocol.thin import ThinRequest
from palaver.services.queries import read_failure
from palaver.services.services import REPLACED, Services

# --------------------
# Map each command to its function. A test compares this map with the table of commands.

Handler = Callable[[Call], Awaitable[int]]

HANDLERS: Final[Mapping[tuple[str, ...], Handler]] = {
    ("up",): commands_bus.up,
    ("down",): commands_bus.down,
    ("status",): commands_bus.status,
    ("doctor",): commands_bus.doctor,
    ("config", "list"): commands_config.list_settings,
    ("config", "get"): commands_config.get_setting,
    ("config", "set"): commands_config.set_setting,
    ("config", "edit"): commands_config.edit_settings,
    ("completion",): commands_bus.completion,
    ("__complete",): commands_bus.complete_words,
    ("join",): commands_agents.join,
    ("leave",): commands_agents.leave,
    ("whoami",): commands_agents.whoami,
    ("list",): commands_agents.list_agents,
    ("status", "set"): commands_agents.set_status,
    ("run",): commands_terminals.run,
    ("attach",): commands_terminals.attach,
    ("peek",): commands_terminals.peek,
    ("pause",): commands_terminals.pause,
    ("unpause",): commands_terminals.unpause,
    ("stop",): commands_terminals.stop,
    ("kill",): commands_terminals.kill,
    ("resume",): commands_terminals.resume,
    ("transcript",): commands_threads.transcript,
    ("claude",): commands_harness.claude,
    ("codex",): commands_harness.codex,
    ("opencode",): commands_harness.opencode,
    ("gemini",): commands_harness.gemini,
    ("hook",): commands_harness.hook,
    ("monitor",): commands_harness.monitor,
    ("rewake",): commands_harness.rewake,
    ("pending",): commands_permissions.pending,
    ("approve",): commands_permissions.approve,
    ("deny",): commands_permissions.deny,
    ("send",): commands_messages.send,
    ("recv",): commands_messages.recv,
    ("inbox",): commands_messages.inbox,
    ("show",): commands_messages.show,
    ("receipts",): commands_messages.receipts,
    ("trace",): commands_messages.trace,
    ("ack",): commands_messages.ack,
    ("release",): commands_messages.release,
    ("redeliver",): commands_messages.redeliver,
    ("thread", "list"): commands_threads.list_threads,
    ("thread", "show"): commands_threads.show_thread,
    ("bundle", "create"): commands_bundles.create,
    ("bundle", "show"): commands_bundles.show,
    ("bundle", "list"): commands_bundles.list_bundles,
    ("bundle", "cat"): commands_bundles.cat,
    ("chat",): commands_rooms.chat,
    ("room", "join"): commands_rooms.join,
    ("room", "leave"): commands_rooms.leave,
    ("room", "list"): commands_rooms.list_rooms,
    ("room", "state"): commands_rooms.state,
    ("room", "kick"): commands_rooms.kick,
    ("room", "close"): commands_rooms.close,
    ("stick", "wait"): commands_stick.wait,
    ("stick", "claim"): commands_stick.claim,
    ("stick", "heartbeat"): commands_stick.heartbeat,
    ("stick", "release"): commands_stick.release,
    ("stick", "pass"): commands_stick.pass_on,
    ("stick", "takeover"): commands_stick.takeover,
    ("note", "add"): commands_rooms.add_note,
    ("note", "list"): commands_rooms.list_notes,
    ("note", "resolve"): commands_rooms.resolve_note,
    ("task", "create"): commands_tasks.create,
    ("task", "update"): commands_tasks.update,
    ("task", "complete"): commands_tasks.complete,
    ("task", "list"): commands_tasks.list_tasks,
    ("task", "show"): commands_tasks.show,
    ("events",): commands_events.events,
    ("events", "sub"): commands_subscriptions.subscribe,
    ("events", "subs"): commands_subscriptions.subscriptions,
    ("events", "unsub"): commands_subscriptions.unsubscribe,
    ("mcp",): commands_http.mcp,
    ("token", "create"): commands_http.create_token,
    ("token", "list"): commands_http.list_tokens,
    ("token", "revoke"): commands_http.revoke_token,
    ("install",): commands_harness.install,
    ("uninstall",): commands_harness.install,
    ("archive",): commands_archive.archive,
    ("backup",): commands_archive.backup,
    ("export",): commands_archive.export,
    ("redact",): commands_archive.redact,
}

# --------------------
# All commands with their help texts. Data only: `HANDLERS` above names the functions.
#
# `docs/cli.md` describes the same commands, and a test compares the two.

SHELLS: Final = ("bash", "zsh", "fish")

PROGRAM: Final = Command(
    path=(),
    summary="A message bus for coding agents and people.",
    is_group=True,
    examples=(
        ("pal join --name luna", "join the bus"),
        ("pal list", "list the agents"),
        ('pal send @nova "tests are green"', "send a message to nova"),
        ("pal recv --wait", "wait for a message and read it"),
    ),
)

_HELP_COMMANDS: Final = (
    Command(
        path=("completion",),
        group="Help",
        summary="Print a completion script for your shell.",
        description="It completes commands, options, agents, threads and message numbers.",
        positionals=(Positional(name="SHELL", help="Your shell.", choices=SHELLS),),
        examples=(
            ('eval "$(pal completion bash)"', "in ~/.bashrc"),
            ('eval "$(pal completion zsh)"', "in ~/.zshrc, after compinit"),
            ("pal completion fish | source", "in ~/.config/fish/config.fish"),
        ),
    ),
    Command(
        path=("help",),
        group="Help",
        summary="Show all commands, or help for one command.",
        positionals=(
            Positional(
                name="COMMAND",
                help="The command to explain (default: list all commands).",
                many=True,
                optional=True,
                completes="commands",
            ),
        ),
        examples=(("pal help send", "the same as pal send --help"),),
    ),
    Command(
        path=("__complete",),
        summary="Print completion candidates, one per line.",
        rest="WORD...",
        is_hidden=True,
    ),
)

COMMANDS: Final[tuple[Command, ...]] = (
    *BUS_COMMANDS,
    *CONFIG_COMMANDS,
    *AGENT_COMMANDS,
    *TRANSCRIPT_COMMANDS,
    *TERMINAL_COMMANDS,
    *HARNESS_COMMANDS,
    *PERMISSION_COMMANDS,
    *MESSAGE_COMMANDS,
    *THREAD_COMMANDS,
    *BUNDLE_COMMANDS,
    *ROOM_COMMANDS,
    *CHAT_COMMANDS,
    *STICK_COMMANDS,
    *NOTE_COMMANDS,
    *TASK_COMMANDS,
    *LOG_COMMANDS,
    *SUBSCRIPTION_COMMANDS,
    *ARCHIVE_COMMANDS,
    *DOOR_COMMANDS,
    *INSTALL_COMMANDS,
    *_HELP_COMMANDS,
)

TABLE: Final[Table] = build_table(PROGRAM, COMMANDS)


# --------------------
# Run a command line: parse it, identify the caller, call the function, and report errors.

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_SERVED_BY_ANY_VERSION: Final = frozenset({("help",), ("down",)})
_JOIN: Final = ("join",)
_NO_SIGN: Final = frozenset({"status", "hook", "stick", "leave"})
"""Commands that record their caller's activity themselves, or that do not count as activity."""
_HELP: Final = frozenset({"--help", "-h"})

_logger: Final = logging.getLogger("palaver.doors")


@dataclass(frozen=True, slots=True)
class ArgvDoor:
    """Runs command lines."""

    services: Services
    doorstep: Doorstep

    async def run(self, connection: ArgvConnection, asked: ThinRequest) -> int:
        """Run a command line and return its exit status."""
        try:
            if self._is_replaced_by(connection, asked):
                connection.hand_over()
                self.services.daemon.stop(REPLACED)
                return 0
            parsed = parse(TABLE, asked.argv)
            if parsed.is_help:
                await _help(connection, asked, parsed)
                return 0
            return await self._command(connection, asked, parsed)
        except PalaverError as error:
            if not isinstance(error, UsageError):
                verb, sentence = " ".join(_verb(asked)), safe(str(error))
                _logger.info(
                    "refused %s of process %d: %s: %s", verb, connection.peer.pid, error.code, sentence
                )
            return _complain(connection, asked, error)
        except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
            _logger.error("the log cannot be read: %s", error)
            return _complain(connection, asked, read_failure(error))

    def _is_replaced_by(self, connection: ArgvConnection, asked: ThinRequest) -> bool:
        """Return whether a person's newer client must start its own daemon.

        Not for help, which has no effect, nor for `down`, which needs no new daemon.
        """
        if not is_newer(asked.version, self.services.daemon.version):
            return False
        words = before_the_text(asked.argv)
        if not words or _HELP & set(words) or _verb(asked) in _SERVED_BY_ANY_VERSION:
            return False
        caller = self.doorstep.who(self._chain(connection), CallerClaim(marks=marks_of(asked.environment)))
        return caller.standing is Standing.HUMAN

    async def _command(self, connection: ArgvConnection, asked: ThinRequest, parsed: Parsed) -> int:
        check_utf8(parsed)
        claim = CallerClaim(marks=marks_of(asked.environment), as_name=parsed.as_name or "")
        chain = self._chain(connection, is_whole=parsed.command.path == _JOIN)
        call = Call(
            services=self.services,
            connection=connection,
            asked=asked,
            parsed=parsed,
            place=partial(self.doorstep.place, chain, claim),
            caller=self._acting(self.doorstep.who(chain, claim), parsed),
        )
        if parsed.command.path[0] not in _NO_SIGN:
            self.services.callers.attendance.saw(call.caller.name)
        return await HANDLERS[parsed.command.path](call)

    def _chain(self, connection: ArgvConnection, *, is_whole: bool = False) -> tuple[Process, ...]:
        """Return the caller's processes, up to the first that anchors an agent, or all with `is_whole`.

        Raises WhoAreYou if the process has ended since its request: it must not be taken for another caller.
        """
        chain = tuple(connection.peer.chain(None if is_whole else self.services.callers.seats.is_anchor))
        if not chain and connection.peer.pid:
            raise WhoAreYou("the process that asked has ended")
        return chain

    def _acting(self, caller: Caller, parsed: Parsed) -> Caller:
        written = parsed.as_name or ""
        if not written or written.removeprefix("@").lower() == caller.name or parsed.command.path == _JOIN:
            return caller
        target = self.services.broker.directory.find(written)
        if target is None:
            hint = "--as takes the full name of an agent; 'pal list' shows them"
            raise no_agent(self.services.broker.directory, written, hint)
        return act_as(caller, target)


def marks_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the marks in the environment of a client."""
    return {name: value for name in (*MARKS, SEAT_MARK) if (value := environment.get(name))}


def is_newer(theirs: str, ours: str) -> bool:
    """Return whether a client's version is higher than this daemon's; False if it cannot be parsed."""
    found, own = _VERSION.match(theirs), _VERSION.match(ours)
    if found is None or own is None:
        return False
    return tuple(map(int, found.groups())) > tuple(map(int, own.groups()))


def _verb(asked: ThinRequest) -> tuple[str, ...]:
    """Return the command of a command line, as far as it can be parsed."""
    return trace(TABLE, before_the_text(asked.argv)).entry.command.path


async def _help(connection: ArgvConnection, asked: ThinRequest, parsed: Parsed) -> None:
    colour = asked.stdout_is_terminal and wants_colour(asked.environment)
    command = parsed.command if parsed.command.path else None
    text = render_help(TABLE, command, asked.width or 80, colour)
    await connection.output.write(text.encode())


def _complain(connection: ArgvConnection, asked: ThinRequest, error: PalaverError) -> int:
    paint = paint_for(
        asked.environment, is_terminal=asked.stderr_is_terminal, harness=harness_of(asked.environment)
    )
    connection.write_error(format_refusal(asked.argv, error, paint))
    return status_of(error)
