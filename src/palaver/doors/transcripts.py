"""Which file each agent's transcript is, as its hooks tell. Kept in memory: the next hook tells it again."""

from dataclasses import dataclass, field
from typing import Final

LIMIT_TOLD: Final = 10_000
"""Agents whose transcripts are remembered; the one told longest ago is forgotten first."""
_LIMIT_PATH: Final = 4096


@dataclass(slots=True)
class TranscriptBook:
    """What hooks have said. Nothing here opens a file, or believes that there is one."""

    _paths: dict[str, str] = field(default_factory=dict)

    def tell(self, name: str, path: str) -> None:
        """Remember the transcript of an agent; a path that is not absolute says nothing."""
        if not path.startswith("/") or "\0" in path or len(path) > _LIMIT_PATH:
            return
        self._paths.pop(name, None)
        self._paths[name] = path
        if len(self._paths) > LIMIT_TOLD:
            del self._paths[next(iter(self._paths))]

    def path_of(self, name: str) -> str:
        """Give the file that was told last, or nothing."""
        return self._paths.get(name, "")
