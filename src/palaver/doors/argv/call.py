"""One command on its way: who asks, what was written, how the answer looks. Every command is given one."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, tzinfo
from os.path import normpath
from typing import Final

import msgspec

from palaver.doors.argv.connection import ArgvConnection
from palaver.doors.argv.parsed import Parsed
from palaver.doors.argv.style import Paint, Safe, paint_for, safe_bytes, zone_from
from palaver.doors.argv.wire import Asked
from palaver.doors.services import Services
from palaver.errors import NotFound, UsageError, WhoAreYou
from palaver.harness.marks import harness_of
from palaver.links.joining import Anchor
from palaver.log.follow import follow
from palaver.model.agent import Agent, Caller
from palaver.model.envelope import Event
from palaver.model.message import EXTERNAL
from palaver.model.query import Query
from palaver.routing.directory import Directory

_encode: Final = msgspec.json.Encoder().encode
EXIT_NOTHING: Final = 3
"""A command waited in vain."""

Place = Callable[[int | None], Anchor]
"""Chooses where the caller sits down when it joins, with the process it names or without, or refuses."""

_DEFAULT_WIDTH: Final = 80
_FILE: Final = "--file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command line with everything its answer depends on."""

    services: Services
    connection: ArgvConnection
    asked: Asked
    parsed: Parsed
    place: Place
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
        """Colours only on a terminal, and not when NO_COLOR is set. Texts are escaped for their reader."""
        return self._paint(is_terminal=self.is_terminal)

    def _paint(self, *, is_terminal: bool) -> Paint:
        # A harness may give its tools a terminal too; its agent reads it.
        return paint_for(self.asked.environment, is_terminal=is_terminal, harness=self.caller.harness)

    def safe(self, text: str, *, keep_lines: bool = False) -> Safe:
        """Make text of another party harmless for the reader of standard output."""
        return self.paint.safe(text, keep_lines=keep_lines)

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None when there is none and lines may be long."""
        return (self.asked.width or _DEFAULT_WIDTH) if self.is_terminal else None

    @property
    def owner(self) -> str:
        """Whose mail a command is about. A script has none."""
        if self.caller.kind == EXTERNAL:
            raise WhoAreYou(
                "you have no mail of your own: take a name with 'pal join', or say whose with --as NAME"
            )
        return self.caller.name

    async def first(self, query: Query, timeout_s: float | None) -> Sequence[Event] | None:
        """Wait for the next events behind the query's place; None when the time is over first."""
        async with aclosing(follow(self.services.log, query, after=query.after)) as found:
            try:
                async with asyncio.timeout(timeout_s):
                    with self.connection.waiting():
                        return await anext(found, None)
            except TimeoutError:
                return None

    async def say(self, text: str) -> None:
        """Write text to standard output."""
        if text:
            data = text if text.endswith("\n") else text + "\n"
            await self.write(data.encode("utf-8", "backslashreplace"))

    async def say_lines(self, lines: Iterable[str]) -> None:
        """Write several lines."""
        await self.say("\n".join(lines))

    async def say_json(self, value: object) -> None:
        """Write one JSON object on a line of its own."""
        await self.write(_encode(value) + b"\n")

    async def write(
        self, data: bytes, token: bytes = b"", *, flushed: Callable[[], None] | None = None
    ) -> None:
        """Write bytes; with a token of its own a command says how it goes on when it is asked again.

        `flushed` is called when, and only when, the client has written all of it out. On a terminal no text
        can turn the reading direction or drive it: what is not escaped yet, as in JSON, is escaped here.
        """
        if self.is_terminal:
            data = safe_bytes(data)
        await self.connection.output.write(data, token, flushed=flushed)

    def warn(self, text: str) -> None:
        """Write a line to standard error. Foreign text in it is made harmless here."""
        paint = self._paint(is_terminal=self.asked.stderr_is_terminal)
        self.connection.write_error(f"pal: {paint.safe(text)}\n")

    def say_cursor(self, place: int) -> None:
        """Say on standard error up to which place everything was flushed: the last word of a follower."""
        self.connection.write_error(f"cursor_event_seq={place}\n")

    def clock_time(self, ts_ms: int) -> str:
        """Give a moment in the caller's own time zone; the day too when it is not today."""
        zone = self.zone
        moment = datetime.fromtimestamp(ts_ms / 1000, zone)
        today = datetime.fromtimestamp(self.services.clock.now_ms() / 1000, zone).date()
        return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M")

    @property
    def zone(self) -> tzinfo | None:
        """The caller's time zone; None is the machine's own."""
        return zone_from(self.asked.environment.get("TZ", ""))

    def absolute(self, path: str) -> str:
        """Give a path as others can name it too, from wherever they are. Opens nothing."""
        return normpath(f"{self.asked.cwd}/{path}") if not path.startswith("/") else normpath(path)

    def agent(self, name: str) -> Agent:
        """Find an agent by its full name, with or without @."""
        found = self.services.broker.directory.find(name)
        if found is None:
            raise no_agent(self.services.broker.directory, name, "'pal list' shows who is there")
        return found


def no_agent(directory: Directory, name: str, otherwise: str) -> NotFound:
    """Make the refusal of a name that nobody has, with the names most like it, else with another hint."""
    plain = name.removeprefix("@")
    near = directory.nearest(plain.lower())
    return NotFound(f"agent {plain}", f"nearest: {', '.join(near)}" if near else otherwise)


def check_utf8(parsed: Parsed) -> None:
    """Refuse bytes that are not UTF-8 everywhere except in file names."""
    words = [*parsed.positionals, *(parsed.after or ()), parsed.as_name or ""]
    for name, value in parsed.options.items():
        if name != _FILE:
            words += [value] if isinstance(value, str) else value if isinstance(value, list) else []
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{word!r} is not UTF-8; only file names may contain other bytes") from None
