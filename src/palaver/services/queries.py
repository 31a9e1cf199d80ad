"""Read events for doors, and export them. The only module that hands events of the log to doors."""

import asyncio
import os
import re
import resource
import sqlite3
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from palaver.broker.bundles import find_bundle
from palaver.broker.messages import fetch_event, find_message
from palaver.broker.tasks import find_task
from palaver.errors import BadRequest, PalaverError, Unavailable
from palaver.log.api import ANY_EVENT, BlobCount, EventKey, Hear, Log
from palaver.log.follow import follow, pages, seq_before_newest
from palaver.log.records import encode_payload
from palaver.log.storage import damaged, failure_from
from palaver.protocol.display import Paint, format_time, zone_from
from palaver.protocol.envelope import Event, decode_event, encode_event
from palaver.protocol.events import DeliveryReport, LifeChanged, MessageSent
from palaver.protocol.query import Query
from palaver.protocol.redaction import REDACTED, asks_secret, redact, redact_event, removed_text
from palaver.protocol.requests import TYPED
from palaver.protocol.summary import MarkdownPage
from palaver.protocol.tasks import Task
from palaver.state.rooms import read_irc_level
from palaver.state.rows import Rows

# --------------------
# The lines of an export: a separate process writes them, and an import reads them again.
#
# A process, because redacting a large event takes seconds of processor time. The daemon sends it one line
# with the format, then one event per line. It replies to each event with eight bytes that contain a length,
# and then that many bytes of output. It runs at the lowest priority.

LIMIT_PROCESSES: Final = 2
"""How many exports run at the same time; the others wait."""

_LOWEST_PRIORITY: Final = 19
_LIMIT_MEMORY_BYTES: Final = 1024 * 1024 * 1024
_HEAD_BYTES: Final = 8


class ExportFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The format of an export."""

    is_markdown: bool
    is_redacted: bool
    is_for_person: bool
    time_zone: str
    """A value of the variable `TZ`; empty means the zone of the machine."""


_encode: Final = msgspec.json.Encoder().encode
_manner: Final = msgspec.json.Decoder(ExportFormat).decode


class ExportProcess:
    """A running process that formats events. Created by `Exports`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self._output = process.stdout

    async def write(self, events: Sequence[Event]) -> AsyncGenerator[bytes, None]:
        """Yield the output of each event, in order. Raises Unavailable if the process has ended."""
        # At the same time: if all were written first, both processes could wait for the other to read.
        feeding = asyncio.create_task(self._feed(events))
        try:
            for _ in events:
                head = await self._output.readexactly(_HEAD_BYTES)
                yield await self._output.readexactly(int.from_bytes(head, "big"))
        except asyncio.IncompleteReadError as error:
            raise Unavailable("the export process was stopped; run the export again") from error
        finally:
            feeding.cancel()

    async def _feed(self, events: Sequence[Event]) -> None:
        with suppress(ConnectionError):  # The process has ended; `write` notices it at the output.
            for event in events:
                self._input.write(encode_event(event) + b"\n")
                await self._input.drain()


class Exports:
    """Starts export processes, at most LIMIT_PROCESSES at a time."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(LIMIT_PROCESSES)

    @asynccontextmanager
    async def start(self, manner: ExportFormat) -> AsyncGenerator[ExportProcess, None]:
        """Start a process, after waiting for a free slot, and end it with the block."""
        async with self._free:
            process = await asyncio.create_subprocess_exec(
                # Isolated: variables of the environment and files in the current folder cannot replace its
                # modules.
                *(sys.executable, "-I", "-m", "palaver.services.queries"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={},
            )
            assert process.stdin is not None
            process.stdin.write(_encode(manner) + b"\n")
            try:
                yield ExportProcess(process)
            finally:
                # Killed, because the block may have ended in the middle of an event, and its output is not
                # read any more.
                with suppress(ProcessLookupError):
                    process.kill()
                process.stdin.close()
                await process.wait()


def write_events(source: BinaryIO, target: BinaryIO) -> None:
    """Read the format and the events from one stream, and write their output to the other."""
    manner = _manner(source.readline())
    zone = zone_from(manner.time_zone)

    def format_zoned(ts_ms: int) -> str:
        # Date, time and zone: the page may be read on another day and in another time zone.
        return format_time(ts_ms, zone, "%Y-%m-%d %H:%M:%S %z")

    page, paint = MarkdownPage(format_zoned), Paint(colour=False, is_for_person=manner.is_for_person)
    for line in source:
        event = decode_event(line)
        shown = redact_event(event) if manner.is_redacted else event
        if manner.is_markdown:
            text = page.add(shown)
            made = paint.safe(text, keep_lines=True).encode("utf-8", "backslashreplace")
        else:
            # An import sets this mark again: an export is the same wherever its events were stored.
            made = encode_event(replace(shown, imported=0)) + b"\n"
        target.write(len(made).to_bytes(_HEAD_BYTES, "big") + made)
        # The daemon waits for this reply before it takes the next one.
        target.flush()


# --------------------
# Read an export again, for an import.

_LINES_AT_ONCE: Final = 250
_LIMIT_PAGE_BYTES: Final = 1024 * 1024
"""A page ends after this many lines or bytes: other commits wait while one is stored."""
_LIMIT_LINE_BYTES: Final = 256 * 1024 * 1024


class ExportFile:
    """An export in a file. `pages` may be read several times."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises BadRequest if it cannot be read."""
        self._path = path
        try:
            # Without O_NONBLOCK a named pipe would wait for its writer.
            self._file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        except OSError as error:
            raise BadRequest(f"{path} cannot be read: {error.strerror}; nothing was imported") from error
        # Checked at the open file: the path could lead to another file a moment later.
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            self._file.close()
            raise BadRequest(f"{path} is not a file; nothing was imported")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    async def pages(self, effect: str) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield all events in their order, read in a thread; never an empty page.

        Raises BadRequest that names the first line that is not an event, and the effect of that.
        """
        await asyncio.to_thread(self._file.seek, 0)
        number = 0
        while page := await asyncio.to_thread(self._read, number, effect):
            number += page.lines
            if page.events:
                yield page.events

    def _read(self, number: int, effect: str) -> "_ExportPage | None":
        """Read some lines after line `number`; None at the end of the file."""
        events: list[Event] = []
        lines = size = 0
        while lines < _LINES_AT_ONCE and size < _LIMIT_PAGE_BYTES:
            line = self._file.readline(_LIMIT_LINE_BYTES)
            if not line:
                break
            lines, size = lines + 1, size + len(line)
            if line.strip():
                try:
                    events.append(_exported_event(line))
                except BadRequest as error:
                    raise BadRequest(
                        f"line {number + lines} of {self._path} is not an exported event: {error}; {effect}. "
                        "'pal import' reads what 'pal export' writes with --format jsonl"
                    ) from error
        return _ExportPage(lines, tuple(events)) if lines else None


class _ExportPage(NamedTuple):
    """Some lines of an export, and the events in them."""

    lines: int
    events: tuple[Event, ...]


def _exported_event(line: bytes) -> Event:
    """Decode a line, and refuse everything that the log would refuse later."""
    # `readline` cuts at the limit, and the rest would be read as the next line.
    if len(line) == _LIMIT_LINE_BYTES:
        raise BadRequest("the line is too long")
    event = decode_event(line)
    if event.seq < 1:
        raise BadRequest("the field `seq` must be 1 or more")
    # Only for its refusal: an import should fail at its first line and not when half of it is stored.
    encode_payload(event.payload)
    return event


if __name__ == "__main__":  # pragma: no cover - runs in the other process
    os.nice(_LOWEST_PRIORITY)
    # A large event must end this process and not take the memory of the machine.
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_MEMORY_BYTES, _LIMIT_MEMORY_BYTES))
    write_events(sys.stdin.buffer, sys.stdout.buffer)


# --------------------
# Read events for doors. The only module that hands events of the log to them; it changes nothing.


class Queries:
    """The log as doors see it: events and rows to read, and nothing to write."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.device: Final = log.device
        """The id of this home, which never changes."""
        self.exports = Exports()

    @property
    def rows(self) -> Rows:
        """The folded rows, for the queries of `state/`."""
        return self._log.rows

    def last(self) -> int:
        """Return the seq of the newest event; 0 in an empty log."""
        return self._log.last()

    def archived(self) -> int:
        """Return the highest archived seq; 0 if nothing is archived."""
        return self._log.archived()

    def redacted(self) -> int:
        """Return the seq up to which all recorded redactions are finished; 0 at first."""
        return self._log.redacted()

    def irc_level(self, channel: str) -> str:
        """Return how much the notices of an IRC channel, written in any case, show: see `IRC_LEVELS`."""
        return read_irc_level(self.rows, channel)

    # One event

    def event(self, seq: int) -> Event | None:
        """Return the event with a seq, or None; None also if it is archived and its file is lost."""
        return self._log.event(seq)

    async def fetch(self, seq: int) -> Event | None:
        """Return the event with a seq, read in a thread because it may be large. Raises StorageFailed."""
        return await self._log.fetch(seq)

    def with_id(self, id_or_end: str) -> list[Event]:
        """Return events with this id, or else those whose id ends with it; newest first, at most five."""
        return self._log.find(id_or_end)

    async def fetch_event(self, reference: str) -> Event:
        """Return any event by its reference, read in a thread because it may be large. Raises NotFound."""
        return await fetch_event(self._log, reference)

    def message(self, reference: str) -> Event:
        """Return a message, or a foreign envelope that was delivered like one. Raises NotFound."""
        return find_message(self._log, reference)

    async def bundle(self, reference: str) -> Event:
        """Return the event that created a bundle. Raises NotFound."""
        return await find_bundle(self._log, reference)

    def task(self, reference: str) -> Task:
        """Return a task by its id, a unique end of that, or its number. Raises NotFound."""
        return find_task(self._log, reference)

    # Many events

    async def read(self, query: Query) -> list[Event]:
        """Return matching events in seq order: the first `limit`, or with `last` the newest `last`."""
        return await self._log.read(query)

    async def shown(self, query: Query) -> list[Event]:
        """Return messages in the conversations `query.shown`, archived or not, as `read` returns events."""
        return await self._log.read_shown(query)

    async def seq_at(self, ts: int) -> int:
        """Return the seq of the first event from a time on, or the next seq of the log if all are older.

        Found by bisection, without imported events: only the times of a log's own events rise with the seqs.
        """
        low = 1
        found = high = self._log.last() + 1
        while low < high:
            middle = (low + high) // 2
            event = await self._first_from(middle)
            if event is None or event.ts >= ts:
                high = middle
                found = found if event is None else event.seq
            else:
                # Not `middle + 1`: seqs without an event are between the two, and need no look.
                low = event.seq + 1
        return found

    async def _first_from(self, seq: int) -> Event | None:
        """Return the first event from a seq on that is not imported, or None."""
        event = self._log.event(seq)
        if event is not None and not event.imported:
            return event
        async with aclosing(self.pages(Query(after=seq - 1, limit=1))) as found:
            page = await anext(found, ())
        return page[0] if page else None

    def pages(self, query: Query, *, with_archives: bool = True) -> AsyncGenerator[Sequence[Event], None]:
        """Yield the matching events that are stored by now, in seq order, never an empty page."""
        return pages(self._log, query, with_archives=with_archives)

    def follow(
        self, query: Query, *, after: int, with_archives: bool = False
    ) -> AsyncGenerator[Sequence[Event], None]:
        """Yield matching events above a seq, then new ones, until the iterator is closed."""
        return follow(self._log, query, after=after, with_archives=with_archives)

    async def next_events(self, seq: int, limit: int) -> tuple[Sequence[Event], int]:
        """Return the first events of any kind above a seq, and the seq up to which there are no others.

        Archived, imported and migrated ones are included.
        """
        while seq < (last := self._log.last()):
            if (events := self._log.tail(seq, limit)) is not None:
                return events, events[-1].seq if events else last
            if seq < self._log.archived():
                page = await self._log.read_archived(Query(after=seq, limit=limit, with_imported=True))
                if page.events:
                    return page.events, page.seq
                seq = page.seq
                continue
            events = await self._log.read(Query(after=seq, before=last + 1, limit=limit, with_imported=True))
            if seq >= self._log.archived():  # Else some may have moved into an archive during the read.
                return events, events[-1].seq if len(events) == limit else last
        return (), seq

    async def seq_before_newest(self, query: Query, count: int) -> int:
        """Return the seq after which the newest `count` matching events in the log come."""
        return await seq_before_newest(self._log, query, count)

    def subscribe(self, hear: Hear, types: Collection[EventKey] = ANY_EVENT) -> Callable[[], None]:
        """Call `hear` with the new events of these types. Return a function that ends the subscription."""
        return self._log.subscribe(hear, types)

    # Checks, which read the whole log or its archives

    async def typed_secrets(self) -> list[int]:
        """Return the seqs of typed lines and raw keys that may be secrets, in order.

        A line counts if it contains a known form of secret, or is a single word with digits and other
        characters, like a password. Raw keys also count if the screen stored with them asked for a secret.
        """
        events = (await self._log.find_containing(_PIECES)).events
        asked = {seq for event in events for seq in _typed_at_secret_prompt(event)}
        typed = filter(_is_typed, events)
        return [event.seq for event in typed if event.seq in asked or _looks_secret(event)]

    async def check_storage(self) -> Sequence[str]:
        """Read the whole storage; return a sentence for each kind of damage and for missing events."""
        return await self._log.check_storage()

    async def check_archives(self) -> int:
        """Read all archives, and return how many events they contain. Raises StorageFailed."""
        return await self._log.check_archives()

    async def check_blobs(self) -> BlobCount:
        """Read all contents that are stored next to the log because they are too large for it."""
        return await self._log.check_blobs()

    async def count_unreadable(self) -> int:
        """Return how many events of the log cannot be read back."""
        return await self._log.count_unreadable()


def read_failure(error: Exception) -> PalaverError:
    """Return the error for a log that could not be read, with advice."""
    return failure_from(error) if isinstance(error, sqlite3.Error) else damaged(error)


# --------------------
# Find passwords that older versions stored when people typed them at a hidden prompt.

_PIECES: Final = (f'"action":"{TYPED}"', '"raw":"', '"evidence":')
_WORD: Final = re.compile(r"[^\s/]{6,64}")
_DIGIT: Final = re.compile(r"[0-9]")
_OTHER: Final = re.compile(r"[^0-9]")


def _is_typed(event: Event) -> bool:
    match event.body:
        case LifeChanged(action=action, secret=None, text=text):
            return action == TYPED and text != REDACTED
        case MessageSent(raw=str(raw), secret=None, text=text):
            return bool(raw) and text != REDACTED
    return False


def _typed_at_secret_prompt(event: Event) -> tuple[int, ...]:
    """Return the raw keys that were typed into a screen whose last line asked for a secret."""
    # The numbers in an imported report belong to another log.
    if not isinstance(report := event.body, DeliveryReport) or event.imported:
        return ()
    lines = report.evidence.rstrip().splitlines()
    return report.messages if lines and asks_secret(lines[-1]) else ()


def _looks_secret(event: Event) -> bool:
    text = removed_text(event, is_foreign=False).strip()
    is_mixed = _DIGIT.search(text) is not None and _OTHER.search(text) is not None
    return redact(text) != text or (is_mixed and _WORD.fullmatch(text) is not None)
