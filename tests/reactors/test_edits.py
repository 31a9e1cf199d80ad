"""Edits of one file by two agents within half a minute collide once."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.envelope import Event
from palaver.reactors.subscriptions import LIMIT_FILES, WINDOW_MS, Edits


def edit(agent: str, ts: int = 0, file: object = "x.py", type: str = "status") -> Event:
    payload = {"state": "active", "file": file}
    return Event(seq=1, id="id", type=type, sender=agent, to=(), ts=ts, device="TEST", payload=payload)


def collided(edits: Edits, *events: Event) -> list[list[str]]:
    return [[other.sender for other in edits.collide(event, event.sender)] for event in events]


def test_edit_collides_with_edits_of_others_newest_first() -> None:
    edits = Edits()

    found = collided(edits, edit("luna"), edit("luna"), edit("nova"), edit("kira"))

    assert found == [[], [], ["luna"], ["nova", "luna"]]


def test_other_files_and_other_events_do_not_collide() -> None:
    edits = Edits()

    found = collided(
        edits,
        edit("luna"),
        edit("nova", file="y.py"),
        edit("nova", type="build"),
        edit("nova", file=""),
        edit("nova", file=["x.py"]),
    )

    assert found == [[], [], [], [], []]


def test_edits_more_than_half_a_minute_apart_do_not_collide() -> None:
    edits = Edits()

    found = collided(edits, edit("luna"), edit("nova", WINDOW_MS + 1), edit("luna", 2 * WINDOW_MS + 1))

    assert found == [[], [], ["nova"]]


def test_continued_edits_collide_again_only_after_a_pause() -> None:
    edits = Edits()
    step = WINDOW_MS - 1

    found = collided(
        edits,
        edit("luna"),
        edit("nova", step),
        edit("luna", 2 * step),
        edit("nova", 3 * step),
        edit("nova", 5 * step),
        edit("luna", 5 * step),
    )

    assert found == [[], ["luna"], [], [], [], ["nova"]]


def test_least_recently_edited_file_is_dropped_above_the_limit() -> None:
    edits = Edits()
    collided(edits, edit("luna", file="first"), edit("luna", file="second"))
    collided(edits, *(edit("luna", file=str(number)) for number in range(LIMIT_FILES - 1)))

    found = collided(edits, edit("nova", file="second"), edit("nova", file="first"))

    assert found == [["luna"], []]
    assert len(edits) == LIMIT_FILES


def test_earliest_of_too_many_agents_on_one_file_is_dropped() -> None:
    edits = Edits()
    collided(edits, *(edit(f"agent{number}") for number in range(70)))

    (found,) = collided(edits, edit("nova"))

    assert "agent0" not in found
    assert found[0] == "agent69"


@given(st.lists(st.tuples(st.sampled_from(["luna", "nova"]), st.integers(0, 5 * WINDOW_MS)), max_size=20))
def test_edit_never_collides_with_own_or_old_edits(day: list[tuple[str, int]]) -> None:
    edits = Edits()

    for agent, ts in day:
        for other in edits.collide(edit(agent, ts), agent):
            assert other.sender != agent
            assert abs(other.ts - ts) <= WINDOW_MS
