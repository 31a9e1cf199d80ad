"""A permission request is identified by all of its contents."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.events import request_digest

inputs = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()))


@given(st.text(), st.text(), inputs)
def test_same_request_has_the_same_digest(session: str, tool: str, given_: dict[str, object]) -> None:
    again = dict(reversed(list(given_.items())))

    assert request_digest(session, tool, given_) == request_digest(session, tool, again)


@given(st.tuples(st.text(), st.text(), inputs), st.tuples(st.text(), st.text(), inputs))
def test_different_requests_have_different_digests(
    one: tuple[str, str, dict[str, object]], other: tuple[str, str, dict[str, object]]
) -> None:
    assert (request_digest(*one) == request_digest(*other)) == (one == other)


def test_invalid_unicode_has_a_digest_too() -> None:
    assert request_digest("\ud800", "t", {"a": "\udfff"}) != request_digest("", "t", {})
