"""The conversations in which IRC shows a message: channels, threads, agents, and conversations of two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.envelope import Event
from palaver.protocol.query import (
    Query,
    conversation_of_agent,
    conversation_of_channel,
    conversation_of_pair,
    conversation_of_thread,
    conversation_words,
    fold_channel,
    index_words,
    is_guest,
    matches,
    shown_conversations,
    wanted_words,
)


def message(*to: str, sender: str = "luna", **payload: object) -> Event:
    made = {"text": "x", "scope": "mentions", "delivered_to": ["nova"]} | payload
    return Event(seq=1, type="message", id="m", sender=sender, to=to, payload=made)


def envelope(*to: str, type: str = "my.type", **fields: object) -> Event:
    return Event(seq=1, type=type, id="e", sender="luna", to=to, delivered_to=("nova",), payload=dict(fields))


@pytest.mark.parametrize(
    ("event", "conversations"),
    [
        (message("@nova"), {"@luna", "@nova", "@luna@nova"}),
        (message("@nova", sender="Nova"), {"@nova", "@nova@nova"}),
        (message("@nova", thread="PR 1"), {"@luna", "@nova", "@luna@nova", "thread/PR 1"}),
        (message("@nova", channel="#General"), {"@luna", "@nova", "#general"}),
        (message(scope="broadcast"), {"@luna", "@nova", "#general"}),
        (message("#App-1", scope="broadcast", room="App-1"), {"@luna", "@nova", "#app-1"}),
        (message("irc/local/#dev", scope="path", delivered_to=[]), {"@luna", "#dev"}),
        (message("irc/local/#a%2fb%2525", scope="path", delivered_to=[]), {"@luna", "#a/b%25"}),
        (
            message("irc/local/bob", scope="path", delivered_to=[]),
            {"@luna", "@irc/local/bob", "@irc/local/bob@luna"},
        ),
        (message("@nova", delivered_to=["nova+s1", "nova"]), {"@luna", "@nova", "@luna@nova"}),
        (message("@nova", raw="eQ=="), set()),
        (envelope(), {"@luna", "@nova", "#general"}),
        (envelope("@all"), {"@luna", "@nova", "#general"}),
        (envelope("@workers"), {"@luna", "@nova", "@luna@nova"}),
        (envelope("irc/local/#dev"), {"@luna", "@nova", "#dev"}),
        (envelope("#app"), {"@luna", "@nova", "#app"}),
        (envelope("nova", type="task.create", title="x"), {"@luna", "@nova", "@luna@nova"}),
        (envelope("nova", delivered_to=["kira"]), {"@luna", "@nova", "@luna@nova"}),
        (envelope(type="status", state="idle"), set()),
        (envelope(type="agent.hello"), set()),
    ],
)
def test_conversations_of_an_event(event: Event, conversations: set[str]) -> None:
    assert shown_conversations(event) == conversations


def test_message_to_many_is_in_no_conversation_of_two() -> None:
    many = [f"a{number}" for number in range(51)]

    assert not any(
        conversation.count("@") == 2
        for conversation in shown_conversations(message("@workers", delivered_to=many))
    )


def test_conversation_of_each_kind_is_found_by_its_word() -> None:
    event = message("@nova", thread="T")

    for conversation in (
        conversation_of_agent("@Nova"),
        conversation_of_thread("T"),
        conversation_of_pair("Nova", "luna"),
    ):
        assert matches(Query(shown=(conversation, "#other")), event)
        assert set(wanted_words(Query(shown=(conversation,)))) <= set(index_words(event))
    assert not matches(Query(shown=(conversation_of_thread("t"),)), event)
    assert conversation_of_channel("#Dev") == "#dev"


@given(name=st.text(max_size=20))
def test_folding_changes_only_ascii_letters(name: str) -> None:
    folded = fold_channel(name)

    assert fold_channel(folded) == folded
    assert len(folded) == len(name)
    assert all(one == other or one.isascii() for one, other in zip(name, folded, strict=True))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("irc/local/bob", True), ("irc/local/#dev", False), ("irc/local/a/b", False), ("luna", False)],
)
def test_guest_has_a_path_of_its_own(name: str, expected: bool) -> None:
    assert is_guest(name) is expected


words = st.sampled_from(["", "#dev", "#Dev", "irc/local/#dev", "irc/local/bob", "@nova", "nova", "@all"])


@given(
    to=st.lists(words, max_size=3),
    type=st.sampled_from(["message", "my.type", "task.update", "status"]),
    payload=st.dictionaries(
        st.sampled_from(["scope", "room", "thread", "channel", "delivered_to", "raw", "dead", "intent"]),
        st.sampled_from(["broadcast", "mentions", ["nova"], 7, None, "#dev", "dev"]),
    ),
)
def test_every_event_is_indexed_by_its_conversations(
    to: list[str], type: str, payload: dict[str, object]
) -> None:
    event = Event(seq=1, type=type, id="x", sender="luna", to=tuple(to), payload=payload)

    assert set(conversation_words(event)) <= set(index_words(event))
    for conversation in shown_conversations(event):
        assert matches(Query(shown=(conversation,)), event)
