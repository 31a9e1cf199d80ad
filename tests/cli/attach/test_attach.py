"""When the attach screen is drawn in ASCII, and how large an agent is on it."""

import pytest

from palaver.cli.attach.attach import has_utf8
from palaver.cli.attach.room import screen_size


@pytest.mark.parametrize(
    "environment",
    [
        {"LANG": "en_GB.UTF-8"},
        {"LANG": "C", "LC_CTYPE": "de_DE.utf8"},
        {"LANG": "C", "LC_CTYPE": "C", "LC_ALL": "C.UTF-8"},
        {"LC_CTYPE": "UTF-8"},
    ],
)
def test_a_locale_of_utf_8_is_known_by_its_first_variable(environment: dict[str, str]) -> None:
    assert has_utf8(environment, is_utf8_mode=False)


@pytest.mark.parametrize(
    "environment",
    [{}, {"LANG": "C"}, {"LANG": "de_DE.ISO-8859-1"}, {"LANG": "en_GB.UTF-8", "LC_ALL": "POSIX"}],
)
def test_without_one_the_screen_is_in_ascii(environment: dict[str, str]) -> None:
    assert not has_utf8(environment, is_utf8_mode=False)


def test_a_locale_that_python_made_up_is_not_the_persons() -> None:
    assert not has_utf8({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, is_utf8_mode=True)
    assert has_utf8({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, is_utf8_mode=False)


def test_an_agent_has_two_rows_less_than_the_terminal() -> None:
    assert screen_size(80, 24, {"TERM": "xterm"}) == (80, 22)


def test_an_agent_has_all_of_a_terminal_that_is_too_small_or_can_place_no_cursor() -> None:
    assert screen_size(80, 4, {"TERM": "xterm"}) == (80, 4)
    assert screen_size(80, 24, {"TERM": "dumb"}) == (80, 24)
