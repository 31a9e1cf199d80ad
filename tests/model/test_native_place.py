"""How a folder says which holder has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.native_place import Holder, format_holder, parse_holder

NUMBERS = st.integers(min_value=0, max_value=10**18 - 1)


@given(NUMBERS, NUMBERS)
def test_a_holder_survives_being_written_and_read_back(pid: int, start: int) -> None:
    holder = Holder(pid=pid, start=start)

    assert parse_holder(format_holder(holder)) == holder


def test_an_older_holder_has_no_start() -> None:
    assert parse_holder("17") == Holder(pid=17)


@pytest.mark.parametrize("text", ["", "no number", "1 2 3", "-1 2", "\u0663", "1" * 19])
def test_what_names_nobody_is_nobody(text: str) -> None:
    assert parse_holder(text) is None


@given(st.text())
def test_nothing_that_stands_there_can_break_it(text: str) -> None:
    found = parse_holder(text)

    assert found is None or found.pid >= 0
