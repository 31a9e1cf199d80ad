"""The content of events: one struct per type, decoded once, and readable whatever the payload is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.protocol.envelope import Draft, Event, body_as, event_from, room_id_of
from palaver.protocol.events import (
    BODIES,
    AgentHello,
    Closed,
    DeliveryReport,
    ForeignBody,
    MessageSent,
    Unreadable,
    fields_of,
)


def event(type_: str, payload: dict[str, object]) -> Event:
    return Event(seq=1, id="ID1", type=type_, sender="luna", to=(), ts=1, device="D", payload=payload)


def test_content_is_decoded_once() -> None:
    sent = event("message", {"text": "hello"})

    assert sent.body == MessageSent(text="hello")
    assert sent.body is sent.body


def test_cached_content_does_not_change_the_event() -> None:
    read, unread = event("message", {"text": "hello"}), event("message", {"text": "hello"})

    assert read.body == MessageSent(text="hello")
    assert read == unread
    assert repr(read) == repr(unread)
    assert replace(read, payload={"text": "bye"}).body == MessageSent(text="bye")


def test_draft_and_its_event_have_the_same_content() -> None:
    draft = Draft(type="message", sender="luna", payload={"text": "hi"}, id="ID1", ts=1)

    assert draft.body == event_from(draft, 7, "D").body == MessageSent(text="hi")


def test_unreadable_field_has_its_default_and_the_others_are_read() -> None:
    sent = event("message", {"text": "hello", "thread": 5, "dead": "none", "mood": "good"})

    assert sent.body == MessageSent(text="hello")
    assert sent.odd_fields == {"thread", "dead"}


def test_struct_with_a_required_field_is_read_as_a_whole_or_not_at_all() -> None:
    report = event("delivery", {"agent": "nova", "messages": [1], "state": "seen", "lane": 3})

    assert isinstance(report.body, Unreadable)
    assert "$.lane" in report.body.error
    assert report.body.agent == "nova"
    assert report.odd_fields == {"agent", "messages", "state", "lane"}


def test_agent_of_a_hello_that_cannot_be_read_is_reported() -> None:
    hello = event("agent.hello", {"runtime": "codex", "agent": {"name": 3}})

    assert hello.body == AgentHello(runtime="codex")
    assert hello.odd_fields == {"agent"}


def test_foreign_type_has_only_the_common_fields() -> None:
    foreign = event("org.x", {"agent": "nova", "thread": ["a"], "text": "hello"})

    assert foreign.body == ForeignBody(agent="nova")
    assert foreign.odd_fields == {"thread"}


def test_odd_fields_are_the_same_before_and_after_the_body_is_read() -> None:
    sent = event("message", {"text": "hello", "thread": 7})

    first = sent.odd_fields

    assert isinstance(sent.body, MessageSent)
    assert first == sent.odd_fields == {"thread"}


def test_content_is_returned_as_the_expected_struct_or_refused() -> None:
    report = event("delivery", {"agent": "nova", "messages": [1], "state": "seen"})

    assert body_as(report, DeliveryReport).messages == (1,)
    with pytest.raises(TypeError, match="ID1"):
        body_as(report, Closed)


@pytest.mark.parametrize(
    ("type_", "payload", "room"),
    [
        ("close", {"room": "work-ab12"}, "work-ab12"),
        ("message", {"room": "work-ab12"}, "work-ab12"),
        ("message", {}, None),
        ("close", {}, None),
        ("claim", {"room": "work-ab12"}, "work-ab12"),
        ("org.x", {"room": "work-ab12"}, "work-ab12"),
        ("status", {"room": "work-ab12"}, None),
    ],
)
def test_room_of_an_event_is_read_from_its_content(
    type_: str, payload: dict[str, object], room: str | None
) -> None:
    assert room_id_of(event(type_, payload)) == room


@pytest.mark.parametrize(
    ("payload", "blob"), [({}, None), ({"missing_blob": "abc"}, "abc"), ({"missing_blob": 3}, None)]
)
def test_lost_content_names_its_file(payload: dict[str, object], blob: str | None) -> None:
    assert event("message", payload).missing_blob == blob


KEYS = sorted({"org", "missing_blob"}.union(*(fields_of(type_).all for type_ in BODIES)))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


@given(
    type_=st.sampled_from([*BODIES, "org.x"]),
    payload=st.dictionaries(st.sampled_from(KEYS), values, max_size=8),
)
def test_no_payload_makes_reading_fail(type_: str, payload: dict[str, object]) -> None:
    read = event(type_, payload)

    assert isinstance(read.body, (BODIES.get(type_, ForeignBody), Unreadable))
    assert read.odd_fields <= payload.keys()
