"""When the event loop commits by itself."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.log.pace import ALONE_S, CLOSE_S, ENOUGH, QUICK_S, Pace


def paced(*took_s: float) -> Pace:
    """Commits that took so long, all of them ended at the moment 0."""
    pace = Pace()
    for one in took_s:
        pace.ended(0.0, one)
    return pace


def test_a_disk_of_which_nothing_is_known_is_not_waited_for() -> None:
    assert not Pace().came(1000.0)


def test_enough_quick_commits_open_the_way() -> None:
    assert not paced(*[QUICK_S] * (ENOUGH - 1)).came(CLOSE_S)
    assert paced(*[QUICK_S] * ENOUGH).came(CLOSE_S)


def test_who_comes_close_behind_another_is_company_for_a_while() -> None:
    pace = paced(*[QUICK_S] * ENOUGH)
    came_s = CLOSE_S / 2

    assert not pace.came(came_s)
    assert not pace.came(came_s + ALONE_S / 2)
    assert pace.came(came_s + ALONE_S)


@given(st.lists(st.floats(0, 1), max_size=40))
def test_a_slow_commit_closes_it_until_enough_were_quick_again(took_s: list[float]) -> None:
    last = took_s[-ENOUGH:]

    is_open = paced(*took_s).came(CLOSE_S)

    assert is_open == (len(last) == ENOUGH and all(one <= QUICK_S for one in last))
