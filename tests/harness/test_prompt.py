"""Which line before the cursor shows that a program takes a message, and which rules a user may write."""

from dataclasses import replace

import pytest

from palaver.errors import BadRequest
from palaver.harness import aider, generic
from palaver.harness.prompt import LIMIT_LINE, LIMIT_PATTERN, Prompt, compile_rule, judge_prompt

NAMED = replace(generic.PROFILE, takes_messages=(compile_rule(r"you> |\(\w+\) :", "--prompt"),))


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
def test_an_unknown_program_is_judged_by_its_line(line: str, prompt: Prompt) -> None:
    assert judge_prompt(generic.PROFILE, line, ()) is prompt


@pytest.mark.parametrize("line", ["you> ", "you>  ", "  you> ", "(main) : "])
def test_a_named_prompt_is_the_whole_line_whatever_its_blanks(line: str) -> None:
    assert judge_prompt(NAMED, line, ()) is Prompt.KNOWN


@pytest.mark.parametrize("line", ["not you> ", "you> half", "you", "x" * LIMIT_LINE + "you> "])
def test_a_line_that_only_holds_a_named_prompt_is_not_it(line: str) -> None:
    assert judge_prompt(NAMED, line, ()) is not Prompt.KNOWN


def test_a_prompt_that_took_a_message_is_known() -> None:
    assert judge_prompt(generic.PROFILE, "Message: ", {"Message:"}) is Prompt.KNOWN
    assert judge_prompt(generic.PROFILE, "", {""}) is Prompt.PLAIN


@pytest.mark.parametrize("line", ["> ", "ask> ", "architect> ", "diff> "])
def test_aider_takes_a_message_at_its_prompts(line: str) -> None:
    assert judge_prompt(aider.PROFILE, line, ()) is Prompt.KNOWN


@pytest.mark.parametrize(
    "line",
    ["multi> ", "ask multi> ", "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: ", "", "│ "],
)
def test_aider_takes_nothing_elsewhere(line: str) -> None:
    assert judge_prompt(aider.PROFILE, line, ()) is Prompt.OTHER


@pytest.mark.parametrize(
    "rule", ["(", "(a+)+$", "(a|a)*b", "(?:a*){2,}", "a*b*c*d*", "a" * (LIMIT_PATTERN + 1)]
)
def test_a_rule_that_is_none_or_could_take_long_is_refused(rule: str) -> None:
    with pytest.raises(BadRequest, match="--prompt"):
        compile_rule(rule, "--prompt")


@pytest.mark.parametrize(
    "rule", ["you> ", r"\[\d+\] \w*\$ ", "[*+{]{3}", r"(?:ask|code)?> ", r"\(main\)\* > "]
)
def test_an_ordinary_rule_is_taken(rule: str) -> None:
    assert compile_rule(rule, "--prompt").pattern == rule


def test_the_slowest_rule_that_is_taken_ends() -> None:
    rule = compile_rule("a*a*a*b", "--prompt")

    assert rule.fullmatch("a" * LIMIT_LINE) is None
