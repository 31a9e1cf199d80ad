"""The screen of an unknown program."""

import pytest

from palaver.harness.programs import GENERIC


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
def test_question_is_recognized_by_the_end_of_its_line(line: str, is_question: bool) -> None:
    assert any(rule.search(line) for rule in (*GENERIC.prompts, *GENERIC.questions)) == is_question


def test_generic_profile_has_no_composer_rule() -> None:
    assert GENERIC.read_composer is None
