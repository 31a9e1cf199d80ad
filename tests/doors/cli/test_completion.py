"""Candidates of `complete`, with the real command table and fixed names."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.cli.completion import DIRECTORIES, FILES, SHELLS, complete, completion_script
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import parse
from palaver.errors import UsageError

NAMES = {
    "agents": ["luna\tclaude, idle", "api-nova", "lux"],
    "tags": ["api", "ui"],
    "threads": ["pr-123", "a b", "$(reboot)", "`x`", "x;y", "~root", "%1", "größe"],
    "ids": ["42\tcan you review this?", "43"],
    "harnesses": ["claude", "codex"],
    "launchable": ["claude", "codex"],
}


def candidates(kind: str) -> Sequence[str]:
    return NAMES[kind]


def words(*line: str) -> list[str]:
    """Complete a line and return the candidates without descriptions."""
    return [one.partition("\t")[0] for one in complete(TABLE, line, candidates)]


def test_first_word_is_a_command_and_hidden_ones_are_not_offered() -> None:
    found = words("")

    assert found[:3] == ["up", "down", "status"]
    assert "__complete" not in found
    assert words("rec") == ["recv", "receipts"]


def test_candidate_has_its_description_after_a_tab() -> None:
    assert complete(TABLE, ["doc"], candidates) == ["doctor\tDiagnose problems and suggest fixes"]
    assert complete(TABLE, ["show", "4"], candidates) == ["42\tcan you review this?", "43"]


def test_empty_line_offers_nothing() -> None:
    assert complete(TABLE, [], candidates) == []


def test_second_word_is_a_subcommand_or_an_argument() -> None:
    assert words("status", "") == ["set", "luna", "api-nova", "lux"]
    assert words("status", "luna", "") == ["--stats", "--home", "--as", "--json", "--text", "--help"]


def test_targets_have_an_at_sign_unless_the_word_starts_without() -> None:
    assert words("send", "")[:3] == ["@luna", "@api-nova", "@lux"]
    assert words("send", "@lu") == ["@luna", "@lux"]
    assert words("send", "lu") == ["luna", "lux"]
    assert words("send", "@luna", "@al") == ["@all"]


def test_targets_include_the_tags_of_agents() -> None:
    assert words("send", "@api") == ["@api-nova", "@api-"]
    assert words("send", "u") == ["ui-"]
    assert complete(TABLE, ["send", "@ui"], candidates) == ["@ui-\tall agents with the tag ui"]
    assert words("recv", "--from", "@ui") == []


def test_names_have_no_at_sign_unless_the_word_starts_with_one() -> None:
    assert words("recv", "--from", "lu") == ["luna", "lux"]
    assert words("recv", "--from", "@lu") == ["@luna", "@lux"]


def test_option_values_are_offered_with_a_space_or_an_equals_sign() -> None:
    assert words("send", "--intent", "") == ["request", "inform", "ack"]
    assert words("send", "--intent=re") == ["--intent=request"]
    assert words("--as", "lu") == ["luna", "lux"]
    assert words("join", "--harness", "co") == ["codex"]
    assert words("start", "claude:2", "co") == ["codex"]


def test_value_without_known_candidates_offers_nothing() -> None:
    assert words("send", "--id", "") == []
    assert words("send", "--nonsense=") == []
    assert words("send", "--stdin=") == []


def test_option_is_offered_until_it_or_an_exclusive_one_is_given() -> None:
    assert words("send", "--in") == ["--intent", "--interrupt"]
    assert words("send", "--intent", "ack", "--in") == ["--interrupt"]
    assert words("send", "--priority", "idle", "--in") == ["--intent"]
    assert words("recv", "--from", "luna", "--f") == ["--follow", "--from"]
    assert words("--json", "list", "--te") == []


def test_command_without_arguments_offers_its_options_at_once() -> None:
    assert words("recv", "")[:2] == ["--wait", "--follow"]


def test_file_names_are_left_to_the_shell() -> None:
    assert words("send", "--file", "no") == [FILES]
    assert words("send", "--file=no") == [FILES]
    assert words("--home=/t") == [DIRECTORIES]


def test_no_options_or_text_are_completed_after_a_double_dash() -> None:
    assert words("send", "@luna", "--", "@lu") == []
    assert words("show", "--", "4") == ["42", "43"]
    assert words("show", "--", "--") == []


def test_help_completes_commands_and_subcommands() -> None:
    assert words("help", "whoa") == ["whoami"]
    assert words("help", "status", "") == ["set"]
    assert words("help", "nonsense", "s") == []


def test_candidates_that_a_shell_would_expand_are_left_out() -> None:
    assert words("send", "--thread", "") == ["pr-123", "größe"]
    assert words("send", "--thread=") == ["--thread=pr-123", "--thread=größe"]


def test_description_is_one_safe_line_of_limited_length() -> None:
    def hostile(kind: str) -> Sequence[str]:
        return ["42\t\x1b[2J\n" + "x" * 200]

    (found,) = complete(TABLE, ["show", ""], hostile)

    assert found.startswith("42\t\\u{1b}[2J␊xxx")
    assert len(found) == 63


@given(st.lists(st.text(max_size=8) | st.sampled_from(["send", "--file", "--", "status", "--as=", "-"])))
def test_completion_never_fails_and_candidates_start_as_typed(line: list[str]) -> None:
    found = complete(TABLE, line, candidates)

    assert all("\n" not in one for one in found)
    assert found in ([FILES], [DIRECTORIES], []) or all(one.startswith(line[-1]) for one in found)


@pytest.mark.parametrize("path", [one.path for one in TABLE.commands if not one.is_hidden])
def test_every_command_is_reached_by_completing_its_words(path: tuple[str, ...]) -> None:
    for index, word in enumerate(path):
        assert word in words(*path[:index], word[:1])


def test_every_shell_script_completes_without_starting_the_daemon() -> None:
    for shell in SHELLS:
        assert "command pal __complete --" in completion_script(shell)


def test_call_of_the_scripts_can_be_parsed() -> None:
    found = parse(TABLE, ["__complete", "--", "send", "--thread", ""])

    assert found.after == ["send", "--thread", ""]


def test_shell_without_a_script_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="bash, zsh, fish"):
        completion_script("cmd.exe")
