"""The folders in which a holder kept its harness's way in, once it was killed and could not take them away.

Only a folder that names its holder goes, and only when that process has ended. One that is just being made
names none yet.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from palaver.links.process import Process, read_process
from palaver.log.api import Log
from palaver.model.envelope import Event

_FOLDERS: Final = "agents/native/*"
_HOLDER: Final = "holder"
"""The file with the number of the process, as `agents/opencode/place.py` writes it."""


class DeadPlaces:
    """Takes them away: those of before at the start, and the others when an agent is found gone."""

    def __init__(self, home: Path, log: Log, read: Callable[[int], Process | None] = read_process) -> None:
        self._home = home
        self._read = read
        self._remove()
        log.subscribe(self._follow)

    def _follow(self, events: Sequence[Event]) -> None:
        if any(event.type == "agent.bye" for event in events):
            self._remove()

    def _remove(self) -> None:
        for folder in self._home.glob(_FOLDERS):
            try:
                process = self._read(int((folder / _HOLDER).read_text(encoding="ascii")))
            except (OSError, ValueError, OverflowError):
                continue
            if process is None or process.is_zombie:
                shutil.rmtree(folder, ignore_errors=True)
