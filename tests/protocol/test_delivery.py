import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.protocol.events import GRADES, AgentState, Grade, State, can_rise, parse_state

states = st.sampled_from(State)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("queued", "held"),
        ("queued", "submitted"),
        ("queued", "seen"),
        ("queued", "expired"),
        ("queued", "dead"),
        ("held", "submitted"),
        ("held", "refused"),
        ("held", "expired"),
        ("submitted", "seen"),
        ("submitted", "refused"),
        ("seen", "answered"),
        ("queued", "answered"),
        ("expired", "answered"),
        ("dead", "answered"),
    ],
)
def test_state_rises(old: str, new: str) -> None:
    assert can_rise(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("held", "queued"),
        ("submitted", "queued"),
        ("submitted", "held"),
        ("submitted", "expired"),
        ("submitted", "dead"),
        ("seen", "submitted"),
        ("seen", "refused"),
        ("seen", "expired"),
        ("answered", "seen"),
        ("answered", "refused"),
        ("refused", "queued"),
        ("expired", "seen"),
        ("dead", "refused"),
        ("lost", "seen"),
        ("lost", "answered"),
        ("queued", "lost"),
        ("lost", "expired"),
    ],
)
def test_state_does_not_fall(old: str, new: str) -> None:
    assert not can_rise(old, new)


@given(states, states)
def test_two_states_never_rise_into_each_other(one: State, other: State) -> None:
    assert not (can_rise(one, other) and can_rise(other, one))


@given(st.lists(states, min_size=2))
def test_rising_states_come_to_an_end(steps: list[State]) -> None:
    line = State.QUEUED
    rises = 0
    for step in steps:
        if can_rise(line, step):
            line = step
            rises += 1

    assert rises <= 4


def test_better_evidence_ranks_higher() -> None:
    assert GRADES == (Grade.HANDED, Grade.FLUSHED, Grade.ACKED, Grade.CONTEXT)


@given(st.sampled_from(AgentState))
def test_agent_state_survives_formatting_and_parsing(state: AgentState) -> None:
    assert parse_state(str(state)) is state


@pytest.mark.parametrize(("word", "state"), [("listening", AgentState.IDLE), ("inactive", AgentState.EXITED)])
def test_aliases_of_a_state_are_accepted(word: str, state: AgentState) -> None:
    assert parse_state(word) is state


def test_unknown_state_is_refused() -> None:
    with pytest.raises(BadRequest, match="invalid state: asleep"):
        parse_state("asleep")
