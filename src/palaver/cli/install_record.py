"""What `pal install` has written, kept in the home of the bus: enough to put every byte back.

A harness may be set up in several folders; what was written in one is known apart from the others. Whoever
changes any of it has the lock.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from palaver.harness.merging import Made
from palaver.harness.setups import Change

_FOLDER: Final = "install"
_SKILL: Final = "skill.json"


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a harness: what was added, and what it was before."""

    path: str
    change: Change
    made: tuple[Made, ...]
    digest: str
    """Of the file as it was left."""
    backup: str = ""
    """Where it is kept as it was before; empty when it was not there."""
    folders: tuple[str, ...] = ()
    """Those that were made for it, the outermost first."""
    place: str = ""
    """The folder of the harness in which it is looked for; earlier versions did not keep it."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """All that was written for a harness, in whatever folders."""

    harness: str
    files: tuple[Written, ...]
    own: Mapping[str, str] = msgspec.field(default_factory=dict)


def digest_of(content: bytes) -> str:
    """Tell a content from any other."""
    return hashlib.sha256(content).hexdigest()


def own_folder(home: Path, harness: str) -> Path:
    """Where files are that a harness reads and that are ours alone."""
    return home / _FOLDER / harness


def read_record(home: Path, harness: str) -> Record | None:
    """Give what was written for a harness; None when nothing was. Raises OSError for what is damaged."""
    path = _record_path(home, harness)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OSError(0, f"it is damaged: {error}", str(path)) from error


def write_record(home: Path, record: Record) -> None:
    """Keep it, before anything of it is done: a process that is killed leaves what puts things back."""
    write_private(_record_path(home, record.harness), msgspec.json.encode(record))


def forget(home: Path, record: Record, gone: Sequence[Written]) -> bool:
    """Forget some of what was written, with its backups. True when nothing is left of the record."""
    left = tuple(written for written in record.files if written not in gone)
    if left:
        write_record(home, Record(harness=record.harness, files=left, own=record.own))
    else:
        _record_path(home, record.harness).unlink(missing_ok=True)
    remove_backups(gone, left)
    return not left


def remove_backups(old: Sequence[Written], kept: Sequence[Written]) -> None:
    """Remove what was kept for files that are put back, or are kept otherwise now."""
    for backup in {one.backup for one in old} - {one.backup for one in kept} - {""}:
        Path(backup).unlink(missing_ok=True)


@contextmanager
def locked(home: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Let nobody else install or uninstall meanwhile; calls `on_wait` and waits when somebody does."""
    folder = home / _FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_backup(home: Path, harness: str, path: Path, content: bytes) -> str:
    """Keep a file as it is now; gives where."""
    name = f"{harness}-{path.name}-{digest_of(bytes(path) + content)[:12]}.backup"
    kept = home / _FOLDER / name
    write_private(kept, content)
    return str(kept)


def write_private(path: Path, content: bytes) -> None:
    """Write a file of ours, whole or not at all, for its owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, content, 0o600)


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Put a file in the place of another, whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - a mode
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(mode)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def missing_folders(path: Path) -> tuple[str, ...]:
    """Give the folders that will be made for a file, the outermost first."""
    return tuple(str(folder) for folder in reversed(path.parents) if not folder.exists())


def remove_folders(folders: Sequence[str]) -> None:
    """Remove folders that were made, as far as nothing is in them."""
    for folder in reversed(folders):
        with suppress(OSError):  # somebody else's files are in it
            Path(folder).rmdir()


# The skill


def note_folders(home: Path, path: Path) -> None:
    """Keep which folders will be made for a skill, before they are."""
    known = _skill_folders(home)
    folders = sorted({*known.get(str(path), ()), *missing_folders(path)}, key=len)
    write_private(home / _FOLDER / _SKILL, msgspec.json.encode({**known, str(path): folders}))


def remove_noted_folders(home: Path, path: Path) -> None:
    """Remove the folders that were made for a skill, as far as nothing is in them, and forget them."""
    known = _skill_folders(home)
    remove_folders(known.pop(str(path), ()))
    if known:
        write_private(home / _FOLDER / _SKILL, msgspec.json.encode(known))
    else:
        (home / _FOLDER / _SKILL).unlink(missing_ok=True)


def _skill_folders(home: Path) -> dict[str, tuple[str, ...]]:
    path = home / _FOLDER / _SKILL
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[str, ...]])
    except FileNotFoundError:
        return {}
    except msgspec.DecodeError as error:
        raise OSError(0, f"it is damaged: {error}", str(path)) from error


def _record_path(home: Path, harness: str) -> Path:
    return home / _FOLDER / f"{harness}.json"
