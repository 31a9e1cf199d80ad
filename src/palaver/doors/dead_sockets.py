"""The sockets of agents whose holder was killed: nobody listens there any more, and nobody takes them away.

Only the socket of an agent that has left goes, and only when nobody listens at it. A holder opens its socket
after the daemon has let it in, so none can come between the look and the removal: both are one step.
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
    """Takes them away: those of before at the start, and each one when its agent is found gone."""

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
            return  # somebody is there, or it cannot be told
