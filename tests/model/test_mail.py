"""Keys and values of the rows for mail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.model.envelope import Event
from palaver.model.mail import (
    Deliverable,
    agent_key,
    deliverable,
    expiry_key,
    expiry_of_key,
    ledger_key,
    mail_key,
    mail_keys,
    mail_prefix,
    place_of_key,
    priority_of_key,
    reply_place,
)
from palaver.model.priority import Priority

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
def test_keys_of_open_mail_sort_as_mail_is_handed_out(name: str, mail: list[tuple[Priority, int]]) -> None:
    by_key = sorted(mail, key=lambda pair: mail_key(name, *pair))

    def as_handed_out(pair: tuple[Priority, int]) -> tuple[int, int]:
        priority, seq = pair
        return priority, -seq if priority is Priority.IDLE_FIRST else seq

    assert by_key == sorted(mail, key=as_handed_out)


@given(names, priorities, places)
def test_a_key_of_open_mail_tells_its_agent_and_its_priority(name: str, priority: Priority, seq: int) -> None:
    key = mail_key(name, priority, seq)

    assert priority_of_key(key) is priority
    assert key.startswith(mail_prefix(name, priority))
    assert key.startswith(mail_prefix(name))
    assert key in mail_keys(name, seq)


@given(names, places)
def test_the_short_lists_give_the_place_back(name: str, seq: int) -> None:
    assert place_of_key(agent_key(name, seq)) == seq


@given(st.integers(0, 10**14), places, names)
def test_a_key_of_expiry_gives_all_of_it_back(moment: int, seq: int, name: str) -> None:
    assert expiry_of_key(expiry_key(moment, seq, name)) == (moment, seq, name)


@given(st.lists(st.tuples(st.integers(0, 10**14), places)))
def test_keys_of_expiry_sort_by_the_moment(pairs: list[tuple[int, int]]) -> None:
    assert sorted(pairs) == sorted(pairs, key=lambda pair: expiry_key(pair[0], pair[1], "luna"))


@given(places, places)
def test_no_two_messages_share_a_line_of_the_ledger(one: int, other: int) -> None:
    assert (ledger_key(one, "luna") == ledger_key(other, "luna")) == (one == other)


def test_a_message_says_itself_whom_it_is_for() -> None:
    found = deliverable(event(delivered_to=("eve",), priority="idle", expires=9, held="brake"))

    assert found == Deliverable((), Priority.IDLE, 9, "brake")


def test_nobody_gets_a_message_twice() -> None:
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

    assert deliverable(made) == Deliverable(("nova", "kira"), Priority.NORMAL, 0, "")


def test_of_a_foreign_envelope_only_what_stands_beside_its_payload_counts() -> None:
    found = deliverable(event("x", delivered_to=("nova",), priority="idle", expires="soon"))

    assert found == Deliverable(("nova",), Priority.NORMAL, 0, "")


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
def test_a_message_that_cannot_be_read_is_refused(payload: dict[str, object]) -> None:
    made = Event(seq=7, id="ID", type="message", sender="luna", to=(), ts=1, device="TEST", payload=payload)

    with pytest.raises((ValueError, TypeError, BadRequest)):
        deliverable(made)


@pytest.mark.parametrize(
    ("reply_to", "place"),
    [("42", 42), ("42:BOXE", None), ("", None), (42, None), ("9" * 16, None), ("-1", None), (None, None)],
)
def test_a_reply_names_the_place_of_a_local_message(reply_to: object, place: int | None) -> None:
    assert reply_place(event(reply_to=reply_to)) == place
