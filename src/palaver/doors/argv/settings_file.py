"""Read and replace the settings file as a whole. Knows no setting."""

import os
import secrets
from pathlib import Path

from palaver.config import FILE_NAME
from palaver.errors import StorageFailed


def read_settings_file(home: Path) -> bytes:
    """Return the content of the file; empty if there is no file. Raises StorageFailed."""
    path = home / FILE_NAME
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageFailed(f"{path} cannot be read: {error.strerror}") from error


def write_settings_file(home: Path, content: bytes) -> None:
    """Replace the file with new content, readable only by its owner.

    The content is synced, then the file is replaced atomically: a reader sees the old file or the new one.
    A symbolic link stays a link. Raises StorageFailed, and then nothing was changed.
    """
    path = (home / FILE_NAME).resolve()
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(beside, "xb", opener=_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StorageFailed(f"{path} cannot be written: {error.strerror}; nothing was changed") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
