"""A room as a value: its names and its encoding."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.room_parts import ID, held_by, released, room_of

from palaver.state.rooms import Handover, Member, Room, StickState

_names = st.text(min_size=1, max_size=5)
_members = st.builds(Member, name=_names, ordinal=st.integers(0, 9), last_turn=st.integers(0, 9))
_rooms = st.builds(
    Room,
    id=_names,
    base=_names,
    path=_names,
    name=_names,
    made_ms=st.integers(0, 9),
    seq=st.integers(0, 9),
    state=st.sampled_from([state.value for state in StickState]),
    members=st.lists(_members, max_size=3).map(tuple),
    owner=st.text(max_size=3),
    is_direct=st.booleans(),
    pending=st.none() | st.builds(Handover, by=_names, seq=st.integers(0, 9), fields=st.just({"a": 1})),
)


@given(_rooms)
def test_room_survives_being_written_and_read_back(room: Room) -> None:
    assert msgspec.json.decode(msgspec.json.encode(room), type=Room) == room


def test_short_name_is_the_base_without_the_hash() -> None:
    assert room_of("ann").slug == ID.rpartition("-")[0]


def test_members_are_found_by_full_name_in_circular_order() -> None:
    room = room_of("ann", "bob")

    assert list(room.names) == ["ann", "bob"]
    assert room.member("bob") == room.members[1]
    assert room.member("eve") is None


def test_room_is_open_in_every_state_except_closed() -> None:
    owned = held_by(room_of("ann", "bob"), "ann")

    assert [room.is_open for room in (owned, released(owned, "bob"), released(owned))] == [True] * 3
    assert not msgspec.structs.replace(owned, state=StickState.CLOSED.value).is_open
