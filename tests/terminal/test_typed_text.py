"""Cleaning of a text before it is typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.events import AgentState
from palaver.terminal.keyboard import clean_text, squeeze
from palaver.terminal.screen import Composer, ScreenState
from palaver.terminal.typing import TextPosition, find_text


@pytest.mark.parametrize(
    ("text", "pasted", "plain"),
    [
        ("hello", "hello", "hello"),
        ("one\r\ntwo\rthree\n", "one\ntwo\nthree\n", "one two three "),
        ("a\tb", "a b", "a b"),
        ("stop\x03 \x1b[201~now", "stop [201~now", "stop [201~now"),
        ("\x9b31m\x85red", "31m\nred", "31m red"),
        ("tell @nova", "tell @nova ", "tell @nova "),
        ("read src/main.py", "read src/main.py ", "read src/main.py "),
        ("@nova hello", "@nova hello", "@nova hello"),
        ("/compact", "/compact", "/compact"),
        ("a\u202eb\u2066c", "abc", "abc"),
        ("", "", ""),
    ],
)
def test_characters_that_could_act_as_keys_are_removed(text: str, pasted: str, plain: str) -> None:
    assert clean_text(text, has_paste_mode=True, has_lists=True) == pasted
    assert clean_text(text, has_paste_mode=False, has_lists=True) == plain


@given(st.text(), st.booleans())
def test_no_control_byte_is_ever_typed(text: str, has_paste_mode: bool) -> None:
    clean = clean_text(text, has_paste_mode=has_paste_mode, has_lists=True)

    allowed = {"\n"} if has_paste_mode else set()
    assert {sign for sign in clean if ord(sign) < 32 or 0x7F <= ord(sign) < 0xA0} <= allowed
    assert b"\x1b" not in clean.encode("utf-8", "replace")


def test_wrapping_and_indentation_do_not_hide_a_text() -> None:
    assert squeeze("  one two\n  three ") == squeeze("one two three")


def test_text_in_a_composer_is_ours_although_the_screen_has_no_cell_for_a_character_of_it() -> None:
    shown = ScreenState(
        state=AgentState.IDLE, composer=Composer.DRAFT, has_composer_rule=True, draft="done \u2764 now"
    )

    found = find_text(shown, squeeze("done \u2764\ufe0f now"), None, can_be_part=False)

    assert found is TextPosition.OURS
