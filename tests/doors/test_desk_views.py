"""Rooms, members and turns as plain objects."""

from msgspec.structs import replace
from tests.domain.room_parts import NOW_MS, POLICY, held_by, moment, released, room_of

from palaver.broker.context import Turn
from palaver.domain.lease import Sight
from palaver.services.rooms import handover_view, room_line, room_view, turn_view
from palaver.state.rooms import Room, StickState

OWNED = held_by(room_of("ann", "bob"), "ann")


def shown(room: Room) -> dict[str, object]:
    return room_view(room, moment(room).facts, POLICY, lambda name: None)


def test_pending_handoff_is_shown_while_the_room_is_open() -> None:
    waiting = released(OWNED)

    assert shown(waiting)["pending_handoff"] == handover_view(waiting.pending)
    assert shown(waiting)["pending_handoff"] is not None
    assert shown(replace(waiting, state=StickState.CLOSED.value))["pending_handoff"] is None


def test_only_an_owned_stick_has_a_lease() -> None:
    assert shown(OWNED)["lease_expires_at"] == NOW_MS + POLICY.lease_ms
    assert shown(released(OWNED))["lease_expires_at"] is None


def test_room_line_counts_present_members() -> None:
    facts = moment(OWNED, bob=Sight()).facts

    line = room_line(OWNED, facts, POLICY, "bob")

    assert (line["present_count"], line["member_count"], line["is_member"]) == (1, 2, True)
    assert not room_line(OWNED, facts, POLICY, "eve")["is_member"]


def test_own_turn_shows_the_lease_and_other_results_show_the_owner() -> None:
    facts = moment(OWNED).facts

    mine = turn_view(Turn(status="your_turn", room=OWNED, turn=1, lease="lease"), facts, POLICY)
    other = turn_view(Turn(status="not_yet", room=OWNED, turn=1, hint="wait"), facts, POLICY)

    assert (mine["turn_id"], mine["lease_id"], mine["from_agent_id"]) == (1, "lease", None)
    assert "revoked" not in mine
    assert (other["owner_agent_id"], other["hint"]) == ("ann", "wait")
    assert "lease_id" not in other
