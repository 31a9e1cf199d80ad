"""What `pal install` has written, kept in the home of the bus: enough to put every byte back."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from palaver.harness.merging import Made
from palaver.harness.setups import Change

_FOLDER: Final = "install"


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


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """All that was written for a harness."""

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
        raise OSError(f"{path} is damaged: {error}") from error


def write_record(home: Path, record: Record) -> None:
    """Keep it, before anything of it is done: a process that is killed leaves what puts things back."""
    write_private(_record_path(home, record.harness), msgspec.json.encode(record))


def remove_record(home: Path, record: Record) -> None:
    """Forget it, with its backups."""
    for written in record.files:
        if written.backup:
            Path(written.backup).unlink(missing_ok=True)
    _record_path(home, record.harness).unlink(missing_ok=True)


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


def _record_path(home: Path, harness: str) -> Path:
    return home / _FOLDER / f"{harness}.json"
