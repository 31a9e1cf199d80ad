"""Raw keys: stored exactly, and shown in a harmless form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest, MessageTooLarge
from palaver.protocol.requests import LIMIT_RAW_BYTES, raw_from_text, raw_to_text, shown
from palaver.protocol.text import check_text


@given(st.binary(min_size=1, max_size=200))
def test_bytes_survive_encoding_and_decoding(data: bytes) -> None:
    assert raw_from_text(raw_to_text(data)) == data


@given(st.binary(max_size=200))
def test_shown_keys_are_valid_in_a_message_and_control_no_terminal(data: bytes) -> None:
    text = shown(data)

    check_text(text)
    assert text.isprintable()


@given(st.lists(st.binary(max_size=20), min_size=2, max_size=2, unique=True))
def test_different_bytes_are_shown_differently(pair: list[bytes]) -> None:
    assert shown(pair[0]) != shown(pair[1])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"y\r", r"y\r"),
        (b"\x1b[A", r"\x1b[A"),
        (b"\xff", r"\xff"),
        ("é".encode(), "é"),
        (b"\\r", r"\\r"),
        ("\u202e".encode(), r"\u202e"),
    ],
)
def test_keys_are_formatted(data: bytes, text: str) -> None:
    assert shown(data) == text


def test_largest_number_of_keys_still_fits_into_a_message() -> None:
    check_text(shown(b"\x00" * LIMIT_RAW_BYTES))


def test_empty_and_oversized_keys_are_refused() -> None:
    with pytest.raises(BadRequest, match="are missing"):
        raw_to_text(b"")
    with pytest.raises(MessageTooLarge):
        raw_to_text(b"x" * (LIMIT_RAW_BYTES + 1))


@pytest.mark.parametrize("text", ["*", "eQ", "é"])
def test_invalid_base64_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        raw_from_text(text)
