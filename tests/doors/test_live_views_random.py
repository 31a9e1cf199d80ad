"""Whatever happens on the bus: a view that follows it ends up with the rows that a new view gets."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.doors.view_stage import Model, ViewParts, opened_views, settle, take, take_in_time
from tests.fakes import HUMAN, OpenLog, open_memory, open_sqlite

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import PalaverError
from palaver.protocol.agents import Caller
from palaver.protocol.events import ClosePermission, OpenPermission, State
from palaver.protocol.paths import ClearDeadLetters
from palaver.protocol.query import Query
from palaver.protocol.requests import (
    Claim,
    JoinRoom,
    LeaveRoom,
    Pause,
    Redeliver,
    Release,
    ReleaseStick,
    Send,
    SetStatus,
    Unpause,
)
from palaver.protocol.views import Snapshot
from palaver.services.permissions import Pending
from palaver.state.rooms import read_open_rooms

NAMES = ("luna", "nova", "mira")
STEPS = 120


class Chance:
    """Does random things on a bus."""

    def __init__(self, parts: ViewParts, seed: int) -> None:
        self._parts = parts
        self._random = random.Random(seed)
        self._agents: list[Caller] = []
        self._seqs = [1]
        self._asked: list[Pending] = []
        self._steps: list[Callable[[], Awaitable[object]]] = [
            self._send,
            self._send,
            self._send,
            self._report,
            self._report,
            self._status,
            self._status,
            self._room,
            self._permission,
            self._person,
            self._presence,
            self._time,
        ]

    async def begin(self) -> None:
        self._agents = [await self._parts.bus.join(name) for name in NAMES]

    async def step(self) -> None:
        """Do one thing. A refusal is as good as anything else."""
        with suppress(PalaverError):
            await self._random.choice(self._steps)()

    def _agent(self) -> Caller:
        return self._random.choice(self._agents)

    def _seq(self) -> int:
        return self._random.choice(self._seqs[-20:])

    async def _send(self) -> None:
        choice = self._random.choice
        to = choice([*(f"@{name}" for name in NAMES), "@human", "@human", "@all", "nowhere/at/all"])
        sender = choice([*self._agents, HUMAN])
        request = Send(
            text=choice(["short", "x" * 400, "two\nlines"]),
            to=(to,),
            intent=choice(["", "request", "request", "ack"]),
            thread=choice(["", "", "plan"]),
            reply_to=str(self._seq()) if choice([True, False]) else "",
            priority=choice(["", "idle", "interrupt"]),
            expects_reply=choice([True, False]),
            is_confirmed=True,
        )
        event = await self._parts.bus.submit(sender, request)
        if event is not None:
            self._seqs.append(event.seq)

    async def _report(self) -> None:
        name, seq = self._random.choice([*NAMES, "human"]), self._seq()
        state = self._random.choice([State.SUBMITTED, State.SEEN, State.HELD, State.QUEUED, State.REFUSED])
        bus = self._parts.bus
        if state == State.HELD:
            await bus.report(name, state, seq, reason="brake: 7 hops")
        elif state == State.SUBMITTED:
            await bus.report(name, state, seq, lane="terminal")
            if self._random.random() < 0.5:
                await bus.report(name, state, seq, unconfirmed=True)
        else:
            await bus.report(name, state, seq, priority="normal" if state == State.QUEUED else "")

    async def _status(self) -> None:
        state = self._random.choice(["active", "idle", "blocked"])
        await self._parts.broker.submit(self._agent(), SetStatus(state=state, detail="something"))

    async def _room(self) -> None:
        agent, broker = self._agent(), self._parts.broker
        rooms = list(read_open_rooms(self._parts.queries.rows))
        if not rooms or self._random.random() < 0.3:
            await broker.submit(agent, JoinRoom(workspaces=("/home/ada/project",)))
            return
        room = rooms[0]
        if room.owner:
            owner = next(one for one in self._agents if one.name == room.owner)
            handoff: dict[str, object] = {"status": "done", "next_action": "review"}
            request = ReleaseStick(room=room.id, turn=room.turn, lease=room.lease, handoff=handoff)
            await broker.submit(owner, request)
        elif self._random.random() < 0.2:
            await broker.submit(agent, LeaveRoom(room=room.id))
        else:
            await broker.submit(agent, Claim(room=room.id))

    async def _permission(self) -> None:
        book, broker = self._parts.permissions, self._parts.broker
        if self._asked and self._random.random() < 0.5:
            pending = self._asked.pop()
            book.close(pending, "it has ended")
            if self._random.random() < 0.5:
                request = ClosePermission(
                    name=pending.agent, permission=pending.id, decision="none", reason="gone"
                )
                await broker.submit(SYSTEM_CALLER, request)
            return
        now_ms = self._parts.clock.now_ms()
        pending = book.add(self._agent(), "s", "Bash", {"n": now_ms}, now_ms=now_ms, wait_ms=60_000)
        self._asked.append(pending)
        asked = OpenPermission(
            name=pending.agent,
            permission=pending.id,
            tool=pending.tool,
            text=pending.text,
            digest=pending.digest,
            until=pending.until_ms,
        )
        await broker.submit(SYSTEM_CALLER, asked)

    async def _person(self) -> None:
        seq, name = self._seq(), self._random.choice(NAMES)
        requests = (
            Release(message=str(seq)),
            Redeliver(message=str(seq)),
            Pause(name=name),
            Unpause(name=name),
            ClearDeadLetters(),
        )
        await self._parts.broker.submit(HUMAN, self._random.choice(requests))

    async def _presence(self) -> None:
        name = self._random.choice(NAMES)
        if name in self._parts.bus.present:
            self._parts.presence.part(name)
        else:
            self._parts.bus.present.add(name)
            self._parts.presence.changed(name)

    async def _time(self) -> None:
        self._parts.timers.advance(self._random.choice([0.01, 1, 60, 700, 3000]))


@pytest.mark.parametrize("open_log", [open_memory, open_sqlite], ids=["memory", "sqlite"])
@pytest.mark.parametrize("seed", range(6))
async def test_followed_rows_equal_those_of_a_new_view(tmp_path: Path, open_log: OpenLog, seed: int) -> None:
    async with opened_views(open_log, tmp_path, stale_after_s=600) as parts:
        chance = Chance(parts, seed)
        await chance.begin()
        view, model = parts.views.open(), Model()
        model.apply(await take(view))
        first = model.seq

        for step in range(STEPS):
            await chance.step()
            if step % 10 == 0:
                await settle()
        while model.seq < parts.queries.last():
            model.apply(await take_in_time(parts, view))
        parts.presence.changed("luna")  # The last record: then nothing is left to send.
        model.apply(await take_in_time(parts, view))
        fresh = await take(parts.views.open())
        pages = parts.views.pages()

        assert isinstance(fresh, Snapshot)
        stored = await parts.log.read(Query(after=first, limit=10_000))
        assert model.events[-len(stored) :] == [event.seq for event in stored]
        assert [_plain(row) for _, row in sorted(model.agents.items())] == [
            _plain(row) for row in (await pages.agents("", 200)).rows
        ]
        entries = await pages.attention()
        assert {**model.attention} == {entry.key: entry for entry in entries}
        assert list(fresh.attention) == entries
        assert {**model.talks} == {row.key: row for row in fresh.talks}
        assert model.counts == fresh.counts == pages.counts(len(entries))


def _plain(row: msgspec.Struct) -> msgspec.Struct:
    return msgspec.structs.replace(row, seq=0)
