"""One running command: its caller, its command line and its output. Every command receives a `Call`.

Also the forms that commands share: the common words of JSON, messages for people, and errors.
"""

import asyncio
import hashlib
import json
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import tzinfo
from os.path import normpath
from typing import Final

import msgspec

from palaver.broker.context import Outcome, Written
from palaver.domain.routing import Directory
from palaver.doors.cli.spec import Parsed, Table
from palaver.doors.thin import ArgvConnection
from palaver.errors import NotFound, PalaverError, RoomNotFound, UsageError, WhoAreYou, cut_name
from palaver.identity.caller import Anchor
from palaver.protocol.agents import Agent, Caller
from palaver.protocol.display import (
    Column,
    Paint,
    Safe,
    format_time,
    lay_out,
    paint_for,
    safe_bytes,
    zone_from,
)
from palaver.protocol.envelope import Event, room_id_of
from palaver.protocol.events import MessageSent
from palaver.protocol.lines import error_object
from palaver.protocol.message import EXTERNAL, handlers_of, readable_text, reply_reference
from palaver.protocol.query import Query
from palaver.protocol.requests import LeaveRoom, Request
from palaver.protocol.thin import ThinRequest
from palaver.protocol.views import WaitReason
from palaver.services.results import in_common_words
from palaver.services.services import Services

_encode: Final = msgspec.json.Encoder().encode
_INDENT: Final = "    "
# Columns of a text, however narrow the terminal is: `textwrap.wrap` fails for a width below 1.
_NARROWEST: Final = 10
_LONG_TABLE: Final = 100
"""Rows of a table above which it is laid out in a thread, so that the event loop does not wait for it."""
_LONG_CELLS: Final = 16 * 1024
"""Characters of a table above which it is laid out in a thread. A single message may have 100,000."""
EXIT_NOTHING: Final = 3
"""Exit status of a command that waited without a result."""

AnchorOfPid = Callable[[int | None], Anchor]
"""Returns the anchor of a caller that joins, at the given process if there is one, or raises."""

_DEFAULT_WIDTH: Final = 80
_DATE: Final = "%Y-%m-%d"
_FILES: Final = frozenset({"--file", "--secret-file"})
"""Options whose values are names of files."""
# Bytes. A reply is `y` or `yes`; a client that sends much more is refused.
_LIMIT_REPLY_BYTES: Final = 1024
_YES: Final = frozenset({"y", "yes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command line, and everything else that its result depends on. Created once for each command."""

    services: Services
    connection: ArgvConnection
    asked: ThinRequest
    parsed: Parsed
    anchor_of: AnchorOfPid
    caller: Caller
    table: Table
    """All commands. Completion reads it."""
    marked: str | None = None
    """The harness whose marks are in the client's environment."""

    @property
    def is_json(self) -> bool:
        """Whether the caller asked for JSON."""
        return self.parsed.form == "json"

    @property
    def is_json_stream(self) -> bool:
        """Whether streams are JSON lines: on request, and by default under a harness."""
        if self.parsed.form is not None:
            return self.is_json
        return self.marked is not None or bool(self.caller.harness)

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return self.asked.stdout_is_terminal

    @property
    def paint(self) -> Paint:
        """The style of standard output. Colours are used only on a terminal without NO_COLOR."""
        return self._paint(is_terminal=self.is_terminal)

    def _paint(self, *, is_terminal: bool) -> Paint:
        # A harness may give its tools a terminal too; the reader is then its agent.
        harness = self.caller.harness or self.marked
        return paint_for(self.asked.environment, is_terminal=is_terminal, harness=harness)

    def safe(self, text: str, *, keep_lines: bool = False) -> Safe:
        """Escape text of another party for the reader of standard output."""
        return self.paint.safe(text, keep_lines=keep_lines)

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None without a terminal, where lines may be long."""
        return (self.asked.width or _DEFAULT_WIDTH) if self.is_terminal else None

    def now_ms(self) -> int:
        """Return the present time, as the daemon knows it."""
        return self.services.clock.now_ms()

    @property
    def owner(self) -> str:
        """The name whose messages a command uses. Raises WhoAreYou for a script, which has no messages."""
        if self.caller.kind == EXTERNAL:
            raise WhoAreYou("you have no mailbox: join with 'pal join', or choose an agent with --as NAME")
        return self.caller.name

    async def submit(self, request: Request) -> Outcome:
        """Submit the caller's request. A repeated command has the same request key, and so the same result.

        Only for the one request that a command is about: a second one with the same key would return the
        result of the first.
        """
        return await self.services.broker.submit(self.caller, request, key=self.asked.key)

    async def submit_for(self, part: str, request: Request) -> Outcome:
        """Submit one of several requests of a command. `part` is what it is about: a repeat is recognized."""
        # A request key has 16 bytes.
        key = hashlib.sha256(self.asked.key + part.encode()).digest()[:16]
        return await self.services.broker.submit(self.caller, request, key=key)

    async def is_agreed(self, question: str) -> bool:
        """Ask a person at a terminal a question; return True without a question for any other caller."""
        # Only a person reads the question. An agent or a script would wait for a reply that never comes.
        is_person = self.caller.is_person and self.caller.by is None and self.marked is None
        if not (is_person and self.asked.stdin_is_terminal and self.asked.stderr_is_terminal):
            return True
        paint = self._paint(is_terminal=True)
        self.connection.write_error(f"{paint.safe(question)} [y/N] ")
        reply = (await self.connection.read_line(_LIMIT_REPLY_BYTES)).decode("utf-8", "replace")
        return reply.strip().lower() in _YES

    async def first(self, query: Query, timeout_s: float | None) -> Sequence[Event] | None:
        """Wait for the next events after the query's seq; return None if the time is over first.

        Matching events that are stored already are returned at once.
        """
        # Closed at the end of the block: until then every new event would wake it.
        async with aclosing(self.services.queries.follow(query, after=query.after)) as found:
            try:
                async with asyncio.timeout(timeout_s):
                    with self.connection.waiting():
                        return await anext(found, None)
            except TimeoutError:
                return None

    async def say(self, text: str) -> None:
        """Write text to standard output, with a line end; nothing if it is empty."""
        if text:
            data = text if text.endswith("\n") else text + "\n"
            # A file name with bytes that are not UTF-8 contains surrogates, which a strict encoder refuses.
            await self.write(data.encode("utf-8", "backslashreplace"))

    async def say_lines(self, lines: Iterable[str]) -> None:
        """Write several lines to standard output."""
        await self.say("\n".join(lines))

    async def say_table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Write a table, as wide as the terminal."""
        await self.say_lines(await self.lay_out(columns, rows))

    async def lay_out(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
        """Return a table as lines, as wide as the terminal. A long one is laid out in a thread."""
        width, paint = self.width, self.paint
        if len(rows) <= _LONG_TABLE and sum(len(cell) for row in rows for cell in row) <= _LONG_CELLS:
            return lay_out(columns, rows, width=width, paint=paint)
        return await asyncio.to_thread(lay_out, columns, rows, width=width, paint=paint)

    async def say_json(self, value: object) -> None:
        """Write one JSON object on a separate line, in the words that all commands share."""
        await self.write(_encode(in_common_words(msgspec.to_builtins(value))) + b"\n")

    async def say_json_lines(self, values: Iterable[object]) -> None:
        """Write JSON objects, one per line, in one write: each separate write may wait for the client."""
        shown = (in_common_words(msgspec.to_builtins(value)) for value in values)
        await self.write(b"".join(_encode(one) + b"\n" for one in shown))

    async def write(
        self, data: bytes, token: bytes = b"", *, flushed: Callable[[], None] | None = None
    ) -> None:
        """Write bytes to standard output. With its own token, a command can resume after a repeated request.

        `flushed` is called only after the client has written all of it out. For a terminal, characters that
        could control it or change the reading direction are escaped here, if they are not yet, as in JSON.
        """
        if self.is_terminal:
            data = safe_bytes(data)
        await self.connection.output.write(data, token, flushed=flushed)

    def warn(self, text: str) -> None:
        """Write a line to standard error. Foreign text in it is escaped here."""
        paint = self._paint(is_terminal=self.asked.stderr_is_terminal)
        self.connection.write_error(f"pal: {paint.safe(text)}\n")

    def say_cursor(self, seq: int) -> None:
        """Write to standard error the seq up to which everything was flushed: the last line of a follower."""
        self.connection.write_error(f"cursor_event_seq={seq}\n")

    def clock_time(self, ts_ms: int) -> str:
        """Format a time in the caller's time zone; with the date if it is not today."""
        zone = self.zone
        is_today = format_time(ts_ms, zone, _DATE) == format_time(self.now_ms(), zone, _DATE)
        return format_time(ts_ms, zone, "%H:%M:%S" if is_today else f"{_DATE} %H:%M")

    @property
    def zone(self) -> tzinfo | None:
        """The caller's time zone; None means that of the machine."""
        return zone_from(self.asked.environment.get("TZ", ""))

    def absolute(self, path: str) -> str:
        """Return a path as a normalized absolute path. Opens nothing and follows no link.

        A relative path starts at the client's working directory; that of the daemon is `/`.
        """
        return normpath(f"{self.asked.cwd}/{path}") if not path.startswith("/") else normpath(path)

    def agent(self, name: str) -> Agent:
        """Return the agent with this full name, with or without @. Raises NotFound."""
        found = self.services.broker.directory.find(name)
        if found is None:
            raise no_agent(self.services.broker.directory, name, "'pal list' shows the agents")
        return found


def no_agent(directory: Directory, name: str, otherwise: str) -> NotFound:
    """Return the error for an unknown agent, with the most similar names, or else with the given hint."""
    plain = name.removeprefix("@")
    near = directory.nearest(plain.lower())
    return NotFound(f"agent {cut_name(plain)}", f"did you mean {', '.join(near)}?" if near else otherwise)


def check_utf8(parsed: Parsed) -> None:
    """Refuse bytes that are not UTF-8, which the log cannot store, everywhere except in file names."""
    words = [*parsed.positionals, *(parsed.after or ()), parsed.as_name or ""]
    for name, value in parsed.options.items():
        if name not in _FILES:
            words += [value] if isinstance(value, str) else value if isinstance(value, list) else []
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{word!r} is not UTF-8; only file names may contain other bytes") from None


# --------------------
# The room that a command is about.


async def room_of(call: Call, path: str = "") -> str:
    """Return the room of a command: the named one, the one at or above a path, or the caller's room.

    The caller's room is the one that it is in at the current directory, else the only one that it is in.
    """
    if (named := call.parsed.value("--room")) is not None:
        if path:
            raise UsageError("--room and PATH both select a room: use one of them")
        return await named_room(call, named)
    return await _room_at(call, path) if path else await _own_room(call)


async def room_here_or_named(call: Call, path: str = "") -> str:
    """Return the room to close or to remove a member from: one in another workspace only if it was named."""
    # `room_of` would also choose the caller's only room, wherever it is. A command that cannot be undone must
    # not act on a guess.
    return await room_of(call, path or ("" if call.parsed.has("--room") else "."))


async def named_room(call: Call, word: str) -> str:
    """Return the room that `--room` names: for a path the room at or above it, else the name as it is."""
    is_path = "/" in word or word.startswith(".")
    return await _room_at(call, word) if is_path else word


async def _room_at(call: Call, path: str) -> str:
    where = call.absolute(path)
    room = await call.services.rooms.room_here(call.caller, where) or await room_of_repeat(call)
    if room is None:
        raise RoomNotFound(f"at {where} or above it")
    return room


async def _own_room(call: Call) -> str:
    rooms, where = call.services.rooms, call.absolute(".")
    room = await rooms.own_room_here(call.caller, where) or await room_of_repeat(call)
    # Only after the check for a repeat: after a repeated 'room leave', the only room that is left would be
    # another one, and the caller would leave that too.
    room = room or await rooms.room_meant(call.caller, where)
    if room is None:
        raise RoomNotFound(f"at {where} or above it, and you are in no other")
    return room


async def room_of_repeat(call: Call) -> str | None:
    """Return the room in which this same request was already done; None if it was not.

    A client that lost the daemon repeats its request. It must not be refused because it succeeded before.
    """
    # `LeaveRoom` only selects the form of the outcome. A release of the stick has the same form.
    done = await call.services.broker.outcome(LeaveRoom, call.asked.key)
    event = done.event if isinstance(done, Written) else None
    return None if event is None else room_id_of(event)


# --------------------
# Format messages for a person or an agent.


def for_people(call: Call, event: Event, mailbox: str = "") -> str:
    """Return a head and the indented text: of the copy in a mailbox, if one is given.

    The content is escaped, so it cannot control the terminal.
    """
    paint = call.paint
    marks = topic_marks(event)
    number, sender = paint.bold(f"#{event.seq}"), paint.cyan(paint.name(event.sender))
    head = f"{number} {sender} → {paint.names(event.to) or 'all'}"
    if marks:
        head += " " + paint.safe(f"[{', '.join(marks)}]")
    text = readable_text(event, handled_by=handlers_of(event, mailbox))
    body = "\n".join(f"  {line}" for line in call.safe(text, keep_lines=True).splitlines())
    return f"{head} {paint.dim(call.clock_time(event.ts))}\n{body}\n"


def wait_lines(call: Call, wait: WaitReason | None) -> list[str]:
    """Return why a message is not seen yet, and what would deliver it; nothing if its state is final."""
    if wait is None:
        return []
    texts = (f"{wait.code}: {wait.text}", f"what moves it: {wait.moves}")
    width = None if call.width is None else max(_NARROWEST, call.width - len(_INDENT))
    return [
        _INDENT + call.paint.dim(piece)
        for text in map(call.safe, texts)
        for piece in ([text] if width is None else textwrap.wrap(text, width, break_on_hyphens=False))
    ]


def topic_marks(event: Event) -> list[str]:
    """Return the intent, the thread and the answered message, for the head of a message.

    Empty for a foreign envelope, whatever it claims.
    """
    message = event.body if isinstance(event.body, MessageSent) else MessageSent()
    marks = [mark for mark in (message.intent, message.thread) if mark]
    answered = reply_reference(event)
    return [*marks, f"answers #{answered}"] if answered else marks


# --------------------
# Format errors for standard error, and map them to exit statuses. Pure.

# Scripts compare these numbers, so they cannot change.
EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2


def format_refusal(argv: Sequence[str], error: PalaverError, paint: Paint, advice: str = "") -> str:
    """Return an error in the form that the command line asks for: a sentence, or one line of JSON.

    `advice` is a further sentence without a full stop: the cause and the way out.
    """
    text = f"{error}. {advice}" if advice else str(error)
    # Searched in the arguments, because the error may be that they could not be parsed.
    if "--json" in before_the_text(argv):
        # Arguments of the caller may not be UTF-8; this codec writes them as escapes and never fails.
        return json.dumps({**error_object(error), "message": text}) + "\n"
    return f"{paint.red('pal:')} {paint.safe(text, keep_lines=True)}\n"


def status_of(error: PalaverError) -> int:
    """Return the exit status of a command that ended with this error."""
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_REFUSED


def before_the_text(argv: Sequence[str]) -> Sequence[str]:
    """Return the arguments before a lone `--`: everything after it is text."""
    return argv[: argv.index("--")] if "--" in argv else argv
