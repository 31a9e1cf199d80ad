"""From a request to its command: parse, find out who asks, run, answer. The one place here that catches refusals."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.doors.argv.call import Call
from palaver.doors.argv.commands import HANDLERS
from palaver.doors.argv.connection import ArgvConnection
from palaver.doors.argv.help import render_help
from palaver.doors.argv.parse import Parsed, parse
from palaver.doors.argv.style import Paint
from palaver.doors.argv.table import TABLE
from palaver.doors.argv.wire import Asked
from palaver.doors.lines_wire import error_object
from palaver.doors.services import Services
from palaver.errors import NotFound, PalaverError, UsageError
from palaver.harness.marks import MARKS, SEAT_MARK
from palaver.links.doorstep import Doorstep
from palaver.links.identity import Claim, act_as
from palaver.model.agent import Caller, Standing

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2

_encode: Final = msgspec.json.Encoder().encode
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class ArgvDoor:
    """Runs command lines."""

    services: Services
    doorstep: Doorstep

    async def run(self, connection: ArgvConnection, asked: Asked) -> int:
        """Do what a command line says and give its exit status."""
        try:
            parsed = parse(TABLE, asked.argv)
        except UsageError as error:
            return _complain(connection, asked, _wants_json(asked.argv), error)
        if parsed.is_help:
            await _help(connection, asked, parsed)
            return 0
        try:
            return await self._command(connection, asked, parsed)
        except PalaverError as error:
            return _complain(connection, asked, parsed.form == "json", error)

    async def _command(self, connection: ArgvConnection, asked: Asked, parsed: Parsed) -> int:
        claim = Claim(marks=marks_of(asked.environment), as_name=parsed.as_name or "")
        chain = tuple(connection.peer.chain())
        caller = self.doorstep.who(chain, claim)
        if caller.standing is Standing.HUMAN and is_newer(asked.version, self.services.version):
            connection.hand_over()
            self.services.stop("replaced")
            return 0
        call = Call(
            services=self.services,
            connection=connection,
            asked=asked,
            parsed=parsed,
            claim=claim,
            chain=chain,
            caller=self._acting(caller, parsed),
        )
        return await HANDLERS[parsed.command.path](call, self.doorstep)

    def _acting(self, caller: Caller, parsed: Parsed) -> Caller:
        name = (parsed.as_name or "").removeprefix("@").lower()
        if not name or name == caller.name or parsed.command.path == ("join",):
            return caller
        target = self.services.broker.directory.get(name)
        if target is None:
            raise NotFound(f"agent {name}", "--as takes the full name of an agent; 'pal list' shows them")
        return act_as(caller, target)


def marks_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Pick the marks out of what a client sent."""
    return {name: value for name in (*MARKS, SEAT_MARK) if (value := environment.get(name))}


def is_newer(theirs: str, ours: str) -> bool:
    """Whether a client's version is above this daemon's; what cannot be read is not."""
    found, own = _VERSION.match(theirs), _VERSION.match(ours)
    return bool(found and own) and tuple(map(int, found.groups())) > tuple(map(int, own.groups()))  # type: ignore[union-attr]  # both were found


def _wants_json(argv: Sequence[str]) -> bool:
    """Whether a line that cannot be read asked for JSON, in front of any `--`."""
    words = argv[: argv.index("--")] if "--" in argv else argv
    return "--json" in words


async def _help(connection: ArgvConnection, asked: Asked, parsed: Parsed) -> None:
    colour = asked.stdout_is_terminal and not asked.environment.get("NO_COLOR")
    command = parsed.command if parsed.command.path else None
    text = render_help(TABLE, command, asked.width or 80, colour)
    await connection.write(text.encode())


def _complain(connection: ArgvConnection, asked: Asked, is_json: bool, error: PalaverError) -> int:
    if is_json:
        connection.write_error(_encode(error_object(error)).decode() + "\n")
    else:
        paint = Paint(asked.stderr_is_terminal and not asked.environment.get("NO_COLOR"))
        connection.write_error(f"{paint.red('pal:')} {error}\n")
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_REFUSED
