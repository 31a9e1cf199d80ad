"""Open views on a bus without doors. Time moves only when the test advances it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
from tests.doors.parts import Links, Parts
from tests.fakes import FakeMemberPresence, OpenLog, Ring, opened_bus
from tests.limits import LIMIT_S

from palaver.config import Settings
from palaver.domain.stick import Policy
from palaver.identity.presence import MemberPresenceBook, Presence
from palaver.protocol.views import AgentRow, Attention, Changes, ConversationRow, Counts, Snapshot
from palaver.services.live_views import LiveViews
from palaver.services.view_facts import ViewSources
from palaver.services.view_hub import OpenView, ViewRecord

EPOCH = "abc"


class Timers:
    """Timers that fire when the test advances the clock."""

    def __init__(self, parts: Parts) -> None:
        self._clock = parts.clock
        self._rings: list[Ring] = []

    def call_later(self, delay_s: float, ring: Callable[[], None]) -> Ring:
        made = Ring(self._clock.monotonic_s() + delay_s, ring)
        self._rings.append(made)
        return made

    def advance(self, seconds: float) -> None:
        """Move the clock, and fire every timer that is due then."""
        self._clock.advance(seconds)
        now_s = self._clock.monotonic_s() + 1e-6
        due = [ring for ring in self._rings if ring.moment_s <= now_s]
        self._rings = [ring for ring in self._rings if ring.moment_s > now_s]
        for ring in due:
            if not ring.is_over:
                ring.ring()

    @property
    def waiting(self) -> Sequence[Ring]:
        return [ring for ring in self._rings if not ring.is_over]


class SeenLinks(Links):
    """The present agents of the bus."""

    def __init__(self, present: set[str]) -> None:
        super().__init__()
        self._present = present
        self.changed: Callable[[str], None] = lambda name: None

    def is_present(self, name: str) -> bool:
        return name in self._present

    def part(self, name: str) -> None:
        """Remove an agent, as the end of its last connection does."""
        self._present.discard(name)
        self.changed(name)


class SeenMembers(FakeMemberPresence):
    """Presence and waits in rooms, which are reported to views."""

    def __init__(self, present: set[str]) -> None:
        super().__init__(present)
        self.wait_changed: Callable[[str, str], None] = lambda room, name: None

    def wait(self, room: str, name: str) -> None:
        """Let a member wait for the stick."""
        self.waiting.add((room, name))
        self.wait_changed(room, name)


class ViewParts(Parts):
    """The parts of a daemon, with views."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # those of the base class
        self.timers = Timers(self)
        self.member_presence = SeenMembers(self.bus.present)
        self.presence: SeenLinks = SeenLinks(self.bus.present)
        self.slow: list[str] = []
        self.views = LiveViews(
            ViewSources(
                queries=self.queries,
                directory=self.broker.directory,
                delivery=self.delivery,
                presence=cast("Presence", self.presence),
                members=cast("MemberPresenceBook", self.member_presence),
                permissions=self.permissions,
                policy=Policy(),
                settings=lambda: self.settings.now,
                clock=self.clock,
                version="1.2.3",
                count_slow=self.slow.append,
            ),
            epoch=f"{self.queries.device}-{EPOCH}",
            call_later=self.timers.call_later,
            spawn=self.tasks.create_task,
        )


@asynccontextmanager
async def opened_views(open_log: OpenLog, directory: Path, **settings: int) -> AsyncIterator[ViewParts]:
    """Open the parts of a daemon with views; all views are closed with the block."""
    made = Settings(**settings)  # type: ignore[arg-type]  # numbers only
    async with opened_bus(open_log, directory) as bus, asyncio.TaskGroup() as tasks:
        parts = ViewParts(bus, tasks, made, directory)
        yield parts
        parts.views.close()


async def settle() -> None:
    """Let every task that can run do so, also those that wait for a reading thread."""
    for _ in range(20):
        await asyncio.sleep(0)


async def take(view: OpenView) -> Snapshot | Changes:
    """Wait for the next record of a view."""
    async with asyncio.timeout(LIMIT_S):
        return decode(await anext(view))


async def take_until(parts: ViewParts, view: OpenView, seq: int) -> list[Snapshot | Changes]:
    """Take the records of a view up to a seq, and let time pass for them."""
    found: list[Snapshot | Changes] = []
    while not found or found[-1].seq < seq:
        found.append(await take_in_time(parts, view))
    return found


async def take_in_time(parts: ViewParts, view: OpenView) -> Snapshot | Changes:
    """Take the next record of a view, and let time pass until it is there."""
    async with asyncio.timeout(LIMIT_S):
        waiting = asyncio.ensure_future(anext(view))
        while not waiting.done():
            parts.timers.advance(0.01)
            await asyncio.sleep(0.001)
        return decode(waiting.result())


def decode(record: ViewRecord) -> Snapshot | Changes:
    kind: type[Snapshot | Changes] = Snapshot if record.is_snapshot else Changes
    return msgspec.json.decode(record.data, type=kind)


class Model:
    """The state of a view: the snapshot, with every change applied. It checks that no event is missing."""

    def __init__(self) -> None:
        self.seq = -1
        self.events: list[int] = []
        self.agents: dict[str, AgentRow] = {}
        self.attention: dict[str, Attention] = {}
        self.talks: dict[str, ConversationRow] = {}
        self.counts: Counts | None = None

    def apply(self, record: Snapshot | Changes) -> None:
        if isinstance(record, Snapshot):
            assert self.seq in (-1, record.seq) or record.is_continued, (self.seq, record.seq)
            if self.seq == -1:
                self.events = []
            self.agents = {row.name: row for row in record.agents}
            self.attention = {entry.key: entry for entry in record.attention}
            self.talks = {row.key: row for row in record.talks}
        else:
            assert record.after == self.seq
            assert all(self.seq < event.seq <= record.seq for event in record.events)
            self.agents |= {row.name: row for row in record.agents}
            for key in record.settled:
                del self.attention[key]
            self.attention |= {entry.key: entry for entry in record.attention}
            self.talks |= {row.key: row for row in record.talks}
        self.events += [event.seq for event in record.events]
        self.counts = record.counts or self.counts
        self.seq = record.seq
