"""`pal doctor --repair` and `pal backup`, in the client's own process and with its own rights."""

import asyncio
import contextlib
import fcntl
import glob
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from palaver.clock import SystemClock
from palaver.errors import DiskFull, PalaverError, StorageFailed
from palaver.home import sync
from palaver.log.repair import Repaired, repair
from palaver.log.storage import FILE_NAME, connect_reader, copy_database, failure_from
from palaver.state.fold import FOLD_VERSION, apply

_SMALL = (
    "log.seq",
    "config.toml",
    "seat.key",
    "tokens.json",
    "webhooks.json",
    "consumers",
    "profiles",
    "install",
)
"""Files and folders of a backup that are read before the log: no cursor is then ahead of the events."""
_LARGE = ("blobs", "archive", "messages")
"""Folders that are read after the log, in this order: an event leaves the log after it is archived."""
# The first form is that of names by Python's module `tempfile`.
_UNFINISHED = re.compile(r"tmp[a-z0-9_]{8}$|unfinished-|\.")
"""Names of files that are being written."""


def repair_home(home: Path, *, is_json: bool) -> int:
    """Rebuild a damaged log while no daemon runs, and print the result."""
    _end_on_signals()
    try:
        with _locked(home):
            done = asyncio.run(repair(home, apply=apply, clock=SystemClock(), fold_version=FOLD_VERSION))
    except (PalaverError, OSError, sqlite3.Error) as error:
        return _refuse(error, is_json=is_json)
    kept = None if done.kept is None else str(done.kept)
    if is_json:
        view = {
            "whole": done.is_whole,
            "events": done.events,
            "missing": done.missing,
            "lost": dict(done.lost),
            "unfiled": done.unfiled,
            "damaged_files": kept,
        }
        sys.stdout.write(json.dumps(view) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _sentences(done, home / "archive")))
    return 0


def backup_home(home: Path, target: Path, *, is_json: bool, may_replace: bool) -> int:
    """Write a consistent copy of the log, with all files that belong to it, into one file."""
    _end_on_signals()
    try:
        if not target.parent.is_dir():
            raise FileNotFoundError(f"no such folder: {target.parent}; create it first")
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder; name a file in it")
        if target.exists() and not may_replace:
            raise FileExistsError(f"{target} already exists; to replace it, add --yes")
        size = _write_backup(home, target)
    except (PalaverError, OSError, sqlite3.Error, tarfile.TarError) as error:
        return _refuse(error, is_json=is_json)
    if is_json:
        sys.stdout.write(json.dumps({"file": str(target), "bytes": size}) + "\n")
    else:
        sys.stdout.write(f"wrote {target} ({size} bytes); docs/log.md says how to restore it\n")
    return 0


def _write_backup(home: Path, target: Path) -> int:
    _remove_abandoned(target)
    # Next to the target, because a rename works only inside one file system. With the process id in its name,
    # so that the next backup can tell a killed one from a running one.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.{os.getpid()}.", dir=target.parent) as folder:
        small = [(name, path.read_bytes()) for top in _SMALL for path, name in _files(home, top)]
        copy = Path(folder) / FILE_NAME
        with contextlib.closing(connect_reader(home / FILE_NAME)) as source:
            copy_database(source, copy, _show_progress if sys.stderr.isatty() else None)
        temporary = Path(folder) / "backup"
        # Created before it is written: the log must not be readable by others, whatever the umask is.
        temporary.touch(mode=0o600)
        is_gzip = target.suffix in (".gz", ".tgz")
        with tarfile.open(temporary, "w:gz" if is_gzip else "w") as tar:
            backup = _Backup(tar)
            with copy.open("rb") as file:
                backup.add(file, FILE_NAME)
            for name, content in small:
                backup.add(io.BytesIO(content), name)
            for path, name in (found for top in _LARGE for found in _files(home, top)):
                # A redaction in the meantime may have removed the file, and a backup must not bring it back.
                with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                    backup.add(file, name)
        # Its content before its name: after a power failure there is the old backup or a complete new one.
        sync(temporary)
        temporary.replace(target)
    # The new name is an entry of the folder, so it survives a power failure only after this sync.
    sync(target.parent)
    return target.stat().st_size


def _files(home: Path, top: str) -> list[tuple[Path, str]]:
    """Return the files below one name of the home, with their names in a backup.

    Sockets, locks and unfinished files are left out. A link is followed: its contents belong to the home.
    """
    path = home / top
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [
        (one, str(one.relative_to(home)))
        for one in found
        if one.is_file() and not one.name.endswith(".lock") and not _UNFINISHED.match(one.name)
    ]


class _Backup:
    """Adds files to a tar, for their owner only."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._folders: set[str] = set()

    def add(self, file: IO[bytes], name: str) -> None:
        """Add an open file, and the folders above it that are not there yet."""
        for folder in reversed([str(parent) for parent in Path(name).parents][:-1]):
            if folder not in self._folders:
                self._folders.add(folder)
                # Without an entry, a folder would get its permissions from the umask of the person who
                # unpacks the backup.
                entry = _entry(folder, 0o700)
                entry.type = tarfile.DIRTYPE
                self._tar.addfile(entry)
        entry = _entry(name, 0o600)
        entry.size = file.seek(0, os.SEEK_END)
        file.seek(0)
        self._tar.addfile(entry, file)


def _entry(name: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = mode, int(time.time())
    entry.uid, entry.gid = os.getuid(), os.getgid()
    return entry


def _remove_abandoned(target: Path) -> None:
    """Remove the folders of backups to the same file that were killed: they hold copies of the log."""
    # Escaped, because the name of the target may contain characters of a pattern.
    for folder in target.parent.glob(f".{glob.escape(target.name)}.*"):
        pid = folder.name.removeprefix(f".{target.name}.").partition(".")[0]
        if folder.is_dir() and pid.isdigit() and not _is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # It belongs to another user, so it exists.
        return True
    return True


def _show_progress(_: int, remaining: int, total: int) -> None:
    done = 100 if not total else 100 * (total - remaining) // total
    sys.stderr.write(f"\rcopying the log: {done} %" + ("\n" if not remaining else ""))


def _end_on_signals() -> None:
    """End at a signal as after a failure, so that unfinished copies are removed."""
    # A signal that is ignored already, as under nohup, stays ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the lock of a home, so that no daemon runs or starts."""
    if not home.is_dir():
        raise StorageFailed(f"{home} is not the home of a bus; there is nothing to repair")
    lock = os.open(home / "daemon.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The file contains the process id of the last daemon. Another process may have that number by now,
        # and `pal down`, which sees a locked file, would end it.
        os.ftruncate(lock, 0)
        yield
    except BlockingIOError:
        raise StorageFailed(
            "the bus or another repair is running: stop the bus with 'pal down', or wait for the other repair"
        ) from None
    finally:
        # Closing releases the lock. The file must stay: a daemon that waits for the lock has it open, and
        # another one could lock a new file of this name.
        os.close(lock)


def _sentences(done: Repaired, archive: Path) -> list[str]:
    if done.is_whole:
        return [f"the log is intact: {_events(done.events)}; the state was rebuilt from them"]
    if done.kept is None:
        be = "is" if done.missing == 1 else "are"
        return [
            f"the file of the log is intact, but {_events(done.missing)} {be} missing: the write-ahead log "
            f"was lost; the state was rebuilt from the other {_events(done.events)}"
        ]
    missing = f", {done.missing} missing" if done.missing else ", none missing"
    lines = [f"the log is rebuilt: {_events(done.events)}{missing}; the damaged files are in {done.kept}"]
    for name, count in done.lost.items():
        be = "is" if count == 1 else "are"
        lines.append(f"{_events(count)} of {archive / name} could not be read and {be} lost")
    if done.unfiled:
        be = "event is" if done.unfiled == 1 else "events are"
        lines.append(
            f"{done.unfiled} archived {be} in no file of {archive}: "
            "if you have a copy of the missing file, restore it and repair again"
        )
    return lines


def _events(count: int) -> str:
    return f"{count} event{'' if count == 1 else 's'}"


def _refuse(error: BaseException, *, is_json: bool) -> int:
    failure = failure_from(error)
    sentence = str(failure if isinstance(error, (PalaverError, sqlite3.Error)) else error)
    if isinstance(failure, DiskFull):
        sentence = f"there is no disk space left ({error}): free some space and run this again"
    if is_json:
        sys.stderr.write(json.dumps({"error": failure.code, "message": sentence}) + "\n")
    else:
        sys.stderr.write(f"pal: {sentence}\n")
    return 1
