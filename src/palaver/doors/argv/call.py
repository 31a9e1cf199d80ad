"""One command on its way: who asks, what was written, and how the answer looks. Every command is given one."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from palaver.doors.argv.connection import ArgvConnection
from palaver.doors.argv.parse import Parsed
from palaver.doors.argv.style import Paint
from palaver.doors.argv.wire import Asked
from palaver.doors.services import Services
from palaver.errors import NotFound, UsageError
from palaver.harness.marks import harness_of
from palaver.links.identity import Claim
from palaver.links.process import Process
from palaver.model.agent import Agent, Caller
from palaver.model.names import split_name

_encode: Final = msgspec.json.Encoder().encode
_DEFAULT_WIDTH: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command line with everything its answer depends on."""

    services: Services
    connection: ArgvConnection
    asked: Asked
    parsed: Parsed
    claim: Claim
    chain: tuple[Process, ...]
    caller: Caller

    @property
    def is_json(self) -> bool:
        """JSON was asked for."""
        return self.parsed.form == "json"

    @property
    def is_json_stream(self) -> bool:
        """Under a harness, JSON lines are the default for what goes on and on."""
        if self.parsed.form is not None:
            return self.is_json
        return harness_of(self.asked.environment) is not None or bool(self.caller.harness)

    @property
    def is_terminal(self) -> bool:
        """A person reads this."""
        return self.asked.stdout_is_terminal

    @property
    def paint(self) -> Paint:
        """Colours only on a terminal, and not when NO_COLOR is set."""
        environment = self.asked.environment
        return Paint(self.is_terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb")

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None when there is none and lines may be long."""
        return (self.asked.width or _DEFAULT_WIDTH) if self.is_terminal else None

    async def say(self, text: str) -> None:
        """Write text to standard output."""
        if text:
            data = text if text.endswith("\n") else text + "\n"
            await self.connection.write(data.encode("utf-8", "backslashreplace"))

    async def say_lines(self, lines: Iterable[str]) -> None:
        """Write several lines."""
        await self.say("\n".join(lines))

    async def say_json(self, value: object, token: bytes = b"") -> None:
        """Write one JSON object on a line of its own."""
        await self.connection.write(_encode(value) + b"\n", token)

    def warn(self, text: str) -> None:
        """Write a line to standard error."""
        self.connection.write_error(f"pal: {text}\n")

    def clock_time(self, ts_ms: int) -> str:
        """Give a moment in the caller's own time zone; the day too when it is not today."""
        zone = self.zone
        moment = datetime.fromtimestamp(ts_ms / 1000, zone)
        today = datetime.fromtimestamp(self.services.clock.now_ms() / 1000, zone).date()
        return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M")

    @property
    def zone(self) -> tzinfo | None:
        """The caller's time zone; None is the machine's own."""
        name = self.asked.environment.get("TZ", "").lstrip(":")
        if not name:
            return None
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return UTC

    def agent(self, name: str) -> Agent:
        """Find an agent by its full name, with or without @."""
        plain = name.removeprefix("@")
        found = self.services.broker.directory.get(plain.lower())
        if found is None and (parts := split_name(plain)).device:
            found = self.services.broker.directory.get(f"{plain.partition(':')[0].lower()}:{parts.device}")
        if found is None:
            near = self.services.broker.directory.nearest(plain.lower())
            raise NotFound(f"agent {plain}", f"nearest: {', '.join(near)}" if near else "'pal list' shows who is there")
        return found


def check_utf8(words: Iterable[str], what: str) -> None:
    """Refuse bytes that are not UTF-8 where text is wanted."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{what} is not UTF-8") from None
