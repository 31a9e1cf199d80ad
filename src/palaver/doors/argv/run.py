"""Run a request: parse it, identify the caller, call its command, and report errors.

Only this module of the door turns errors into exit statuses.
"""

import logging
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from palaver.doors.argv.call import Call, check_utf8, no_agent
from palaver.doors.argv.commands import HANDLERS
from palaver.doors.argv.connection import ArgvConnection
from palaver.doors.argv.help import render_help
from palaver.doors.argv.parse import parse, trace
from palaver.doors.argv.parsed import Parsed
from palaver.doors.argv.refusal import before_the_text, format_refusal, status_of
from palaver.doors.argv.style import paint_for, safe, wants_colour
from palaver.doors.argv.table import TABLE
from palaver.doors.argv.wire import Asked
from palaver.doors.services import REPLACED, Services
from palaver.errors import PalaverError, UsageError, WhoAreYou
from palaver.harness.marks import MARKS, SEAT_MARK
from palaver.links.doorstep import Doorstep
from palaver.links.identity import Claim, act_as
from palaver.links.process import Process
from palaver.log.storage import damaged, failure_from
from palaver.model.agent import Caller, Standing

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

    async def run(self, connection: ArgvConnection, asked: Asked) -> int:
        """Run a command line and return its exit status."""
        try:
            if self._is_replaced_by(connection, asked):
                connection.hand_over()
                self.services.stop(REPLACED)
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
            is_sqlite = isinstance(error, sqlite3.Error)
            return _complain(connection, asked, failure_from(error) if is_sqlite else damaged(error))

    def _is_replaced_by(self, connection: ArgvConnection, asked: Asked) -> bool:
        """Return whether a person's newer client must start its own daemon.

        Not for help, which has no effect, nor for `down`, which needs no new daemon.
        """
        if not is_newer(asked.version, self.services.version):
            return False
        words = before_the_text(asked.argv)
        if not words or _HELP & set(words) or _verb(asked) in _SERVED_BY_ANY_VERSION:
            return False
        caller = self.doorstep.who(self._chain(connection), Claim(marks=marks_of(asked.environment)))
        return caller.standing is Standing.HUMAN

    async def _command(self, connection: ArgvConnection, asked: Asked, parsed: Parsed) -> int:
        check_utf8(parsed)
        claim = Claim(marks=marks_of(asked.environment), as_name=parsed.as_name or "")
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
            self.services.attendance.saw(call.caller.name)
        return await HANDLERS[parsed.command.path](call)

    def _chain(self, connection: ArgvConnection, *, is_whole: bool = False) -> tuple[Process, ...]:
        """Return the caller's processes, up to the first that anchors an agent, or all with `is_whole`.

        Raises WhoAreYou if the process has ended since its request: it must not be taken for another caller.
        """
        chain = tuple(connection.peer.chain(None if is_whole else self.services.seats.is_anchor))
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


def _verb(asked: Asked) -> tuple[str, ...]:
    """Return the command of a command line, as far as it can be parsed."""
    return trace(TABLE, before_the_text(asked.argv)).entry.command.path


async def _help(connection: ArgvConnection, asked: Asked, parsed: Parsed) -> None:
    colour = asked.stdout_is_terminal and wants_colour(asked.environment)
    command = parsed.command if parsed.command.path else None
    text = render_help(TABLE, command, asked.width or 80, colour)
    await connection.output.write(text.encode())


def _complain(connection: ArgvConnection, asked: Asked, error: PalaverError) -> int:
    paint = paint_for(asked.environment, is_terminal=asked.stderr_is_terminal)
    connection.write_error(format_refusal(asked.argv, error, paint))
    return status_of(error)
