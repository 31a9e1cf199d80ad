"""Remove the sockets of agents whose holder was killed before it could remove them.

A socket is removed only if its agent has left and no process listens on it. A holder opens its socket after
the daemon has accepted it, and check and removal happen without an await, so no new socket is removed.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from palaver.home import connect_socket
from palaver.log.api import Log
from palaver.log.state import read_agent
from palaver.model.envelope import Event
from palaver.model.life import BYE

_FOLDER: Final = "agents"
_ENDING: Final = ".sock"


class DeadSockets:
    """The reactor that removes these sockets: all at the start, and each one when its agent has left."""

    def __init__(self, home: Path, log: Log) -> None:
        self._folder = home / _FOLDER
        self._log = log
        for path in self._folder.glob(f"*{_ENDING}"):
            self._remove(path.stem)
        self._unsubscribe = log.subscribe(self._follow)

    def close(self) -> None:
        """Stop reading the log."""
        self._unsubscribe()

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == BYE:
                self._remove(event.sender)

    def _remove(self, name: str) -> None:
        agent = read_agent(self._log.rows, name)
        if agent is None or not agent.left or not agent.holder:
            return
        path = self._folder / f"{name}{_ENDING}"
        try:
            if path.is_socket():
                connect_socket(path, can_wait=False).close()
        except (ConnectionRefusedError, FileNotFoundError):
            with suppress(OSError):
                path.unlink()
        except OSError:
            return  # a process listens there, or its state is unknown
