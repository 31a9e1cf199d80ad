"""The table of event types."""

import pytest

from palaver.domain.rights import RESERVED_TYPES
from palaver.protocol.events import EVENT_TYPES, unlisted_fields

ANSWERED = {"message", "task.create", "task.update", "task.complete", "agent.hello", "agent.bye"}
"""Types that are requests if they come from outside: the broker handles them and writes the event."""


def test_every_type_is_reserved() -> None:
    assert EVENT_TYPES.keys() <= RESERVED_TYPES | ANSWERED


def test_field_is_either_required_or_optional() -> None:
    assert all(not fields.always & fields.sometimes for fields in EVENT_TYPES.values())


@pytest.mark.parametrize(
    ("type_", "payload", "found"),
    [
        ("agent.bye", {"reason": "left"}, set()),
        ("agent.bye", {}, {"reason"}),
        ("agent.bye", {"reason": "left", "mood": "sad"}, {"mood"}),
        ("status", {"state": "idle", "tool": "Bash"}, set()),
        ("org.x", {"anything": 1}, set()),
    ],
)
def test_payload_is_compared_with_its_type(type_: str, payload: dict[str, object], found: set[str]) -> None:
    assert unlisted_fields(type_, payload) == found
