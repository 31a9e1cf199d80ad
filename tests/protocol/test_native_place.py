"""The file that names the holder of a folder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.base import EndpointOwner, format_holder, parse_holder

NUMBERS = st.integers(min_value=0, max_value=10**18 - 1)


@given(NUMBERS, NUMBERS)
def test_holder_survives_formatting_and_parsing(pid: int, start: int) -> None:
    holder = EndpointOwner(pid=pid, start=start)

    assert parse_holder(format_holder(holder)) == holder


def test_older_holder_has_no_start() -> None:
    assert parse_holder("17") == EndpointOwner(pid=17)


@pytest.mark.parametrize("text", ["", "no number", "1 2 3", "-1 2", "\u0663", "1" * 19])
def test_invalid_text_names_no_holder(text: str) -> None:
    assert parse_holder(text) is None


@given(st.text())
def test_any_text_is_parsed_without_an_error(text: str) -> None:
    found = parse_holder(text)

    assert found is None or found.pid >= 0
