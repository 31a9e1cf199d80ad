"""Keys and values of the rows for mail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.protocol.envelope import Event
from palaver.protocol.message import Priority
from palaver.state.rows import (
    Deliverable,
    agent_key,
    answered_seq,
    deliverable,
    expiry_key,
    ledger_key,
    mail_key,
    mail_keys,
    mail_prefix,
    parse_expiry_key,
    priority_of_key,
    seq_of_key,
)

places = st.integers(1, 10**14)
names = st.sampled_from(["luna", "api-luna", "luna:BOXE", "a/b/c", "human"])
priorities = st.sampled_from(Priority)


def event(type_: str = "message", *, delivered_to: tuple[str, ...] = (), **payload: object) -> Event:
    return Event(
        seq=7,
        id="ID",
        type=type_,
        sender="luna",
        to=(),
        ts=1,
        device="TEST",
        payload=payload,
        delivered_to=delivered_to,
    )


@given(names, st.lists(st.tuples(priorities, places), unique_by=lambda pair: pair[1]))
def test_keys_of_open_mail_sort_in_delivery_order(name: str, mail: list[tuple[Priority, int]]) -> None:
    by_key = sorted(mail, key=lambda pair: mail_key(name, *pair))

    def as_handed_out(pair: tuple[Priority, int]) -> tuple[int, int]:
        priority, seq = pair
        return priority, -seq if priority is Priority.IDLE_FIRST else seq

    assert by_key == sorted(mail, key=as_handed_out)


@given(names, priorities, places)
def test_key_of_open_mail_contains_its_agent_and_priority(name: str, priority: Priority, seq: int) -> None:
    key = mail_key(name, priority, seq)

    assert priority_of_key(key) is priority
    assert key.startswith(mail_prefix(name, priority))
    assert key.startswith(mail_prefix(name))
    assert key in mail_keys(name, seq)


@given(names, places)
def test_key_of_a_short_list_returns_the_seq(name: str, seq: int) -> None:
    assert seq_of_key(agent_key(name, seq)) == seq


@given(st.integers(0, 10**14), places, names)
def test_key_of_expiry_returns_all_its_parts(at_ms: int, seq: int, name: str) -> None:
    assert parse_expiry_key(expiry_key(at_ms, seq, name)) == (at_ms, seq, name)


@given(st.lists(st.tuples(st.integers(0, 10**14), places)))
def test_keys_of_expiry_sort_by_time(pairs: list[tuple[int, int]]) -> None:
    assert sorted(pairs) == sorted(pairs, key=lambda pair: expiry_key(pair[0], pair[1], "luna"))


@given(places, places)
def test_two_messages_never_share_a_ledger_entry(one: int, other: int) -> None:
    assert (ledger_key(one, "luna") == ledger_key(other, "luna")) == (one == other)


def test_message_itself_names_its_recipients() -> None:
    found = deliverable(event(delivered_to=("eve",), priority="idle", expires=9, held="brake"))

    assert found == Deliverable(delivered_to=(), priority=Priority.IDLE, expires=9, held="brake")


def test_recipient_gets_a_message_only_once() -> None:
    made = Event(
        seq=7,
        id="ID",
        type="message",
        sender="luna",
        to=(),
        ts=1,
        device="TEST",
        payload={"delivered_to": ["nova", "kira", "nova"]},
    )

    assert deliverable(made) == Deliverable(
        delivered_to=("nova", "kira"), priority=Priority.NORMAL, expires=0, held=""
    )


def test_only_outer_fields_of_a_foreign_envelope_count() -> None:
    found = deliverable(event("x", delivered_to=("nova",), priority="idle", expires="soon"))

    assert found == Deliverable(delivered_to=("nova",), priority=Priority.NORMAL, expires=0, held="")


@pytest.mark.parametrize(
    "payload",
    [
        {"delivered_to": "nova"},
        {"delivered_to": [1]},
        {"expires": -1},
        {"expires": True},
        {"expires": "5"},
        {"expires": 10**15},
        {"priority": "urgent"},
    ],
)
def test_unreadable_message_is_refused(payload: dict[str, object]) -> None:
    made = Event(seq=7, id="ID", type="message", sender="luna", to=(), ts=1, device="TEST", payload=payload)

    with pytest.raises((ValueError, TypeError, BadRequest)):
        deliverable(made)


@pytest.mark.parametrize(
    ("reply_to", "seq"),
    [("42", 42), ("42:BOXE", None), ("", None), (42, None), ("9" * 16, None), ("-1", None), (None, None)],
)
def test_reply_names_the_seq_of_a_local_message(reply_to: object, seq: int | None) -> None:
    assert answered_seq(event(reply_to=reply_to)) == seq
