"""Whether the home and its files are still there.

A daemon whose home was removed serves no one, and another may begin. Sockets that were removed are made anew.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from palaver.home import file_id
from palaver.links.presence import CallLater, Timer

_LOOK_EVERY_S: Final = 1.0
"""Seconds. A command waits as long for a socket that was removed."""


class HomeWatch:
    """Looks now and then whether the lock at the home's path is the one that this daemon holds."""

    def __init__(
        self,
        home: Path,
        lost: Callable[[], None],
        call_later: CallLater,
        look_after: Sequence[Callable[[], object]] = (),
    ) -> None:
        """The lock is held by now; `lost` is called once, when it was removed or is another.

        At each look `look_after` are called too, in order: what else has to be looked after in this home.
        """
        self._lock = home / "daemon.lock"
        self._file = file_id(self._lock)
        self._lost = lost
        self._look_after = look_after
        self._call_later = call_later
        self._timer: Timer = call_later(_LOOK_EVERY_S, self._look)

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        if file_id(self._lock) == self._file:
            for look in self._look_after:
                look()
            self._timer = self._call_later(_LOOK_EVERY_S, self._look)
        else:
            self._lost()
