"""The payload of `pal route`: any JSON value, and a clear refusal of anything else."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palaver.doors.cli.paths import parse_payload
from palaver.errors import UsageError

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values.filter(lambda value: value not in (float("inf"), float("-inf"))))
def test_any_json_value_is_read_as_it_was_written(value: object) -> None:
    written = msgspec.json.encode(value)

    assert msgspec.json.encode(parse_payload(written.decode(), "--payload")) == written


@given(st.text().map(lambda text: f"?{text}"))
@example("")
@example("[" * 100_000)
@example('"\\ud800"')
@example("1e999")
def test_other_text_is_refused_in_words(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--payload is .*nothing was sent$"):
        parse_payload(text, "--payload")


def test_refusal_says_how_to_write_a_text() -> None:
    with pytest.raises(UsageError, match="write a text as '\"hello\"'"):
        parse_payload("hello", "standard input")
