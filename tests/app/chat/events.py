"""Events of a room for the tests of the chat."""

from palaver.protocol.query import RoomEvent


def room_event(
    event_type: str,
    sender: str | None = None,
    to: str | tuple[str, ...] | None = None,
    *,
    seq: int = 1,
    turn: int | None = None,
    reason: str | None = None,
    payload: dict[str, object] | None = None,
    handoff: dict[str, object] | None = None,
) -> RoomEvent:
    """Return an event as the room tools return it."""
    return RoomEvent(
        event_seq=seq,
        event_id=f"id-{seq}",
        event_type=event_type,
        from_agent_id=sender,
        to_agent_id=to,
        turn_id=turn,
        handoff=handoff,
        reason=reason,
        payload=payload,
        created_at=1,
    )
