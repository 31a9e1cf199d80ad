"""The rule for commits on the event loop."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.log.writer import ALONE_S, CLOSE_S, ENOUGH, QUICK_S, CommitPace


def paced(*took_s: float) -> CommitPace:
    """Return a pace after commits with these durations, all of which ended at time 0."""
    pace = CommitPace()
    for one in took_s:
        pace.ended(0.0, one)
    return pace


def test_unknown_disk_is_not_waited_for() -> None:
    assert not CommitPace().came(1000.0)


def test_enough_quick_commits_allow_commits_on_the_loop() -> None:
    assert not paced(*[QUICK_S] * (ENOUGH - 1)).came(CLOSE_S)
    assert paced(*[QUICK_S] * ENOUGH).came(CLOSE_S)


def test_commit_close_after_another_one_counts_as_company_for_a_while() -> None:
    pace = paced(*[QUICK_S] * ENOUGH)
    came_s = CLOSE_S / 2

    assert not pace.came(came_s)
    assert not pace.came(came_s + ALONE_S / 2)
    assert pace.came(came_s + ALONE_S)


@given(st.lists(st.floats(0, 1), max_size=40))
def test_slow_commit_stops_it_until_enough_were_quick_again(took_s: list[float]) -> None:
    last = took_s[-ENOUGH:]

    is_open = paced(*took_s).came(CLOSE_S)

    assert is_open == (len(last) == ENOUGH and all(one <= QUICK_S for one in last))
