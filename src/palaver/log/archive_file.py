"""One archive file: events in seq order, one line of JSON each. Complete or absent, never changed.

Its name contains its first and last seq. A seq is found by binary search, without reading the whole file.
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
from palaver.home import sync
from palaver.protocol.envelope import Event, decode_event, encode_event

_NAME: Final = re.compile(r"([0-9]{15})-([0-9]{15})\.jsonl")
UNFINISHED: Final = "unfinished-"
_LIMIT_DAMAGED: Final = 100
"""Damaged lines in a row that a search skips: it runs on the event loop."""


class _SeqOfLine(msgspec.Struct):
    """The field of a line by which it is found."""

    seq: int


_decode_seq: Final = msgspec.json.Decoder(_SeqOfLine).decode


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of archived events, from the seq `first` to the seq `last`, possibly with gaps."""

    path: Path
    first: int
    last: int

    def find(self, seq: int) -> Event | None:
        """Return the event with a seq, or None if it is not in the file or cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(_offset_behind(file, seq - 1))
                event = decode_event(_skip_damaged(file, file.tell(), file.readline())[1])
        except (OSError, msgspec.DecodeError, BadRequest):
            return None
        return event if event.seq == seq else None

    def events(self, after: int = 0) -> Generator[Event, None, None]:
        """Yield the events above a seq, in order. Close the generator to release the file.

        Raises StorageFailed if the file is missing or a line of it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(_offset_behind(file, after))
                for line in file:
                    yield decode_event(line)
        except (OSError, msgspec.DecodeError, BadRequest) as error:
            raise StorageFailed(f"the archive {self.path} cannot be read: {error}") from error


def archive_files(directory: Path) -> tuple[ArchiveFile, ...]:
    """Return the archive files in a directory, lowest seqs first; files with other names are ignored."""
    if not directory.is_dir():
        return ()
    named = ((path, _NAME.fullmatch(path.name)) for path in sorted(directory.iterdir()))
    return tuple(ArchiveFile(path, int(found[1]), int(found[2])) for path, found in named if found)


def remove_unfinished(directory: Path) -> None:
    """Remove incomplete files that a crash has left: there is never more than one writer."""
    for left_behind in directory.glob(f"{UNFINISHED}*"):
        left_behind.unlink()


def write_archive(directory: Path, events: Iterable[Event]) -> ArchiveFile | None:
    """Write events, given in seq order, into a new file; None for no events.

    On return the file is durable under its name. Raises OSError if the disk is full and StorageFailed for an
    event that could not be read back; then there is no new file.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    remove_unfinished(directory)
    # Only a complete file gets its name: write a temporary file, sync it, then rename it. mkstemp sets 0600.
    handle, temporary = tempfile.mkstemp(prefix=UNFINISHED, dir=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            offsets = _write_lines(file, events)
            file.flush()
            os.fsync(file.fileno())
        if offsets is None:
            Path(temporary).unlink()
            return None
        first, last = offsets
        path = directory / f"{first:015d}-{last:015d}.jsonl"
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    for changed in (directory, directory.parent):
        sync(changed)
    return ArchiveFile(path, first, last)


def _write_lines(file: BinaryIO, events: Iterable[Event]) -> tuple[int, int] | None:
    first = last = None
    for event in events:
        line = encode_event(event)
        # This line becomes the only copy of the event, so it must contain the same.
        if not _says(line, event):
            raise StorageFailed(f"event #{event.seq} cannot be archived; nothing was changed")
        file.write(line + b"\n")
        first = event.seq if first is None else first
        last = event.seq
    return None if first is None or last is None else (first, last)


def _says(line: bytes, event: Event) -> bool:
    try:
        return decode_event(line) == event
    except BadRequest:
        return False


def _offset_behind(file: BinaryIO, seq: int) -> int:
    """Return the offset of the first line above a seq, or the end of the file."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while low < high:
        middle = (low + high) // 2
        start, line = _skip_damaged(file, *_first_line_from(file, middle))
        if start >= high or _decode_seq(line).seq > seq:
            high = middle
        else:
            low = start + len(line)
    return low


def _first_line_from(file: BinaryIO, offset: int) -> tuple[int, bytes]:
    """Return the first line that begins at an offset or later, and its offset."""
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
            _decode_seq(line)
        except msgspec.MsgspecError:
            start += len(line)
            line = file.readline()
        else:
            break
    return start, line


def seq_of_line(line: bytes) -> int:
    """Return the seq of the event in a line."""
    return _decode_seq(line).seq
