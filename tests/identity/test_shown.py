"""The record of shown messages: only those are kept, and the oldest are dropped at the limit."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.identity.presence import ShownMessages

ROOM = "work-ab12"


def test_shown_message_is_remembered_for_its_reader_and_room() -> None:
    shown = ShownMessages()

    shown.add("luna", ROOM, [3, 5])

    assert [shown.has("luna", ROOM, seq) for seq in (3, 4, 5)] == [True, False, True]
    assert not shown.has("nova", ROOM, 3)
    assert not shown.has("luna", "other-cd34", 3)
    assert [shown.has_any(name, seq) for name, seq in (("luna", 3), ("luna", 4), ("nova", 3))] == [
        True,
        False,
        False,
    ]


def test_settled_message_is_dropped() -> None:
    shown = ShownMessages()
    shown.add("luna", ROOM, [3, 5])

    shown.forget("luna", ROOM, [3, 4])
    assert [shown.has("luna", ROOM, seq) for seq in (3, 5)] == [False, True]
    shown.forget("luna", ROOM, [5])
    shown.forget("nova", ROOM, [5])

    assert not shown.has("luna", ROOM, 5)


def test_oldest_message_is_dropped_at_the_limit() -> None:
    shown = ShownMessages(limit_messages=2)

    shown.add("luna", ROOM, [1, 2])
    shown.add("luna", ROOM, [1, 3])

    assert [shown.has("luna", ROOM, seq) for seq in (1, 2, 3)] == [True, False, True]


def test_reader_without_messages_for_longest_is_dropped_at_the_limit() -> None:
    shown = ShownMessages(limit_readers=2)
    for name in ("luna", "nova"):
        shown.add(name, ROOM, [1])

    shown.add("luna", ROOM, [2])
    shown.add("rosa", ROOM, [])
    shown.add("mona", ROOM, [1])

    assert [shown.has(name, ROOM, 1) for name in ("luna", "nova", "mona")] == [True, False, True]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.booleans())))
def test_only_shown_messages_are_remembered(steps: list[tuple[str, int, bool]]) -> None:
    shown, handed = ShownMessages(limit_readers=2, limit_messages=3), set[tuple[str, int]]()

    for name, seq, is_shown in steps:
        if is_shown:
            shown.add(name, ROOM, [seq])
            handed.add((name, seq))
        else:
            shown.forget(name, ROOM, [seq])
            handed.discard((name, seq))

    assert all((name, seq) in handed for name in "abc" for seq in range(10) if shown.has(name, ROOM, seq))
