"""Profiles written by users: allowed fields, and errors that explain mistakes."""

import pytest

from palaver.errors import BadRequest
from palaver.harness import programs as generic
from palaver.harness.base import View
from palaver.harness.programs import LIMIT_BYTES, parse_user_profile, with_prompt

WHOLE = b"""
commands = ["mytool", "mt"]
prompts = ['you> ']
dialogs = ['^Proceed\\?']
interrupt = "escape"
settle_ms = 500
idle_after_ms = 3000
"""


def view(*lines: str) -> View:
    return View(lines=lines, bright=lines, row=0, column=0)


def test_file_with_every_field_is_read() -> None:
    found = parse_user_profile("mine", WHOLE)

    profile = found.profile
    assert found.commands == ("mytool", "mt")
    assert (profile.name, profile.settle_ms, profile.idle_after_ms) == ("mine", 500, 3000)
    assert [rule.pattern for rule in profile.takes_messages] == ["you> "]
    assert profile.interrupt.keys == b"\x1b"
    assert profile.questions == generic.GENERIC.questions
    assert profile.read_dialog is not None
    assert profile.read_dialog(view("all is well", "Proceed? now")) == "permission"
    assert profile.read_dialog(view("all is well", "x Proceed?")) is None


def test_profile_applies_to_the_program_of_its_name() -> None:
    assert parse_user_profile("mine", b"interrupt = 'none'").commands == ("mine",)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"#" * (LIMIT_BYTES + 1), "larger than"),
        (b"\xff", "not UTF-8"),
        (b"prompts = [", "is not TOML"),
        (b"prompts = " + b"[" * 5000, "is not TOML"),
        (b"settle_ms = " + b"1" * 5000, "is not TOML"),
        (b"promts = ['x']", "it may have commands, prompts, dialogs"),
        (b"prompts = 'x'", "Expected `array`"),
        (b"prompts = ['(']", r"prompt '\(' is not a regular expression"),
        (b"dialogs = ['(a+)+']", "repeats a group"),
        (b"interrupt = 'ctrl-d'", "'ctrl-c' or 'escape' or 'none'"),
        (b"settle_ms = 0", "settle_ms must be a number from 1"),
        (b"idle_after_ms = 99999999", "idle_after_ms must be a number from 1"),
        (b"prompts = [" + b"'x'," * 21 + b"]", "at most 20 prompts"),
    ],
)
def test_mistake_is_explained(content: bytes, expected: str) -> None:
    with pytest.raises(BadRequest, match=expected):
        parse_user_profile("mine", content)


def test_prompt_rule_of_the_command_line_is_added() -> None:
    profile = parse_user_profile("mine", WHOLE).profile

    assert with_prompt(profile, "") is profile
    assert [rule.pattern for rule in with_prompt(profile, "ask> ").takes_messages] == ["you> ", "ask> "]
