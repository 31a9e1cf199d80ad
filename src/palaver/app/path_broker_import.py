"""`pal import messages DIR`: read the files of another path broker, in the client's process, and send them.

The daemon opens no file of it. Everything is safe to repeat: ids and names follow from the files alone, so a
second run finds what the first one has stored.
"""

import asyncio
import json
import os
import re
import sqlite3
import stat
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path
from typing import IO, Final, Protocol, TypeVar

import msgspec

from palaver.client.connection import Plain
from palaver.errors import BadRequest, PalaverError, Unavailable
from palaver.protocol.address import AGENT, check_path, split_path
from palaver.protocol.agents import LIMIT_NAME, check_name, split_name
from palaver.protocol.display import safe
from palaver.protocol.lines import MigrateOp
from palaver.protocol.paths import (
    DEFAULT_COMMAND,
    INTERNAL,
    PENDING,
    PLUS,
    Content,
    MigratedAutoRun,
    MigratedMessage,
    MigratedSession,
    MigratedSubscription,
    MigrationResult,
    check_session,
    is_migrated_sender,
    mailbox_of,
)
from palaver.protocol.text import LIMIT_BODY_BYTES, check_text
from palaver.protocol.transcript import is_deep

# --------------------
# One line of a file of messages. Pure.

LAST_MS: Final = 4_102_444_800_000
"""The year 2100, in Unix milliseconds. A time after it, or before 1970, is a mistake of its writer."""
_LIMIT_WORD_BYTES: Final = 1024
"""Bytes of a command, a source and an external id, as for messages that are sent here."""
_LIMIT_ID_BYTES: Final = 256
_LIMIT_DEPTH: Final = 190
"""Levels of nesting in a payload. The log stores 200 in a whole event."""


class _HandledBy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    agent_id: str
    session_id: str


class _MessageLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    sender: str = msgspec.field(name="from")
    path: str
    timestamp: int | float
    command: str | None = None
    payload: object = None
    status: str | None = PENDING
    source: str | None = None
    external_id: str | int | float | None = None
    handled: bool | None = False
    handled_by: tuple[_HandledBy, ...] | None = None


_LINE_KEYS: Final = frozenset(one.encode_name for one in msgspec.structs.fields(_MessageLine))
_read_line: Final = msgspec.json.Decoder(_MessageLine).decode
_read_keys: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCopy:
    """One message in one mailbox, as the other path broker stored it."""

    id: str
    sender: str
    path: str
    ts: int
    content: Content
    is_taken: bool
    is_handled: bool
    handled_by: tuple[tuple[str, str], ...]
    """The agent and the session of each."""
    unknown: frozenset[str]
    """Keys that have no meaning here."""


def parse_copy(line: bytes) -> SourceCopy:
    """Parse one line. Raises BadRequest with the reason for a line that cannot be imported."""
    try:
        # Decoded twice, because a struct drops unknown keys, and the report names them.
        read, keys = _read_line(line), _read_keys(line).keys()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(str(error)) from error
    if not read.id or not read.sender:
        raise BadRequest(f"its field `{'from' if read.id else 'id'}` is empty")
    check_text(read.id, "its id", _LIMIT_ID_BYTES)
    check_path(read.path)
    outer = "" if read.external_id is None else str(read.external_id)
    for what, word in (("command", read.command), ("source", read.source), ("external id", outer)):
        check_text(word or "", f"its {what}", _LIMIT_WORD_BYTES)
    payload = {} if read.payload is None else read.payload
    # Counting brackets is cheap, and few lines have enough of them to nest too deep.
    if line.count(b"{") + line.count(b"[") > _LIMIT_DEPTH and is_deep(payload, _LIMIT_DEPTH):
        raise BadRequest(f"its payload is nested more than {_LIMIT_DEPTH} levels deep")
    size_bytes = len(_encode({"payload": payload}))
    if size_bytes > LIMIT_BODY_BYTES:
        raise BadRequest(f"its payload has {size_bytes} bytes; the limit is {LIMIT_BODY_BYTES}")
    return SourceCopy(
        id=read.id,
        sender=read.sender,
        path=read.path,
        ts=time_or(read.timestamp, 0),
        content=Content(
            command=read.command or DEFAULT_COMMAND,
            payload=payload,
            source=read.source or INTERNAL,
            external_id=outer,
        ),
        is_taken=(read.status or PENDING) != PENDING,
        is_handled=bool(read.handled),
        handled_by=tuple((one.agent_id, one.session_id) for one in read.handled_by or ()),
        unknown=frozenset(keys - _LINE_KEYS),
    )


def time_or(value: object, default: int) -> int:
    """Return a time in Unix milliseconds; the default for any value that is not between 1970 and 2100."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LAST_MS:
        return default
    return int(value)


# --------------------
# Names here for the ids there. Pure: the same ids always have the same names.

_NOT_IN_NAME: Final = re.compile(r"[^a-z0-9_-]+")
_NOT_IN_SESSION: Final = re.compile(r"[^A-Za-z0-9_.:@#-]+")
_NOT_IN_SENDER: Final = re.compile(r"[^A-Za-z0-9_.:@#/+=-]+")
_LIMIT_SESSION: Final = 64
_LIMIT_SENDER: Final = 100
_SPACE: Final = 10
"""Characters that are kept free in a long name, for a number that makes it unique."""


def agent_names(ids: Iterable[str]) -> dict[str, str]:
    """Return a valid name for each agent id; a valid id is its own name, and no name is used twice."""
    return _unique(ids, normal_agent, "_")


def session_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return a valid session id for each session id of one agent, in the same way."""
    return _unique(ids, normal_session, "-")


def _unique(ids: Iterable[str], normal: Callable[[str], str], gap: str) -> dict[str, str]:
    # Sorted, so that the same ids have the same names in every run, whatever the order of the files.
    some = sorted(set(ids))
    found = {one: one for one in some if normal(one) == one}
    taken = set(found)
    for one in some:
        if one not in found:
            found[one] = next(name for name in _spellings(normal(one), gap) if name not in taken)
            taken.add(found[one])
    return found


def _spellings(name: str, gap: str) -> Iterator[str]:
    yield name
    for number in count(2):
        yield f"{name[: _LIMIT_SESSION - _SPACE]}{gap}{number}"


def normal_agent(id: str) -> str:
    """Return the valid name that is nearest to an agent id."""
    if _is_name(id):
        return id
    plain = _NOT_IN_NAME.sub("_", _ascii(id).lower()).strip("_-")[: LIMIT_NAME - _SPACE].strip("_-")
    if _is_name(plain):
        return plain
    other = f"agent_{plain.replace('-', '_')}".strip("_")
    return other if _is_name(other) else AGENT


def _is_name(text: str) -> bool:
    try:
        parts = split_name(text)
        check_name(parts.base, parts.tag)
    except PalaverError:
        return False
    return text == text.lower() and not parts.device


def normal_session(id: str) -> str:
    """Return the valid session id that is nearest to a session id."""
    with suppress(PalaverError):
        return check_session(id)
    plain = _NOT_IN_SESSION.sub("_", _ascii(id)).lstrip("_.:@#-")[: _LIMIT_SESSION - _SPACE]
    return plain or "session"


def normal_sender(sender: str) -> str:
    """Return the sender as it is stored; one that could be taken for the person or the bus gets a prefix."""
    if is_migrated_sender(sender):
        return sender
    plain = _NOT_IN_SENDER.sub("_", _ascii(sender))[:_LIMIT_SENDER]
    return plain if is_migrated_sender(plain) else f"imported-{plain}"


def _ascii(text: str) -> str:
    """Return a text without accents. Other characters outside ASCII stay, and are replaced later."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(one for one in parts if not unicodedata.combining(one))


def renamed_path(path: str, names: Mapping[str, str]) -> str:
    """Return a path or pattern with the new name of its agent, if the agent has one. Raises BadRequest."""
    segments = list(split_path(path))
    if len(segments) > 1 and segments[0] == AGENT:
        segments[1] = names.get(segments[1], segments[1])
    return check_path("/".join(segments))


def split_stem(stem: str, sessions: Mapping[str, Collection[str]]) -> tuple[str, str] | None:
    """Return the agent and the session of the name `{agentId}--{sessionId}`; None if one of them is missing.

    Both ids may contain `--`. `sessions` has the known agents with their sessions: a known session decides,
    then the longest known agent, then the first `--`.
    """
    offsets = [found.start() for found in re.finditer("(?=--)", stem)]
    splits = [(stem[:at], stem[at + 2 :]) for at in offsets if at and stem[at + 2 :]]
    exact = [one for one in splits if one[1] in sessions.get(one[0], ())]
    known = [one for one in splits if one[0] in sessions]
    found = exact or known[::-1] or splits
    return found[0] if found else None


# --------------------
# The files of agents and sessions. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSubscription:
    """A pattern, and when it was added; 0 if the file does not say when."""

    pattern: str
    added: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """The content of `jvAgent.json`, or of the file of a session."""

    id: str
    title: str = ""
    created: int = 0
    used: int = 0
    subscriptions: tuple[SourceSubscription, ...] = ()
    auto_run: object = None
    """The configuration of automatic turns, as it is; None without one."""
    wrong: tuple[str, ...] = ()
    """A sentence for each part that cannot be read."""
    unknown: frozenset[str] = frozenset()
    """Keys that have no meaning here."""


class _ConfigFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: object = None
    title: object = None
    subscriptions: object = None
    created_at: object = None
    last_used_at: object = None
    auto_run: object = None


class _ConfigSubscription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pattern: str
    added_at: object = None


_CONFIG_KEYS: Final = frozenset(one.encode_name for one in msgspec.structs.fields(_ConfigFile))
_read_config: Final = msgspec.json.Decoder(_ConfigFile).decode


def parse_config(content: bytes, id: str) -> SourceFile:
    """Parse the file of an agent or session; `id`, from its path, counts if the file names no other.

    Raises BadRequest if it is not an object of JSON. A part that cannot be read does not affect the others.
    """
    try:
        read, keys = _read_config(content), _read_keys(content).keys()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(str(error)) from error
    wrong: list[str] = []
    subscriptions: list[SourceSubscription] = []
    listed = read.subscriptions if isinstance(read.subscriptions, list) else []
    if read.subscriptions is not None and not isinstance(read.subscriptions, list):
        wrong.append("subscriptions: not a list")
    for one in listed:
        try:
            found = msgspec.convert({"pattern": one} if isinstance(one, str) else one, _ConfigSubscription)
            check_path(found.pattern)
        except (msgspec.ValidationError, PalaverError) as error:
            wrong.append(f"subscriptions: {error}")
        else:
            added = time_or(found.added_at, 0)
            subscriptions.append(SourceSubscription(pattern=found.pattern, added=added))
    return SourceFile(
        id=read.id if isinstance(read.id, str) and read.id else id,
        title=_title(read.title),
        created=time_or(read.created_at, 0),
        used=time_or(read.last_used_at, 0),
        subscriptions=tuple(subscriptions),
        # A text means there that nothing is configured.
        auto_run=None if isinstance(read.auto_run, str) else read.auto_run,
        wrong=tuple(wrong),
        unknown=frozenset(keys - _CONFIG_KEYS),
    )


def _title(value: object) -> str:
    """Return a title on one line, cut to the size that is allowed here."""
    if not isinstance(value, str):
        return ""
    plain = "".join(one if one.isprintable() else " " for one in value)
    return plain.encode("utf-8", "replace")[:_LIMIT_WORD_BYTES].decode("utf-8", "ignore").strip()


# --------------------
# What was found, and what was left out.

_SHOWN: Final = 10
"""How many skipped lines, renamed senders and the like are named; all of them are counted."""


class SkippedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line, or a whole file if the line is 0, that is not imported."""

    file: str
    line: int
    reason: str


class RenamedId(msgspec.Struct, frozen=True, kw_only=True, rename={"old": "from", "new": "to"}):
    """An id that cannot be used here, and the name that stands for it."""

    kind: str
    old: str
    new: str


@dataclass(slots=True)
class ImportReport:
    """Everything that the user should know. Of long lists only the first few are kept."""

    counts: Counter[str] = field(default_factory=Counter)
    """The numbers of `MigrationResult`, summed up; in a dry run what was found."""
    different: list[str] = field(default_factory=list)
    skipped: int = 0
    first_skipped: list[SkippedLine] = field(default_factory=list)
    unreadable: list[SkippedLine] = field(default_factory=list)
    """Files and folders that could not be read: then the import is not complete."""
    renamed: dict[tuple[str, str], str] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)
    """Fields that have no meaning here, and how often they occurred."""

    def skip(self, file: str, line: int, reason: str) -> None:
        """Count a part that is not imported."""
        self.skipped += 1
        if len(self.first_skipped) < _SHOWN:
            self.first_skipped.append(SkippedLine(file=file, line=line, reason=reason))

    def fail(self, file: str, error: OSError) -> None:
        """Record a file or folder that cannot be read."""
        reason = error.strerror or str(error)
        self.unreadable.append(SkippedLine(file=file, line=0, reason=reason))

    def rename(self, kind: str, old: str, new: str) -> str:
        """Record the name for an id, and return it. Of senders, only the first hundred are recorded."""
        if old != new and (kind != _SENDER or len(self.renamed) < _SHOWN * _SHOWN):
            self.renamed[kind, old] = new
        return new

    def add(self, part: MigrationResult) -> None:
        """Add the result of one request."""
        for name in _COUNTED:
            self.counts[name] += getattr(part, name)
        self.counts["different"] += len(part.different)
        self.different += part.different[: _SHOWN - len(self.different)]
        for sentence in part.refused:
            self.skip("", 0, sentence)

    @property
    def is_complete(self) -> bool:
        """Whether everything that can be imported is here now."""
        return not self.unreadable and not self.counts["different"]


_COUNTED: Final = ("agents", "sessions", "subscriptions", "messages", "dead", "known", "taken", "auto_runs")
_SENDER: Final = "sender"


# --------------------
# Read the folder. Links to folders are not followed, so there are no circles.

MESSAGES: Final = ".messages"
AGENT_FILE: Final = "jvAgent.json"
# DOTALL, because the name of a file may contain a line end.
_STEM: Final = re.compile("agent--.+|broker-unmatched|session--.+", re.DOTALL)
_NOT_SEARCHED: Final = frozenset({MESSAGES, ".git", "node_modules"})
_LIMIT_FILE_BYTES: Final = 1024 * 1024
LIMIT_LINE_BYTES: Final = 1024 * 1024
"""A line with a payload of the largest size fits, even if each of its characters is escaped."""
_MARK: Final = b"\xef\xbb\xbf"
"""Some editors put it at the beginning of a file."""


@dataclass(slots=True, kw_only=True)
class SourceAgent:
    """An agent, with everything that its files say. An agent that has only messages has no files."""

    id: str
    subscriptions: list[SourceSubscription] = field(default_factory=list)
    auto_run: object = None
    sessions: dict[str, SourceFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFile:
    """A file of messages, and its mailbox. Without an agent it has those that no subscription matched."""

    path: Path
    agent: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """The content of the folder, without the messages themselves."""

    root: Path
    agents: dict[str, SourceAgent]
    files: tuple[MessageFile, ...]

    def shown(self, path: Path) -> str:
        """Return a path as the report names it."""
        return os.fspath(path.relative_to(self.root))


def read_folder(root: Path, report: ImportReport) -> SourceFolder:
    """Read all files except the messages. Raises BadRequest if no file is from the path broker."""
    try:
        if not stat.S_ISDIR(root.stat().st_mode):
            raise BadRequest(f"{root} is not a directory; nothing was imported")
    except OSError as error:
        raise BadRequest(f"{root} cannot be read: {error.strerror}; nothing was imported") from error
    folder = SourceFolder(root, {}, ())
    aliases: dict[str, list[str]] = {}
    for path in sorted(_agent_files(root, report)):
        _add_agent(folder, path, aliases, report)
    messages = root / MESSAGES
    if not folder.agents and not messages.is_dir():
        hint = f"; give the folder above {MESSAGES}" if root.name == MESSAGES else ""
        raise BadRequest(
            f"{root} has no files of the path broker: neither {MESSAGES}/ nor a file {AGENT_FILE}{hint}; "
            "nothing was imported"
        )
    files = _message_files(folder, messages, aliases, report) if messages.is_dir() else ()
    return SourceFolder(root, folder.agents, tuple(files))


def _agent_files(root: Path, report: ImportReport) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        report.fail(os.path.relpath(error.filename, root), error)

    for above, folders, files in os.walk(root, onerror=fail):
        # In place: `os.walk` then does not enter the folders that were removed.
        folders[:] = [name for name in folders if name not in _NOT_SEARCHED]
        if AGENT_FILE in files:
            yield Path(above) / AGENT_FILE


def _add_agent(folder: SourceFolder, path: Path, aliases: dict[str, list[str]], report: ImportReport) -> None:
    found = _read_config_file(folder, path, path.parent.resolve().name, AGENT, report)
    if found is None:
        return
    agent = folder.agents.setdefault(found.id, SourceAgent(id=found.id))
    aliases.setdefault(path.parent.resolve().name, []).append(found.id)
    agent.subscriptions += found.subscriptions
    # Several files may be of one agent, for instance of copies of its folder: the first one counts.
    agent.auto_run = found.auto_run if agent.auto_run is None else agent.auto_run
    try:
        names = sorted(os.listdir(path.parent / "sessions"))  # noqa: PTH208 - only names are needed
    # An agent without sessions has no such folder.
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        report.fail(folder.shown(path.parent / "sessions"), error)
        return
    for name in names:
        if name.endswith(".json"):
            session_path = path.parent / "sessions" / name
            session = _read_config_file(folder, session_path, name.removesuffix(".json"), "session", report)
            if session is not None:
                agent.sessions.setdefault(session.id, session)


def _read_config_file(
    folder: SourceFolder, path: Path, id: str, kind: str, report: ImportReport
) -> SourceFile | None:
    name = folder.shown(path)
    try:
        with _open_file(path) as file:
            content = file.read(_LIMIT_FILE_BYTES + 1)
        if len(content) > _LIMIT_FILE_BYTES:
            raise BadRequest(f"it is larger than {_LIMIT_FILE_BYTES} bytes")
        found = parse_config(content.removeprefix(_MARK), os.fsencode(id).decode("utf-8", "replace"))
    except OSError as error:
        report.fail(name, error)
        return None
    except BadRequest as error:
        report.skip(name, 0, str(error))
        return None
    for sentence in found.wrong:
        report.skip(name, 0, sentence)
    report.ignored.update(f"{key} (of {kind}s)" for key in found.unknown - _EXPECTED)
    return found


_EXPECTED: Final = frozenset({"isDefault"})
"""Keys that need no mention: the default session is `main` in both."""


def _message_files(
    folder: SourceFolder, messages: Path, aliases: Mapping[str, Sequence[str]], report: ImportReport
) -> Iterator[MessageFile]:
    """Yield the files of messages, and add the agents and sessions that have no file but messages."""
    try:
        names = sorted(os.listdir(messages))  # noqa: PTH208 - only names are needed
    except OSError as error:
        report.fail(MESSAGES, error)
        return
    agents = folder.agents
    stems: dict[str, Path] = {}
    for name in names:
        # The name of a file may have bytes that are not UTF-8, and an id must be valid text.
        stem = os.fsencode(name).decode("utf-8", "replace").removesuffix(".jsonl")
        if name.endswith(".jsonl") and _STEM.fullmatch(stem):
            stems[stem] = messages / name
        else:
            report.skip(folder.shown(messages / name), 0, "it is not a file of messages")

    def known(id: str) -> str:
        """Return the id of an agent whose folder has another name than its file says."""
        others = aliases.get(id, ())
        return others[0] if id not in agents and len(others) == 1 else id

    # Files of sessions come last in the order of names: an id may contain `--`, and all agents are known.
    for stem, path in stems.items():
        kind, _, rest = stem.partition("--")
        if not rest:
            yield MessageFile(path=path)
        elif kind == AGENT:
            agent = agents.setdefault(known(rest), SourceAgent(id=known(rest)))
            yield MessageFile(path=path, agent=agent.id)
        else:
            sessions = {id: agents[known(id)].sessions for id in (*agents, *aliases) if known(id) in agents}
            split = split_stem(rest, sessions)
            if split is None:
                report.skip(folder.shown(path), 0, "its name has no agent or no session")
                continue
            agent = agents.setdefault(known(split[0]), SourceAgent(id=known(split[0])))
            agent.sessions.setdefault(split[1], SourceFile(id=split[1]))
            yield MessageFile(path=path, agent=agent.id, session=split[1])


def _open_file(path: Path) -> IO[bytes]:
    """Open a regular file. Anything else, such as a pipe, is an OSError and does not block."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(number, "rb")
    if not stat.S_ISREG(os.fstat(number).st_mode):
        file.close()
        raise OSError(0, "it is not a file")
    return file


def numbered_lines(
    file: IO[bytes], limit_bytes: int = LIMIT_LINE_BYTES
) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line with its number, and None for one that is too long. Blank lines are left out."""
    for number in count(1):
        line = file.readline(limit_bytes + 1)
        if not line:
            return
        is_long = len(line) > limit_bytes
        while is_long and line and not line.endswith(b"\n"):
            line = file.readline(limit_bytes)
        if is_long:
            yield number, None
        elif line.strip():
            yield number, line.removeprefix(_MARK) if number == 1 else line


# --------------------
# Collect the copies of each message from all files, in a temporary database: memory stays small.

_SPOOL: Final = """
CREATE TABLE message (
    n INTEGER PRIMARY KEY, sender TEXT, id TEXT, ts INTEGER, body BLOB, UNIQUE (sender, id)
);
CREATE TABLE copy (
    n INTEGER, mailbox TEXT, taken INTEGER, handled TEXT, PRIMARY KEY (n, mailbox)
) WITHOUT ROWID;
"""
_IN_ORDER: Final = """
SELECT n, sender, id, ts, body, mailbox, taken, handled
FROM message LEFT JOIN copy USING (n) ORDER BY ts, n, mailbox
"""


class _SpooledBody(msgspec.Struct, frozen=True):
    path: str
    content: Content


_read_body: Final = msgspec.json.Decoder(_SpooledBody).decode


class Spool:
    """All messages of the folder, each once, with its copies."""

    def __init__(self) -> None:
        # Without a name it is a file in the system's folder for temporary files, which SQLite removes.
        self._database = sqlite3.connect("", isolation_level=None)
        # Nothing here must survive a crash: the next run reads the files again. Without a journal it is
        # faster.
        self._database.executescript(f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {_SPOOL} BEGIN")

    def close(self) -> None:
        self._database.close()

    def add(self, copy: SourceCopy, sender: str, path: str, mailbox: str, handled: Sequence[str]) -> None:
        """Add one copy, as it is named here; without a mailbox it is a message that no one has.

        Of several copies in one mailbox, one that was taken counts.
        """
        body = _encode(_SpooledBody(path, copy.content))
        # A message is in the file of each of its mailboxes. It is stored once, and each mailbox adds a copy
        # below.
        self._database.execute(
            "INSERT OR IGNORE INTO message (sender, id, ts, body) VALUES (?, ?, ?, ?)",
            (sender, copy.id, copy.ts, body),
        )
        if mailbox:
            self._database.execute(
                "INSERT INTO copy SELECT n, ?, ?, ? FROM message WHERE sender = ? AND id = ? "
                "ON CONFLICT DO UPDATE SET taken = max(taken, excluded.taken), "
                "handled = CASE WHEN handled = '' THEN excluded.handled ELSE handled END",
                (mailbox, copy.is_taken, " ".join(handled), sender, copy.id),
            )

    def count(self) -> int:
        """Return the number of messages."""
        found: int = self._database.execute("SELECT count(*) FROM message").fetchone()[0]
        return found

    def messages(self) -> Iterator[MigratedMessage]:
        """Yield all messages by their time, each with all its copies, sessions first."""
        rows = self._database.execute(_IN_ORDER)
        for _, group in groupby(rows, key=lambda row: row[0]):
            copies = list(group)
            _, sender, id, ts, body, *_ = copies[0]
            read = _read_body(body)
            boxes = [(box, bool(taken), handled) for *_, box, taken, handled in copies if box is not None]
            boxes.sort(key=lambda one: PLUS not in one[0])
            yield MigratedMessage(
                id=id,
                sender=sender,
                path=read.path,
                ts=ts,
                command=read.content.command,
                payload=read.content.payload,
                source=read.content.source,
                external_id=read.content.external_id,
                mailboxes=tuple(box for box, _, _ in boxes),
                taken=tuple(box for box, is_taken, _ in boxes if is_taken),
                handled={box: tuple(handled.split()) for box, _, handled in boxes if handled},
            )


# --------------------
# The import: names, messages, requests.

_AT_ONCE: Final = 200
_AT_ONCE_BYTES: Final = 200_000
"""Parts of one request. The daemon serves others between two requests."""


class AsksBus(Protocol):
    """The part of a connection that the import needs."""

    def ask(self, request: MigrateOp) -> Awaitable[msgspec.Raw]: ...


_read_result: Final = msgspec.json.Decoder(MigrationResult).decode


class Progress:
    """A line on a terminal that says how far the import is; nothing where there is no terminal."""

    def __init__(self, out: IO[str] | None) -> None:
        self._out = out
        self._next_s = 0.0

    def show(self, text: str) -> None:
        """Show a text, at most ten times a second."""
        if self._out is not None and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + 0.1
            self._out.write(f"\r\x1b[K{safe(text)}")
            self._out.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._out is not None and self._next_s:
            self._out.write("\r\x1b[K")
            self._out.flush()


class FolderImport:
    """One import. Nothing is sent before all files are read."""

    def __init__(self, folder: SourceFolder, report: ImportReport, progress: Progress, now_ms: int) -> None:
        self._folder = folder
        self._report = report
        self._progress = progress
        self._now_ms = now_ms
        self._names = agent_names(folder.agents)
        self._sessions = {id: session_ids(agent.sessions) for id, agent in folder.agents.items()}
        self._times: dict[tuple[str, str], tuple[int, int]] = {}
        """The first and the last time in the messages of each session."""
        for id, name in self._names.items():
            report.rename(AGENT, id, name)
            for old, new in self._sessions[id].items():
                report.rename(f"session of {name}", old, new)

    def read_messages(self, spool: Spool) -> None:
        """Read all messages."""
        for file in self._folder.files:
            name = self._folder.shown(file.path)
            try:
                with _open_file(file.path) as opened:
                    for number, line in numbered_lines(opened):
                        self._progress.show(f"reading {name}, line {number}")
                        self._read_line(spool, file, name, number, line)
            except OSError as error:
                self._report.fail(name, error)

    def _read_line(self, spool: Spool, file: MessageFile, name: str, number: int, line: bytes | None) -> None:
        try:
            if line is None:
                raise BadRequest(f"it is longer than {LIMIT_LINE_BYTES} bytes")
            copy = parse_copy(line)
            path = renamed_path(copy.path, self._names)
        except PalaverError as error:
            self._report.skip(name, number, str(error))
            return
        self._report.ignored.update(f"{key} (of messages)" for key in copy.unknown)
        self._report.counts["untimed"] += not copy.ts
        sender = self._names.get(copy.sender) or normal_sender(copy.sender)
        self._report.rename(_SENDER, copy.sender, sender)
        if not file.agent:
            spool.add(copy, sender, path, "", ())
            return
        session = self._sessions[file.agent][file.session] if file.session else ""
        if session and copy.ts:
            first, last = self._times.get((file.agent, file.session), (copy.ts, copy.ts))
            self._times[file.agent, file.session] = min(first, copy.ts), max(last, copy.ts)
        mailbox = mailbox_of(self._names[file.agent], session)
        spool.add(copy, sender, path, mailbox, () if session else self._handlers(file.agent, copy))

    def _handlers(self, agent: str, copy: SourceCopy) -> list[str]:
        """Return the sessions of an agent that its copy names as those that handled it."""
        if not copy.is_handled:
            return []
        known = self._sessions[agent]
        ids = [session for owner, session in copy.handled_by if owner == agent]
        return [known.get(id) or normal_session(id) for id in ids]

    def requests(self, spool: Spool) -> Iterator[MigrateOp]:
        """Yield everything as requests of a limited size, in the order in which it must be stored."""
        for names in _batches(self._names.values()):
            yield MigrateOp(agents=tuple(names))
        for sessions in _batches(self._migrated_sessions()):
            yield MigrateOp(sessions=tuple(sessions))
        for subscriptions in _batches(self._migrated_subscriptions()):
            yield MigrateOp(subscriptions=tuple(subscriptions))
        for messages in _batches(spool.messages()):
            yield MigrateOp(messages=tuple(messages))
        for auto_runs in _batches(self._migrated_auto_runs()):
            yield MigrateOp(auto_runs=tuple(auto_runs))

    def _migrated_sessions(self) -> Iterator[MigratedSession]:
        for id, agent in self._folder.agents.items():
            for session, file in agent.sessions.items():
                first, last = self._times.get((id, session), (self._now_ms, self._now_ms))
                created = file.created or first
                yield MigratedSession(
                    agent=self._names[id],
                    session=self._sessions[id][session],
                    title=file.title,
                    created=created,
                    used=max(created, file.used or last),
                )

    def _migrated_subscriptions(self) -> Iterator[MigratedSubscription]:
        for id, agent in self._folder.agents.items():
            yield from self._of(id, "", agent.subscriptions)
            for session, file in agent.sessions.items():
                yield from self._of(id, self._sessions[id][session], file.subscriptions)

    def _of(
        self, id: str, session: str, found: Sequence[SourceSubscription]
    ) -> Iterator[MigratedSubscription]:
        for one in found:
            yield MigratedSubscription(
                agent=self._names[id],
                pattern=renamed_path(one.pattern, self._names),
                session=session,
                added=one.added or self._now_ms,
            )

    def _migrated_auto_runs(self) -> Iterator[MigratedAutoRun]:
        for id, agent in self._folder.agents.items():
            if agent.auto_run is not None:
                yield MigratedAutoRun(agent=self._names[id], value=agent.auto_run)
            for session, file in agent.sessions.items():
                if file.auto_run is not None:
                    name = self._sessions[id][session]
                    yield MigratedAutoRun(agent=self._names[id], session=name, value=file.auto_run)

    async def send(self, bus: AsksBus, spool: Spool) -> None:
        """Store everything. A request whose reply was lost is repeated, and changes nothing then."""
        done, total = 0, spool.count()
        for request in self.requests(spool):
            self._report.add(_read_result(await bus.ask(request)))
            done += len(request.messages)
            self._progress.show(f"stored {done} of {total} messages")


_Part = TypeVar("_Part")


def _batches(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Yield the parts in lists that are small enough for one request."""
    batch: list[_Part] = []
    size_bytes = 0
    for part in parts:
        part_bytes = len(_encode(part))
        if batch and (len(batch) >= _AT_ONCE or size_bytes + part_bytes > _AT_ONCE_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(part)
        size_bytes += part_bytes
    if batch:
        yield batch


def import_folder(home: str, folder: Path, *, is_json: bool, is_dry_run: bool) -> int:
    """Import a folder and print what was done. Return the exit status; raises the refusals of the bus."""
    report = ImportReport()
    progress = Progress(sys.stderr if sys.stderr.isatty() and not is_json else None)
    with closing(Spool()) as spool:
        try:
            source = read_folder(folder, report)
            work = FolderImport(source, report, progress, time.time_ns() // 1_000_000)
            work.read_messages(spool)
            if is_dry_run:
                for request in work.requests(spool):
                    report.add(_found(request))
            else:
                asyncio.run(_send(home, work, spool))
        except sqlite3.Error as error:
            raise Unavailable(
                f"the temporary file of the import cannot be used: {error}; set TMPDIR to a folder with more "
                "space, and run this again"
            ) from error
        finally:
            progress.end()
    if is_json:
        sys.stdout.write(f"{json.dumps(report_view(report, is_dry_run=is_dry_run))}\n")
    else:
        sys.stdout.write("".join(f"{safe(line)}\n" for line in report_lines(report, is_dry_run=is_dry_run)))
        sys.stdout.flush()
        sys.stderr.write("".join(f"pal: {safe(line)}\n" for line in warning_lines(report)))
    return 0 if report.is_complete else 1


async def _send(home: str, work: FolderImport, spool: Spool) -> None:
    async with Plain(home) as bus:
        await work.send(bus, spool)


def _found(request: MigrateOp) -> MigrationResult:
    """Return the result that a request would have in an empty home."""
    dead = sum(not one.mailboxes for one in request.messages)
    return MigrationResult(
        agents=len(request.agents),
        sessions=len(request.sessions),
        subscriptions=len(request.subscriptions),
        messages=len(request.messages) - dead,
        dead=dead,
        auto_runs=len(request.auto_runs),
    )


# --------------------
# The report, for programs and for people. Pure.


def report_view(report: ImportReport, *, is_dry_run: bool) -> dict[str, object]:
    """Return the report as one object of JSON."""
    view: dict[str, object] = {"dry_run": is_dry_run}
    view |= {name: report.counts[name] for name in (*_COUNTED, "untimed")}
    skipped = [msgspec.to_builtins(one) for one in report.first_skipped]
    renamed = [
        msgspec.to_builtins(RenamedId(kind=kind, old=old, new=new))
        for (kind, old), new in report.renamed.items()
    ]
    return {
        **view,
        "skipped": report.skipped,
        "first_skipped": skipped,
        "unreadable": [msgspec.to_builtins(one) for one in report.unreadable],
        "renamed": renamed,
        "ignored": dict(report.ignored),
        "different": report.counts["different"],
        "first_different": report.different,
    }


def report_lines(report: ImportReport, *, is_dry_run: bool) -> Iterator[str]:
    """Yield what was done, as lines for people."""
    counts = report.counts
    parts = [
        _number(counts["agents"], "agent"),
        _number(counts["sessions"], "session"),
        _number(counts["subscriptions"], "subscription"),
        _number(counts["messages"], "message"),
    ]
    dead = _number(counts["dead"], "dead letter")
    if is_dry_run:
        yield f"found {', '.join(parts)} and {dead}; nothing was imported"
    else:
        were = "message was" if counts["known"] == 1 else "messages were"
        yield f"imported {', '.join(parts)} and {dead}; {counts['known']} {were} here already"
    if counts["auto_runs"]:
        whose = _number(counts["auto_runs"], "agent or session", "agents and sessions")
        yield f"automatic turns: the configuration of {whose}; 'pal turn list' shows them"
    if counts["taken"]:
        yield f"{_number(counts['taken'], 'copy', 'copies')} that waited here had been received there since"
    for (kind, old), new in report.renamed.items():
        yield f"renamed the {kind} {old!r}: {new}"


def warning_lines(report: ImportReport) -> Iterator[str]:
    """Yield what was left out, as lines for people."""
    counts = report.counts
    for one in report.unreadable:
        yield f"{one.file} cannot be read: {one.reason}"
    if report.skipped:
        yield f"skipped {_number(report.skipped, 'line or part', 'lines and parts')}:"
    for one in report.first_skipped:
        location = f"{one.file}, line {one.line}: " if one.line else f"{one.file}: " if one.file else ""
        yield f"  {location}{one.reason}"
    if report.skipped > len(report.first_skipped):
        yield f"  and {report.skipped - len(report.first_skipped)} more"
    if counts["different"]:
        ids = ", ".join(report.different)
        yield (
            f"{_number(counts['different'], 'message')} not imported, because another message here has the "
            f"same sender and id: {ids}"
        )
    if counts["untimed"]:
        yield f"{_number(counts['untimed'], 'line')} had no usable time; the time of the message is 0"
    for key, times in sorted(report.ignored.items()):
        yield f"not imported: the field {key}, found {_number(times, 'time')}"


def _number(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
