"""The order that a client gets to read a transcript."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import NotFound
from palaver.harness.registry import (
    ExcerptOrder,
    KnownSession,
    ReadOrder,
    excerpt_order_from_word,
    known_session,
    order_to_word,
    order_to_words,
    read_order_from_words,
)
from palaver.protocol.agents import Agent, Seat
from palaver.protocol.transcript import Detail, Stretch

words = st.text(st.characters(codec="utf-8"))
sessions = st.builds(
    KnownSession,
    agent=words,
    harness=words,
    session=words,
    path=words,
    pid=st.integers(0, 1 << 31),
    is_own=st.booleans(),
)
numbers = st.integers(1, 1 << 50)
levels = st.sampled_from(Detail)
orders = st.builds(
    ReadOrder,
    known=st.lists(sessions, max_size=2).map(tuple),
    is_all=st.booleans(),
    first=numbers,
    last=st.none() | numbers,
    newest=numbers,
    level=levels,
    search=words,
    is_json=st.booleans(),
)
stretches = st.builds(Stretch, agent=words, first=numbers, last=numbers, level=levels)


@given(orders)
def test_order_survives_being_written_and_read_back(order: ReadOrder) -> None:
    assert read_order_from_words(order_to_words(order)) == order


@given(
    st.builds(ExcerptOrder, wanted=st.lists(st.tuples(sessions, stretches)).map(tuple), is_json=st.booleans())
)
def test_excerpt_order_survives_being_written_and_read_back(order: ExcerptOrder) -> None:
    assert excerpt_order_from_word(order_to_word(order)) == order


@given(orders)
def test_order_can_be_arguments_of_a_command_line(order: ReadOrder) -> None:
    assert not any("\0" in word for word in order_to_words(order))


def known(agent: Agent, *, is_present: bool = True) -> KnownSession:
    return known_session(agent, path="/t.jsonl", is_present=is_present, is_own=False)


def test_order_contains_what_is_known_of_a_session() -> None:
    seat = Seat(pid=7, start=1, boot="b")
    luna = Agent(name="luna", base="luna", harness="claude", session="s", seat=seat)

    assert known(luna) == KnownSession(agent="luna", harness="claude", session="s", path="/t.jsonl", pid=7)
    assert known(luna, is_present=False).pid == 0


def test_link_secret_is_not_used_as_a_session() -> None:
    assert known(Agent(name="luna", base="luna", harness="claude", session="hash", link=True)).session == ""


@pytest.mark.parametrize(
    ("agent", "complaint"),
    [
        (Agent(name="luna:BOXE", base="luna", harness="claude", remote=True), "run this there"),
        (
            Agent(name="luna", base="luna"),
            "the harness of the agent is not known; transcripts of claude, codex, ",
        ),
        (Agent(name="luna", base="luna", harness="aider"), "the transcript format of aider is not known"),
    ],
)
def test_agent_without_a_transcript_gets_an_error_that_says_what_to_do(agent: Agent, complaint: str) -> None:
    with pytest.raises(NotFound, match=complaint):
        known(agent)


def test_process_of_a_sub_agent_is_not_used_for_its_transcript() -> None:
    seat = Seat(pid=7, start=1, boot="b", key="a1")
    child = Agent(name="luna_x_1", base="luna_x_1", parent="luna", harness="claude", seat=seat, session="a1")

    known = known_session(child, path="/p/a1.jsonl", is_present=True, is_own=True)

    assert (known.session, known.path, known.pid, known.is_own) == ("a1", "/p/a1.jsonl", 0, False)
