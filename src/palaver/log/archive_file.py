"""One archive file: events in place order, one a line of JSON. Written whole or not at all, never changed.

Its name says the first and the last place in it. A place is found by halving the file, not by reading it all.
"""

import os
import re
import tempfile
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from palaver.errors import BadRequest, StorageFailed
from palaver.model.envelope import Event, decode_event, encode_event

_NAME: Final = re.compile(r"([0-9]{15})-([0-9]{15})\.jsonl")
UNFINISHED: Final = "unfinished-"
_LIMIT_DAMAGED: Final = 100
"""Damaged lines in a row that a search skips: it runs on the event loop."""


class _Place(msgspec.Struct):
    """The one field of a line by which it is found."""

    seq: int


_decode_place: Final = msgspec.json.Decoder(_Place).decode


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of archived events, from the place `first` to the place `last`; there may be gaps between."""

    path: Path
    first: int
    last: int

    def find(self, seq: int) -> Event | None:
        """Give the event in a place, or None when it is not there or the file cannot be read there."""
        try:
            with self.path.open("rb") as file:
                file.seek(_offset_behind(file, seq - 1))
                event = decode_event(_skip_damaged(file, file.tell(), file.readline())[1])
        except (OSError, msgspec.DecodeError, BadRequest):
            return None
        return event if event.seq == seq else None

    def events(self, after: int = 0) -> Generator[Event, None, None]:
        """Give the events above a place, in order. Close it to let go of the file.

        Raises StorageFailed when the file is gone or a line of it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(_offset_behind(file, after))
                for line in file:
                    yield decode_event(line)
        except (OSError, msgspec.DecodeError, BadRequest) as error:
            raise StorageFailed(f"the archive {self.path} cannot be read: {error}") from error


def archive_files(directory: Path) -> tuple[ArchiveFile, ...]:
    """List the archive files in a directory, lowest places first; what has another name is not one."""
    if not directory.is_dir():
        return ()
    named = ((path, _NAME.fullmatch(path.name)) for path in sorted(directory.iterdir()))
    return tuple(ArchiveFile(path, int(found[1]), int(found[2])) for path, found in named if found)


def remove_unfinished(directory: Path) -> None:
    """Remove what a crash has left behind while it was written: there is never more than one writer."""
    for left_behind in directory.glob(f"{UNFINISHED}*"):
        left_behind.unlink()


def write_archive(directory: Path, events: Iterable[Event]) -> ArchiveFile | None:
    """Write events, which come in place order, into a new file; None when there are none.

    On return the file is durable under its name. Raises OSError when there is no room and StorageFailed for
    an event that could not be read back; then there is no new file.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    remove_unfinished(directory)
    # A listed name only for a whole file: written beside it, synced, then renamed. mkstemp gives 0600.
    handle, beside = tempfile.mkstemp(prefix=UNFINISHED, dir=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            places = _write_lines(file, events)
            file.flush()
            os.fsync(file.fileno())
        if places is None:
            Path(beside).unlink()
            return None
        first, last = places
        path = directory / f"{first:015d}-{last:015d}.jsonl"
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    for changed in (directory, directory.parent):
        sync_directory(changed)
    return ArchiveFile(path, first, last)


def _write_lines(file: BinaryIO, events: Iterable[Event]) -> tuple[int, int] | None:
    first = last = None
    for event in events:
        line = encode_event(event)
        # The only copy of the event is going to be this line, so it must say the same.
        if not _says(line, event):
            raise StorageFailed(f"the event in place {event.seq} cannot be archived; nothing was changed")
        file.write(line + b"\n")
        first = event.seq if first is None else first
        last = event.seq
    return None if first is None or last is None else (first, last)


def _says(line: bytes, event: Event) -> bool:
    try:
        return decode_event(line) == event
    except BadRequest:
        return False


def _offset_behind(file: BinaryIO, place: int) -> int:
    """Where the first line above a place begins; the end of the file when there is none."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while low < high:
        middle = (low + high) // 2
        start, line = _skip_damaged(file, *_first_line_from(file, middle))
        if start >= high or _decode_place(line).seq > place:
            high = middle
        else:
            low = start + len(line)
    return low


def _first_line_from(file: BinaryIO, offset: int) -> tuple[int, bytes]:
    """The first line that begins at an offset or above it, and where that is."""
    file.seek(max(0, offset - 1))
    if offset:
        file.readline()
    return file.tell(), file.readline()


def _skip_damaged(file: BinaryIO, start: int, line: bytes) -> tuple[int, bytes]:
    """Return the first of a line and those after it whose seq can be read, and where it begins.

    After many damaged lines the next one is returned as it is.
    """
    for _ in range(_LIMIT_DAMAGED):
        try:
            _decode_place(line)
        except msgspec.MsgspecError:
            start += len(line)
            line = file.readline()
        else:
            break
    return start, line


def place_of_line(line: bytes) -> int:
    """Return the place of the event in a line."""
    return _decode_place(line).seq


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
