"""Facts of the present that views show in addition to the rows: presence, permissions, lanes and times."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.clock import Clock
from palaver.config import Settings
from palaver.domain.routing import Directory
from palaver.domain.stick import Policy, RoomFacts, lease_until_ms, take_facts
from palaver.errors import NotFound
from palaver.identity.presence import MemberPresenceBook, Presence
from palaver.protocol.agents import Agent
from palaver.protocol.lanes import Delivering
from palaver.protocol.views import PermissionPage
from palaver.services.permissions import PermissionBook
from palaver.services.queries import Queries
from palaver.state.attention import beginning_of
from palaver.state.reasons import LaneFact
from palaver.state.rooms import Room

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSources:
    """The parts of the daemon that views are made from."""

    queries: Queries
    directory: Directory
    delivery: Delivering
    presence: Presence
    members: MemberPresenceBook
    permissions: PermissionBook
    policy: Policy
    settings: Callable[[], Settings]
    clock: Clock
    version: str
    count_slow: Callable[[str], None]
    """Counts a follower of this kind that reads too slowly."""


class LiveFacts:
    """The facts that a view of the present needs in addition to the rows."""

    def __init__(self, sources: ViewSources, epoch: str) -> None:
        self._sources = sources
        self.epoch = epoch

    @property
    def device(self) -> str:
        return self._sources.queries.device

    @property
    def version(self) -> str:
        return self._sources.version

    @property
    def now_ms(self) -> int:
        return self._sources.clock.now_ms()

    @property
    def stale_after_ms(self) -> int:
        return self._sources.settings().stale_after_s * 1000

    @property
    def policy(self) -> Policy:
        return self._sources.policy

    def is_present(self, name: str) -> bool:
        return self._sources.presence.is_present(name)

    def agents(self) -> Iterable[Agent]:
        return (agent for agent in self._sources.directory.all() if not agent.left)

    def count_agents(self) -> int:
        return len(self._sources.directory)

    def text_of(self, seq: int) -> str:
        event = self._sources.queries.event(seq)
        return "" if event is None else beginning_of(event)

    def sender_of(self, seq: int) -> str:
        event = self._sources.queries.event(seq)
        return "" if event is None else event.sender

    def lease_until_ms(self, room: Room) -> int:
        return lease_until_ms(room, self.room(room.id, (room.owner,)), self.policy)

    def can_answer_permission(self, id: str) -> bool:
        return self._sources.permissions.get(id) is not None

    def permission_page(self, id: str) -> PermissionPage | None:
        book = self._sources.permissions
        found = book.get(id)
        if found is None:
            # This daemon has closed it and knows why. The caller reports any other missing request.
            if why := book.ending(id):
                raise NotFound(f"permission request {id}", why)
            return None
        return PermissionPage(
            seq=self._sources.queries.last(),
            id=found.id,
            agent=found.agent,
            tool=found.tool,
            text=found.text,
            input=msgspec.json.format(_encode(found.input), indent=2).decode(),
            digest=found.digest,
            since=found.since_ms,
            until=found.until_ms,
        )

    def lanes(self, name: str) -> Sequence[LaneFact]:
        return [
            LaneFact(
                kind=ability.kind.name.lower(),
                is_open=level.is_open,
                is_paused=level.is_paused,
                reason=level.reason,
                wakes_idle=ability.wakes_idle,
                reaches_busy=ability.reaches_busy,
            )
            for ability, level in self._sources.delivery.lanes(name)
        ]

    def room(self, room: str, names: Iterable[str]) -> RoomFacts:
        return take_facts(self._sources.members, self.now_ms, room, names)
