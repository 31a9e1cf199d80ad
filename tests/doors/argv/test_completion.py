"""What `complete` offers, against a small table and the real one."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.argv.completion import DIRECTORIES, FILES, complete, completion_script
from palaver.doors.argv.parse import parse
from palaver.doors.argv.table import SHELLS, TABLE
from palaver.errors import UsageError

NAMES = {
    "agents": ["luna\tclaude, idle", "api-nova", "lux"],
    "threads": ["pr-123", "a b", "$(reboot)", "`x`", "x;y", "~root", "%1", "größe"],
    "ids": ["42\tcan you review this?", "43"],
    "harnesses": ["claude", "codex"],
}


def candidates(kind: str) -> Sequence[str]:
    return NAMES[kind]


def words(*line: str) -> list[str]:
    """Complete a line and give the words only, without descriptions."""
    return [one.partition("\t")[0] for one in complete(TABLE, line, candidates)]


def test_the_first_word_is_a_command_and_hidden_ones_are_not_offered() -> None:
    found = words("")

    assert found[:3] == ["up", "down", "status"]
    assert "__complete" not in found
    assert words("rec") == ["recv", "receipts"]


def test_a_candidate_carries_its_description_behind_a_tab() -> None:
    assert complete(TABLE, ["doc"], candidates) == ["doctor\tDiagnose problems and suggest fixes"]
    assert complete(TABLE, ["show", "4"], candidates) == ["42\tcan you review this?", "43"]


def test_no_words_at_all_offer_nothing() -> None:
    assert complete(TABLE, [], candidates) == []


def test_a_second_word_is_a_subcommand_or_an_argument() -> None:
    assert words("status", "") == ["set", "luna", "api-nova", "lux"]
    assert words("status", "luna", "") == ["--home", "--as", "--json", "--text", "--help"]


def test_targets_are_offered_with_an_at_sign_unless_the_word_has_begun_without() -> None:
    assert words("send", "")[:3] == ["@luna", "@api-nova", "@lux"]
    assert words("send", "@lu") == ["@luna", "@lux"]
    assert words("send", "lu") == ["luna", "lux"]
    assert words("send", "@luna", "@al") == ["@all"]


def test_names_are_offered_without_an_at_sign_unless_the_word_has_begun_with_one() -> None:
    assert words("recv", "--from", "lu") == ["luna", "lux"]
    assert words("recv", "--from", "@lu") == ["@luna", "@lux"]


def test_values_of_options_are_offered_in_both_ways_of_writing_them() -> None:
    assert words("send", "--intent", "") == ["request", "inform", "ack"]
    assert words("send", "--intent=re") == ["--intent=request"]
    assert words("--as", "lu") == ["luna", "lux"]
    assert words("join", "--harness", "co") == ["codex"]


def test_a_value_that_nobody_knows_offers_nothing() -> None:
    assert words("send", "--id", "") == []
    assert words("send", "--nonsense=") == []
    assert words("send", "--stdin=") == []


def test_an_option_is_offered_until_it_or_one_that_excludes_it_is_given() -> None:
    assert words("send", "--in") == ["--intent", "--interrupt"]
    assert words("send", "--intent", "ack", "--in") == ["--interrupt"]
    assert words("send", "--priority", "idle", "--in") == ["--intent"]
    assert words("recv", "--from", "luna", "--f") == ["--follow", "--from"]
    assert words("--json", "list", "--te") == []


def test_a_command_without_arguments_offers_its_options_at_once() -> None:
    assert words("recv", "")[:2] == ["--wait", "--follow"]


def test_names_of_files_are_left_to_the_shell() -> None:
    assert words("send", "--file", "no") == [FILES]
    assert words("send", "--file=no") == [FILES]
    assert words("--home=/t") == [DIRECTORIES]


def test_behind_a_double_dash_there_are_no_options_and_text_is_left_alone() -> None:
    assert words("send", "@luna", "--", "@lu") == []
    assert words("show", "--", "4") == ["42", "43"]
    assert words("show", "--", "--") == []


def test_help_completes_commands_and_their_second_words() -> None:
    assert words("help", "whoa") == ["whoami"]
    assert words("help", "status", "") == ["set"]
    assert words("help", "nonsense", "s") == []


def test_what_a_shell_would_not_read_as_itself_is_left_out() -> None:
    assert words("send", "--thread", "") == ["pr-123", "größe"]
    assert words("send", "--thread=") == ["--thread=pr-123", "--thread=größe"]


def test_a_description_is_one_harmless_line_of_limited_length() -> None:
    def hostile(kind: str) -> Sequence[str]:
        return ["42\t\x1b[2J\n" + "x" * 200]

    (found,) = complete(TABLE, ["show", ""], hostile)

    assert found.startswith("42\t␛[2J␊xxx")
    assert len(found) == 63


@given(st.lists(st.text(max_size=8) | st.sampled_from(["send", "--file", "--", "status", "--as=", "-"])))
def test_completion_never_fails_and_each_answer_is_one_line_that_begins_as_typed(line: list[str]) -> None:
    found = complete(TABLE, line, candidates)

    assert all("\n" not in one for one in found)
    assert found in ([FILES], [DIRECTORIES], []) or all(one.startswith(line[-1]) for one in found)


@pytest.mark.parametrize("path", [one.path for one in TABLE.commands if not one.is_hidden])
def test_every_command_is_reached_by_completing_its_words(path: tuple[str, ...]) -> None:
    for index, word in enumerate(path):
        assert word in words(*path[:index], word[:1])


def test_every_shell_has_a_script_that_asks_without_starting_the_bus() -> None:
    for shell in SHELLS:
        assert "command pal __complete --" in completion_script(shell)


def test_the_call_of_the_scripts_can_be_read() -> None:
    found = parse(TABLE, ["__complete", "--", "send", "--thread", ""])

    assert found.after == ["send", "--thread", ""]


def test_a_shell_without_a_script_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="bash, zsh, fish"):
        completion_script("cmd.exe")
