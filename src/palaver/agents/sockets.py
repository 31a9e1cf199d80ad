"""The path of an agent's socket, and how to open it.

The socket has mode 0600 in a directory of mode 0700. The socket of a dead holder is replaced; that of a
running holder is not.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from palaver.errors import NameTaken
from palaver.home import at_short_path, connect_socket

_BACKLOG: Final = 128


def socket_path(home: str, name: str) -> Path:
    """Return the path of an agent's socket."""
    return Path(home) / "agents" / f"{name}.sock"


def listen(path: Path) -> socket.socket:
    """Open an agent's socket; raises NameTaken if another holder listens there, OSError if it fails."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_live(path):
        raise NameTaken(path.stem, "a holder of that name runs here already")
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            at_short_path(path, listener.bind)
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _is_live(path: Path) -> bool:
    try:
        connect_socket(path, can_wait=False).close()
    except BlockingIOError:
        return True  # Its backlog is full, so it is running.
    except OSError:
        return False
    return True
