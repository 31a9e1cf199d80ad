"""Texts that people base decisions on."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.text import escaped, exact


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
def test_every_character_is_visible(text: str, shown: str) -> None:
    assert exact(text) == shown


@given(st.text())
def test_result_has_no_invisible_characters_and_is_stable(text: str) -> None:
    shown = exact(text)

    unseen = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not any(unicodedata.category(char) in unseen for char in shown)
    assert exact(shown) == shown


@given(st.characters())
def test_invisible_character_has_its_own_visible_form(char: str) -> None:
    assert exact(char) in (char, escaped(char))
    assert exact(escaped(char)) == escaped(char)
