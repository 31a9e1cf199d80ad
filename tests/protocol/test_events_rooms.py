"""Payloads of room events are read as they were written."""

import pytest
from tests.domain.room_parts import ID, event

from palaver.protocol.events import (
    ROOM_TYPES,
    Closed,
    Granted,
    Kicked,
    MemberJoined,
    MemberLeft,
    NoteAdded,
    NoteResolved,
    Passed,
    Payload,
    Released,
    ReservationExpired,
    TakenOver,
    fields_of,
    payload_of,
    type_of,
)

EXAMPLES: list[tuple[str, Payload]] = [
    ("member_joined", MemberJoined(room=ID, base=ID, path="/repo", name="repo", harness="codex")),
    ("member_left", MemberLeft(room=ID, reason="inactive", member="ann")),
    ("kick", Kicked(room=ID, reason="late")),
    ("close", Closed(room=ID)),
    ("claim", Granted(room=ID, turn_id=1, lease_id="l", reason="open_claim", sender=None, until=7)),
    ("takeover", TakenOver(room=ID, turn_id=1, lease_id="l", cause="owner_gone", until=7)),
    ("release", Released(room=ID, turn_id=1, handoff={"a": [1]}, sender="ann", reason="harness_gone")),
    ("pass", Passed(room=ID, turn_id=1, handoff={}, reserved_for="bob", until=7)),
    ("reservation_expired", ReservationExpired(room=ID, turn_id=1)),
    ("note_added", NoteAdded(room=ID, note="n", text="hi", turn_id=0)),
    ("note_resolved", NoteResolved(room=ID, note="n")),
]


@pytest.mark.parametrize(("type_", "payload"), EXAMPLES, ids=[type_ for type_, _ in EXAMPLES])
def test_payload_survives_being_written_and_read_back(type_: str, payload: Payload) -> None:
    assert event(type_, "ann", payload_of(payload)).body == payload


@pytest.mark.parametrize(("type_", "payload"), EXAMPLES, ids=[type_ for type_, _ in EXAMPLES])
def test_payload_has_the_fields_of_its_type(type_: str, payload: Payload) -> None:
    written = payload_of(payload).keys()

    assert fields_of(type_).always <= written <= fields_of(type_).all


@pytest.mark.parametrize(("type_", "payload"), EXAMPLES, ids=[type_ for type_, _ in EXAMPLES])
def test_payload_tells_its_type(type_: str, payload: Payload) -> None:
    assert type_of(payload) == type_


def test_every_type_has_an_example() -> None:
    assert {type_ for type_, _ in EXAMPLES} == ROOM_TYPES | {"note_added", "note_resolved"}
