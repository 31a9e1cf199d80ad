"""Only valid events change a room."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.room_parts import HANDOFF, ID, NOW_MS, event, held_by, joined, released, room_of

from palaver.protocol.envelope import Event
from palaver.protocol.events import ROOM_TYPES
from palaver.state.rooms import Handover, Member, Room, apply_to_room

GIVEN = {"lease_id": "l", "until": 1}
CLAIM = {**GIVEN, "reason": "open_claim", "from": None}


def test_first_member_creates_the_room() -> None:
    room = apply_to_room(None, joined("ann", harness="codex"))

    assert (room.id, room.base, room.path, room.name) == (ID, ID, "/repo", "repo")
    assert (room.state, room.turn, room.seq, room.made_ms, room.slug) == ("idle", 0, 1, NOW_MS, "repo")
    assert room.members == (Member(name="ann", ordinal=0, harness="codex", joined_ms=NOW_MS),)


def test_claim_sets_the_owner_and_gives_it_the_handoff() -> None:
    room = held_by(released(held_by(room_of("ann", "bob"), "ann")), "bob", "lease2")

    assert (room.state, room.owner, room.turn, room.lease) == ("owned", "bob", 2, "lease2")
    assert room.brought == Handover(by="ann", seq=1, fields=HANDOFF)
    assert (room.pending, room.reserved_for, room.idle_since_ms, room.prior_owner) == (None, "", 0, "ann")
    assert [member.last_turn for member in room.members] == [1, 2]
    assert room.members[1].last_owned_ms == NOW_MS


def test_returning_member_keeps_its_ordinal_and_turns() -> None:
    room = held_by(room_of("ann", "bob"), "ann")
    former = room.members[0]
    without = apply_to_room(room, event("member_left", "ann", {"reason": "left"}))

    back = apply_to_room(without, joined("ann", harness="codex"), former)

    assert [*back.names] == ["ann", "bob"]
    assert (back.members[0].last_turn, back.members[0].harness, back.next_ordinal) == (1, "codex", 2)


def test_removed_owner_frees_the_stick_and_a_recipient_its_reservation() -> None:
    owned = held_by(room_of("ann", "bob"), "ann")
    reserved = released(owned, "bob")
    gone = {"reason": "gone", "from": "bob"}

    without_owner = apply_to_room(owned, event("kick", "bob", to="ann"))
    without_recipient = apply_to_room(reserved, event("member_left", "[pal-events]", gone))

    assert (without_owner.state, without_owner.owner, without_owner.pending) == ("idle", "", None)
    assert (without_recipient.state, without_recipient.reserved_for) == ("idle", "")
    assert without_recipient.pending == reserved.pending


def test_leaving_member_without_the_stick_changes_nothing_else() -> None:
    owned = held_by(room_of("ann", "bob"), "ann")

    left = apply_to_room(owned, event("member_left", "bob", {"reason": "left"}))

    assert (left.owner, [*left.names]) == ("ann", ["ann"])


def test_expired_reservation_keeps_its_handoff() -> None:
    reserved = released(held_by(room_of("ann", "bob", "cat"), "ann"), "bob")

    free = apply_to_room(reserved, event("reservation_expired", "[pal-events]", {"turn_id": 1}, to="bob"))
    given_on = apply_to_room(
        reserved,
        event("reservation_expired", "x", {"turn_id": 1, "reserved_for": "cat", "until": 9}, to="bob"),
    )

    assert (free.state, free.lapsed, free.pending) == ("idle", "bob", reserved.pending)
    assert (given_on.state, given_on.reserved_for, given_on.claim_until_ms) == ("reserved", "cat", 9)
    assert not given_on.is_direct


def test_takeover_sets_a_new_owner_and_remembers_the_old_one() -> None:
    owned = held_by(room_of("ann", "bob"), "ann")

    taken = apply_to_room(owned, event("takeover", "bob", {**GIVEN, "turn_id": 2, "cause": "x"}, to="ann"))

    assert (taken.owner, taken.turn, taken.prior_owner, taken.brought) == ("bob", 2, "ann", None)


def test_closed_room_keeps_its_members_and_has_no_owner() -> None:
    closed = apply_to_room(held_by(room_of("ann"), "ann"), event("close", "human", {"reason": "done"}))

    assert (closed.is_open, closed.owner, closed.closed_ms) == (False, "", NOW_MS)
    assert [*closed.names] == ["ann"]


ROOM = room_of("ann", "bob")
OWNED = held_by(ROOM, "ann")
RESERVED = released(OWNED, "bob")
CLOSED = apply_to_room(ROOM, event("close", "human"))


@pytest.mark.parametrize(
    ("room", "wrong"),
    [
        (None, event("claim", "ann", {**CLAIM, "turn_id": 1}, to="ann")),
        (None, joined("ann", base="../x")),
        (ROOM, joined("ann")),
        (CLOSED, joined("cat")),
        (CLOSED, event("close", "human")),
        (ROOM, event("member_left", "cat", {"reason": "left"})),
        (ROOM, event("kick", "ann")),
        (ROOM, event("claim", "ann", {**CLAIM, "turn_id": 2}, to="ann")),
        (ROOM, event("claim", "cat", {**CLAIM, "turn_id": 1}, to="cat")),
        (ROOM, event("claim", "ann", {**CLAIM, "turn_id": 1})),
        (OWNED, event("claim", "bob", {**CLAIM, "turn_id": 2}, to="bob")),
        (RESERVED, event("claim", "ann", {**CLAIM, "turn_id": 2}, to="ann")),
        (ROOM, event("takeover", "bob", {**GIVEN, "turn_id": 1, "cause": "x"}, to="ann")),
        (OWNED, event("takeover", "ann", {**GIVEN, "turn_id": 2, "cause": "x"}, to="ann")),
        (ROOM, event("release", "ann", {"turn_id": 0})),
        (OWNED, event("release", "bob", {"turn_id": 1})),
        (OWNED, event("release", "ann", {"turn_id": 2})),
        (OWNED, event("pass", "ann", {"turn_id": 1, "handoff": {}, "reserved_for": "cat"}, to="cat")),
        (OWNED, event("pass", "ann", {"turn_id": 1, "handoff": {}, "reserved_for": "ann"}, to="ann")),
        (OWNED, event("reservation_expired", "x", {"turn_id": 1}, to="bob")),
        (RESERVED, event("reservation_expired", "x", {"turn_id": 2}, to="bob")),
    ],
)
def test_impossible_event_is_refused(room: Room | None, wrong: Event) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each kind is skipped
        apply_to_room(room, wrong)


junk = st.none() | st.integers() | st.text(max_size=3) | st.sampled_from(["ann", "bob", ID, "l"])
payloads = st.dictionaries(
    st.sampled_from(
        ["room", "base", "path", "name", "turn_id", "lease_id", "reason", "from", "until", "handoff"]
    )
    | st.sampled_from(["reserved_for", "cause"]),
    junk,
)


@given(
    st.sampled_from([None, ROOM, OWNED, RESERVED, CLOSED]),
    st.sampled_from(sorted(ROOM_TYPES)),
    payloads,
    st.lists(st.sampled_from(["ann", "bob", "cat"]), max_size=2),
)
def test_any_event_leaves_a_consistent_room(
    room: Room | None, type_: str, payload: dict[str, object], to: list[str]
) -> None:
    happened = Event(seq=9, id="x", type=type_, sender="ann", to=tuple(to), ts=1, device="T", payload=payload)

    try:
        after = apply_to_room(room, happened)
    except (ValueError, TypeError, msgspec.MsgspecError):
        return

    assert (after.state == "owned") == bool(after.owner) == bool(after.lease)
    assert (after.state == "reserved") == bool(after.reserved_for)
    assert {after.owner, after.reserved_for} - {""} <= set(after.names)
    assert after.turn - (room.turn if room else 0) in (0, 1)
