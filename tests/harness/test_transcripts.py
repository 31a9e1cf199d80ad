"""All transcript readers: no content makes them raise, and they do not read ahead."""

import json
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.transcript_samples import opencode_lines, sample_lines

from palaver.harness.marks import SESSION_MARKS
from palaver.harness.registry import TRANSCRIPTS, is_session_id
from palaver.protocol.transcript import Detail, entry_at_level

SAMPLES = {
    "claude": sample_lines("claude-hooks"),
    "codex": sample_lines("codex-hooks"),
    "gemini": sample_lines("gemini"),
    "opencode": list(opencode_lines()),
}

harnesses = st.sampled_from(sorted(TRANSCRIPTS))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(harnesses, st.lists(st.binary() | json_values.map(lambda value: json.dumps(value).encode() + b"\n")))
def test_garbage_is_skipped(harness: str, lines: list[bytes]) -> None:
    for number, entry in enumerate(TRANSCRIPTS[harness].reader.entries(lines), 1):
        assert msgspec.json.encode(entry_at_level(entry, number, Detail.FULL))


@given(harnesses, st.data())
def test_wrong_values_in_real_lines_are_skipped(harness: str, data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(SAMPLES[harness]))
    changed = spoilt(json.loads(line), data)
    lines = [*SAMPLES[harness][:3], json.dumps(changed).encode() + b"\n", *SAMPLES[harness]]

    for number, entry in enumerate(TRANSCRIPTS[harness].reader.entries(lines), 1):
        assert isinstance(entry.role, str)
        assert isinstance(entry.text, str)
        assert msgspec.json.encode(entry_at_level(entry, number, Detail.FULL))


def spoilt(value: object, data: st.DataObject) -> object:
    """Replace a random part of a value by another value."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: spoilt(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        return [spoilt(value[0], data), *value[1:]]
    return data.draw(json_values)


@given(harnesses, st.data())
def test_incomplete_end_of_a_file_does_not_change_earlier_entries(harness: str, data: st.DataObject) -> None:
    lines, reader = SAMPLES[harness], TRANSCRIPTS[harness].reader
    whole = list(reader.entries(lines))
    content = b"".join(lines)
    cut = content[: data.draw(st.integers(min_value=0, max_value=len(content)))]

    found = list(reader.entries(cut.splitlines(keepends=True)))

    # The last entries may still grow or lack a result; earlier ones must not change.
    assert [(one.role, one.text) for one in found[:-3]] == [
        (one.role, one.text) for one in whole[: max(len(found) - 3, 0)]
    ]


@pytest.mark.parametrize("harness", sorted(TRANSCRIPTS))
def test_reader_does_not_read_ahead(harness: str) -> None:
    read = 0

    def counted() -> Iterator[bytes]:
        nonlocal read
        for line in SAMPLES[harness]:
            read += 1
            yield line

    assert next(TRANSCRIPTS[harness].reader.entries(counted()))
    assert read < len(SAMPLES[harness]) / 2


def test_every_harness_with_session_marks_has_a_reader() -> None:
    assert set(TRANSCRIPTS) == set(SESSION_MARKS)


@pytest.mark.parametrize("text", ["", "../x", "a/b", "*", "a b", "-x", "x" * 200, "[a]"])
def test_invalid_session_id_is_refused(text: str) -> None:
    assert not is_session_id(text)


@pytest.mark.parametrize("text", ["d6183dc9-1de2-48bd-ae78-85ee05944ee6", "ses_e20f74573ffeRP3nnyuGLAQWfu"])
def test_session_ids_of_the_harnesses_are_valid(text: str) -> None:
    assert is_session_id(text)
