"""The command table: its texts are complete and its examples can be parsed."""

import shlex

import pytest

from palaver.doors.cli.run import COMMANDS, PROGRAM, TABLE
from palaver.doors.cli.spec import Command, parse

SHOWN = [one for one in COMMANDS if not one.is_hidden]
LONG = {"New status: open, in_progress, blocked, cancelled, completed, or another single word."}
"""Texts of 60 or more characters: they must list the allowed values."""
EXAMPLES = [line for one in (PROGRAM, *SHOWN) for line, _ in one.examples]


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_can_be_parsed(line: str) -> None:
    words = shlex.split(line.removeprefix('eval "$(').removesuffix(')"').replace("|", " | "))
    start = words.index("pal") + 1
    end = words.index("|", start) if "|" in words[start:] else len(words)

    found = parse(TABLE, words[start:end])

    assert found.command.path == tuple(words[start : start + len(found.command.path)]) or found.is_help


@pytest.mark.parametrize("command", SHOWN, ids=lambda one: " ".join(one.path))
def test_every_command_is_explained(command: Command) -> None:
    assert command.group
    assert command.summary.endswith(".")
    assert len(command.summary) <= 60
    assert command.examples
    for text in [*(one.help for one in command.options), *(one.help for one in command.positionals)]:
        assert text.endswith((".", "…"))
        assert len(text) < 60 or text in LONG
