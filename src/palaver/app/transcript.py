"""`pal transcript`, and the transcripts of a bundle, in the client's own process and with its rights.

A separate module from `offline.py`, because help and completion do not need it.
"""

import json
import os
import re
import signal
import sqlite3
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn
from urllib.parse import quote

import msgspec

from palaver.errors import BadRequest, NotFound, PalaverError, Unavailable, UsageError
from palaver.harness.claude.output import claude_registry, session_in_registry
from palaver.harness.marks import harness_of, session_of
from palaver.harness.registry import (
    EXCERPTS,
    TRANSCRIPTS,
    KnownSession,
    ReadOrder,
    excerpt_order_from_word,
    is_session_id,
    read_order_from_words,
)
from palaver.harness.transcripts import TranscriptFolder, read_object
from palaver.protocol.display import Paint, format_time, paint_for, safe_for_agent
from palaver.protocol.lines import error_object
from palaver.protocol.transcript import (
    LIMIT_SHORT_INPUT,
    Detail,
    Excerpt,
    ToolCall,
    TranscriptEntry,
    TranscriptReader,
    entry_at_level,
    take_excerpt,
)

_encode: Final = msgspec.json.Encoder().encode

# --------------------
# Entries of a transcript as a person reads them: role, time, text, and below it the tools. Pure.

_INDENT: Final = "    "


def entry_text(
    entry: TranscriptEntry,
    number: int,
    level: Detail,
    *,
    paint: Paint,
    zone: tzinfo | None,
    whose: str = "",
) -> str:
    """Return one entry as lines, followed by an empty line; the head begins with `whose`."""
    when = f"  {format_time(entry.ts, zone, '%Y-%m-%d %H:%M:%S')}" if entry.ts else ""
    lines = [_head(f"{whose}[{number}] {entry.role}", entry.role, paint) + paint.dim(when)]
    if entry.text:
        lines.append(paint.safe(entry.text.rstrip("\n"), keep_lines=True))
    if level is not Detail.NORMAL:
        for tool in entry.tools:
            lines += map(paint.safe, _tool_lines(tool, is_full=level is Detail.FULL))
    return "\n".join(lines) + "\n\n"


def _head(text: str, role: str, paint: Paint) -> str:
    colour = {"user": paint.green, "assistant": paint.cyan}.get(role, paint.dim)
    return colour(paint.safe(text))


def _tool_lines(tool: ToolCall, *, is_full: bool) -> Iterator[str]:
    given = tool.input if isinstance(tool.input, str) else json.dumps(tool.input, ensure_ascii=False)
    given = "" if tool.input is None else given
    yield from _below(f"{_INDENT}{tool.name or 'answer'} ", given, is_full=is_full)
    if tool.output is not None:
        sign = "✗" if tool.is_error else "→"
        yield from _below(f"{_INDENT}{sign} ", tool.output.rstrip("\n"), is_full=is_full)


def _below(head: str, text: str, *, is_full: bool) -> Iterator[str]:
    """Yield a text after a head, with its other lines below; unless in full, as one shortened line."""
    if not is_full:
        short = " ".join(text.split())
        cut = short if len(short) <= LIMIT_SHORT_INPUT else short[: LIMIT_SHORT_INPUT - 1] + "…"
        yield (head + cut).rstrip()
        return
    first, *further = text.split("\n")
    yield (head + first).rstrip()
    for line in further:
        yield f"{_INDENT}  {line}".rstrip()


# --------------------
# Search entries for a regular expression, with a time limit: some expressions never end.

LIMIT_S: Final = 2.0
"""Seconds that one entry may be searched."""


class _TooSlowError(Exception):
    """The time limit was reached."""


class Search:
    """One expression. It is case-sensitive only if it has a capital letter.

    Works only in the main thread: the regex engine checks for signals while it searches, and the alarm ends
    it.
    """

    def __init__(self, expression: str, level: Detail, limit_s: float = LIMIT_S) -> None:
        """Raises `UsageError` for an invalid regular expression."""
        has_capital = any(letter.isupper() for letter in re.sub(r"\\.", "", expression))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about a possible other meaning in a later Python
                self._pattern = re.compile(expression, 0 if has_capital else re.IGNORECASE)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"{expression!r} is not a regular expression: {error}") from None
        self._level = level
        self._limit_s = limit_s

    def is_in(self, entry: TranscriptEntry, number: int) -> bool:
        """Whether the expression matches the part of an entry that the level shows."""
        before = signal.signal(signal.SIGALRM, _on_alarm)
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)
        try:
            return any(self._pattern.search(text) for text in _texts(entry, self._level))
        except _TooSlowError:
            raise BadRequest(
                f"looking for {self._pattern.pattern!r} in entry {number} takes too long; write it without "
                "nested repetitions, or exclude that entry with a range"
            ) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _on_alarm(number: int, frame: FrameType | None) -> None:
    raise _TooSlowError


def _texts(entry: TranscriptEntry, level: Detail) -> Iterator[str]:
    yield entry.text
    for tool in entry.tools if level is not Detail.NORMAL else ():
        yield tool.name
        yield tool.input if isinstance(tool.input, str) else _encode(tool.input).decode()
        yield tool.output or ""


# --------------------
# Find an agent's transcript and read its lines, at any length, with the rights of the caller.
#
# No more than a line is in memory at a time. Nothing is written, and only regular files are opened.

LIMIT_LINE_BYTES: Final = 32 * 1024 * 1024
"""A longer line is skipped: the largest known lines contain pictures."""

_LIMIT_REGISTRY_BYTES: Final = 64 * 1024
_PAGE: Final = 100
"""Messages that one query reads."""
_BUSY_S: Final = 2.0
"""Seconds to wait for the database while OpenCode writes to it."""

Environment = Mapping[str, str]


@dataclass(slots=True)
class Transcript:
    """A transcript that was found. Each call of `entries` reads it again from its beginning."""

    harness: str
    path: str
    session: str
    skipped_lines: int = 0
    """Lines that were too long in the last read."""

    @property
    def reader(self) -> TranscriptReader:
        """The reader of its format."""
        return TRANSCRIPTS[self.harness].reader

    def entries(self) -> Iterator[TranscriptEntry]:
        """Yield its entries in order."""
        return self.reader.entries(self.lines())

    def lines(self) -> Iterator[bytes]:
        """Yield its current lines."""
        self.skipped_lines = 0
        if self.harness == "opencode":
            return _database_lines(self.path, self.session)
        return self._file_lines()

    def _file_lines(self) -> Iterator[bytes]:
        with os.fdopen(_open_regular(self.path), "rb") as file:
            while line := file.readline(LIMIT_LINE_BYTES):
                if len(line) < LIMIT_LINE_BYTES or line.endswith(b"\n"):
                    yield line
                    continue
                self.skipped_lines += 1
                while (line := file.readline(LIMIT_LINE_BYTES)) and not line.endswith(b"\n"):
                    pass


def find_transcript(known: KnownSession, environment: Environment) -> Transcript:
    """Find the transcript of a session. Raises `NotFound`, which names the paths that were searched."""
    session = _session(known, environment)
    # The bus may know only the file of an earlier session, until the next hook reports the new one.
    is_known_path = (
        known.path and known.harness != "opencode" and (session in known.path or session == known.session)
    )
    if is_known_path and Path(known.path).is_file():
        return Transcript(known.harness, known.path, session)
    # The id becomes a part of a file pattern. A slash or a wildcard in it would find other files.
    if not is_session_id(session):
        raise NotFound(
            f"session of {known.agent}",
            f"{known.agent} has not run a hook or a command of Palaver yet; 'pal install "
            f"{known.harness}' sets the hooks up",
        )
    folders = TRANSCRIPTS[known.harness].folders(session, environment)
    for folder in folders:
        if path := _newest(folder, known.harness, session):
            return Transcript(known.harness, path, session)
    looked = ", ".join(map(str, folders)) or "no folder: HOME is not set"
    raise NotFound(
        f"transcript of {known.agent}",
        f"the harness writes it at the first prompt of a session; looked for {looked}",
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


def _newest(folder: TranscriptFolder, harness: str, session: str) -> str:
    """Return the file that was changed last; of databases, only those with the session count."""
    found = [
        str(path)
        for path in Path(folder.folder).glob(folder.pattern)
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
        # Without `O_NONBLOCK`, opening a named pipe would wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(f"readable file {path}", error.strerror or "it cannot be opened") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotFound(f"regular file {path}", "it is a folder, pipe or device; name a file")
    return fd


def _read_small(path: str) -> bytes:
    try:
        fd = _open_regular(path)
    except NotFound:
        return b""
    with os.fdopen(fd, "rb") as file:
        return file.read(_LIMIT_REGISTRY_BYTES)


# --------------------
# The database of OpenCode: each message as one line, as in the files of other harnesses.


def _connect(path: str) -> sqlite3.Connection:
    # Read-only: by default SQLite would create a missing file in the folder of the harness.
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
            # As bytes, because SQLite stores any bytes as text, and Python fails on those that are not UTF-8.
            after: tuple[int, str] = (-1, "")
            while page := database.execute(
                "SELECT time_created, id, CAST(data AS BLOB) FROM message"
                " WHERE session_id = ? AND (time_created, id) > (?, ?) ORDER BY time_created, id LIMIT ?",
                (session, *after, _PAGE),
            ).fetchall():
                for created, key, data in page:
                    after = (created, key)
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


# --------------------
# The two commands: print a transcript, and take the excerpts for a bundle.
#
# The daemon has decided whose transcript it is. Long ones are read twice instead of kept in memory.

Numbered = tuple[int, TranscriptEntry]


def read_transcript(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Print the entries that an order asks for. Return the exit status."""
    order = read_order_from_words(words)
    shown = skipped_lines = 0
    read: set[tuple[str, str]] = set()
    unread: list[str] = []
    try:
        # Here, because an invalid expression is an error even if there is no transcript to search.
        search = Search(order.search, order.level) if order.search else None
        for known in order.known:
            try:
                transcript = find_transcript(known, environment)
                if (transcript.path, transcript.session) in read:
                    continue  # Two agents share a session.
                read.add((transcript.path, transcript.session))
                shown += _print(order, known.agent, transcript, environment, search)
                skipped_lines += transcript.skipped_lines
            except (NotFound, Unavailable):
                if not order.is_all:
                    raise
                unread.append(known.agent)
    except PalaverError as error:
        return _complain(error, is_json=order.is_refusal_json)
    except OSError as error:
        sys.stderr.write(f"pal: {error.filename or 'standard output'}: {error.strerror}\n")
        os._exit(1)  # The exit of the interpreter would flush again, and print a second error.
    if not shown:
        sys.stderr.write("pal: no matching entries\n" if order.search else "pal: the transcript is empty\n")
    if unread:
        sys.stderr.write(f"pal: transcripts that cannot be read: {', '.join(unread)}\n")
    if skipped_lines:
        sys.stderr.write(f"pal: lines that are too long to read: {skipped_lines}\n")
    return 0


def _print(
    order: ReadOrder,
    agent: str,
    transcript: Transcript,
    environment: Mapping[str, str],
    search: Search | None,
) -> int:
    """Write the entries one by one, and return how many there were.

    For a range from the end they are counted first, and then read again.
    """
    paint = paint_for(environment, is_terminal=sys.stdout.isatty(), harness=harness_of(environment))
    skipped = 0
    if order.newest:
        skipped = max(0, sum(1 for _ in _chosen(order, agent, transcript, search)) - order.newest)
    shown = 0
    for number, entry in islice(_chosen(order, agent, transcript, search), skipped, None):
        shown += 1
        if order.is_json:
            data = _encode({"agent": agent, **entry_at_level(entry, number, order.level)}) + b"\n"
        else:
            whose = f"{agent} " if order.is_all else ""
            text = entry_text(entry, number, order.level, paint=paint, zone=None, whose=whose)
            data = text.encode("utf-8", "backslashreplace")
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    if shown and skipped and not order.search and sys.stderr.isatty():
        sys.stderr.write(f"pal: {skipped} before these; 'pal transcript {agent} 1-' shows all\n")
    return shown


def _chosen(
    order: ReadOrder, agent: str, transcript: Transcript, search: Search | None
) -> Iterator[Numbered]:
    """Yield the entries of the range that match the search, with their numbers."""
    number = 0
    for number, entry in enumerate(islice(transcript.entries(), order.last), 1):
        if number >= order.first and (search is None or search.is_in(entry, number)):
            yield number, entry
    if order.first > 1 and number < order.first:
        has = f"{number} entr{'y' if number == 1 else 'ies'}"
        raise NotFound(f"entry {order.first} in the transcript of {agent}", f"it has {has}")


def take_excerpts(word: str, argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Take the excerpts for a bundle, and repeat the same request with them."""
    order = excerpt_order_from_word(word)
    excerpts: list[Excerpt] = []
    for known, stretch in order.wanted:
        try:
            transcript = find_transcript(known, environment)
            excerpts.append(take_excerpt(transcript.reader, transcript.lines(), stretch, known.agent))
        except PalaverError as error:
            return _complain(error, is_json=order.is_json)
    return _ask_again(argv, _encode(excerpts), environment)


def _ask_again(argv: Sequence[str], content: bytes, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by the client with the same request and an unnamed file, which ends with it."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        file.seek(0)
        # Python closes its files in a program that replaces it, unless they are inheritable.
        os.set_inheritable(file.fileno(), True)
        own = {**environment, EXCERPTS: f"/dev/fd/{file.fileno()}"}
        # Isolated, so that no file in the folder of the caller or in PYTHONPATH is imported before ours.
        words = [sys.executable, "-I", "-m", "palaver.app.thin.client", *argv]
        os.execve(sys.executable, words, own)  # noqa: S606 - our own client, in our own Python


def _complain(error: PalaverError, *, is_json: bool) -> int:
    if is_json:
        sys.stderr.write(_encode(error_object(error)).decode() + "\n")
    else:
        sys.stderr.write(f"pal: {safe_for_agent(str(error), keep_lines=True)}\n")
    return 2 if isinstance(error, UsageError) else 1
