"""`pal doctor --repair` and `pal backup`, in the client's own process and with its own rights."""

import asyncio
import contextlib
import fcntl
import json
import os
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from palaver.clock import SystemClock
from palaver.errors import PalaverError, StorageFailed
from palaver.log.fold import apply
from palaver.log.repair import Repaired, repair
from palaver.log.storage import FILE_NAME, connect_reader, copy_database, failure_from, sync

_ALSO = ("blobs", "archive", "config.toml", "consumers", "tokens.json", "log.seq")
"""Files of a backup in addition to the log, in this order: an event leaves the log after it is archived."""


def repair_home(home: Path, *, is_json: bool) -> int:
    """Rebuild a damaged log while no daemon runs, and print the result."""
    try:
        with _locked(home):
            done = asyncio.run(repair(home, apply=apply, clock=SystemClock()))
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
    try:
        if not target.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {target.parent}: make it first")
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder: name a file in it")
        if target.exists() and not may_replace:
            raise FileExistsError(f"{target} is there already; --yes replaces it")
        size = _write_backup(home, target)
    except (PalaverError, OSError, sqlite3.Error, tarfile.TarError) as error:
        return _refuse(error, is_json=is_json)
    if is_json:
        sys.stdout.write(json.dumps({"file": str(target), "bytes": size}) + "\n")
    else:
        sys.stdout.write(f"wrote {target} ({size} bytes); docs/log.md says how to restore it\n")
    return 0


def _write_backup(home: Path, target: Path) -> int:
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        copy = Path(folder) / FILE_NAME
        with contextlib.closing(connect_reader(home / FILE_NAME)) as source:
            copy_database(source, copy, _show_progress if sys.stderr.isatty() else None)
        beside = Path(folder) / "backup"
        beside.touch(mode=0o600)
        is_gzip = target.suffix in (".gz", ".tgz")
        with tarfile.open(beside, "w:gz" if is_gzip else "w") as tar:
            tar.add(copy, FILE_NAME)
            for name in _ALSO:
                if (home / name).exists():
                    tar.add(home / name, name)
        sync(beside)
        beside.replace(target)
    sync(target.parent)
    return target.stat().st_size


def _show_progress(_: int, remaining: int, total: int) -> None:
    done = 100 if not total else 100 * (total - remaining) // total
    sys.stderr.write(f"\rcopying the log: {done} %" + ("\n" if not remaining else ""))


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the lock of a home, so that no daemon runs or starts."""
    if not home.is_dir():
        raise StorageFailed(f"{home} is not a home of a bus: there is nothing to repair")
    lock = os.open(home / "daemon.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StorageFailed(
            "the bus or another repair is running: stop the bus with 'pal down', or wait for the other repair"
        ) from None
    finally:
        os.close(lock)


def _sentences(done: Repaired, archive: Path) -> list[str]:
    if done.is_whole:
        return [f"the log is whole: {_events(done.events)}; the state was rebuilt from them"]
    missing = f", {done.missing} missing" if done.missing else ", none missing"
    lines = [f"the log is rebuilt: {_events(done.events)}{missing}; the damaged files are in {done.kept}"]
    for name, count in done.lost.items():
        be = "is" if count == 1 else "are"
        lines.append(f"{_events(count)} of {archive / name} could not be read and {be} lost")
    if done.unfiled:
        be = "event is" if done.unfiled == 1 else "events are"
        lines.append(
            f"{done.unfiled} archived {be} in no file of {archive}: "
            "if you have a copy of the missing file, put it back and repair again"
        )
    return lines


def _events(count: int) -> str:
    return f"{count} event{'' if count == 1 else 's'}"


def _refuse(error: BaseException, *, is_json: bool) -> int:
    failure = failure_from(error)
    sentence = str(failure if isinstance(error, (PalaverError, sqlite3.Error)) else error)
    if is_json:
        sys.stderr.write(json.dumps({"error": failure.code, "message": sentence}) + "\n")
    else:
        sys.stderr.write(f"pal: {sentence}\n")
    return 1
