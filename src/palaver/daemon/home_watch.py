"""Check that the home and its files still exist.

A daemon whose home was removed stops, so that another can start. Sockets that were removed are created again.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from palaver.home import file_id
from palaver.links.presence import CallLater, Timer

_LOOK_EVERY_S: Final = 1.0
"""Seconds. A command waits as long for a socket that was removed."""


class HomeWatch:
    """Checks regularly that the lock at the home's path is the one that this daemon holds."""

    def __init__(
        self,
        home: Path,
        lost: Callable[[], None],
        call_later: CallLater,
        look_after: Sequence[Callable[[], object]] = (),
    ) -> None:
        """Requires the lock; `lost` is called once, if it was removed or replaced.

        At each check the functions in `look_after` are called too, in order, to maintain other parts of this
        home.
        """
        self._lock = home / "daemon.lock"
        self._file = file_id(self._lock)
        self._lost = lost
        self._look_after = look_after
        self._call_later = call_later
        self._timer: Timer = call_later(_LOOK_EVERY_S, self._look)

    def close(self) -> None:
        """Stop checking."""
        self._timer.cancel()

    def _look(self) -> None:
        if file_id(self._lock) == self._file:
            for look in self._look_after:
                look()
            self._timer = self._call_later(_LOOK_EVERY_S, self._look)
        else:
            self._lost()
