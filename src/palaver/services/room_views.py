"""Rooms, members, turns and notes as plain objects for the room tools. Times are Unix milliseconds.

Pure: presence and time are passed in.
"""

from collections.abc import Callable

from palaver.broker.context import Turn
from palaver.domain.lease import Policy, RoomFacts, conditions, is_gone, lease_until_ms
from palaver.protocol.agents import Agent
from palaver.state.rooms import Handover, Member, Note, Room, StickState

View = dict[str, object]
FindAgent = Callable[[str], Agent | None]


def stick_view(room: Room, facts: RoomFacts, policy: Policy) -> View:
    """Return the state of the stick, which is part of every result about a room."""
    is_owned = room.state == StickState.OWNED
    return {
        "room_id": room.id,
        "room_state": room.state,
        "turn_id": room.turn,
        "owner_agent_id": room.owner or None,
        "lease_expires_at": lease_until_ms(room, facts, policy) if is_owned else None,
        "reserved_for": room.reserved_for or None,
        "claim_expires_at": room.claim_until_ms or None,
        "conditions": [str(one) for one in conditions(room, facts, policy)],
    }


def room_view(room: Room, facts: RoomFacts, policy: Policy, find: FindAgent) -> View:
    """Return all fields of a room as of now."""
    return {
        **stick_view(room, facts, policy),
        "name": room.name,
        "canonical_path": room.path,
        "created_at": room.made_ms,
        "closed_at": room.closed_ms or None,
        "prior_owner_agent_id": room.prior_owner or None,
        "pending_handoff": handover_view(room.pending) if room.is_open else None,
        "members": [member_view(room, member, facts, policy, find) for member in room.members],
        "policy": policy_view(policy),
    }


def room_line(room: Room, facts: RoomFacts, policy: Policy, caller: str) -> View:
    """Return a room as an entry of a list."""
    return {
        **stick_view(room, facts, policy),
        "name": room.name,
        "canonical_path": room.path,
        "created_at": room.made_ms,
        "closed_at": room.closed_ms or None,
        "member_count": len(room.members),
        "present_count": sum(facts.of(name).is_present for name in room.names),
        "is_member": room.member(caller) is not None,
    }


def member_view(room: Room, member: Member, facts: RoomFacts, policy: Policy, find: FindAgent) -> View:
    """Return one member with its current status in the room."""
    sight = facts.of(member.name)
    agent = find(member.name)
    here = "active" if sight.is_present else "away"
    return {
        "agent_id": member.name,
        "harness": member.harness or None,
        "status": "gone" if is_gone(room, member.name, facts, policy) else here,
        "present": sight.is_present,
        "state": None if agent is None else agent.state,
        "waiting": sight.is_waiting,
        "parked": sight.is_parked,
        "is_owner": member.name == room.owner,
        "joined_at": member.joined_ms,
        "last_seen_at": sight.seen_ms,
        "last_turn_id": member.last_turn or None,
    }


def handover_view(handover: Handover | None) -> View | None:
    """Return a handoff that waits for the next owner."""
    if handover is None:
        return None
    return {"from_agent_id": handover.by, "event_seq": handover.seq, "handoff": handover.fields}


def turn_view(turn: Turn, facts: RoomFacts, policy: Policy) -> View:
    """Return the result of a request for the stick."""
    view: View = {"status": turn.status, "reason": turn.reason or None}
    stick = stick_view(turn.room, facts, policy)
    if turn.status == "your_turn":
        view |= {
            "room_id": turn.room.id,
            "turn_id": turn.turn,
            "lease_id": turn.lease,
            "lease_expires_at": stick["lease_expires_at"],
            "heartbeat_interval_ms": policy.heartbeat_ms,
            "handoff": turn.handoff,
            "from_agent_id": turn.sender or None,
        }
        if turn.revoked:
            view["revoked"] = turn.revoked
    else:
        view |= stick
    if turn.hint:
        view["hint"] = turn.hint
    return view


def note_view(note: Note) -> View:
    """Return one note."""
    return {
        "note_id": note.id,
        "room_id": note.room,
        "author_agent_id": note.by,
        "body": note.text,
        "turn_id": note.turn_id,
        "event_seq": note.seq,
        "created_at": note.ts,
        "resolved_at": note.resolved_ms or None,
        "resolved_by_agent_id": note.resolved_by or None,
    }


def policy_view(policy: Policy) -> View:
    """Return the limits that a member of a room needs to know."""
    return {
        "lease_ms": policy.lease_ms,
        "heartbeat_interval_ms": policy.heartbeat_ms,
        "claim_ms": policy.claim_ms,
        "waiter_grace_ms": policy.waiter_grace_ms,
        "presence_ms": policy.presence_ms,
        "long_poll_ms": policy.long_poll_ms,
        "message_bytes": policy.message_bytes,
        "note_bytes": policy.note_bytes,
    }
