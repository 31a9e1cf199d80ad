"""The lines of an export: a separate process writes them, and an import reads them again.

A process, because redacting a large event takes seconds of processor time. The daemon sends it one line with
the format, then one event per line. It replies to each event with eight bytes that contain a length, and then
that many bytes of output. It runs at the lowest priority.
"""

import asyncio
import os
import resource
import stat
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from palaver.errors import BadRequest, Unavailable
from palaver.log.records import encode_payload
from palaver.protocol.display import Paint, zone_from
from palaver.protocol.envelope import Event, decode_event, encode_event
from palaver.protocol.redaction import redact_event
from palaver.protocol.summary import MarkdownPage

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
                *(sys.executable, "-I", "-m", "palaver.services.export"),
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
                with suppress(ProcessLookupError):
                    process.kill()
                process.stdin.close()
                await process.wait()


def write_events(source: BinaryIO, target: BinaryIO) -> None:
    """Read the format and the events from one stream, and write their output to the other."""
    manner = _manner(source.readline())
    zone = zone_from(manner.time_zone)

    def format_time(ts_ms: int) -> str:
        # Date, time and zone: the page may be read on another day and in another time zone.
        local_time = datetime.fromtimestamp(ts_ms / 1000, zone).astimezone(zone)
        return local_time.strftime("%Y-%m-%d %H:%M:%S %z")

    page, paint = MarkdownPage(format_time), Paint(colour=False, is_for_person=manner.is_for_person)
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
    if len(line) == _LIMIT_LINE_BYTES:
        raise BadRequest("the line is too long")
    event = decode_event(line)
    if event.seq < 1:
        raise BadRequest("the field `seq` must be 1 or more")
    encode_payload(event.payload)
    return event


if __name__ == "__main__":  # pragma: no cover - runs in the other process
    os.nice(_LOWEST_PRIORITY)
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT_MEMORY_BYTES, _LIMIT_MEMORY_BYTES))
    write_events(sys.stdin.buffer, sys.stdout.buffer)
