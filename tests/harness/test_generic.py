"""How a program looks that nobody knows."""

import pytest

from palaver.harness.generic import PROFILE


@pytest.mark.parametrize(
    ("line", "is_question"),
    [
        ("Overwrite? [y/N] ", True),
        ("Go on (yes/no)? ", True),
        ("[Y/n]: ", True),
        ("Are you sure you want to delete it? ", True),
        ("Password: ", True),
        ("[sudo] password for pat: ", True),
        ("Enter PIN: ", True),
        ("> ", False),
        ("(venv) $ ", False),
        ("the password was: ok, go on> ", False),
        ("Apply it? y/n ", True),
        ("use y/n or not> ", False),
    ],
)
def test_a_question_is_known_by_how_its_line_ends(line: str, is_question: bool) -> None:
    assert any(rule.search(line) for rule in (*PROFILE.prompts, *PROFILE.questions)) == is_question


def test_it_has_no_composer_rule() -> None:
    assert PROFILE.read_composer is None
