"""Rows and events convert into each other, also for large payloads."""

import json
from pathlib import Path

import pytest
from tests.log.logs import draft

from palaver.log.records import (
    COLUMNS,
    LIMIT_ROW_BYTES,
    Blobs,
    EventRow,
    decode_event_row,
    encode_event_row,
    searched_text,
)
from palaver.protocol.envelope import Event, event_from, is_small

LARGE = "x" * (LIMIT_ROW_BYTES + 1)


def column(row: EventRow, name: str) -> object:
    return row[COLUMNS.split(", ").index(name)]


def event(**payload: object) -> Event:
    return event_from(draft(**payload), 1, "BOXE")  # type: ignore[arg-type]  # fields of a payload


def test_small_payload_has_no_blob(tmp_path: Path) -> None:
    made = event(thread="t")

    row = encode_event_row(made, b"key", Blobs(tmp_path))

    assert column(row, "blob") is None
    assert column(row, "thread") == "t"
    assert column(row, "request_key") == b"key"
    assert decode_event_row(row, Blobs(tmp_path)) == made


def test_large_payload_leaves_its_short_fields_in_the_row(tmp_path: Path) -> None:
    made = event(large=LARGE, thread="t", priority=2, room="r" * 2000, file=["a", "list"])

    row = encode_event_row(made, None, Blobs(tmp_path))

    assert json.loads(str(column(row, "payload"))) == {"thread": "t", "priority": 2}
    assert decode_event_row(row, Blobs(tmp_path)) == made


def test_large_payload_leaves_its_short_lists_of_names_in_the_row(tmp_path: Path) -> None:
    many = [f"agent_{number}" for number in range(2000)]
    made = event(large=LARGE, mentions=["nova"], delivered_to=["nova", "kira"], wakes=(), dead=many)

    row = encode_event_row(made, None, Blobs(tmp_path))

    kept = json.loads(str(column(row, "payload")))
    assert kept == {"mentions": ["nova"], "delivered_to": ["nova", "kira"], "wakes": []}


def test_event_with_a_lost_blob_reports_it(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    row = encode_event_row(event(large=LARGE, thread="t"), None, blobs)
    blob = str(column(row, "blob"))

    (tmp_path / blob).unlink()

    assert decode_event_row(row, blobs).payload == {"thread": "t", "missing_blob": blob}


@pytest.mark.parametrize("key", ["thread", "room"])
@pytest.mark.parametrize(("word", "kept"), [(None, None), ("t", "t"), (["t"], ""), (5, "")])
def test_thread_or_room_that_is_not_a_string_is_marked(
    tmp_path: Path, key: str, word: object, kept: str | None
) -> None:
    row = encode_event_row(event(**{key: word}), None, Blobs(tmp_path))

    assert column(row, key) == kept


def test_only_texts_of_certain_fields_are_searched() -> None:
    payload: dict[str, object] = {"title": "one", "text": "two", "reason": 3, "path": "four", "body": "five"}

    assert searched_text(payload) == "two\none\nfive\n"


def test_every_field_of_an_event_has_its_column() -> None:
    renamed = {"to": "recipients", "by": "by_"}
    fields = {renamed.get(name, name) for name in Event.__struct_fields__}

    assert fields <= set(COLUMNS.split(", "))


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({}, True),
        ({"text": "x" * 1000, "to": ["a", "b"], "n": 1, "deep": {"a": [{"b": None}]}}, True),
        ({"text": "x" * 20_000}, False),
        ({"parts": ["x" * 9_000, "x" * 9_000]}, False),
        ({"parts": ("x" * 9_000, {"y": "x" * 9_000})}, False),
        ({"many": [1] * 20_000}, False),
        ({"many": [[]] * 10_000 + [{"x": [0] * 10_000}]}, False),
    ],
)
def test_small_payload_has_few_values_and_short_texts(payload: dict[str, object], expected: bool) -> None:
    assert is_small(payload) is expected
