"""A room with members, on a bus without doors."""

from collections.abc import Mapping

import pytest
from tests.fakes import HUMAN, Bus

from palaver.broker.context import SYSTEM_CALLER, Outcome, Seated, Turn, Written
from palaver.domain.stick import Policy, RoomSnapshot, conditions, take_facts
from palaver.errors import RequestError
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.requests import (
    Claim,
    ExpireReservation,
    HandOn,
    JoinRoom,
    KickMember,
    LeaveRoom,
    PassStick,
    ReleaseStick,
    Request,
    TakeOver,
)
from palaver.state.rooms import Room, find_room

PLACE = "/home/ann/repo"
POLICY = Policy()
HANDOFF: Mapping[str, object] = {"status": "tests pass", "next_action": "review"}


class Scene:
    """Members of one room make requests; time passes only when a test advances it."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.callers: dict[str, Caller] = {}
        self.id = ""

    @property
    def room(self) -> Room:
        return find_room(self.bus.log.rows, self.id)

    @property
    def now_ms(self) -> int:
        return self.bus.clock.now_ms()

    @property
    def conditions(self) -> tuple[str, ...]:
        return conditions(self.snapshot.room, self.snapshot.facts, POLICY)

    @property
    def snapshot(self) -> RoomSnapshot:
        facts = take_facts(self.bus.member_presence, self.now_ms, self.id, self.room.names)
        return RoomSnapshot(room=self.room, facts=facts, policy=POLICY)

    def advance_ms(self, milliseconds: int) -> None:
        self.bus.clock.advance(milliseconds / 1000)

    async def join(self, *names: str, **fields: object) -> None:
        for name in names:
            if name not in self.callers:
                self.callers[name] = await self.bus.join(name, **fields)  # type: ignore[arg-type]  # fields of a join
            seated = await self.ask(name, JoinRoom(workspaces=(PLACE,)))
            assert isinstance(seated, Seated)
            self.id = seated.room.id

    async def operator(self, name: str) -> None:
        """Join an operator as a member."""
        await self.join(name, role="operator")

    async def ask(self, name: str, request: Request, key: bytes | None = None) -> Outcome:
        return await self.bus.broker.submit(self.callers.get(name, HUMAN), request, key=key)

    async def written(self, name: str, request: Request) -> Event:
        outcome = await self.ask(name, request)
        assert isinstance(outcome, Written)
        assert outcome.event is not None
        return outcome.event

    async def wait(self, name: str, **fields: bool) -> Turn:
        turn = await self.ask(name, Claim(room=self.id, **fields))
        assert isinstance(turn, Turn)
        return turn

    async def release(self, name: str, **fields: object) -> Event:
        room = self.room
        asked = {"turn": room.turn, "lease": room.lease, "handoff": dict(HANDOFF), **fields}
        return await self.written(name, ReleaseStick(room=self.id, **asked))  # type: ignore[arg-type]  # its fields

    async def pass_on(self, name: str, to: str, **fields: object) -> Event:
        room = self.room
        asked = {"turn": room.turn, "lease": room.lease, "handoff": dict(HANDOFF), **fields}
        return await self.written(name, PassStick(room=self.id, to=to, **asked))  # type: ignore[arg-type]  # its fields

    async def take_over(self, name: str, **fields: object) -> Turn:
        asked = {"turn": self.room.turn, "reason": "stuck", **fields}
        turn = await self.ask(name, TakeOver(room=self.id, **asked))  # type: ignore[arg-type]  # its fields
        assert isinstance(turn, Turn)
        return turn

    async def leave(self, name: str) -> Event:
        return await self.written(name, LeaveRoom(room=self.id))

    async def kick(self, name: str, target: str, **fields: object) -> Event:
        return await self.written(name, KickMember(room=self.id, target=target, **fields))  # type: ignore[arg-type]  # its fields

    async def hand_on(self, turn: int | None = None) -> Event | None:
        asked = HandOn(room=self.id, turn=self.room.turn if turn is None else turn)
        return await self.bus.submit(SYSTEM_CALLER, asked)

    async def expire(self, turn: int | None = None) -> Event | None:
        asked = ExpireReservation(room=self.id, turn=self.room.turn if turn is None else turn)
        return await self.bus.submit(SYSTEM_CALLER, asked)

    async def refused(self, name: str, request: Request) -> str:
        """Return the error code with which a request is refused."""
        with pytest.raises(RequestError) as error:
            await self.ask(name, request)
        return error.value.code

    def waits(self, *names: str) -> None:
        """Mark these members as waiting for their turn."""
        for name in names:
            self.bus.member_presence.waits[self.id, name] = self.now_ms
            self.bus.member_presence.waiting.add((self.id, name))

    def parks(self, *names: str) -> None:
        self.bus.member_presence.parked |= {(self.id, name) for name in names}

    def ends(self, name: str) -> None:
        """End the process of a member."""
        self.bus.present.discard(name)
        self.bus.member_presence.gone[name] = self.now_ms

    def heartbeat(self, name: str) -> None:
        self.bus.member_presence.beats[self.id, name] = self.now_ms
