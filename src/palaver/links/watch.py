"""Report the end of a seat's process. Ends no process itself."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from palaver.links.process import is_alive
from palaver.model.agent import Seat

_POLL_S: Final = 1.0
_PIDFD_OPEN: Final[Callable[[int], int] | None] = getattr(os, "pidfd_open", None)


class ProcessWatch:
    """Watches seats from one event loop: by pidfd, or by polling if there are no pidfds.

    A callback is called once, on the loop, after the process has ended; for a seat that has already ended, at
    the next turn of the loop. It is not called after the seat was removed or the watch closed.
    """

    def __init__(
        self, *, poll_s: float = _POLL_S, pidfd_open: Callable[[int], int] | None = _PIDFD_OPEN
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll_s = poll_s
        self._pidfd_open = pidfd_open
        self._stops: dict[Seat, Callable[[], None]] = {}

    def add(self, seat: Seat, callback: Callable[[], None]) -> None:
        """Watch a seat; a second callback for the same seat replaces the first."""
        self.remove(seat)
        pidfd = self._open(seat.pid)
        # Checked after opening: if the process is alive now, the pidfd refers to it.
        if not is_alive(seat):
            if pidfd is not None:
                os.close(pidfd)
            handle = self._loop.call_soon(self._ended, seat, callback)
            self._stops[seat] = handle.cancel
        elif pidfd is None:
            self._poll(seat, callback)
        else:
            self._loop.add_reader(pidfd, self._ended, seat, callback)
            self._stops[seat] = lambda: self._close(pidfd)

    def remove(self, seat: Seat) -> None:
        """Stop watching a seat; does nothing if it is not watched."""
        if stop := self._stops.pop(seat, None):
            stop()

    def close(self) -> None:
        """Stop watching all seats."""
        for seat in list(self._stops):
            self.remove(seat)

    def _open(self, pid: int) -> int | None:
        try:
            return None if self._pidfd_open is None else self._pidfd_open(pid)
        except OSError:  # it has ended, there are no file descriptors left, or a sandbox forbids it
            return None

    def _close(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        os.close(pidfd)

    def _poll(self, seat: Seat, callback: Callable[[], None]) -> None:
        if not is_alive(seat):
            self._ended(seat, callback)
            return
        self._stops[seat] = self._loop.call_later(self._poll_s, self._poll, seat, callback).cancel

    def _ended(self, seat: Seat, callback: Callable[[], None]) -> None:
        self.remove(seat)
        callback()
