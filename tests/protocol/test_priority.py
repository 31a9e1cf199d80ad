import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.protocol.message import PRIORITY_WORDS, Priority, format_priority, parse_priority


@given(st.sampled_from(Priority))
def test_priority_survives_formatting_and_parsing(priority: Priority) -> None:
    assert parse_priority(format_priority(priority)) is priority


def test_words_have_their_numbers() -> None:
    values = {word: parse_priority(word).value for word in PRIORITY_WORDS}

    assert values == {"interrupt": 1, "normal": 2, "idle-first": 3, "idle": 4}


@pytest.mark.parametrize("word", ["", "urgent", "Normal", "idle_first"])
def test_other_word_is_not_a_priority(word: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_priority(word)

    assert str(caught.value) == f"invalid priority: {word}"
