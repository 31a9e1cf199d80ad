"""Parts of a transcript: how they are written, parsed and shown."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest, MessageTooLarge, NotFound
from palaver.protocol.transcript import (
    LIMIT_DEPTH,
    LIMIT_EXCERPT_BYTES,
    LIMIT_SHORT_INPUT,
    Detail,
    JsonLines,
    Stretch,
    ToolCall,
    TranscriptEntry,
    TranscriptReader,
    entry_at_level,
    format_range,
    format_stretch,
    parse_range,
    parse_span,
    parse_stretch,
    take_excerpt,
)

READER: TranscriptReader = JsonLines()

numbers = st.integers(min_value=1, max_value=10**15 - 1)
ranges = st.tuples(numbers, numbers).map(lambda both: (min(both), max(both)))
names = st.from_regex(r"([a-z][a-z0-9_-]*-)?[a-z][a-z0-9_]*(:[A-Z0-9]+)?", fullmatch=True)
stretches = st.builds(
    lambda agent, both, level: Stretch(agent=agent, first=both[0], last=both[1], level=level),
    st.just("") | names,
    ranges,
    st.sampled_from(Detail),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
objects = st.dictionaries(
    st.sampled_from(["role", "text", "content", "tools", "type"]) | st.text(), json_values
)


def lines(*entries: object) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def read(content: bytes) -> list[TranscriptEntry]:
    return list(READER.entries(content.splitlines(keepends=True)))


@given(ranges)
def test_range_survives_formatting_and_parsing(both: tuple[int, int]) -> None:
    assert parse_range(format_range(*both)) == both


@given(stretches)
def test_stretch_survives_formatting_and_parsing(stretch: Stretch) -> None:
    assert parse_stretch(format_stretch(stretch)) == stretch


@given(st.text(alphabet=string.digits + "-:#abl ") | st.text())
def test_any_text_is_a_stretch_or_refused(text: str) -> None:
    try:
        found = parse_stretch(text)
    except BadRequest:
        return

    assert 1 <= found.first <= found.last


@pytest.mark.parametrize(
    ("text", "expected"), [("100-120", (100, 120)), ("7", (7, 7)), ("#3", (3, 3)), ("#3-#9", (3, 9))]
)
def test_range_is_two_numbers_or_one(text: str, expected: tuple[int, int]) -> None:
    assert parse_range(text) == expected


@pytest.mark.parametrize(
    "text", ["", "-", "a-b", "1-", "-3", "0", "0-3", "5-3", "1-2-3", "1 - 2", "٣", "1\n"]
)
def test_invalid_range_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a range"):
        parse_range(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10-15", Stretch(first=10, last=15)),
        ("10-15:full", Stretch(first=10, last=15, level=Detail.FULL)),
        ("luna:10", Stretch(agent="luna", first=10, last=10)),
        ("luna:BOXE:1-2:Detailed", Stretch(agent="luna:BOXE", first=1, last=2, level=Detail.DETAILED)),
    ],
)
def test_stretch_may_have_a_name_and_a_level(text: str, expected: Stretch) -> None:
    assert parse_stretch(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "write \\[NAME:\\]A-B"),
        ("luna", "write \\[NAME:\\]A-B"),
        ("luna:full", "write \\[NAME:\\]A-B"),
        ("1-2:loud", "the level of a transcript must be normal or full or detailed, not 'loud'"),
        ("luna:3-1", "write the smaller number first"),
    ],
)
def test_invalid_stretch_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        parse_stretch(text)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ({"role": "user", "text": "hello"}, "hello"),
        ({"role": "user", "content": "hello"}, "hello"),
        ({"role": "user", "content": ["hello", {"type": "text", "text": "you"}, 7]}, "hello\nyou"),
        ({"role": "user", "content": {"odd": True}}, ""),
        ({"role": "user"}, ""),
    ],
)
def test_line_contains_its_text_in_one_of_several_forms(line: dict[str, object], text: str) -> None:
    entries = read(lines(line))

    assert entries == [TranscriptEntry(role="user", text=text, whole=line)]


def test_line_names_its_tools_in_blocks_or_in_a_list() -> None:
    block = {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}

    entries = read(lines({"content": [block]}, {"tools": [{"name": "Read", "input": "a.py"}, "Think"]}))

    assert [entry.tools for entry in entries] == [
        (ToolCall(name="Bash", input={"command": "ls"}),),
        (ToolCall(name="Read", input="a.py"), ToolCall(name="Think")),
    ]


def test_empty_line_is_not_an_entry() -> None:
    assert [entry.text for entry in read(b'\n{"text":"a"}\r\n  \n{"text":"b"}')] == ["a", "b"]


@pytest.mark.parametrize("line", [b"hello", b"[1]", b'{"text":', b'{"text":"\xff"}'])
def test_line_that_is_not_an_object_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(BadRequest, match="line 2 of the transcript is not a JSON object"):
        read(b'{"text":"a"}\n' + line + b"\n")


def test_incomplete_last_line_is_skipped() -> None:
    assert [entry.text for entry in read(b'{"text":"a"}\n{"text":"b')] == ["a"]


@pytest.mark.parametrize("depth", [LIMIT_DEPTH, 5000])
def test_line_that_is_nested_too_deep_is_refused(depth: int) -> None:
    with pytest.raises(BadRequest, match="line 1 of the transcript is nested more than"):
        read(b'{"text":' + b"[" * depth + b"]" * depth + b"}\n")


def test_line_with_many_adjacent_brackets_is_not_deep() -> None:
    wide = {"role": "user", "text": [[{}] for _ in range(200)], "more": 1}

    assert read(lines(wide)) == [TranscriptEntry(role="user", text="", whole=wide)]


def test_each_level_shows_more_than_the_one_below_it() -> None:
    tool = ToolCall(name="Bash", input={"command": "ls"})
    entry = TranscriptEntry(
        role="assistant", text="look", tools=(tool,), whole={"role": "assistant", "cost": 3}
    )

    normal = entry_at_level(entry, 4, Detail.NORMAL)
    detailed = entry_at_level(entry, 4, Detail.DETAILED)
    full = entry_at_level(entry, 4, Detail.FULL)

    assert normal == {"number": 4, "role": "assistant", "text": "look"}
    assert detailed == {**normal, "tools": [{"name": "Bash", "input": '{"command":"ls"}'}]}
    assert full == {**detailed, "whole": {"role": "assistant", "cost": 3}}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, ""),
        ("ls", "ls"),
        ("x" * LIMIT_SHORT_INPUT, "x" * LIMIT_SHORT_INPUT),
        ("x" * (LIMIT_SHORT_INPUT + 1), "x" * (LIMIT_SHORT_INPUT - 1) + "…"),
    ],
)
def test_input_of_a_tool_is_shortened(given: object, shown: str) -> None:
    entry = TranscriptEntry(role="", text="", tools=(ToolCall(name="T", input=given),), whole={})

    assert entry_at_level(entry, 1, Detail.DETAILED)["tools"] == [{"name": "T", "input": shown}]


def test_output_of_a_tool_is_shortened_and_shown_with_its_input() -> None:
    tools = (
        ToolCall(name="T", input="x", output="y" * 300),
        ToolCall(name="U", output="no such file", is_error=True),
    )
    entry = TranscriptEntry(role="assistant", text="", tools=tools, whole={}, ts=7)

    shown = entry_at_level(entry, 1, Detail.DETAILED)

    assert shown["ts"] == 7
    assert shown["tools"] == [
        {"name": "T", "input": "x", "output": "y" * (LIMIT_SHORT_INPUT - 1) + "…"},
        {"name": "U", "input": "", "output": "no such file", "is_error": True},
    ]


@pytest.mark.parametrize(("text", "expected"), [("10-", (10, None)), ("#3-", (3, None)), ("7-9", (7, 9))])
def test_span_may_be_open_ended(text: str, expected: tuple[int, int | None]) -> None:
    assert parse_span(text) == expected


@pytest.mark.parametrize("text", ["-", "-5", "3-4-", "0-", "x-", "", "5-2"])
def test_invalid_span_is_refused(text: str) -> None:
    with pytest.raises(
        BadRequest, match="is not a range; write 100-120, 100 for a single one, or 100- for all"
    ):
        parse_span(text)


@given(st.lists(objects, min_size=1, max_size=8), st.data())
def test_excerpt_has_exactly_the_entries_of_its_stretch(entries: list[object], data: st.DataObject) -> None:
    last = data.draw(st.integers(min_value=1, max_value=len(entries)))
    first = data.draw(st.integers(min_value=1, max_value=last))

    stretch = Stretch(first=first, last=last, level=Detail.FULL)
    taken = take_excerpt(READER, lines(*entries).splitlines(keepends=True), stretch, "luna")

    assert (taken.agent, taken.first, taken.last, taken.level) == ("luna", first, last, "full")
    assert [entry["number"] for entry in taken.entries] == list(range(first, last + 1))
    assert [entry["whole"] for entry in taken.entries] == entries[first - 1 : last]


@pytest.mark.parametrize(("count", "has"), [(0, "0 entries"), (1, "1 entry"), (4, "4 entries")])
def test_stretch_beyond_the_end_is_refused(count: int, has: str) -> None:
    content = lines(*[{"text": "x"}] * count)

    with pytest.raises(NotFound, match=f"no part 2-5 in the transcript of luna: it has {has}"):
        take_excerpt(READER, content.splitlines(keepends=True), Stretch(first=2, last=5), "luna")


def test_excerpt_larger_than_a_bundle_is_refused() -> None:
    content = [
        *lines(*[{"text": "x" * (LIMIT_EXCERPT_BYTES // 2)}] * 3).splitlines(keepends=True),
        b"never read\n",
    ]

    with pytest.raises(MessageTooLarge, match="part 1-2 of the transcript of luna has"):
        take_excerpt(READER, content, Stretch(first=1, last=9), "luna")


def test_nothing_is_read_after_the_stretch() -> None:
    content = lines({"text": "a"}) + b"not JSON\n"

    taken = take_excerpt(READER, content.splitlines(keepends=True), Stretch(first=1, last=1), "luna")

    assert taken.entries == ({"number": 1, "role": "", "text": "a"},)
