"""Rooms and notes as rows: found by every reference, kept when closed, and unaffected by invalid events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import AmbiguousRecipient, InvalidCursor, NotFound, RoomNotFound
from palaver.log.memory import MemoryRows
from palaver.protocol.envelope import Event
from palaver.protocol.events import ROOM_TYPES
from palaver.state.fold import SKIPPED, apply
from palaver.state.rooms import (
    count_rooms,
    find_note,
    find_past_room,
    find_room,
    read_all_rooms,
    read_memberships,
    read_notes,
    read_open_rooms,
    read_room,
    read_room_at,
    read_rooms_of,
)

IDS = ("repo-aaaa", "repo-bbbb", "web-cccc")


def past() -> "Story":
    """Return a story with one open room and three closed ones, two of which share a name."""
    story = Story()
    for room in (*IDS, "api-dddd"):
        story.join(room, "ann")
    for room in ("repo-aaaa", "repo-bbbb", "api-dddd"):
        story.tell("close", "human", room=room)
    return story


def test_closed_room_is_found_by_a_short_name_that_no_other_room_had() -> None:
    story = past()

    assert find_past_room(story.rows, "web").id == "web-cccc"
    assert find_past_room(story.rows, "#API").id == "api-dddd"
    assert find_past_room(story.rows, "repo-bbbb").id == "repo-bbbb"
    with pytest.raises(AmbiguousRecipient) as caught:
        find_past_room(story.rows, "repo")
    assert caught.value.candidates == ["repo-aaaa", "repo-bbbb"]


@pytest.mark.parametrize(
    ("word", "nearest"), [("wed", ["web-cccc"]), ("api-ddde", ["api-dddd"]), ("zzzzzz", [])]
)
def test_unknown_room_is_not_found_and_the_nearest_are_named(word: str, nearest: list[str]) -> None:
    with pytest.raises(RoomNotFound) as caught:
        find_past_room(past().rows, word)

    assert caught.value.nearest[: len(nearest)] == nearest
    assert bool(caught.value.nearest) == bool(nearest)
    assert ("did you mean" in str(caught.value)) == bool(nearest)


def test_announcement_of_a_kick_changes_nothing() -> None:
    story = Story()
    story.join("web-cccc", "ann")
    story.join("web-cccc", "bob")
    kick = story.tell("kick", "human", to="bob", room="web-cccc")
    story.join("web-cccc", "bob")
    before = read_room(story.rows, "web-cccc")

    story.tell("member_left", "[pal-events]", room="web-cccc", reason="kicked", from_="bob", kick=kick)

    assert read_room(story.rows, "web-cccc") == before
    assert story.rows.get(SKIPPED, "member_left") is None


class Story:
    """Rows that change event by event."""

    def __init__(self) -> None:
        self.rows = MemoryRows()
        self.seq = 0

    def tell(self, type: str, sender: str, to: str = "", **payload: object) -> str:
        """Apply an event and return its id."""
        self.seq += 1
        happened = Event(
            seq=self.seq,
            id=f"0{self.seq:025d}",
            type=type,
            sender=sender,
            to=(to,) if to else (),
            ts=self.seq,
            device="T",
            payload={key.rstrip("_"): value for key, value in payload.items()},
        )
        self.rows.change(apply(self.rows, happened))
        return happened.id

    def join(self, room: str, name: str, path: str = "") -> None:
        base = room if room.count("-") == 1 else room.rpartition("-")[0]
        self.tell("member_joined", name, room=room, base=base, path=path or f"/{base}", name=base)

    def note(self, room: str, text: str) -> str:
        self.seq += 1
        id_ = f"0{self.seq:025d}"
        self.tell("note_added", "ann", room=room, note=id_, text=text)
        return id_


@pytest.fixture
def story() -> Story:
    made = Story()
    for id_ in IDS:
        made.join(id_, "ann")
    made.join("web-cccc", "bob")
    return made


def ids(rooms: object) -> list[str]:
    return [room.id for room in rooms]  # type: ignore[attr-defined]  # rooms


def test_room_is_found_by_its_id_and_its_path_and_its_members(story: Story) -> None:
    rows = story.rows

    assert find_room(rows, "#WEB-cccc").id == "web-cccc"
    assert ids([read_room_at(rows, "/web-cccc")]) == ["web-cccc"]
    assert ids(read_rooms_of(rows, "ann")) == list(IDS)
    assert ids(read_rooms_of(rows, "bob")) == ["web-cccc"]
    assert read_memberships(rows, "bob") == {"bob": ("web-cccc",)}
    assert read_memberships(rows)["ann"] == tuple(IDS)
    assert ids(read_open_rooms(rows)) == list(IDS)
    assert read_room(rows, "x") is read_room_at(rows, "/x") is None


def test_room_is_found_by_its_short_name_if_it_is_unique(story: Story) -> None:
    assert find_room(story.rows, "#web").id == "web-cccc"
    with pytest.raises(AmbiguousRecipient) as error:
        find_room(story.rows, "repo")

    assert error.value.candidates == ["repo-aaaa", "repo-bbbb"]


@pytest.mark.parametrize("word", ["", "#", "we", "web-", "web-cccc-2", "/"])
def test_other_references_select_no_room(story: Story, word: str) -> None:
    with pytest.raises(RoomNotFound):
        find_room(story.rows, word)


def test_closed_room_is_kept_and_the_next_one_at_its_path_is_new(story: Story) -> None:
    story.tell("close", "human", room="web-cccc")
    closed = read_room_at(story.rows, "/web-cccc")
    story.join("web-cccc-2", "bob")

    assert closed is not None
    assert not closed.is_open
    assert ids(read_all_rooms(story.rows)) == [*IDS, "web-cccc-2"]
    assert ids(read_rooms_of(story.rows, "bob")) == ["web-cccc-2"]
    assert find_room(story.rows, "web").id == "web-cccc-2"
    assert find_room(story.rows, "web-cccc") == closed
    assert count_rooms(story.rows, "web-cccc") == 2


def test_returning_member_keeps_its_ordinal_and_turns(story: Story) -> None:
    given_ = {"turn_id": 1, "lease_id": "l", "reason": "open_claim", "from_": None, "until": 1}
    story.tell("claim", "ann", "ann", room="web-cccc", **given_)
    story.tell("member_left", "ann", room="web-cccc", reason="left")
    assert ids(read_rooms_of(story.rows, "ann")) == ["repo-aaaa", "repo-bbbb"]

    story.join("web-cccc", "ann")

    back = find_room(story.rows, "web").member("ann")
    assert back is not None
    assert (back.ordinal, back.last_turn) == (0, 1)
    assert "web-cccc" in ids(read_rooms_of(story.rows, "ann"))


def test_many_rooms_are_read_page_by_page() -> None:
    story = Story()
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    names = [f"r-{a}{b}aa" for a in alphabet for b in alphabet] + [
        f"s-{a}{b}aa" for a in alphabet for b in alphabet
    ]
    for name in names:
        story.join(name, "ann")

    assert ids(read_rooms_of(story.rows, "ann")) == names


def test_notes_are_listed_in_order_and_resolved_ones_only_on_request(story: Story) -> None:
    notes = [story.note("web-cccc", f"note {number}") for number in range(5)]
    other = story.note("repo-aaaa", "elsewhere")
    story.tell("note_resolved", "bob", room="web-cccc", note=notes[1])

    def listed(**fields: object) -> list[str]:
        return [note.id for note in read_notes(story.rows, "web-cccc", **fields)]  # type: ignore[arg-type]

    assert listed() == [notes[0], *notes[2:]]
    assert listed(include_resolved=True) == notes
    assert listed(after=notes[1], limit=2) == notes[2:4]
    assert listed(limit=0) == notes[:1]
    with pytest.raises(InvalidCursor):
        listed(after=other)


def test_note_is_found_by_the_end_of_its_id(story: Story) -> None:
    first, second = story.note("web-cccc", "a"), story.note("web-cccc", "b")

    assert find_note(story.rows, "web-cccc", first).id == first
    assert find_note(story.rows, "web-cccc", f"#{second[-4:]}").text == "b"
    for id_ in ("01AAAA", "02AAAA"):
        story.tell("note_added", "ann", room="web-cccc", note=id_, text="x")
    with pytest.raises(NotFound, match="several"):
        find_note(story.rows, "web-cccc", "aaaa")
    for word in ("", second[-3:], "9999"):
        with pytest.raises(NotFound):
            find_note(story.rows, "web-cccc", word)


def test_invalid_note_is_skipped_and_counted(story: Story) -> None:
    note = story.note("web-cccc", "a")
    story.tell("note_added", "ann", room="web-cccc", note=note, text="again")
    story.tell("note_added", "ann", room="web-cccc", note="a/b", text="x")
    story.tell("note_added", "ann", room="none-aaaa", note="n", text="x")
    story.tell("note_resolved", "ann", room="web-cccc", note="none")
    story.tell("note_resolved", "ann", room="web-cccc", note=note)
    story.tell("note_resolved", "bob", room="web-cccc", note=note)

    assert story.rows.get(SKIPPED, "note_added") == b"3"
    assert story.rows.get(SKIPPED, "note_resolved") == b"2"
    assert find_note(story.rows, "web-cccc", note).resolved_by == "ann"


words = st.sampled_from(["ann", "bob", "web-cccc", "", "1"]) | st.text(max_size=3)
junk = st.none() | st.integers(-2, 3) | words | st.dictionaries(words, words, max_size=2)
FIELDS = (
    "room base path name harness turn_id lease_id reason from_ until handoff reserved_for cause note text"
)
fields = st.sampled_from(FIELDS.split())
events = st.tuples(
    st.sampled_from(sorted([*ROOM_TYPES, "note_added", "note_resolved"])),
    words,
    words,
    st.dictionaries(fields, junk),
)


@given(st.lists(events, max_size=12))
def test_invalid_room_events_leave_readable_rows(
    garbage: list[tuple[str, str, str, dict[str, object]]],
) -> None:
    story = Story()
    story.join("web-cccc", "ann")

    for type_, sender, to, payload in garbage:
        story.tell(type_, sender, to, **{"room": "web-cccc", **payload})

    for room in read_all_rooms(story.rows):
        assert read_room(story.rows, room.id) == room
        assert all(room.id in ids(read_rooms_of(story.rows, name)) for name in room.names if room.is_open)
        read_notes(story.rows, room.id, include_resolved=True)
    assert ids(read_open_rooms(story.rows)) == [
        room.id for room in read_all_rooms(story.rows) if room.is_open
    ]
