"""The number of examples that property tests draw: one profile decides it, and no test raises it."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

TESTS = Path(__file__).parent
SETTING = "max_" + "examples"


def test_no_test_sets_its_own_number_of_examples() -> None:
    own = TESTS / "conftest.py"

    found = [path for path in TESTS.rglob("*.py") if path != own and SETTING in path.read_text()]

    assert found == []


def test_fast_profile_draws_the_same_ten_examples_each_time() -> None:
    first, second = _drawn(), _drawn()

    assert len(first) == 10
    assert first == second


def test_deep_profile_draws_new_examples_and_prints_how_to_repeat_them() -> None:
    deep = settings.get_profile("deep")

    assert not deep.derandomize
    assert deep.print_blob
    assert getattr(deep, SETTING) > getattr(settings.get_profile("fast"), SETTING)


def _drawn() -> list[int]:
    drawn: list[int] = []

    @settings(settings.get_profile("fast"))
    @given(st.integers())
    def draw(number: int) -> None:
        drawn.append(number)

    draw()
    return drawn
