"""Bundles in the state: created once, found, listed, and followed to their parents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.log.memory import MemoryRows
from palaver.protocol.envelope import Event
from palaver.state.references import (
    LIMIT_CHAIN,
    BundleRow,
    made_bundle,
    read_bundle,
    read_newest_bundles,
    read_parents,
)


def key(number: int) -> str:
    return f"{number:08d}"


def event(number: int, **fields: object) -> Event:
    payload = {"bundle_id": f"bundle:{key(number)}", "title": f"T{number}", **fields}
    return Event(
        seq=number,
        id=f"ID{number}",
        type="bundle",
        sender="luna",
        to=(),
        ts=1000 + number,
        device="D",
        payload=payload,
    )


def grown(*events: Event) -> MemoryRows:
    rows = MemoryRows()
    for one in events:
        rows.change(made_bundle(rows, one))
    return rows


def test_bundle_is_found_by_its_eight_characters() -> None:
    file = {"path": "a", "size": 1, "sha256": "x", "content": "a"}

    rows = grown(event(1, files=[file, file], extends="bundle:00000009"))

    assert read_bundle(rows, "00000001") == BundleRow(
        seq=1, title="T1", by="luna", ts=1001, files=2, extends="bundle:00000009"
    )
    assert read_bundle(rows, "00000002") is None


def test_second_bundle_with_the_same_id_changes_nothing() -> None:
    rows = grown(event(1))

    with pytest.raises(ValueError, match="bundle:00000001"):
        made_bundle(rows, event(2, bundle_id="bundle:00000001"))


@pytest.mark.parametrize("fields", [{"title": 3}, {"files": "none"}, {"events": [[1]]}])
def test_invalid_bundle_cannot_be_read(fields: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        made_bundle(MemoryRows(), event(1, **fields))


def test_invalid_bundle_id_cannot_be_read() -> None:
    with pytest.raises(BadRequest):
        made_bundle(MemoryRows(), event(1, bundle_id="bundle:abc123"))


@given(st.lists(st.integers(1, 10**8 - 1), unique=True).map(sorted), st.integers(1, 20))
def test_newest_bundles_are_listed_with_the_newest_last(seqs: list[int], limit: int) -> None:
    rows = grown(*map(event, seqs))

    found = read_newest_bundles(rows, limit)

    assert [(bundle_id, row.seq) for bundle_id, row in found] == [
        (f"bundle:{key(seq)}", seq) for seq in seqs[-limit:]
    ]


def test_parents_of_a_bundle_are_listed_from_the_nearest_to_the_first() -> None:
    rows = grown(event(1), event(2, extends="bundle:00000001"), event(3, extends="bundle:00000002"))

    assert [row.title for _, row in read_parents(rows, "bundle:00000003")] == ["T3", "T2", "T1"]
    assert read_parents(rows, "") == []


def test_missing_parent_ends_the_chain() -> None:
    rows = grown(event(2, extends="bundle:00000001"))

    assert [bundle_id for bundle_id, _ in read_parents(rows, "bundle:00000002")] == ["bundle:00000002"]


def test_long_chain_is_followed_for_a_hundred_steps() -> None:
    count = LIMIT_CHAIN + 5
    rows = grown(*(event(number, extends=f"bundle:{key(number - 1)}") for number in range(2, count)))

    assert len(read_parents(rows, f"bundle:{key(count - 1)}")) == LIMIT_CHAIN
