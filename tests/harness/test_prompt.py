"""Prompt lines at which a program takes a message, and prompt rules of users."""

from dataclasses import replace

import pytest

from palaver.errors import BadRequest
from palaver.harness import programs as aider
from palaver.harness import programs as generic
from palaver.harness.base import LIMIT_LINE, LIMIT_PATTERN, Prompt, compile_rule, judge_prompt

NAMED = replace(generic.GENERIC, takes_messages=(compile_rule(r"you> |\(\w+\) :", "--prompt"),))


@pytest.mark.parametrize(
    ("line", "prompt"),
    [
        ("> ", Prompt.KNOWN),
        (">>> ", Prompt.KNOWN),
        ("  ❯", Prompt.KNOWN),
        ("", Prompt.PLAIN),
        ("│ > ", Prompt.PLAIN),
        ("sqlite> ", Prompt.PLAIN),
        ("postgres=# ", Prompt.PLAIN),
        ("In [3]: ", Prompt.PLAIN),
        ("you: ", Prompt.PLAIN),
        ("Username: ", Prompt.OTHER),
        ("Choose a number> ", Prompt.OTHER),
        ("続行しますか？", Prompt.OTHER),
        ("> " + "x" * LIMIT_LINE, Prompt.OTHER),
    ],
)
def test_unknown_program_is_judged_by_its_line(line: str, prompt: Prompt) -> None:
    assert judge_prompt(generic.GENERIC, line, ()) is prompt


@pytest.mark.parametrize("line", ["you> ", "you>  ", "  you> ", "(main) : "])
def test_named_prompt_matches_the_whole_line_without_outer_blanks(line: str) -> None:
    assert judge_prompt(NAMED, line, ()) is Prompt.KNOWN


@pytest.mark.parametrize("line", ["not you> ", "you> half", "you", "x" * LIMIT_LINE + "you> "])
def test_line_that_only_contains_a_named_prompt_does_not_match(line: str) -> None:
    assert judge_prompt(NAMED, line, ()) is not Prompt.KNOWN


def test_prompt_that_took_a_message_is_known() -> None:
    assert judge_prompt(generic.GENERIC, "Message: ", {"Message:"}) is Prompt.KNOWN
    assert judge_prompt(generic.GENERIC, "", {""}) is Prompt.PLAIN


@pytest.mark.parametrize("line", ["> ", "ask> ", "architect> ", "diff> "])
def test_aider_takes_a_message_at_its_prompts(line: str) -> None:
    assert judge_prompt(aider.AIDER, line, ()) is Prompt.KNOWN


@pytest.mark.parametrize(
    "line",
    ["multi> ", "ask multi> ", "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: ", "", "│ "],
)
def test_aider_takes_no_message_elsewhere(line: str) -> None:
    assert judge_prompt(aider.AIDER, line, ()) is Prompt.OTHER


@pytest.mark.parametrize(
    "rule", ["(", "(a+)+$", "(a|a)*b", "(?:a*){2,}", "a*b*c*d*", "a" * (LIMIT_PATTERN + 1)]
)
def test_invalid_or_slow_rule_is_refused(rule: str) -> None:
    with pytest.raises(BadRequest, match="--prompt"):
        compile_rule(rule, "--prompt")


@pytest.mark.parametrize(
    "rule", ["you> ", r"\[\d+\] \w*\$ ", "[*+{]{3}", r"(?:ask|code)?> ", r"\(main\)\* > "]
)
def test_ordinary_rule_is_accepted(rule: str) -> None:
    assert compile_rule(rule, "--prompt").pattern == rule


def test_slowest_accepted_rule_finishes() -> None:
    rule = compile_rule("a*a*a*b", "--prompt")

    assert rule.fullmatch("a" * LIMIT_LINE) is None


@pytest.mark.parametrize("line", ["> ", "│ <", ""])
def test_words_after_the_cursor_are_a_button_or_a_list(line: str) -> None:
    assert judge_prompt(generic.GENERIC, line, (), after="  Yes  >   <  No  > │") is Prompt.OTHER
    assert judge_prompt(generic.GENERIC, line, (), after="        │") is not Prompt.OTHER


def test_an_empty_line_with_a_hidden_cursor_proves_nothing() -> None:
    assert judge_prompt(generic.GENERIC, "", (), has_cursor=False) is Prompt.OTHER
    assert judge_prompt(generic.GENERIC, "> ", (), has_cursor=False) is Prompt.KNOWN
    assert judge_prompt(NAMED, "you> ", (), after="words", has_cursor=False) is Prompt.KNOWN
