import pytest

from palaver.protocol.envelope import Event, from_agent
from palaver.protocol.query import Query, is_concerned, matches, to_agents


def _event(kind: str, sender: str, *to: str, **payload: object) -> Event:
    return Event(
        seq=1,
        id="A",
        type=kind,
        sender=sender,
        to=to,
        ts=0,
        device="BOXE",
        payload={"room": "shop", **payload},
    )


@pytest.mark.parametrize(
    ("event", "is_for_luna"),
    [
        (_event("message", "nova", "@luna"), True),
        (_event("message", "nova", "luna", "kira"), True),
        (_event("message", "nova", "@kira"), False),
        (_event("message", "nova", "#shop"), True),
        (_event("message", "luna", "#shop"), False),
        (_event("message", "luna", "luna"), True),
        (_event("member_joined", "nova"), True),
        (_event("member_joined", "luna"), False),
        (_event("member_left", "nova"), True),
        (_event("claim", "luna", "luna", **{"from": None}), True),
        (_event("pass", "nova", "luna"), True),
        (_event("release", "luna"), True),
        (_event("takeover", "nova", "kira"), False),
    ],
)
def test_event_concerns_a_member_as_the_table_says(event: Event, is_for_luna: bool) -> None:
    assert is_concerned(event, "luna") is is_for_luna
    assert matches(Query(concerns="luna"), event) is is_for_luna
    assert matches(Query(), event)


def test_event_comes_from_its_sender_or_from_the_agent_it_names() -> None:
    assert from_agent(_event("release", "luna")) == "luna"
    assert from_agent(_event("claim", "nova", "nova", **{"from": "luna"})) == "luna"
    assert from_agent(_event("claim", "nova", "nova", **{"from": None})) is None


def test_message_to_the_room_has_no_individual_recipients() -> None:
    assert to_agents(_event("message", "nova", "#shop")) == ()
    assert to_agents(_event("message", "nova", "@luna")) == ("luna",)
    assert to_agents(_event("pass", "nova", "luna")) == ("luna",)
