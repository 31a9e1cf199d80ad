"""When the attach screen is drawn in ASCII, and the size of an agent on it."""

import pytest

from palaver.app.attach import screen_size
from palaver.app.attach.attach import has_utf8


@pytest.mark.parametrize(
    "environment",
    [
        {"LANG": "en_GB.UTF-8"},
        {"LANG": "C", "LC_CTYPE": "de_DE.utf8"},
        {"LANG": "C", "LC_CTYPE": "C", "LC_ALL": "C.UTF-8"},
        {"LC_CTYPE": "UTF-8"},
    ],
)
def test_utf_8_locale_is_read_from_its_first_variable(environment: dict[str, str]) -> None:
    assert has_utf8(environment, is_utf8_mode=False)


@pytest.mark.parametrize(
    "environment",
    [{}, {"LANG": "C"}, {"LANG": "de_DE.ISO-8859-1"}, {"LANG": "en_GB.UTF-8", "LC_ALL": "POSIX"}],
)
def test_without_a_utf_8_locale_the_screen_is_in_ascii(environment: dict[str, str]) -> None:
    assert not has_utf8(environment, is_utf8_mode=False)


def test_locale_set_by_python_itself_does_not_count() -> None:
    assert not has_utf8({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, is_utf8_mode=True)
    assert has_utf8({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, is_utf8_mode=False)


def test_agent_has_two_rows_less_than_the_terminal() -> None:
    assert screen_size(80, 24, {"TERM": "xterm"}) == (80, 22)


def test_agent_gets_the_whole_of_a_small_or_dumb_terminal() -> None:
    assert screen_size(80, 4, {"TERM": "xterm"}) == (80, 4)
    assert screen_size(80, 24, {"TERM": "dumb"}) == (80, 24)
