"""The record of what `pal install` has written, in the home of the bus: enough to restore every byte.

A harness may be set up in several folders; each is recorded separately. Changing the record needs the lock.
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
from palaver.home import replace_file

_FOLDER: Final = "install"
_SKILL: Final = "skill.json"


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a harness: our additions, and its state before."""

    path: str
    change: Change
    made: tuple[Made, ...]
    digest: str
    """Of the file after the change."""
    backup: str = ""
    """The path of its backup; empty if the file did not exist."""
    folders: tuple[str, ...] = ()
    """Folders that were created for it, outermost first."""
    place: str = ""
    """The settings folder of the harness; earlier versions did not record it."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was written for a harness, in all folders."""

    harness: str
    files: tuple[Written, ...]
    own: Mapping[str, str] = msgspec.field(default_factory=dict)


def digest_of(content: bytes) -> str:
    """Return a hash that identifies a content."""
    return hashlib.sha256(content).hexdigest()


def own_folder(home: Path, harness: str) -> Path:
    """Return the folder of Palaver's files that a harness reads."""
    return home / _FOLDER / harness


def read_record(home: Path, harness: str) -> Record | None:
    """Return the record of a harness; None if nothing was written. Raises OSError if it is damaged."""
    path = _record_path(home, harness)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OSError(0, f"it is damaged: {error}", str(path)) from error


def write_record(home: Path, record: Record) -> None:
    """Store the record before anything is changed, so that an interrupted change can be undone."""
    write_private(_record_path(home, record.harness), msgspec.json.encode(record))


def forget(home: Path, record: Record, gone: Sequence[Written]) -> bool:
    """Remove files from the record, with their backups. True if the record is empty now."""
    left = tuple(written for written in record.files if written not in gone)
    if left:
        write_record(home, Record(harness=record.harness, files=left, own=record.own))
    else:
        _record_path(home, record.harness).unlink(missing_ok=True)
    remove_backups(gone, left)
    return not left


def remove_backups(old: Sequence[Written], kept: Sequence[Written]) -> None:
    """Remove backups that are not used any more."""
    for backup in {one.backup for one in old} - {one.backup for one in kept} - {""}:
        Path(backup).unlink(missing_ok=True)


@contextmanager
def locked(home: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock for installing and uninstalling; call `on_wait` first if another process has it."""
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
    """Back up a file as it is now; return the path of the backup."""
    name = f"{harness}-{path.name}-{digest_of(bytes(path) + content)[:12]}.backup"
    kept = home / _FOLDER / name
    write_private(kept, content)
    return str(kept)


def write_private(path: Path, content: bytes) -> None:
    """Write one of our files, whole or not at all, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, content, 0o600)


def missing_folders(path: Path) -> tuple[str, ...]:
    """Return the folders that will be created for a file, outermost first."""
    return tuple(str(folder) for folder in reversed(path.parents) if not folder.exists())


def remove_folders(folders: Sequence[str]) -> None:
    """Remove folders that were created, if they are empty."""
    for folder in reversed(folders):
        with suppress(OSError):  # it contains other files
            Path(folder).rmdir()


def created_folders(home: Path, harnesses: Sequence[str]) -> tuple[str, ...]:
    """Return the folders created for harnesses and the skill, outermost first. Skip damaged records."""
    found: set[str] = set()
    for harness in harnesses:
        with suppress(OSError):
            record = read_record(home, harness)
            found.update(folder for one in (record.files if record else ()) for folder in one.folders)
    with suppress(OSError):
        found.update(folder for folders in _skill_folders(home).values() for folder in folders)
    return tuple(sorted(found, key=len))


# The skill


def note_folders(home: Path, path: Path) -> None:
    """Record which folders will be created for a skill, before they are."""
    known = _skill_folders(home)
    folders = sorted({*known.get(str(path), ()), *missing_folders(path)}, key=len)
    write_private(home / _FOLDER / _SKILL, msgspec.json.encode({**known, str(path): folders}))


def remove_noted_folders(home: Path, path: Path) -> None:
    """Remove the folders that were created for a skill, if they are empty, and forget them."""
    known = _skill_folders(home)
    remove_folders(known.pop(str(path), ()))
    if known:
        write_private(home / _FOLDER / _SKILL, msgspec.json.encode(known))
    else:
        (home / _FOLDER / _SKILL).unlink(missing_ok=True)


def noted_skills(home: Path) -> list[Path]:
    """Return the paths of every skill that was installed and not removed. Raises OSError if damaged."""
    return [Path(path) for path in _skill_folders(home)]


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
