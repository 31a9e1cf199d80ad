"""The transcript file of each agent, as reported by its hooks. In memory: the next hook reports it again."""

from dataclasses import dataclass, field
from typing import Final

LIMIT_TOLD: Final = 10_000
"""Agents whose transcripts are remembered. When full, the one reported longest ago is dropped."""
_LIMIT_PATH: Final = 4096


@dataclass(slots=True)
class TranscriptBook:
    """The paths that hooks have reported. They are never opened or checked here."""

    _paths: dict[str, str] = field(default_factory=dict)

    def tell(self, name: str, path: str) -> None:
        """Remember the transcript of an agent. A path that is not absolute or is too long is ignored."""
        if not path.startswith("/") or "\0" in path or len(path) > _LIMIT_PATH:
            return
        self._paths.pop(name, None)
        self._paths[name] = path
        if len(self._paths) > LIMIT_TOLD:
            del self._paths[next(iter(self._paths))]

    def path_of(self, name: str) -> str:
        """Return the path that was reported last, or ""."""
        return self._paths.get(name, "")
