"""Where an agent's socket lies, and how it is opened and reached, however long its path is.

The file has mode 0600 in a folder of 0700. What a holder that died left behind is replaced; the socket of one
that lives is not.
"""

import os
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from palaver.errors import NameTaken

_LIMIT_PATH_BYTES: Final = 100
_BACKLOG: Final = 128


def socket_path(home: str, name: str) -> Path:
    """Give the place of an agent's socket."""
    return Path(home) / "agents" / f"{name}.sock"


def listen(path: Path) -> socket.socket:
    """Open an agent's socket; raises NameTaken when somebody listens there, OSError when that fails."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_live(path):
        raise NameTaken(path.stem, "a holder of that name runs here already")
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            _at_short_path(path, listener.bind)
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(path: Path, *, can_wait: bool = True) -> socket.socket:
    """Connect to a socket and give it; raises OSError when nobody listens there.

    Who cannot wait gets BlockingIOError when whoever listens has too many callers already, and else a
    connection that does not wait either.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(can_wait)
    try:
        _at_short_path(path, connection.connect)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_live(path: Path) -> bool:
    try:
        connect(path, can_wait=False).close()
    except BlockingIOError:
        return True  # too busy to take one more caller, and so alive
    except OSError:
        return False
    return True


def _at_short_path(path: Path, use: Callable[[str], None]) -> None:
    """Use the socket's path, or a short one to the same place where the system would not take it."""
    if len(os.fsencode(path)) <= _LIMIT_PATH_BYTES:
        use(str(path))
    elif sys.platform == "linux":
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            use(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    else:  # pragma: no cover - macOS
        with tempfile.TemporaryDirectory(prefix="pal-", dir="/tmp") as private:
            link = Path(private) / "a"
            link.symlink_to(path.parent)
            use(str(link / path.name))
