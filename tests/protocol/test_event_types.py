"""The types of events and their fields."""

import pytest

from palaver.domain.rights import RESERVED_FAMILIES, RESERVED_TYPES
from palaver.protocol.events import BODIES, Fields, fields_of, unlisted_fields

ANSWERED = {"message", "task.create", "task.update", "task.complete", "agent.hello", "agent.bye"}
"""Types that are requests if they come from outside: the broker handles them and writes the event."""


def test_every_type_is_reserved() -> None:
    others = BODIES.keys() - RESERVED_TYPES - ANSWERED
    assert all(type_.startswith(RESERVED_FAMILIES) for type_ in others)


def test_fields_of_a_type_are_those_that_the_broker_writes() -> None:
    assert fields_of("agent.bye") == Fields(always=frozenset({"reason"}), sometimes=frozenset())
    assert fields_of("pass").always == {"room", "turn_id", "handoff", "reserved_for", "until"}
    assert fields_of("member_left") == Fields(
        always=frozenset({"room", "reason"}), sometimes=frozenset({"from", "kick"})
    )


def test_foreign_type_has_no_fields_of_ours() -> None:
    with pytest.raises(KeyError):
        fields_of("org.x")


@pytest.mark.parametrize(
    ("type_", "payload", "found"),
    [
        ("agent.bye", {"reason": "left"}, set()),
        ("agent.bye", {}, {"reason"}),
        ("agent.bye", {"reason": "left", "mood": "sad"}, {"mood"}),
        ("status", {"state": "idle", "tool": "Bash"}, set()),
        ("task.complete", {"task_id": "t", "colour": "red"}, set()),
        ("task.complete", {"colour": "red"}, {"task_id"}),
        ("org.x", {"anything": 1}, set()),
    ],
)
def test_payload_is_compared_with_its_type(type_: str, payload: dict[str, object], found: set[str]) -> None:
    assert unlisted_fields(type_, payload) == found
