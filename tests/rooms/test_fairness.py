"""The fairest is next: who never held the stick, who held it longest ago, and round the circle."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rooms.parts import held_by, member, released, room_of

from palaver.rooms.fairness import fairest, first_in_line, is_before, rank
from palaver.rooms.room import Member

FILE = Path(__file__).parents[1] / "vectors" / "rooms_and_stick.json"
CASES = json.loads(FILE.read_text(encoding="utf-8"))["fairness"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_vector_holds(case: dict[str, Any]) -> None:
    turns = {name: int(moment.removeprefix("t")) for name, moment in case["last_ownership"].items()}
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


def test_nobody_is_first_where_nobody_waits() -> None:
    assert fairest([], after=0, size=1) is None


def test_the_line_begins_behind_the_one_who_gives_the_stick_up() -> None:
    room = room_of("ann", "bob", "cat")

    names = {giver: first_in_line(room, room.members, giver) for giver in ("ann", "bob", "cat", "eve")}

    assert {giver: found and found.name for giver, found in names.items()} == {
        "ann": "bob",
        "bob": "cat",
        "cat": "ann",
        "eve": "ann",
    }


def test_who_never_held_the_stick_stands_before_who_did() -> None:
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
def test_nobody_stands_in_line_where_another_does(waiting: list[Member], after: int) -> None:
    places = {rank(one, after, 41) for one in waiting}

    assert len(places) == len(waiting)


@given(members, st.integers(-1, 40))
def test_the_first_in_line_is_never_one_who_held_the_stick_later_than_another(
    waiting: list[Member], after: int
) -> None:
    found = fairest(waiting, after=after, size=41)

    assert found is None or found.last_turn == min(one.last_turn for one in waiting)
