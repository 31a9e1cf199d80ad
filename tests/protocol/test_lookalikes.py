"""Invisible characters are written as numbers and parsed back; look-alikes are folded."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palaver.protocol.agent_text import fold, fold_indices, hide_invisible, show_invisible

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
SINHALA = "\u0dc1\u0dca\u200d\u0dbb\u0dd3"

unseen = st.sampled_from("\u200b\u200c\u200d\u200e\u202e\u2066\ufeff\U000e0041\ufe0f\x9b\x7f")
pieces = unseen | st.sampled_from(["\\", "\\\\", "u{200b}", "u{41}", "\\u{200b}", "a", FAMILY, PERSIAN])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb", r"a\u{200b}b"),
        ("pay\u202eload", r"pay\u{202e}load"),
        ("\u2066x\u2069", r"\u{2066}x\u{2069}"),
        ("ok\U000e0068\U000e0069", r"ok\u{e0068}\u{e0069}"),
        ("re\u200dquest", r"re\u{200d}quest"),
        ("a\ufe0f", r"a\u{fe0f}"),
        ("\x9b2J", r"\u{9b}2J"),
        (r"\u{200b}", r"\\u{200b}"),
        ("\\\u200b", r"\\\u{200b}"),
        (f"{FAMILY}\u200d", FAMILY + r"\u{200d}"),
        (f"{PERSIAN}\u200c\u200c!", PERSIAN + r"\u{200c}\u{200c}!"),
    ],
)
def test_invisible_characters_are_written_as_numbers(text: str, shown: str) -> None:
    assert show_invisible(text) == shown
    assert hide_invisible(shown) == text


@pytest.mark.parametrize(
    "text",
    [
        "plain text",
        "tab\tand\r\nlines",
        FAMILY,
        PERSIAN,
        SINHALA,
        "1\ufe0f\u20e3 and \u2764\ufe0f and \U0001f3f3\ufe0f\u200d\U0001f308",
        "\u845b\U000e0100",
        r'let a = "\u{1f600}"; let b = "\u{41}";',
        "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    ],
)
def test_texts_in_all_scripts_and_emoji_are_unchanged(text: str) -> None:
    assert show_invisible(text) == text


@given(st.lists(pieces | st.characters(exclude_categories=["Cs"]), max_size=12).map("".join))
@example("\\" * 5 + "\u200b")
@example("\\" * 4 + "u{200b}")
def test_shown_characters_are_hidden_again(text: str) -> None:
    assert hide_invisible(show_invisible(text)) == text


@pytest.mark.parametrize(
    "text", ["\\" * 100_000, "\u200b" * 30_000, "\u0645\u200c" * 25_000, "\\u{" * 30_000]
)
def test_text_made_to_be_slow_is_fast(text: str) -> None:
    assert hide_invisible(show_invisible(text)) == text


def test_every_character_that_nfkc_makes_ascii_is_folded() -> None:
    missed = []
    for code in (*range(0x80, 0xD800), *range(0xE000, 0x110000)):
        plain = unicodedata.normalize("NFKC", chr(code)).casefold()
        if plain != chr(code) and plain.isascii() and plain.isalpha() and fold(chr(code)) != plain:
            missed.append(hex(code))

    assert missed == []


@given(st.text())
@example("[reque\ufb06 #1]")
@example("\u212a\u2474x")
def test_each_folded_character_has_its_position_in_the_original(text: str) -> None:
    folded = fold(text)
    indices = fold_indices(text, folded)

    assert len(indices) == len(folded) + 1
    assert indices[-1] == len(text)
    assert all(folded[at] in fold(text[indices[at]]) for at in range(len(folded)))
