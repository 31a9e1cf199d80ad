"""Standard JSON parsing, with the text position of every value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.json_edit import Dialect, add_part, parse_json, remove_part

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


@given(values, st.sampled_from([None, 0, 1, 4, "\t"]), st.booleans())
def test_document_is_read_like_the_standard_parser_reads_it(
    value: object, indent: int | str | None, is_ascii: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)

    node = parse_json(text)

    assert json.dumps(node.value) == json.dumps(value)
    assert text[node.start : node.end] == text.strip()


@given(st.text() | st.text('{}[]",:/* \n1a\\'))
def test_invalid_json_is_refused(text: str) -> None:
    try:
        expected = json.loads(text)
    except (ValueError, RecursionError):
        expected = ValueError

    try:
        found = parse_json(text.removeprefix("\ufeff")).value
    except ValueError:
        found = ValueError

    words = ("NaN", "Infinity")
    assert found == expected or any(word in text for word in words) or text.startswith("\ufeff")


@given(st.dictionaries(st.text(), values), values, st.sampled_from([None, 2, "\t"]), st.text(min_size=1))
def test_added_member_can_be_removed_without_a_trace(
    document: dict[str, object], value: object, indent: int | str | None, name: str
) -> None:
    document.pop(name, None)
    text = json.dumps(document, indent=indent)
    root = parse_json(text)

    added = add_part(text, root, root, name, value)
    holder = parse_json(added)

    assert json.dumps(holder.value) == json.dumps({**document, name: value})
    assert holder.parts is not None
    assert remove_part(added, holder, len(holder.parts) - 1) == text


def test_last_of_two_members_with_the_same_name_counts() -> None:
    node = parse_json('{"a": 1, "a": 2}')

    part = node.get("a")
    assert part is not None
    assert part.node.value == 2


@pytest.mark.parametrize(
    ("text", "dialect", "is_read"),
    [
        ('{"a": 1 /* x */} // y', Dialect(comments=True), True),
        ('{"a": 1 /* x */}', Dialect(), False),
        ("[1, 2,]", Dialect(trailing_commas=True), True),
        ("[1, 2,]", Dialect(comments=True), False),
        ("[,]", Dialect(trailing_commas=True), False),
        ('"/* no comment */"', Dialect(), True),
        ("{/* open", Dialect(comments=True), False),
    ],
)
def test_dialects_allow_comments_and_trailing_commas(text: str, dialect: Dialect, *, is_read: bool) -> None:
    if is_read:
        parse_json(text, dialect)
    else:
        with pytest.raises(ValueError, match="is not valid JSON"):
            parse_json(text, dialect)
