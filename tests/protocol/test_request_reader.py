"""Where the only request of a connection ends, however its bytes arrive."""

import pytest

from palaver.errors import MessageTooLarge
from palaver.protocol.agent_socket import RequestReader

REQUEST = rb'{"type": "send", "body": "a } \" {", "more": {"x": 1}}'


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_request_ends_with_its_object_however_it_is_split(size: int) -> None:
    reader = RequestReader()
    data = b" \n" + REQUEST + b"rest"
    pieces = [data[start : start + size] for start in range(0, len(data), size)]

    found = [answer for piece in pieces if (answer := reader.feed(piece)) is not None]

    request, behind = found[0]
    assert request == REQUEST
    assert b"rest".startswith(behind)


def test_request_that_is_not_an_object_ends_with_its_line() -> None:
    assert RequestReader().feed(b"hello\nmore") == (b"hello", b"\nmore")


def test_extra_closing_brace_ends_nothing() -> None:
    assert RequestReader().feed(b"} x\n") == (b"} x", b"\n")


def test_request_without_an_end_is_returned_at_the_end_of_input() -> None:
    reader = RequestReader()

    assert reader.feed(b'{"a": "b\\') is None
    assert reader.end() == b'{"a": "b\\'


def test_request_without_an_end_has_a_limit() -> None:
    reader = RequestReader(limit_bytes=10)

    with pytest.raises(MessageTooLarge):
        reader.feed(b'{"a": "bcdefgh')
