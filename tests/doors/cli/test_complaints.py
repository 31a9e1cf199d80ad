"""Messages of usage errors that the parser tests do not cover."""

from palaver.doors.cli.parser import (
    missing_value,
    not_a_choice,
    shown,
    too_many,
    typed,
    unknown_command,
    unknown_option,
)
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import Option


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
