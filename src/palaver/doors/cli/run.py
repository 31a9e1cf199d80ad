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

from palaver.doors.cli import (
    agents,
    archive,
    bundles,
    bus,
    completion,
    config,
    events,
    harness,
    http,
    irc,
    messages,
    paths,
    permissions,
    rooms,
    tasks,
    terminals,
    threads,
    turns,
)
from palaver.doors.cli.call import Call, before_the_text, check_utf8, format_refusal, no_agent, status_of
from palaver.doors.cli.help import HELP_COMMANDS, render_help, render_json
from palaver.doors.cli.spec import Command, Parsed, Table, build_table, parse, trace
from palaver.doors.thin import ArgvConnection
from palaver.errors import NotAllowed, NotPerson, NotYou, PalaverError, UsageError, WhoAreYou
from palaver.harness.marks import harness_of
from palaver.identity.caller import CallerClaim, CallerIdentifier, act_as, marks_of
from palaver.identity.process import Process
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.display import paint_for, safe, wants_colour
from palaver.protocol.thin import ThinRequest
from palaver.services.queries import read_failure
from palaver.services.services import REPLACED, Services

# --------------------
# The function of each command. A test compares this map with the table of commands.

Handler = Callable[[Call], Awaitable[int]]

HANDLERS: Final[Mapping[tuple[str, ...], Handler]] = {
    ("up",): bus.up,
    ("down",): bus.down,
    ("status",): bus.status,
    ("doctor",): bus.doctor,
    ("config", "list"): config.list_settings,
    ("config", "get"): config.get_setting,
    ("config", "set"): config.set_setting,
    ("config", "unset"): config.unset_setting,
    ("config", "reload"): config.reload_settings,
    ("config", "edit"): config.edit_settings,
    ("completion",): completion.completion,
    ("__complete",): completion.complete_words,
    ("join",): agents.join,
    ("leave",): agents.leave,
    ("whoami",): agents.whoami,
    ("list",): agents.list_agents,
    ("tag",): agents.tag,
    ("status", "set"): agents.set_status,
    ("run",): terminals.run,
    ("attach",): terminals.attach,
    ("peek",): terminals.peek,
    ("pause",): terminals.pause,
    ("unpause",): terminals.unpause,
    ("stop",): terminals.stop,
    ("kill",): terminals.kill,
    ("resume",): terminals.resume,
    ("fork",): terminals.fork,
    ("transcript",): threads.transcript,
    ("claude",): harness.claude,
    ("codex",): harness.codex,
    ("opencode",): harness.opencode,
    ("gemini",): harness.gemini,
    ("start",): terminals.start,
    ("hook",): harness.hook,
    ("monitor",): harness.monitor,
    ("rewake",): harness.rewake,
    ("pending",): permissions.pending,
    ("approve",): permissions.approve,
    ("deny",): permissions.deny,
    ("send",): messages.send,
    ("recv",): messages.recv,
    ("inbox",): messages.inbox,
    ("show",): messages.show,
    ("receipts",): messages.receipts,
    ("trace",): messages.trace,
    ("ack",): messages.ack,
    ("release",): messages.release,
    ("redeliver",): messages.redeliver,
    ("put",): paths.put,
    ("route",): paths.route,
    ("sub", "add"): paths.subscribe,
    ("sub", "rm"): paths.unsubscribe,
    ("sub", "list"): paths.list_subscriptions,
    ("dead",): paths.dead,
    ("history",): paths.history,
    ("session", "create"): paths.create_session,
    ("session", "list"): paths.list_sessions,
    ("session", "show"): paths.show_session,
    ("session", "rm"): paths.remove_session,
    ("bridge", "irc"): irc.bridge_irc,
    ("turn", "start"): turns.start,
    ("turn", "stop"): turns.stop,
    ("turn", "set"): turns.set_auto_run,
    ("turn", "run"): turns.run,
    ("turn", "stats"): turns.stats,
    ("turn", "list"): turns.list_sessions,
    ("thread", "list"): threads.list_threads,
    ("thread", "show"): threads.show_thread,
    ("bundle", "create"): bundles.create,
    ("bundle", "show"): bundles.show,
    ("bundle", "list"): bundles.list_bundles,
    ("bundle", "cat"): bundles.cat,
    ("ui",): bus.open_ui,
    ("notify",): bus.notify,
    ("chat",): rooms.chat,
    ("room", "join"): rooms.join,
    ("room", "leave"): rooms.leave,
    ("room", "list"): rooms.list_rooms,
    ("room", "state"): rooms.state,
    ("room", "kick"): rooms.kick,
    ("room", "close"): rooms.close,
    ("stick", "wait"): rooms.wait_for_turn,
    ("stick", "claim"): rooms.claim_stick,
    ("stick", "heartbeat"): rooms.renew_lease,
    ("stick", "release"): rooms.release_stick,
    ("stick", "pass"): rooms.pass_stick,
    ("stick", "takeover"): rooms.take_over_stick,
    ("note", "add"): rooms.add_note,
    ("note", "list"): rooms.list_notes,
    ("note", "resolve"): rooms.resolve_note,
    ("task", "create"): tasks.create,
    ("task", "update"): tasks.update,
    ("task", "complete"): tasks.complete,
    ("task", "list"): tasks.list_tasks,
    ("task", "show"): tasks.show,
    ("events",): events.events,
    ("events", "sub"): events.subscribe,
    ("events", "subs"): events.subscriptions,
    ("events", "unsub"): events.unsubscribe,
    ("mcp",): http.mcp,
    ("token", "create"): http.create_token,
    ("token", "list"): http.list_tokens,
    ("token", "revoke"): http.revoke_token,
    ("webhook", "add"): http.add_webhook,
    ("webhook", "list"): http.list_webhooks,
    ("webhook", "rm"): http.remove_webhook,
    ("web",): http.web,
    ("web", "list"): http.list_web_sessions,
    ("web", "revoke"): http.revoke_web_session,
    ("agent", "register"): irc.register_agent,
    ("agent", "rotate"): irc.rotate_agent,
    ("agent", "revoke"): irc.revoke_agent,
    ("agent", "list"): irc.list_registered,
    ("irc", "code"): irc.irc_code,
    ("irc", "verbosity"): irc.irc_verbosity,
    ("install",): harness.install,
    ("uninstall",): harness.install,
    ("archive",): archive.archive,
    ("backup",): archive.backup,
    ("export",): archive.export,
    ("import",): archive.import_events,
    ("import", "messages"): archive.import_messages,
    ("redact",): archive.redact,
}

# --------------------
# The table of all commands, in the order of help and of docs/cli.md.

PROGRAM: Final = Command(
    path=(),
    summary="A message bus for coding agents and people.",
    is_group=True,
    examples=(
        ("pal claude --name luna", "start Claude Code as the agent luna"),
        ("pal list", "see all agents and what they are doing"),
        ("pal send @luna -- which tests are red?", "ask luna"),
        ("pal recv --wait", "wait for the answer and read it"),
    ),
)

COMMANDS: Final[tuple[Command, ...]] = (
    *bus.BUS_COMMANDS,
    *config.CONFIG_COMMANDS,
    *bus.UI_COMMANDS,
    *agents.AGENT_COMMANDS,
    *threads.TRANSCRIPT_COMMANDS,
    *terminals.TERMINAL_COMMANDS,
    *harness.HARNESS_COMMANDS,
    *permissions.PERMISSION_COMMANDS,
    *messages.MESSAGE_COMMANDS,
    *paths.PUT_COMMANDS,
    *threads.THREAD_COMMANDS,
    *paths.PATH_COMMANDS,
    *turns.TURN_COMMANDS,
    *bundles.BUNDLE_COMMANDS,
    *rooms.ROOM_COMMANDS,
    *rooms.CHAT_COMMANDS,
    *rooms.STICK_COMMANDS,
    *rooms.NOTE_COMMANDS,
    *tasks.TASK_COMMANDS,
    *events.LOG_COMMANDS,
    *events.SUBSCRIPTION_COMMANDS,
    *archive.ARCHIVE_COMMANDS,
    *http.DOOR_COMMANDS,
    *irc.IRC_COMMANDS,
    *irc.BRIDGE_COMMANDS,
    *harness.INSTALL_COMMANDS,
    *completion.COMPLETION_COMMANDS,
    *HELP_COMMANDS,
)

TABLE: Final[Table] = build_table(PROGRAM, COMMANDS)

# --------------------
# The door: run one command line for its caller.

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
    identifier: CallerIdentifier

    async def run(self, connection: ArgvConnection, asked: ThinRequest) -> int:
        """Run a command line and return its exit status."""
        try:
            # Before the line is parsed: a newer client may have commands that this daemon does not know.
            if self._is_replaced_by(connection, asked):
                connection.hand_over()
                self.services.daemon.stop(REPLACED)
                return 0  # The client does not receive it: its connection is closed already.
            parsed = parse(TABLE, asked.argv)
            if parsed.is_help:
                await _help(connection, asked, parsed)
                return 0
            return await self._command(connection, asked, parsed)
        except PalaverError as error:
            if not isinstance(error, UsageError):
                # Escaped, because the sentence may quote the caller: a line end in it could forge a line of
                # the log.
                verb, sentence = " ".join(_verb(asked)), safe(str(error))
                _logger.info(
                    "refused %s of process %d: %s: %s", verb, connection.peer.pid, error.code, sentence
                )
            return _complain(connection, asked, error, self._advice(connection, asked, error))
        # A damaged file of the log: SQLite, or the decoder of a row, reports it wherever it is read.
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
        caller = self.identifier.who(self._chain(connection), CallerClaim(marks=marks_of(asked.environment)))
        # A newer client of an agent or script is served as it is: it must not end the daemon that all others
        # use.
        return caller.standing is Standing.HUMAN

    async def _command(self, connection: ArgvConnection, asked: ThinRequest, parsed: Parsed) -> int:
        check_utf8(parsed)
        # Most often an unset variable of a script: ignored, 'pal recv' would take the caller's own messages.
        if parsed.as_name == "":
            raise UsageError("--as requires the full name of an agent; leave it out to act as yourself")
        marks = marks_of(asked.environment)
        claim = CallerClaim(marks=marks, as_name=parsed.as_name or "")
        # `join` chooses a seat among all processes above the caller. All other commands need only the nearest
        # agent, and a shorter chain takes less time to read.
        chain = self._chain(connection, is_whole=parsed.command.path == _JOIN)
        call = Call(
            services=self.services,
            connection=connection,
            asked=asked,
            parsed=parsed,
            # With the processes that `caller` is chosen from: a second read could find others, or none.
            anchor_of=partial(self.identifier.anchor_of, chain, claim),
            table=TABLE,
            caller=self._acting(self.identifier.who(chain, claim), parsed),
            marked=harness_of(marks) if marks else None,
        )
        # A command is a sign that its caller is at work: it renews the lease of a stick, for example.
        if parsed.command.path[0] not in _NO_SIGN:
            self.services.callers.member_presence.saw(call.caller.name)
        return await HANDLERS[parsed.command.path](call)

    def _advice(self, connection: ArgvConnection, asked: ThinRequest, error: PalaverError) -> str:
        """Return why the caller has too few rights, and the way out; empty for any other refusal."""
        if not isinstance(error, NotAllowed | NotPerson | NotYou):
            return ""
        # Cannot fail: only a command whose line was parsed is refused with one of these errors.
        parsed = parse(TABLE, asked.argv)
        if isinstance(error, NotYou):
            name = error.claimed
            is_known = self.services.broker.directory.get(name) is not None
            return f"To act as {name}, if you may: --as {name}" if is_known and not parsed.as_name else ""
        claim = CallerClaim(marks=marks_of(asked.environment))
        try:
            chain = self._chain(connection)
            # If it may not act as that agent, the refusal was about --as itself, and this hint would mislead.
            if parsed.as_name and self._can_act(self.identifier.who(chain, claim), parsed):
                return f"You act as {parsed.as_name} with --as; leave it out to act as yourself"
            return self.identifier.why_not_person(chain, claim)
        except WhoAreYou:  # Why it is not a person cannot be said about an unknown caller.
            return ""

    def _chain(self, connection: ArgvConnection, *, is_whole: bool = False) -> tuple[Process, ...]:
        """Return the caller's processes, up to the first that anchors an agent, or all with `is_whole`.

        Raises WhoAreYou if the process has ended since its request: it must not be taken for another caller.
        """
        chain = tuple(connection.peer.chain(None if is_whole else self.services.callers.seats.is_anchor))
        # A process with pid 0 cannot be seen from here, as from another container: that caller is a script.
        if not chain and connection.peer.pid:
            raise WhoAreYou("the calling process has ended")
        return chain

    def _acting(self, caller: Caller, parsed: Parsed) -> Caller:
        written = parsed.as_name or ""
        # `join --as NAME` joins as that agent, and does not act as it.
        if not written or written.removeprefix("@").lower() == caller.name or parsed.command.path == _JOIN:
            return caller
        target = self.services.broker.directory.find(written)
        if target is None:
            hint = "--as takes the full name of an agent; 'pal list' shows them"
            raise no_agent(self.services.broker.directory, written, hint)
        return act_as(caller, target)

    def _can_act(self, caller: Caller, parsed: Parsed) -> bool:
        try:
            self._acting(caller, parsed)
        except PalaverError:
            return False
        return True


def is_newer(theirs: str, ours: str) -> bool:
    """Return whether a client's version is higher than this daemon's; False if it cannot be parsed.

    An unknown version must never end a running daemon.
    """
    if theirs == ours:
        return False
    # Only the beginning has to fit, so that 0.2.0.dev1 counts as 0.2.0.
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
    is_json = parsed.form == "json"
    text = render_json(TABLE, command) if is_json else render_help(TABLE, command, asked.width or 80, colour)
    await connection.output.write(text.encode())


def _complain(connection: ArgvConnection, asked: ThinRequest, error: PalaverError, advice: str = "") -> int:
    # The harness of the environment: the caller itself may be unknown, because that may be the error.
    paint = paint_for(
        asked.environment, is_terminal=asked.stderr_is_terminal, harness=harness_of(asked.environment)
    )
    connection.write_error(format_refusal(asked.argv, error, paint, advice))
    return status_of(error)
