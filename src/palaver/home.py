"""The home of a daemon: its sockets, its lock and its files: settings, secrets, traces, messages and the log.

Clients, holders and the daemon load it when they start: slow imports are inside functions.
"""

import errno
import fcntl
import glob
import json
import logging
import os
import re
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from palaver.errors import StorageFailed

if TYPE_CHECKING:  # the start of a harness waits for this module, and needs no settings
    from palaver.config import Settings

_logger: Final = logging.getLogger("palaver")


# --------------------
# The sockets of a home, at any length of their path.

_LIMIT_SOCKET_PATH: Final = 100
"""Bytes of a path that every system accepts as the address of a socket: Linux has room for 107, macOS for
103."""
SHORT_PREFIX: Final = "/proc/self/fd/" if sys.platform == "linux" else "/tmp/pal-"  # noqa: S108 - a name is made below it
"""The start of the short path that replaces a path too long for a socket address."""


def connect_socket(path: Path, *, can_wait: bool = True) -> socket.socket:
    """Connect to a socket in a home, at any path length. Raises OSError if no process listens there.

    With `can_wait` false it raises BlockingIOError if the listener has too many callers already, and the
    connection is non-blocking.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Before `connect`, which itself waits while the listener has too many callers.
    connection.setblocking(can_wait)
    try:
        at_short_path(path, connection.connect)
    except BaseException:
        # Also after an interrupt: the caller has no socket that it could close.
        connection.close()
        raise
    return connection


def is_address(path: Path) -> bool:
    """Whether every system accepts a path as the address of a socket."""
    return len(os.fsencode(path)) <= _LIMIT_SOCKET_PATH


def at_short_path(path: Path, use: Callable[[str], None]) -> None:
    """Call `use` with the path of a socket, or with a short path to it if the system would not accept it.

    The short path is valid only during the call.
    """
    if is_address(path):
        use(str(path))
    elif sys.platform == "linux":
        # The path goes through our own descriptor of the folder, so it is short and needs no file elsewhere.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            use(f"{SHORT_PREFIX}{folder}/{path.name}")
        finally:
            os.close(folder)
    else:  # pragma: no cover - macOS
        import tempfile  # slow to import

        # There is no such path on macOS. A link in a private folder replaces it, always in /tmp, because the
        # default folder for temporary files there has a long path too.
        with tempfile.TemporaryDirectory(prefix="pal-", dir="/tmp") as private:
            link = Path(private) / "a"
            link.symlink_to(path.parent)
            use(str(link / path.name))


# --------------------
# Files in general: replaced as a whole, and durable.


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically and durably. Raises OSError.

    After a failure or crash, the old or the new content is there, complete.
    """
    # In the same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        # Private from the start: the content may be a secret, and `mode` is set only when it is complete.
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)
            file.flush()
            # Before the rename: otherwise the new name could survive a power cut without its content.
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
        # The new name is in the folder: without this, a power cut could bring back the old file.
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)  # after a rename there is nothing to remove


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_id(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at a path, independent of its name; None if there is no file."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_at(path: Path, file: tuple[int, int] | None) -> bool:
    """Return whether the file with this identity is at a path. None, an unknown file, is never there."""
    return file is not None and file_id(path) == file


_SECRET_BYTES: Final = 32


def read_secret(path: Path) -> bytes:
    """Return the secret in a file; create one of random bytes if there is no file.

    A file of another length is damaged and replaced. For one process: only the daemon that has the lock of
    the home may call it, because two callers could replace each other's secret.
    """
    with suppress(FileNotFoundError):
        if len(known := path.read_bytes()) == _SECRET_BYTES:
            return known
    secret = os.urandom(_SECRET_BYTES)
    replace_file(path, secret)
    return secret


# --------------------
# The settings file as bytes. `config.py` reads settings from them.

_SETTINGS_FILE: Final = "config.toml"
"""Equal to `SETTINGS_FILE` of the settings, which this module does not load."""


def read_settings_file(home: Path) -> bytes:
    """Return the content of the settings file; empty if there is no file. Raises StorageFailed."""
    path = home / _SETTINGS_FILE
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageFailed(f"{path} cannot be read: {error.strerror}") from error


def write_settings_file(home: Path, content: bytes) -> None:
    """Replace the settings file with new content, readable only by its owner.

    The content is synced, then the file is replaced atomically: a reader sees the old file or the new one.
    A symbolic link stays a link. Raises StorageFailed, and then nothing was changed.
    """
    path = (home / _SETTINGS_FILE).resolve()
    try:
        replace_file(path, content)
    except OSError as error:
        raise StorageFailed(f"{path} cannot be written: {error.strerror}; nothing was changed") from error


# --------------------
# The folder of a home: its rights and its file system.

_FOR_OTHERS: Final = 0o077
"""Mode bits: any right of the group or of others."""
_WRITTEN_BY_OTHERS: Final = 0o022
"""Mode bits: the right of the group or of others to write."""
_OF_A_HOME: Final = frozenset({_SETTINGS_FILE, "log.sqlite"})
"""A folder with one of these files is a home."""
_MADE_BEFORE: Final = frozenset({"start.lock", "daemon.log"})
"""Files that the starting process may leave in an empty folder before it is a home."""
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "afpfs", "9p"}
)


def prepare_home(home: Path) -> Path:
    """Create the home, for its owner only; refuse one where locks do not work, or that others may write.

    Raises OSError with a sentence.
    """
    home = home.absolute()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(home)) from error
    # Locks of files may be local to one machine there, so that two daemons could write the same log.
    kind = file_system_of(home)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise OSError(f"{home} is on a network file system ({kind}): choose another home with PALAVER_HOME")
    _keep_to_its_owner(home)
    return home


def _keep_to_its_owner(home: Path) -> None:
    """Remove the rights of others from a folder that is a home, or will be one.

    Any other folder is left alone, and refused with OSError if others may write in it.
    """
    found = home.stat()
    if not found.st_mode & _FOR_OTHERS:
        return
    files = {file.name for file in home.iterdir()}
    # PALAVER_HOME may name any existing folder, whose rights are the user's choice: only a home is changed.
    is_a_home = not files.isdisjoint(_OF_A_HOME) or files <= _MADE_BEFORE
    if is_a_home and found.st_uid == os.geteuid():
        home.chmod(0o700)
    elif found.st_mode & _WRITTEN_BY_OTHERS:
        raise OSError(
            f"other users can write to {home}: 'chmod 700' it, or choose another home with PALAVER_HOME"
        )


def file_system_of(path: Path) -> str:
    """Return the type of the file system a path is on; empty if unknown."""
    try:
        table = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return ""
    kinds: dict[str, str] = {}
    # A folder's name can be any bytes, and one that is not UTF-8 must not prevent the start of the daemon.
    # `splitlines` would also end a line at signs that a name may contain.
    for line in os.fsdecode(table).rstrip("\n").split("\n"):
        # The number of optional fields before this sign varies, so the type is found after it. Signs in a
        # path are no danger: its blanks are escaped.
        before, _, after = line.partition(" - ")
        # A later line for the same folder is a mount on top of the earlier one, and hides it.
        kinds[_unescaped(before.split(" ")[4])] = after.split(" ")[0]
    resolved = path.resolve()
    return next((kinds[str(one)] for one in (resolved, *resolved.parents) if str(one) in kinds), "")


def _unescaped(path: str) -> str:
    """Return a path of `mountinfo`, in which the kernel writes a blank as `\\040`, as it really is."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


# --------------------
# The start and the end of a daemon: its lock, its successor, its report.

_LOCK_WAIT_S: Final = 10.0
"""Seconds that a starting daemon waits for one that is stopping."""
_LOCK_POLL_S: Final = 0.02
"""Seconds between two tries to take a lock that another process has."""
_SUCCESSOR_WAIT_S: Final = 1.0
"""Seconds that a replaced daemon waits for the newer client to start its own."""


def find_pal() -> str:
    """Return the full path of the `pal` of this installation, or its name if there is no such file."""
    near = Path(sys.executable).with_name("pal")
    return str(near) if os.access(near, os.X_OK) else shutil.which("pal") or "pal"


class StartReport:
    """Reports once how the start of a daemon went: `ok`, or a sentence.

    The client that started it reads the report from a descriptor. In the foreground a person reads it.
    """

    def __init__(self, descriptor: int | None, *, is_foreground: bool) -> None:
        self._descriptor = descriptor
        self._is_foreground = is_foreground

    def say(self, report: str) -> None:
        """Report to the client or person. Only the first report reaches a client."""
        if self._descriptor is not None:
            # The client may have given up and closed its end. The daemon runs on for the others.
            with suppress(OSError):
                os.write(self._descriptor, f"{report}\n".encode())
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
        elif self._is_foreground and report != "ok":
            sys.stderr.write(f"pal: {report}\n")


class UpgradeMark:
    """Says how far the upgrade of a log is, to clients that wait for the daemon: the file `upgrading`.

    It contains the process id of the daemon, the number of events that are done, and that of all.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / "upgrading"
        self._shown = -1

    def write(self, done: int, total: int) -> None:
        """Write the numbers, if they are another percentage than before. A full disk is ignored."""
        # Called for every step of the upgrade: only a change that a person can see is worth a write.
        percent = 100 * done // total if total else 0
        if percent == self._shown:
            return
        self._shown = percent
        # Clients read it at any time, and must never see half a line.
        new = self._path.with_suffix(".new")
        with suppress(OSError):
            new.write_text(f"{os.getpid()} {done} {total}\n", encoding="ascii")
            new.replace(self._path)

    def remove(self) -> None:
        """Remove the file. It may also be that of a daemon that was killed."""
        with suppress(OSError):
            self._path.unlink()


def lock_home(home: Path, is_listening: Callable[[], bool]) -> TextIO | None:
    """Take the lock of a home, waiting for a daemon that is stopping; None if one keeps running.

    The lock is held until the file is closed or the process ends, however it ends.
    """
    # Closed in child processes: a child that has it open would keep the lock after the daemon has ended.
    handle = os.open(home / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    lock = os.fdopen(handle, "r+", encoding="ascii")
    end = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A daemon that is stopping closes its sockets first, so one that listens is not stopping.
            if time.monotonic() > end or is_listening():
                lock.close()
                return None
            time.sleep(_LOCK_POLL_S)
        else:
            # Overwrite, then truncate: a full disk has no room for a new block. The process id is only for
            # readers, so the lock is good without it.
            pid = f"{os.getpid()}\n".encode()
            with suppress(OSError):
                os.pwrite(lock.fileno(), pid, 0)
                os.ftruncate(lock.fileno(), len(pid))
            return lock


async def wait_for_successor(home: Path) -> None:
    """Wait until the newer client starts its own daemon, so that disconnected clients start no older one.

    The newer client holds `start.lock` while it starts its daemon, which then waits for this daemon's lock.
    If no client comes within a second, the daemon ends anyway.
    """
    import asyncio  # the client needs the rest of this module but not asyncio, which is slow to load

    # A lock that is taken already ends the wait: that is the newer client.
    with suppress(TimeoutError, BlockingIOError), (home / "start.lock").open("a") as lock:
        async with asyncio.timeout(_SUCCESSOR_WAIT_S):
            while True:
                # Shared and released at once, so that this check delays the client by one try at most.
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(lock, fcntl.LOCK_UN)
                await asyncio.sleep(_LOCK_POLL_S)


def lift_stop(home: Path) -> None:
    """Remove the file that says that the bus was stopped on purpose. Call it only in a daemon."""
    with suppress(OSError):
        (home / "down").unlink()


# --------------------
# The limit of open files.

_MANY_FILES: Final = 65_536
"""Open files that a daemon may have, unless the system allows fewer."""
_RESERVED_FILES: Final = 64
"""Descriptors that are kept free: see `first_reserved_file`."""


def allow_many_files() -> None:
    """Raise the limit of open files: every caller needs one or two, and the default is made for a shell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MANY_FILES if hard == resource.RLIM_INFINITY else min(_MANY_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # A daemon with the lower limit still works, for fewer callers.
        # Python reports EINVAL as a ValueError, for example for a number above another limit of the system.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def first_reserved_file() -> int:
    """Return the number of the first descriptor in the reserve. The limit does not change after the start.

    The system always assigns the lowest free number. So a new descriptor with this number or a higher one
    shows that only the reserve is left. The reserve is for refusing callers with a sentence, and for the
    daemon's own files.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A quarter at most: with a low limit, the whole reserve would leave few descriptors for callers.
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft - min(_RESERVED_FILES, soft // 4)


# --------------------
# Traces of messages, for `pal trace`.

_LIMIT_DETAIL: Final = 500
"""Characters of a detail in a trace: a line stays short."""
_LIMIT_TRACES: Final = 200
"""Trace files in a home."""
LIMIT_DAEMON_TRACE_BYTES: Final = 2 * 1024 * 1024
LIMIT_HOLDER_TRACE_BYTES: Final = 256 * 1024
"""Each of the two files has room for about 20,000 steps of all agents, or 2,500 steps of one holder."""


class TraceFile:
    """Steps of messages as JSON lines, for `pal trace`. Above its limit a file is renamed to `<file>.1`.

    Each line is written at once, so that it outlives its writer. A line that cannot be written is left out: a
    trace stops nothing. One process writes to a file.
    """

    def __init__(self, path: Path, limit_bytes: int, now_ms: Callable[[], int]) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._now_ms = now_ms
        self._descriptor: int | None = None
        self._size_bytes = 0

    def note(self, agent: str, seqs: Sequence[int], step: str, lane: str = "", detail: str = "") -> None:
        """Write one step of messages to an agent; without messages, a step of the agent's lanes."""
        fields = {"ts": self._now_ms(), "agent": agent, "seqs": list(seqs), "step": step, "lane": lane}
        # Each line is one write without a buffer, so that nothing is lost when the process is killed.
        line = json.dumps({**fields, "detail": detail[:_LIMIT_DETAIL]}).encode() + b"\n"
        with suppress(OSError):
            if self._descriptor is None or self._size_bytes > self._limit_bytes:
                self._open()
            assert self._descriptor is not None
            self._size_bytes += os.write(self._descriptor, line)

    def close(self) -> None:
        """Close the file. A second call does nothing; another line opens the file again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        self.close()
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        # The size of the file counts and not `_size_bytes`: a restarted writer does not know it yet.
        if self._path.exists() and self._path.stat().st_size > self._limit_bytes:
            self._path.replace(older_trace(self._path))
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size_bytes = os.fstat(self._descriptor).st_size


def trace_path(home: Path, agent: str = "") -> Path:
    """Return the trace file of an agent's holder; without a name, that of the daemon."""
    return home / "trace" / (f"{agent}.holder.jsonl" if agent else "daemon.jsonl")


def older_trace(path: Path) -> Path:
    """Return the rotated file with the older lines of a trace file."""
    return path.with_name(f"{path.name}.1")


def prune_traces(home: Path) -> None:
    """Remove the oldest trace files if there are many."""
    with suppress(OSError):
        # By the time of the last line: holders that still write keep their files.
        files = sorted((home / "trace").iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[_LIMIT_TRACES:]:
            path.unlink()


# --------------------
# The file of each message to an agent in a terminal: messages/<agent>/<YYYYMMDD-HHMMSS>-<id8>.md.
#
# Only its owner can read the file. It exists before the first key is pressed: the daemon writes it when the
# message is queued, and the holder writes it if it is missing. Nothing is removed unasked. Its content comes
# from `protocol/agent_text.py`.

_ID_END: Final = 8
"""Characters of the end of a message's id in the name of its file."""
_TIME_PATTERN: Final = "????????-??????"
"""Matches the time in the name of a message's file."""
_FOLDER_MODE: Final = 0o700


def message_path(home: str, agent: str, message_id: str, ts_ms: int) -> Path:
    """Return the default path of a message's file: the time it was sent, in UTC, and the end of its id."""
    # In UTC, because the daemon and the holder must make the same name, also with different time zones.
    sent = time.strftime("%Y%m%d-%H%M%S", time.gmtime(ts_ms // 1000))
    return Path(home) / "messages" / agent / f"{sent}-{message_id[-_ID_END:]}.md"


def write_message(home: str, agent: str, message_id: str, ts_ms: int, content: bytes) -> Path:
    """Write the file of a message atomically and return its path. Repeats have no effect.

    A message never takes the file of another one: senders may choose ids, and if the ends of two ids are
    equal, the second file is named after the whole id. Raises OSError.
    """
    # Not synced: the log has the message, and a file that a power cut damaged differs from `content`, so that
    # the next call writes the second path.
    for path in _message_paths(home, agent, message_id, ts_ms):
        if _put_message(path, content):
            return path
    raise FileExistsError(errno.EEXIST, "another file has its name", str(path))


def find_message(home: str, agent: str, message_id: str, ts_ms: int, content: bytes) -> str:
    """Return the path of a message's file; empty if there is no file with exactly this content."""
    for path in _message_paths(home, agent, message_id, ts_ms):
        try:
            if path.read_bytes() == content:
                return str(path)
        except OSError:
            continue
    return ""


def remove_message(home: str, message_id: str) -> int:
    """Remove the files of a message for all recipients; return how many there were."""
    # The file may have either name: see `write_message`.
    count = 0
    # A sender may choose the id, so signs of a pattern in it must stand for themselves.
    for end in {message_id[-_ID_END:], message_id}:
        for path in (Path(home) / "messages").glob(f"*/{_TIME_PATTERN}-{glob.escape(end)}.md"):
            path.unlink(missing_ok=True)
            count += 1
    return count


def read_message(path: str) -> bytes:
    """Return the content of a message's file; empty if it does not exist."""
    try:
        return Path(path).read_bytes() if path else b""
    except OSError:
        return b""


def _message_paths(home: str, agent: str, message_id: str, ts_ms: int) -> tuple[Path, Path]:
    """Return the possible paths of a message's file: named after the end of its id, or after the whole id."""
    path = message_path(home, agent, message_id, ts_ms)
    return path, path.with_stem(path.stem.removesuffix(message_id[-_ID_END:]) + message_id)


def _put_message(path: Path, content: bytes) -> bool:
    """Create a file unless it exists; return whether the file now has this content."""
    path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    if path.exists():
        return path.read_bytes() == content
    # Complete before it has its name: the agent may read the file as soon as it exists.
    new = path.with_name(f".{os.urandom(8).hex()}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 - a mode
            file.write(content)
        # The daemon and the holder may write it at the same time. A rename would replace the other one's
        # file.
        os.link(new, path)
    except FileExistsError:
        return path.read_bytes() == content
    finally:
        # Also after the link, because this name is then a second one of the same file.
        new.unlink(missing_ok=True)
    return True


# --------------------
# The daemon's own log file.


def log_to(home: Path, settings: "Settings", *, is_foreground: bool) -> None:
    """Log to `daemon.log`, which is rotated when it is long, or to the terminal."""
    handler: logging.Handler
    if is_foreground:
        handler = logging.StreamHandler()
    else:
        from logging.handlers import RotatingFileHandler  # slow to import

        handler = RotatingFileHandler(
            home / "daemon.log", maxBytes=settings.log_max_bytes, backupCount=1, encoding="utf-8"
        )
    handler.setFormatter(_SafeFormatter("%(asctime)s %(levelname)s %(message)s"))
    _logger.addHandler(handler)
    _logger.setLevel(settings.log_level.upper())


def set_log(settings: "Settings") -> None:
    """Use the level and the size of changed settings."""
    _logger.setLevel(settings.log_level.upper())
    for handler in _logger.handlers:
        # Only the handler of a file has it. Its class is slow to import, so it is not named here.
        if hasattr(handler, "maxBytes"):
            handler.maxBytes = settings.log_max_bytes


class _SafeFormatter(logging.Formatter):
    """Writes each record on one line, and a traceback below it. No text in them can control a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is the library's
        # Here, before a traceback is added: a line end in the message becomes an escape, and those of the
        # traceback stay line ends, at which `format` splits.
        record.message = _escape(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(_escape, super().format(record).split("\n")))


def _escape(text: str) -> str:
    """Escape control characters, line ends, and characters that change direction or have no width."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


# --------------------
# Profiles that a user wrote for programs in a terminal. `harness/programs.py` parses them.

# Every start of an agent in a terminal reads them, so their number and size are limited.
_LIMIT_PROFILES: Final = 200
_LIMIT_PROFILE_BYTES: Final = 64 * 1024


def read_profile_files(home: str) -> list[tuple[str, bytes]]:
    """Return the profile files that a user wrote, each with its name without `.toml`.

    At most 200 files are read, and of each only as much as shows that it is too large. A file that cannot be
    read is returned empty.
    """
    found = []
    # Sorted, so that the limit leaves out the same files at every start.
    for path in sorted(Path(home, "profiles").glob("*.toml"))[:_LIMIT_PROFILES]:
        try:
            with path.open("rb") as file:
                found.append((path.stem, file.read(_LIMIT_PROFILE_BYTES + 1)))
        except OSError:
            found.append((path.stem, b""))
    return found
