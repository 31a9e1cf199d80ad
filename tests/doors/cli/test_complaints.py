"""Messages of usage errors that the parser tests do not cover."""

import pytest

from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import (
    _SYNONYMS,
    Option,
    missing_value,
    not_a_choice,
    shown,
    too_many,
    trace,
    typed,
    unknown_command,
    unknown_option,
)


def test_command_is_named_as_it_is_typed() -> None:
    assert typed(TABLE.root.command) == "pal"
    assert [typed(one) for one in TABLE.commands if one.path[0] == "status"] == [
        "pal status",
        "pal status set",
    ]


def test_typed_text_is_quoted_and_shortened() -> None:
    assert shown("\x1b") == r"'\x1b'"
    assert shown("x" * 100) == repr("x" * 59 + "…")


def test_hidden_command_is_not_suggested() -> None:
    assert "__complete" not in unknown_command(TABLE.root, "__complet")


def test_option_before_the_command_is_explained() -> None:
    assert unknown_option(TABLE.root, "--jsn") == "pal has no option '--jsn'; did you mean --json?"
    assert "after its name" in unknown_option(TABLE.root, "--peek")


def test_dashes_do_not_count_as_similar_letters() -> None:
    assert unknown_option(TABLE.root.children["list"], "--nope") == (
        "pal list has no option '--nope'; 'pal list --help' lists the options"
    )
    assert "did you mean --verbose?" in unknown_option(TABLE.root.children["list"], "-verbose")


def test_missing_value_is_named() -> None:
    option = Option(name="--thread", metavar="NAME", help="x")

    assert missing_value(option, None) == "--thread requires a value: --thread NAME"
    assert "'--json'" in missing_value(option, "--json")


def test_choices_are_listed_with_the_nearest_one() -> None:
    assert not_a_choice("--x", ("left", "right"), "rihgt").endswith("left, right; did you mean right?")
    assert not_a_choice("--x", ("left", "right"), "q").endswith("left, right")


def test_extra_argument_is_shown_with_the_usage() -> None:
    show = TABLE.find(("show",))
    assert show is not None

    assert too_many(show, ["1", "2"]) == "unexpected argument '2'; usage: pal show ID"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("version", "did you mean 'pal --version'?"),
        ("ps", "did you mean 'pal list'?"),
        ("log", "did you mean 'pal events'?"),
        ("reply", "did you mean 'pal send --reply-to ID'?"),
        ("spawn", "did you mean 'pal start' or 'pal run'?"),
        ("READ", "did you mean 'pal recv' or 'pal show ID'?"),
        ("watch", "did you mean 'pal events --follow'?"),
        ("lsit", "did you mean 'pal list'?"),
        ("receitps", "did you mean 'pal receipts'?"),
        ("banana", "'pal --help' lists the commands"),
    ],
)
def test_other_word_for_a_command_is_explained(word: str, hint: str) -> None:
    assert unknown_command(TABLE.root, word).endswith(f"; {hint}")


def test_synonyms_are_no_commands_and_name_commands() -> None:
    for word, meanings in _SYNONYMS.items():
        assert word not in TABLE.root.children
        for meaning in meanings:
            assert meaning == "--version" or trace(TABLE, meaning.split()).entry.command.path


def test_list_of_a_noun_is_found_by_its_short_word() -> None:
    room = TABLE.root.children["room"]

    assert unknown_command(room, "ls").endswith("; did you mean 'pal room list'?")
    assert unknown_command(room, "ps").endswith("; 'pal room --help' lists the subcommands")
