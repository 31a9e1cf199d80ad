"""Messages that were delivered by their path, as the stream of deliveries shows them."""

import pytest

from palaver.protocol.envelope import Event
from palaver.protocol.paths import SessionId, delivered_of


def event(type: str = "message", **payload: object) -> Event:
    return Event(type=type, id="01", sender="ci", ts=5, payload=payload, seq=7, device="TEST")


def test_delivery_names_the_agents_and_sessions() -> None:
    found = delivered_of(event(path="a/b", command="go", payload=[1], delivered_to=["luna+mon", "luna"]))

    assert found is not None
    assert (found.seq, found.message.path, found.message.command, found.message.payload) == (
        7,
        "a/b",
        "go",
        [1],
    )
    assert found.result.delivered_to == ("luna",)
    assert found.result.delivered_to_sessions == (SessionId("luna", "mon"),)
    assert (found.result.message_id, found.result.unmatched) == ("01", False)


@pytest.mark.parametrize(
    "other",
    [
        event(text="hello", delivered_to=["luna"]),
        event(path="a/b", command="go", dead=["a/b"], delivered_to=[]),
        event("status", state="idle"),
    ],
)
def test_other_events_were_not_delivered_by_a_path(other: Event) -> None:
    assert delivered_of(other) is None
