"""Whether the home is still there: a daemon whose home was removed serves nobody, and another may begin."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from palaver.home import file_id
from palaver.links.presence import CallLater, Timer

_LOOK_EVERY_S: Final = 5.0


class HomeWatch:
    """Looks now and then whether the lock at the home's path is the one that this daemon holds."""

    def __init__(self, home: Path, lost: Callable[[], None], call_later: CallLater) -> None:
        """The lock is held by now; `lost` is called once, when it is gone or another."""
        self._lock = home / "daemon.lock"
        self._file = file_id(self._lock)
        self._lost = lost
        self._call_later = call_later
        self._timer: Timer = call_later(_LOOK_EVERY_S, self._look)

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        if file_id(self._lock) == self._file:
            self._timer = self._call_later(_LOOK_EVERY_S, self._look)
        else:
            self._lost()
