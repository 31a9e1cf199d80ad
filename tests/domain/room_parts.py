"""Rooms, events and moments for tests."""

from collections.abc import Mapping

from palaver.domain.stick import Move, Policy, RoomFacts, RoomSnapshot, Sight
from palaver.protocol.envelope import Event
from palaver.protocol.events import payload_of
from palaver.state.rooms import Member, Room, apply_to_room

ID = "repo-abcd"
NOW_MS = 1_000_000_000
POLICY = Policy()
HANDOFF: dict[str, object] = {"status": "tests pass", "next_action": "review"}
HERE = Sight(is_present=True)


def event(
    type: str,
    sender: str,
    payload: Mapping[str, object] | None = None,
    to: str = "",
    seq: int = 1,
    ts: int = NOW_MS,
) -> Event:
    """Return an event of the room."""
    return Event(
        seq=seq,
        id=f"E{seq}",
        type=type,
        sender=sender,
        to=(to,) if to else (),
        ts=ts,
        device="TEST",
        payload={"room": ID, **(payload or {})},
    )


def joined(sender: str, **fields: object) -> Event:
    return event("member_joined", sender, {"base": ID, "path": "/repo", "name": "repo", **fields})


def room_of(*names: str) -> Room:
    """Return a room whose members joined in this order."""
    room = apply_to_room(None, joined(names[0]))
    for name in names[1:]:
        room = apply_to_room(room, joined(name))
    return room


def written(room: Room, sender: str, move: Move, *, seq: int = 7, ts: int = NOW_MS) -> Room:
    """Return the room after a move was stored."""
    made = Event(
        seq=seq,
        id=f"E{seq}",
        type=move.type,
        sender=sender,
        to=move.to,
        ts=ts,
        device="TEST",
        payload=payload_of(move.payload),
    )
    return apply_to_room(room, made)


def held_by(room: Room, name: str, lease: str = "lease") -> Room:
    """Return the room with a member as owner of the stick."""
    claim = {"turn_id": room.turn + 1, "lease_id": lease, "reason": "open_claim", "from": None}
    return apply_to_room(room, event("claim", name, {**claim, "until": NOW_MS + POLICY.lease_ms}, to=name))


def released(room: Room, reserved_for: str = "", handoff: dict[str, object] | None = None) -> Room:
    """Return the room after its owner has released the stick."""
    payload: dict[str, object] = {"turn_id": room.turn, "handoff": HANDOFF if handoff is None else handoff}
    if reserved_for:
        payload |= {"reserved_for": reserved_for, "until": NOW_MS + POLICY.claim_ms}
    return apply_to_room(room, event("release", room.owner, payload, to=reserved_for))


def snapshot(room: Room, now_ms: int = NOW_MS, started_ms: int = 0, **sights: Sight) -> RoomSnapshot:
    """Return a snapshot with all members present, except those given otherwise."""
    known = {name: sights.get(name, HERE) for name in room.names}
    return RoomSnapshot(
        room=room, facts=RoomFacts(now_ms=now_ms, started_ms=started_ms, sights=known), policy=POLICY
    )


def member(name: str, ordinal: int, last_turn: int = 0) -> Member:
    return Member(name=name, ordinal=ordinal, last_turn=last_turn)
