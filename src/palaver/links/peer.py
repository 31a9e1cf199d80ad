"""The process at the other end of a Unix socket, pinned so that its pid cannot be reused unnoticed.

Reports the process and its user. `identity.py` decides which agent it is.
"""

import errno
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from palaver.errors import NotPerson
from palaver.links.process import Process, ancestors

if sys.platform == "darwin":  # pragma: no cover - macOS
    from palaver.links import process_darwin

SO_PEERPIDFD: Final = 77
"""Linux 6.5 and later: the peer as it connected, even if its pid was reused since."""
_CREDENTIALS: Final = struct.Struct("iII")


@dataclass(slots=True)
class Peer:
    """The process that connected. Holds a pidfd if possible: close it, or use it in a `with`."""

    pid: int
    """0 if it cannot be seen or has exited."""
    uid: int
    gid: int
    pidfd: int | None = None
    is_closed: bool = False
    """Its pidfd was closed, and the descriptor may be another file's by now."""

    def check_user(self) -> None:
        """Refuse a process of another user, whatever the permissions of the socket file allow."""
        if self.uid != os.geteuid():
            raise NotPerson(f"this bus belongs to user {os.geteuid()}; you are user {self.uid}")

    def chain(self, is_enough: Callable[[Process], bool] | None = None) -> list[Process]:
        """Return the peer and its parents, itself first; empty if it has exited, was closed, or is unseen.

        The chain ends with the first process for which `is_enough` is true.
        """
        if self.is_closed:
            return []
        chain = ancestors(self.pid, is_enough=is_enough)
        # Checked after reading: if the pid is still the peer's now, it was the peer's then.
        return chain if self._is_there() else []

    def _is_there(self) -> bool:
        if self.pidfd is None:
            return True
        try:
            signal.pidfd_send_signal(self.pidfd, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Close the pidfd. From then on `chain` is empty. Closing twice is harmless."""
        if self.pidfd is not None and not self.is_closed:
            os.close(self.pidfd)
        self.is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def peer_of(connection: socket.socket, *, peer_pidfd_option: int = SO_PEERPIDFD) -> Peer:
    """Read the peer of a connected Unix socket. A peer that cannot be pinned any more has pid 0."""
    if sys.platform == "darwin":  # pragma: no cover - macOS
        return Peer(*process_darwin.peer_credentials(connection))
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(answer)
    try:
        return Peer(pid, uid, gid, connection.getsockopt(socket.SOL_SOCKET, peer_pidfd_option))
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:  # it has exited, and its pid may be reused
            return Peer(0, uid, gid)
    try:
        return Peer(pid, uid, gid, os.pidfd_open(pid))
    except OSError:
        return Peer(0, uid, gid)
