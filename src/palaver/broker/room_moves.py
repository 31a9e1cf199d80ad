"""From a decision about a room to an event: all are committed on the single key of the room's workspace.

Facts outside the log are collected before the commit, once per member, so that the decision can be repeated;
if a member has joined meanwhile, they are collected again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from palaver.broker.context import Context
from palaver.log.api import Rows
from palaver.log.fold_rooms import read_room
from palaver.model.agent import Caller
from palaver.model.envelope import Draft, Event
from palaver.rooms.attendance import Facts, take_facts
from palaver.rooms.moment import Answer, Moment, Move
from palaver.rooms.payloads import payload_of
from palaver.rooms.policy import Policy
from palaver.rooms.room import Room

Decision = Callable[[Moment, str], Move | Answer | None]
"""Decides about a room; the text is the id that the event will have. Pure: it may be called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The result of a decision: the event, or the answer and the room that it refers to."""

    event: Event | None
    room: Room
    answer: Answer | None = None


def stick_key(base: str) -> str:
    """Return the key on which everything about the rooms of one workspace is decided."""
    return f"stick/{base}"


def moment_of(context: Context, room: Room) -> Moment:
    """Return a snapshot of a room with the current facts."""
    facts = take_facts(context.attendance, context.clock.now_ms(), room.id, room.names)
    return Moment(room=room, facts=facts, policy=context.policy)


async def move(
    context: Context, caller: Caller, room: Room, decide: Decision, key: bytes | None = None
) -> Moved:
    """Decide about a room and write the event. A refusal is raised."""
    while True:
        attempt = _Attempt(
            id=context.ids.next(),
            room=room,
            facts=moment_of(context, room).facts,
            policy=context.policy,
            caller=caller,
            decision=decide,
        )
        commit = await context.log.commit(stick_key(room.base), attempt.decide, request_key=key)
        if commit.event is not None or not attempt.is_stale:
            return Moved(event=commit.event, room=attempt.room, answer=attempt.answer)
        # Use the room as the decision saw it: reads may still be older.
        room = attempt.room


def current_room(context: Context, room: Room) -> Room:
    """Return the current state of a room."""
    found = read_room(context.log.rows, room.id)
    assert found is not None  # rooms are never removed
    return found


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One commit, with the facts from its start, and what the last call saw and decided."""

    id: str
    room: Room
    facts: Facts
    policy: Policy
    caller: Caller
    decision: Decision
    answer: Answer | None = field(default=None, init=False)
    is_stale: bool = field(default=False, init=False)

    def decide(self, rows: Rows) -> Draft | None:
        room = read_room(rows, self.room.id)
        assert room is not None  # rooms are never removed
        self.room = room
        self.answer = None
        self.is_stale = any(name not in self.facts.sights for name in room.names)
        if self.is_stale:
            return None
        made = self.decision(Moment(room=room, facts=self.facts, policy=self.policy), self.id)
        if not isinstance(made, Move):
            self.answer = made
            return None
        return Draft(
            type=made.type,
            sender=self.caller.name,
            to=made.to,
            payload=payload_of(made.payload),
            id=made.id or self.id,
            ts=self.facts.now_ms,
            by=self.caller.by,
        )
