import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest, BadText, MessageTooLarge
from palaver.protocol.text import (
    LIMIT_BODY_BYTES,
    LIMIT_THREAD,
    check_line,
    check_text,
    check_thread,
    counted,
)

_REFUSED = {
    *range(0x09),
    0x0B,
    0x0C,
    *range(0x0E, 0x20),
    *range(0x7F, 0xA0),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),
}
allowed = st.characters(exclude_categories=["Cs", "Cc"]).filter(lambda sign: ord(sign) not in _REFUSED)


def test_exactly_the_refused_characters_are_refused() -> None:
    refused = set()
    for codepoint in range(0x11000):
        try:
            check_text(chr(codepoint))
        except BadText as error:
            refused.add(error.codepoint)

    assert refused == _REFUSED


@given(st.text(allowed), st.sampled_from(sorted(_REFUSED)), st.text(allowed))
def test_refused_character_is_found_at_its_position(before: str, codepoint: int, after: str) -> None:
    with pytest.raises(BadText) as caught:
        check_text(before + chr(codepoint) + after, "the note")

    assert (caught.value.what, caught.value.codepoint, caught.value.position) == (
        "the note",
        codepoint,
        len(before),
    )


@given(st.text(allowed), st.integers(0, 40))
def test_size_limit_counts_bytes(text: str, limit_bytes: int) -> None:
    size_bytes = len(text.encode())

    if size_bytes <= limit_bytes:
        check_text(text, limit_bytes=limit_bytes)
    else:
        with pytest.raises(MessageTooLarge) as caught:
            check_text(text, limit_bytes=limit_bytes)
        assert caught.value.size_bytes == size_bytes


def test_message_has_at_most_100_000_bytes() -> None:
    check_text("x" * LIMIT_BODY_BYTES)
    with pytest.raises(MessageTooLarge):
        check_text("x" * (LIMIT_BODY_BYTES + 1))
    with pytest.raises(MessageTooLarge):
        check_text("€" * (LIMIT_BODY_BYTES // 3 + 1))


def test_tabs_and_line_ends_are_kept() -> None:
    check_text("a\tb\nc\r\n")


@pytest.mark.parametrize("name", ["pr-123", "x" * LIMIT_THREAD, "€" * LIMIT_THREAD, "two words"])
def test_thread_name_has_at_most_64_characters(name: str) -> None:
    check_thread(name)


@pytest.mark.parametrize("name", ["", "  ", "x" * (LIMIT_THREAD + 1)])
def test_empty_or_long_thread_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        check_thread(name)


def test_thread_name_with_a_control_character_is_refused() -> None:
    with pytest.raises(BadText):
        check_thread("pr\x1b")


@pytest.mark.parametrize("end", ["\n", "\r", "\t", "\u2028", "\u2029", "\x1b"])
def test_name_is_on_one_line(end: str) -> None:
    check_line("deploy.done", "the type", 256)
    for check in (lambda text: check_line(text, "the type", 256), check_thread):
        with pytest.raises(BadText):
            check(f"deploy{end}done")


def test_long_name_is_refused() -> None:
    with pytest.raises(MessageTooLarge):
        check_line("x" * 257, "the type", 256)


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, ("message",), "0 messages"),
        (1, ("message",), "1 message"),
        (2, ("message",), "2 messages"),
        (1, ("entry", "entries"), "1 entry"),
        (3, ("entry", "entries"), "3 entries"),
    ],
)
def test_noun_fits_its_number(number: int, nouns: tuple[str, ...], text: str) -> None:
    assert counted(number, *nouns) == text
