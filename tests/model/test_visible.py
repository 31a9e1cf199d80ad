"""Texts by which people decide."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.model.visible import escaped, exact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -r x", "rm -r x"),
        ("größer 日本 اب 👍", "größer 日本 اب 👍"),
        ("a\x1b[2J\n", "a␛[2J␊"),
        ("a\x7f\x85", "a␡\\x85"),
        ("ls\u2028pal approve", "ls\\u2028pal approve"),
        ("a\u200bb\ufeff\xad", "a\\u200bb\\ufeff\\xad"),
        ("a\u200db", "a\\u200db"),
        ("\u115f\u3164\u2800\ufe0f", "\\u115f\\u3164\\u2800\\ufe0f"),
        ("\U000e0041\U000e0100", "\\U000e0041\\U000e0100"),
        ("rm\xa0-r\u3000x", "rm\\xa0-r\\u3000x"),
        ("\ud800", "\\ud800"),
    ],
)
def test_everything_in_it_is_seen(text: str, shown: str) -> None:
    assert exact(text) == shown


@given(st.text())
def test_nothing_is_left_that_is_not_seen_and_what_was_shown_stays(text: str) -> None:
    shown = exact(text)

    unseen = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not any(unicodedata.category(char) in unseen for char in shown)
    assert exact(shown) == shown


@given(st.characters())
def test_a_character_that_is_not_seen_has_a_form_of_its_own_that_is(char: str) -> None:
    assert exact(char) in (char, escaped(char))
    assert exact(escaped(char)) == escaped(char)
