"""Recent edits of files, and collisions between agents. Pure: the time comes from the events.

Kept in memory and bounded: if there are too many files, the least recently edited one is forgotten, and
collisions on it are missed.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from palaver.model.envelope import Event
from palaver.model.subscription import STATUS

WINDOW_MS: Final = 30_000
LIMIT_FILES: Final = 1024
_LIMIT_AGENTS: Final = 64


@dataclass(slots=True)
class _File:
    """The last edit of each agent, and when each pair of them last collided."""

    edits: dict[str, Event] = field(default_factory=dict)
    told: dict[frozenset[str], int] = field(default_factory=dict)


class Edits:
    """The edits of the last half minute."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, _File] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def collide(self, event: Event, agent: str) -> list[Event]:
        """Record an edit; return the edits of others that it newly collides with, newest first.

        Two agents that keep editing the same file collide once; again only after half a minute without a
        collision.
        """
        path = event.payload.get("file")
        if event.type != STATUS or not isinstance(path, str) or not path:
            return []
        file = self._files.pop(path, None) or _File()
        self._files[path] = file
        if len(self._files) > LIMIT_FILES:
            self._files.popitem(last=False)
        _forget(file, event.ts)
        others = [(name, edit) for name, edit in file.edits.items() if name != agent]
        file.edits.pop(agent, None)
        file.edits[agent] = event
        news = [edit for name, edit in others if frozenset({name, agent}) not in file.told]
        file.told |= {frozenset({name, agent}): event.ts for name, _ in others}
        return news[::-1]


def _forget(file: _File, now_ms: int) -> None:
    file.edits = {name: edit for name, edit in file.edits.items() if abs(now_ms - edit.ts) <= WINDOW_MS}
    file.told = {pair: ts for pair, ts in file.told.items() if abs(now_ms - ts) <= WINDOW_MS}
    while len(file.edits) >= _LIMIT_AGENTS:
        del file.edits[next(iter(file.edits))]
