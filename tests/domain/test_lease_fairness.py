"""The next owner: members without a turn first, then the longest ago, then in circular order."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.room_parts import held_by, member, released, room_of

from palaver.domain.stick import fairest, first_in_line, is_before, rank
from palaver.state.rooms import Member

FILE = Path(__file__).parents[1] / "vectors" / "rooms_and_stick.json"
CASES = json.loads(FILE.read_text(encoding="utf-8"))["fairness"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_vector_gives_the_expected_next_owner(case: dict[str, Any]) -> None:
    turns = {name: int(snapshot.removeprefix("t")) for name, snapshot in case["last_ownership"].items()}
    every = {one["id"]: one for one in case["members"]}
    waiting = [
        member(name, one["ord"], turns.get(name, 0))
        for name, one in every.items()
        if one.get("eligible", True) and name != case["releasing"]
    ]
    ordinals = [one["ord"] for one in every.values()]

    found = fairest(waiting, after=every[case["releasing"]]["ord"], size=max(ordinals) + 1)

    assert found is not None
    assert found.name == case["expect_reserved_for"]


def test_without_waiters_there_is_no_next_owner() -> None:
    assert fairest([], after=0, size=1) is None


def test_order_starts_after_the_releasing_owner() -> None:
    room = room_of("ann", "bob", "cat")

    names = {giver: first_in_line(room, room.members, giver) for giver in ("ann", "bob", "cat", "eve")}

    assert {giver: found and found.name for giver, found in names.items()} == {
        "ann": "bob",
        "bob": "cat",
        "cat": "ann",
        "eve": "ann",
    }


def test_member_without_a_turn_comes_first() -> None:
    room = released(held_by(room_of("ann", "bob", "cat"), "ann"))
    ann, bob, cat = room.members

    assert is_before(room, bob, ann)
    assert is_before(room, bob, cat)
    assert not is_before(room, ann, cat)


members = st.lists(
    st.builds(member, st.sampled_from("abcdefgh"), st.integers(0, 40), st.integers(0, 9)),
    unique_by=lambda one: one.ordinal,
)


@given(members, st.integers(-1, 40))
def test_no_two_members_have_the_same_rank(waiting: list[Member], after: int) -> None:
    ranks = {rank(one, after, 41) for one in waiting}

    assert len(ranks) == len(waiting)


@given(members, st.integers(-1, 40))
def test_next_owner_never_had_a_later_turn_than_another_waiter(waiting: list[Member], after: int) -> None:
    found = fairest(waiting, after=after, size=41)

    assert found is None or found.last_turn == min(one.last_turn for one in waiting)
