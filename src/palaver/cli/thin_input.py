"""Input that the thin client reads for the daemon: standard input, or a file with the caller's rights.

Nothing is read before the daemon asks for it. One source is read at a time; the caller waits until it is
readable.
"""

from __future__ import annotations

import errno
import os
import stat

from palaver.cli.thin_wire import PIECE_BYTES, frame
from palaver.client.start import above_stdio

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable


class Input:
    """Reads piece by piece and sends each piece.

    Standard input is kept as far as it was read: after a crash the repeated request asks for it again, and
    then it is sent from its start. A file is read again.
    """

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        """`send` puts a frame on the wire and returns whether there is a connection."""
        self._send = send
        self._kept = bytearray()
        self._has_ended = False  # a terminal must not be read again after its end
        self._left: int | None = None
        self.fd: int | None = None
        """The descriptor to wait for before `pump`; None if nothing is to be read."""

    def begin_stdin(self, limit_bytes: int | None) -> None:
        """Send the input that was kept; the rest is sent by `pump`."""
        self.fd, self._left = 0, limit_bytes
        replay = memoryview(bytes(self._kept[:limit_bytes]))
        for at in range(0, len(replay), PIECE_BYTES):
            self._send_piece(replay[at : at + PIECE_BYTES])
        if self.fd is not None and self._has_ended:
            self._finish(frame(b"Z"))

    def begin_file(self, limit_bytes: int | None, path: bytes) -> None:
        """Open a file; its content is sent by `pump`. A failure to open is reported at once."""
        self._left = limit_bytes
        try:
            # Opening a named pipe would wait for a writer. A pipe of the shell, /dev/fd/63, is a link.
            if stat.S_ISFIFO(os.lstat(path).st_mode):
                self._send(_unreadable_pipe())
                return
            self.fd = above_stdio(os.open(path, os.O_RDONLY | os.O_NOCTTY))
        except OSError as error:
            self._send(_unreadable(error.errno or 0))
        except ValueError:  # a name with NUL is never a file
            self._send(_unreadable(errno.EINVAL))

    def pump(self) -> None:
        """Read one piece and send it."""
        assert self.fd is not None
        try:
            data = os.read(self.fd, PIECE_BYTES if self._left is None else min(self._left, PIECE_BYTES))
        except BlockingIOError:
            return
        except OSError as error:
            self._finish(_unreadable(error.errno or 0))
            return
        if self.fd == 0:
            self._kept += data
            self._has_ended = not data
        if data:
            self._send_piece(data)
        else:
            self._finish(frame(b"Z"))

    def stop(self) -> None:
        """Stop reading. Kept input stays kept."""
        if self.fd:
            os.close(self.fd)
        self.fd = None

    def _send_piece(self, data: bytes | memoryview) -> None:
        if not self._send(frame(b"D", data)):
            self.stop()  # the connection is lost
        elif self._left is not None:
            self._left -= len(data)
            if self._left == 0:
                self._finish(frame(b"Z"))

    def _finish(self, last: bytes) -> None:
        self.stop()
        self._send(last)


def _unreadable_pipe() -> bytes:
    return frame(b"X", f"{errno.EINVAL} it is a named pipe; pipe its content in with --stdin".encode())


def _unreadable(number: int) -> bytes:
    return frame(b"X", f"{number} {os.strerror(number)}".encode())
