"""Events with unreadable content: the fold skips and counts them."""

import pytest

from palaver.log.memory import MemoryRows
from palaver.protocol.envelope import Event
from palaver.state.fold import SKIPPED, apply
from palaver.state.rows import encode_row

FILTER: dict[str, object] = {"types": ["message"]}


def event(type_: str, payload: dict[str, object]) -> Event:
    return Event(seq=7, id="ID7", type=type_, sender="luna", to=(), ts=1, device="D", payload=payload)


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("message", {"delivered_to": "nova"}),
        ("message", {"expires": -1}),
        ("message", {"sender_kind": "system", "watch": {"agent": "nova"}}),
        ("message", {"sender_kind": "system", "nag": {"agent": "nova"}}),
        ("delivery", {"agent": "nova", "messages": [1]}),
        ("agent.hello", {"agent": {"name": 3}}),
        ("life", {"action": "resumed"}),
        ("life", {"action": "session", "agent": "luna"}),
        ("status", {"detail": "works"}),
        ("status", {"state": 3}),
        ("task.create", {"title": "x", "assignees": "nova"}),
        ("task.update", {"task_id": 3}),
        ("claim", {"turn_id": 1}),
        ("bundle", {"bundle_id": "bundle:00000001"}),
        ("sub.added", {"id": "a1b2c3", "filter": FILTER}),
        ("sub.added", {"owner": "luna", "filter": FILTER}),
        ("sub.added", {"id": "a1b2c3", "owner": "luna", "filter": {"types": 3}}),
        ("sub.removed", {"reason": "done"}),
    ],
)
def test_event_with_unreadable_content_is_skipped_and_counted(type_: str, payload: dict[str, object]) -> None:
    assert apply(MemoryRows(), event(type_, payload)) == [(SKIPPED, type_, encode_row(1))]


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("message", {"thread": 3, "reply_to": 4, "expects_reply": "yes"}),
        ("message", {"sender_kind": "luna", "watch": 3, "nag": 3}),
        ("life", {"action": 3}),
        ("sub.added", {"id": "a1b2c3"}),
    ],
)
def test_unreadable_field_that_the_fold_does_not_need_is_ignored(
    type_: str, payload: dict[str, object]
) -> None:
    assert apply(MemoryRows(), event(type_, payload)) == []
