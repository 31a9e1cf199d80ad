"""Rooms, members and turns as plain objects."""

from msgspec import to_builtins
from msgspec.structs import replace
from tests.domain.room_parts import NOW_MS, POLICY, held_by, released, room_of, snapshot

from palaver.broker.context import Turn
from palaver.domain.stick import Sight
from palaver.services.results import DeniedTurn, GrantedTurn, RoomView
from palaver.services.rooms import handover_view, room_line, room_view, turn_view
from palaver.state.rooms import Room, StickState

OWNED = held_by(room_of("ann", "bob"), "ann")


def shown(room: Room) -> RoomView:
    return room_view(room, snapshot(room).facts, POLICY, lambda name: None, caller="ann", cursor=0)


def test_pending_handoff_is_shown_while_the_room_is_open() -> None:
    waiting = released(OWNED)

    assert shown(waiting).pending_handoff == handover_view(waiting.pending)
    assert shown(waiting).pending_handoff is not None
    assert shown(replace(waiting, state=StickState.CLOSED.value)).pending_handoff is None


def test_only_an_owned_stick_has_a_lease() -> None:
    assert shown(OWNED).lease_expires_at == NOW_MS + POLICY.lease_ms
    assert shown(released(OWNED)).lease_expires_at is None


def test_room_line_counts_present_members() -> None:
    facts = snapshot(OWNED, bob=Sight()).facts

    line = room_line(OWNED, facts, POLICY, "bob")

    assert (line.present_count, line.member_count, line.is_member) == (1, 2, True)
    assert not room_line(OWNED, facts, POLICY, "eve").is_member
    assert not room_line(replace(OWNED, state=StickState.CLOSED.value), facts, POLICY, "bob").is_member


def test_own_turn_shows_the_lease_and_other_results_show_the_owner() -> None:
    facts = snapshot(OWNED).facts

    mine = turn_view(Turn(status="your_turn", room=OWNED, turn=1, lease="lease"), facts, POLICY)
    other = turn_view(Turn(status="not_yet", room=OWNED, turn=1, hint="wait"), facts, POLICY)

    assert isinstance(mine, GrantedTurn)
    assert (mine.turn_id, mine.lease_id, mine.from_agent_id, mine.revoked) == (1, "lease", None, None)
    assert isinstance(other, DeniedTurn)
    assert (other.owner_agent_id, other.hint) == ("ann", "wait")


def test_json_of_rooms_and_turns_has_its_fields_in_order() -> None:
    facts = snapshot(OWNED).facts
    stick = (
        "room_id room_state turn_id owner_agent_id lease_expires_at reserved_for claim_expires_at conditions"
    )
    room = "name canonical_path created_at closed_at"

    mine = turn_view(Turn(status="your_turn", room=OWNED, turn=1, lease="lease", hint="go"), facts, POLICY)
    other = turn_view(Turn(status="not_yet", room=OWNED, turn=1), facts, POLICY)

    assert " ".join(to_builtins(shown(OWNED))) == (
        f"{stick} {room} prior_owner_agent_id pending_handoff members policy agent_id cursor_event_seq"
    )
    assert " ".join(to_builtins(room_line(OWNED, facts, POLICY, "bob"))) == (
        f"{stick} {room} member_count present_count is_member"
    )
    assert " ".join(to_builtins(mine)) == (
        "status reason room_id turn_id lease_id lease_expires_at heartbeat_interval_ms handoff from_agent_id "
        "hint"
    )
    assert " ".join(to_builtins(other)) == f"status reason {stick}"
