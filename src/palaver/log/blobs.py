"""Contents too large for a row, in files named by their hash. Handles only bytes."""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from palaver.home import sync

LIMIT_ROW_BYTES: Final = 64 * 1024
"""A payload with more bytes than this is stored in a blob."""


class Blobs:
    """One directory of files, each written once and never changed.

    The same content has the same name, so writing it twice is harmless, and a file whose event was never
    committed only uses space.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, content: bytes) -> str:
        """Store the content and return its hash; on return it is durable.

        Raises OSError if the disk is full; then no file with that name exists.
        """
        name = hashlib.sha256(content).hexdigest()
        path = self._directory / name
        if not path.exists():
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._write_durably(path, content)
        return name

    def read(self, name: str) -> bytes | None:
        """Return the content, or None if the file is missing or does not match its name."""
        try:
            content = (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None
        return content if hashlib.sha256(content).hexdigest() == name else None

    def remove(self, name: str) -> None:
        """Remove a content permanently; ignore a missing file."""
        (self._directory / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return the names of all files, including incomplete ones that a crash has left."""
        return [path.name for path in self._directory.iterdir()] if self._directory.exists() else []

    def _write_durably(self, path: Path, content: bytes) -> None:
        # Only a complete file gets its name: write a temporary file, sync it, then rename it. mkstemp sets
        # 0600.
        handle, beside = tempfile.mkstemp(dir=self._directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(beside).replace(path)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                Path(beside).unlink()
            raise
        for directory in (self._directory, self._directory.parent):
            sync(directory)
