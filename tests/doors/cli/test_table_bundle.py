"""The table of bundle commands: its texts are complete and its examples can be parsed."""

import shlex

import pytest
from tests.doors.cli.bundle_stage import TABLE

from palaver.doors.cli.bundles import BUNDLE_COMMANDS, CONTENT_OPTIONS, SEND_OPTIONS
from palaver.doors.cli.spec import Command, parse

EXAMPLES = [line for command in BUNDLE_COMMANDS for line, _ in command.examples]


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_can_be_parsed(line: str) -> None:
    words = shlex.split(line)

    assert parse(TABLE, words[1:]).command.path == tuple(words[1:3])


@pytest.mark.parametrize("command", BUNDLE_COMMANDS, ids=lambda one: " ".join(one.path))
def test_every_command_is_explained(command: Command) -> None:
    assert command.summary.endswith(".")
    assert len(command.summary) <= 60
    for text in [*(one.help for one in command.options), *(one.help for one in command.positionals)]:
        assert text.endswith(".")


def test_send_has_all_content_options_of_a_bundle() -> None:
    assert SEND_OPTIONS[-len(CONTENT_OPTIONS) :] == CONTENT_OPTIONS
