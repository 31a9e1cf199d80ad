"""Read and replace the settings file as a whole. Knows no setting."""

from pathlib import Path

from palaver.config import FILE_NAME
from palaver.errors import StorageFailed
from palaver.home import replace_file


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
    try:
        replace_file(path, content)
    except OSError as error:
        raise StorageFailed(f"{path} cannot be written: {error.strerror}; nothing was changed") from error
