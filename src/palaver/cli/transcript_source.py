"""Find an agent's transcript and read its lines, at any length, with the rights of the caller.

No more than a line is in memory at a time. Nothing is written, and only regular files are opened.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from palaver.doors.argv.transcript_order import KnownSession
from palaver.errors import NotFound, Unavailable
from palaver.harness.claude_transcript import claude_registry, session_in_registry
from palaver.harness.conversation import Place, read_object
from palaver.harness.marks import session_of
from palaver.harness.transcripts import TRANSCRIPTS, is_session_id
from palaver.model.transcript import Entry, TranscriptReader

LIMIT_LINE_BYTES: Final = 32 * 1024 * 1024
"""A longer line is skipped: the largest known lines contain pictures."""

_LIMIT_REGISTRY_BYTES: Final = 64 * 1024
_PAGE: Final = 100
_BUSY_S: Final = 2.0
_encode: Final = msgspec.json.Encoder().encode

Environment = Mapping[str, str]


@dataclass(slots=True)
class Transcript:
    """A transcript that was found. Each call of `entries` reads it again from its beginning."""

    harness: str
    path: str
    session: str
    passed_over: int = 0
    """Lines that were too long in the last read."""

    @property
    def reader(self) -> TranscriptReader:
        """The reader of its format."""
        return TRANSCRIPTS[self.harness].reader

    def entries(self) -> Iterator[Entry]:
        """Yield its entries in order."""
        return self.reader.entries(self.lines())

    def lines(self) -> Iterator[bytes]:
        """Yield its current lines."""
        self.passed_over = 0
        if self.harness == "opencode":
            return _database_lines(self.path, self.session)
        return self._file_lines()

    def _file_lines(self) -> Iterator[bytes]:
        with os.fdopen(_open_regular(self.path), "rb") as file:
            while line := file.readline(LIMIT_LINE_BYTES):
                if len(line) < LIMIT_LINE_BYTES or line.endswith(b"\n"):
                    yield line
                    continue
                self.passed_over += 1
                while (line := file.readline(LIMIT_LINE_BYTES)) and not line.endswith(b"\n"):
                    pass


def find_transcript(known: KnownSession, environment: Environment) -> Transcript:
    """Find the transcript of a session. Raises `NotFound`, which names the paths that were searched."""
    session = _session(known, environment)
    is_told = (
        known.path and known.harness != "opencode" and (session in known.path or session == known.session)
    )
    if is_told and Path(known.path).is_file():
        return Transcript(known.harness, known.path, session)
    if not is_session_id(session):
        raise NotFound(
            f"session of {known.agent}",
            f"it is known after {known.agent} has run a hook or a command of Palaver; 'pal install "
            f"{known.harness}' sets the hooks up",
        )
    places = TRANSCRIPTS[known.harness].places(session, environment)
    for place in places:
        if path := _newest(place, known.harness, session):
            return Transcript(known.harness, path, session)
    looked = ", ".join(map(str, places)) or "no folder: HOME is not set"
    raise NotFound(
        f"transcript of {known.agent}",
        f"it is written at the first prompt of a session; looked for {looked}",
    )


def _session(known: KnownSession, environment: Environment) -> str:
    """Return the current session: from the own environment, then the harness, then the bus."""
    if known.is_own and (marked := session_of(environment)) is not None and marked[0] == known.harness:
        return marked[1]
    if known.harness == "claude" and known.pid:
        for path in claude_registry(known.pid, environment):
            if found := session_in_registry(_read_small(path), known.pid):
                return found
    return known.session


def _newest(place: Place, harness: str, session: str) -> str:
    """Return the file that was changed last; of databases, only those with the session count."""
    found = [
        str(path)
        for path in Path(place.folder).glob(place.pattern)
        if path.is_file() and (harness != "opencode" or _has_session(str(path), session))
    ]
    return max(found, key=_changed, default="")


def _changed(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0


def _open_regular(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(f"way to read {path}", error.strerror or "it cannot be opened") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotFound(f"way to read {path}", "it is not a regular file")
    return fd


def _read_small(path: str) -> bytes:
    try:
        fd = _open_regular(path)
    except NotFound:
        return b""
    with os.fdopen(fd, "rb") as file:
        return file.read(_LIMIT_REGISTRY_BYTES)


# OpenCode's database


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_BUSY_S)


def _has_session(path: str, session: str) -> bool:
    try:
        database = _connect(path)
        try:
            return database.execute("SELECT 1 FROM session WHERE id = ?", (session,)).fetchone() is not None
        finally:
            database.close()
    except sqlite3.Error:
        return False


def _database_lines(path: str, session: str) -> Iterator[bytes]:
    """Yield a session's messages with their parts, in pages: no query stays open for a slow reader."""
    try:
        database = _connect(path)
        try:
            after: tuple[int, str] = (-1, "")
            while page := database.execute(
                "SELECT time_created, id, CAST(data AS BLOB) FROM message"
                " WHERE session_id = ? AND (time_created, id) > (?, ?) ORDER BY time_created, id LIMIT ?",
                (session, *after, _PAGE),
            ).fetchall():
                for moment, key, data in page:
                    after = (moment, key)
                    yield _message_line(database, key, data)
        finally:
            database.close()
    except sqlite3.Error as error:
        raise Unavailable(f"{path} cannot be read now: {error}") from error


def _message_line(database: sqlite3.Connection, key: str, data: bytes) -> bytes:
    parts = database.execute(
        "SELECT CAST(data AS BLOB) FROM part WHERE message_id = ? AND length(data) < ? ORDER BY id",
        (key, LIMIT_LINE_BYTES),
    ).fetchall()
    found = [part for (text,) in parts if (part := read_object(text)) is not None]
    return _encode({"info": {**(read_object(data) or {}), "id": key}, "parts": found}) + b"\n"
