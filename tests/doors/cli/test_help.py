"""Help at every width, for every command."""

import json
import re

import pytest

from palaver.doors.cli.help import render_help, render_json
from palaver.doors.cli.run import COMMANDS, TABLE
from palaver.doors.cli.spec import Command, build_table, parse
from palaver.protocol.display import display_width

COLOUR = re.compile("\x1b\\[[0-9]+m")
EVERYTHING = [None, TABLE.root.command, *TABLE.commands]


@pytest.mark.parametrize("width", [30, 40, 59, 60, 80, 100, 500])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for command in EVERYTHING:
        for line in render_help(TABLE, command, width, False).splitlines():
            assert display_width(line) <= width, line


def test_terminal_of_unknown_width_still_gets_help() -> None:
    assert render_help(TABLE, None, 0, False) == render_help(TABLE, None, 30, False)


def test_overview_has_every_command_except_hidden_ones() -> None:
    text = render_help(TABLE, None, 80, False)

    for command in TABLE.commands:
        line = re.compile(
            rf"^  {' '.join(command.path)}  +{re.escape(command.summary.rstrip('.'))}$", re.MULTILINE
        )
        assert bool(line.search(text)) != command.is_hidden


def test_help_of_a_command_has_its_usage_options_and_examples() -> None:
    for command in TABLE.commands:
        text = render_help(TABLE, command, 100, False)

        assert text.startswith(f"Usage: pal {' '.join(command.path)}")
        assert command.summary in text
        for option in command.options:
            assert option.name in text
        for line, _ in command.examples:
            assert line in text


def test_choices_are_named_once() -> None:
    text = render_help(TABLE, parse(TABLE, ["send", "-h"]).command, 100, False)

    assert "One of" not in text
    assert "One of: bash, zsh, fish." in render_help(
        TABLE, parse(TABLE, ["help", "completion"]).command, 80, False
    )


def test_notes_of_a_command_follow_its_options() -> None:
    command = parse(TABLE, ["events", "-h"]).command

    text = " ".join(render_help(TABLE, command, 100, False).split())
    (line,) = render_json(TABLE, command).splitlines()

    assert command.notes
    for note in command.notes:
        assert text.index("--consumer NAME") < text.index(note) < text.index("Exit status")
        assert note in json.loads(line)["description"]


def test_group_shows_its_commands_and_a_command_its_aliases() -> None:
    note = Command(path=("note",), summary="Notes.", is_group=True)
    add = Command(path=("note", "add"), summary="Add one.", aliases=("new",))
    table = build_table(TABLE.root.command, [note, add])

    assert "  note add  Add one\n" in render_help(table, note, 80, False)
    assert "Aliases: new\n" in render_help(table, add, 80, False)


def test_help_has_exit_statuses_and_the_output_of_json() -> None:
    text = render_help(TABLE, parse(TABLE, ["help", "recv"]).command, 100, False)
    trace = render_help(TABLE, parse(TABLE, ["help", "trace"]).command, 100, False)

    assert "Exit status\n  0  Done, also if there were no messages.\n  3  The time of --timeout" in text
    assert "With --json: one object for each step: 'ts', " in trace
    assert "Exit status" not in trace
    assert "With --json" not in text


def test_long_example_is_wrapped_so_that_a_shell_reads_one_line() -> None:
    text = render_help(TABLE, parse(TABLE, ["send", "-h"]).command, 40, False)

    joined = re.sub(r" \\\n +", " ", text)

    assert " \\\n" in text
    for line, _ in parse(TABLE, ["send", "-h"]).command.examples:
        assert line in joined


def test_colours_are_optional_and_change_nothing_else() -> None:
    for command in EVERYTHING:
        plain = render_help(TABLE, command, 80, False)
        bright = render_help(TABLE, command, 80, True)

        assert "\x1b" not in plain
        assert COLOUR.search(bright)
        assert COLOUR.sub("", bright) == plain


def test_help_as_json_has_one_object_for_each_command() -> None:
    lines = [json.loads(line) for line in render_json(TABLE, None).splitlines()]

    shown = [command for command in COMMANDS if not command.is_hidden]
    assert [line["command"] for line in lines] == [" ".join(command.path) for command in shown]
    assert all(line["usage"] and line["summary"] for line in lines)
    send = next(line for line in lines if line["command"] == "send")
    thread = next(option for option in send["options"] if option["name"] == "--thread")
    assert thread["value"]
    assert thread["help"]


def test_help_as_json_of_one_command_is_one_object() -> None:
    parsed = parse(TABLE, ["help", "recv", "--json"])

    (line,) = render_json(TABLE, parsed.command).splitlines()

    assert parsed.form == "json"
    assert json.loads(line)["statuses"]["3"]
    assert parse(TABLE, ["recv", "--help", "--json"]) == parsed
    assert parse(TABLE, ["recv", "--help"]).form is None
