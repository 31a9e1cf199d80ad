"""The filter of room events, checked with test vectors, and the view of an event."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.errors import AgentIdRequired, InvalidEventTypeFilter
from palaver.protocol.envelope import Event
from palaver.protocol.query import ANY, SELF, event_filter, passes, room_event

_LOG: list[tuple[str, str | None, str | None]] = [
    ("member_joined", "claude", None),
    ("message", "codex", "claude"),
    ("message", "codex", None),
    ("message", "claude", "codex"),
    ("claim", None, "codex"),
    ("message", "gemini", "claude"),
    ("message", "claude", None),
    ("pass", "codex", "claude"),
    ("claim", "codex", "claude"),
    ("release", "claude", None),
    ("claim", "claude", "gemini"),
    ("takeover", "gemini", "codex"),
    ("kick", "codex", "gemini"),
    ("member_left", "gemini", None),
    ("message", "codex", "codex"),
    ("reservation_expired", "codex", "claude"),
    ("session_superseded", "zeno", "claude"),
]


def _event(seq: int, type: str, sender: str | None, to: str | None, **payload: object) -> Event:
    """Return a room event: a claim names the previous owner, a message to the room names the room."""
    is_message = type == "message"
    tokens: tuple[str, ...] = (to,) if to else ("#work-ab12",) if is_message else ()
    fields: dict[str, object] = {"room": "work-ab12", **payload}
    if type == "claim":
        fields["from"] = sender
    return Event(
        seq=seq,
        id=f"ID{seq}",
        type=type,
        sender=sender or to or "",
        to=tokens,
        ts=1000 + seq,
        device="TEST",
        payload=fields,
    )


EVENTS = [_event(seq, *one) for seq, one in enumerate(_LOG, 1)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"caller": "codex"}, [1, 4, 5, 7, 8, 9, 12, 13, 14, 15, 16]),
        ({"caller": "claude"}, [2, 3, 6, 8, 9, 10, 11, 14, 16, 17]),
        ({"caller": "gemini"}, [1, 3, 7, 11, 12, 13]),
        ({"caller": "human"}, [1, 3, 7, 14]),
        ({"caller": "codex", "event_type": ["message_sent"]}, [4, 7, 15]),
        ({"caller": "codex", "target": ANY}, list(range(1, 18))),
        ({"caller": None, "target": ANY, "event_type": ["claim", "takeover"]}, [5, 9, 11, 12]),
        ({"caller": None, "target": "claude", "event_type": ["message_sent"]}, [2, 6]),
        ({"caller": None, "target": "@Claude", "event_type": "message"}, [2, 6]),
        ({"caller": None, "target": "nobody"}, []),
        ({"caller": "claude", "sender": "codex"}, [2, 3, 8, 9, 16]),
        ({"caller": "gemini", "event_type": ["join", "leave"]}, [1]),
        ({"caller": "gemini", "event_type": ["member_joined", "member_left"]}, [1]),
        ({"caller": "claude", "event_type": "no such thing"}, []),
        ({"caller": None, "target": ANY}, list(range(1, 18))),
    ],
)
def test_filter_selects_the_expected_events(asked: dict[str, Any], expected: list[int]) -> None:
    wanted = event_filter(**asked)

    assert [event.seq for event in EVENTS if passes(wanted, event)] == expected


def test_target_self_needs_a_named_caller() -> None:
    with pytest.raises(AgentIdRequired):
        event_filter(caller=None, target=SELF)


@pytest.mark.parametrize("types", [[], "", [""], ["message", ""], [1]])
def test_event_type_filter_needs_at_least_one_valid_name(types: Any) -> None:
    with pytest.raises(InvalidEventTypeFilter):
        event_filter(caller="codex", event_type=types)


@given(st.sampled_from(["codex", "claude", "gemini", "human"]), st.sampled_from(EVENTS))
def test_own_events_are_a_subset_of_all_and_contain_those_addressed(me: str, event: Event) -> None:
    mine = passes(event_filter(caller=me), event)
    addressed = passes(event_filter(caller=None, target=me), event)

    assert passes(event_filter(caller=me, target=ANY), event)
    assert mine or not addressed


def test_message_is_shown_with_its_body_and_delivery_hint() -> None:
    event = _event(7, "message", "codex", "claude", text="look", delivery_hint="interrupt", scope="mentions")

    shown = room_event(event)

    assert msgspec.to_builtins(shown) == {
        "event_seq": 7,
        "event_id": "ID7",
        "event_type": "message_sent",
        "from_agent_id": "codex",
        "to_agent_id": "claude",
        "turn_id": None,
        "handoff": None,
        "reason": None,
        "payload": {"body": "look", "delivery_hint": "interrupt"},
        "created_at": 1007,
    }


def test_message_to_the_room_has_no_recipient_and_others_name_theirs() -> None:
    to_room = replace(EVENTS[2], to=("#work-ab12", "@claude"))
    to_two = replace(EVENTS[2], to=("claude", "@gemini"))

    assert room_event(to_room).to_agent_id is None
    assert room_event(to_two).to_agent_id == ("claude", "gemini")


def test_routed_message_in_a_room_reads_as_its_command() -> None:
    routed = Event(
        seq=9,
        id="i",
        type="message",
        sender="claude",
        to=(),
        ts=3,
        device="BOXE",
        payload={"text": "", "command": "run", "payload": [1]},
    )

    assert room_event(routed).payload == {"body": "run [1]", "delivery_hint": "normal"}


def test_uncommon_fields_of_an_event_are_in_its_payload() -> None:
    release = _event(
        9, "release", "codex", "claude", turn_id=3, handoff={"status": "done"}, reason="done", until=77
    )

    shown = room_event(release)

    assert (shown.turn_id, shown.handoff, shown.reason) == (3, {"status": "done"}, "done")
    assert shown.payload == {"until": 77}
    assert room_event(EVENTS[7]).payload is None


@pytest.mark.parametrize("type_", ["org.deploy", "release"])
def test_fields_of_other_programs_are_shown_as_they_are(type_: str) -> None:
    fields: dict[str, object] = {"turn_id": "seven", "handoff": ["done"], "reason": {"code": 5}, "more": 1}
    event = replace(_event(9, type_, "codex", "claude"), payload={**fields, "room": "r", "from": "vega"})

    shown = room_event(event)

    assert (shown.turn_id, shown.handoff, shown.reason) == ("seven", ["done"], {"code": 5})
    assert (shown.from_agent_id, shown.payload) == ("vega", {"more": 1})


def test_claim_comes_from_the_previous_owner_if_any() -> None:
    assert room_event(EVENTS[4]).from_agent_id is None
    assert room_event(EVENTS[8]).from_agent_id == "codex"
