"""The definition of commands, and tables that are refused."""

import pytest

from palaver.doors.cli.spec import Command, Option, Positional, build_table, option_usage, usage_line

PROGRAM = Command(path=(), summary="Program.", is_group=True)
NOTE = Command(path=("note",), summary="Notes.", is_group=True)
ADD = Command(path=("note", "add"), summary="Add one.", aliases=("new",))


def test_command_is_found_by_path_and_alias_in_any_table_order() -> None:
    table = build_table(PROGRAM, [ADD, NOTE])

    found = table.find(("note", "new"))

    assert found is not None
    assert found.command is ADD
    assert table.find(("note", "old")) is None
    assert table.find(()) is table.root


def test_children_exclude_aliases_and_hidden_commands() -> None:
    hidden = Command(path=("note", "__debug"), summary="Look inside.", is_hidden=True)
    table = build_table(PROGRAM, [NOTE, ADD, hidden])
    note = table.find(("note",))
    assert note is not None

    assert table.children_of(note) == (ADD,)
    assert table.children_of(table.root) == (NOTE,)


@pytest.mark.parametrize(
    ("commands", "complaint"),
    [
        ([ADD], "no parent command"),
        ([PROGRAM], "no parent command"),
        ([NOTE, NOTE], "names two subcommands"),
        ([NOTE, ADD, Command(path=("note", "new"), summary="x")], "names two subcommands"),
        (
            [Command(path=("a",), summary="x", options=(Option(name="--json", help="x"),))],
            "has the option --json twice",
        ),
        (
            [Command(path=("a",), summary="x", options=(Option(name="-x", short="-h", help="x"),))],
            "has the option -h twice",
        ),
        ([Command(path=("a",), summary="x", exclusive=(("--b", "--json"),))], "does not have"),
        (
            [
                Command(
                    path=("a",),
                    summary="x",
                    positionals=(Positional(name="A", help="x", many=True), Positional(name="B", help="x")),
                )
            ],
            "may be repeated",
        ),
        (
            [
                Command(
                    path=("a",),
                    summary="x",
                    positionals=(
                        Positional(name="A", help="x", optional=True),
                        Positional(name="B", help="x"),
                    ),
                )
            ],
            "required argument after an optional",
        ),
    ],
)
def test_inconsistent_table_is_not_built(commands: list[Command], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        build_table(PROGRAM, commands)


def test_usage_line_shows_required_and_optional_arguments() -> None:
    command = Command(
        path=("put",),
        summary="Put.",
        positionals=(
            Positional(name="WHERE", help="x"),
            Positional(name="WHAT", help="x", many=True, optional=True),
        ),
        options=(Option(name="--all", help="x"),),
        rest="TEXT",
    )

    assert usage_line(command) == "pal put WHERE [WHAT...] [OPTIONS] [--] TEXT"
    assert usage_line(NOTE) == "pal note COMMAND"


def test_option_is_shown_with_its_short_form_and_its_value() -> None:
    assert option_usage(Option(name="--verbose", short="-v", help="x")) == "-v, --verbose"
    assert option_usage(Option(name="--thread", metavar="T", help="x")) == "--thread T"
