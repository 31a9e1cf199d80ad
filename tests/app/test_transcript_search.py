"""Searching entries with regular expressions."""

import re
import signal

import pytest

from palaver.app.transcript import Search
from palaver.errors import BadRequest, UsageError
from palaver.protocol.transcript import Detail, ToolCall, TranscriptEntry

ENTRY = TranscriptEntry(
    role="assistant",
    text="The tests are flaky",
    tools=(
        ToolCall(name="Bash", input={"command": "make check"}, output="3 failed"),
        ToolCall(name="Raw", input="x"),
    ),
    whole={},
)


@pytest.mark.parametrize(
    ("expression", "is_found"),
    [
        ("flaky|slow", True),
        ("the tests", True),
        ("The", True),
        ("THE", False),
        (r"\Sests", True),
        ("^flaky", False),
    ],
)
def test_search_is_case_sensitive_only_with_capital_letters(expression: str, is_found: bool) -> None:
    assert Search(expression, Detail.NORMAL).is_in(ENTRY, 1) is is_found


@pytest.mark.parametrize("expression", ["make check", "bash", "3 failed"])
def test_tools_are_searched_at_the_levels_that_show_them(expression: str) -> None:
    assert not Search(expression, Detail.NORMAL).is_in(ENTRY, 1)
    assert Search(expression, Detail.DETAILED).is_in(ENTRY, 1)


@pytest.mark.parametrize("expression", ["(", "a{99999999999}", "(" * 900, "[z-a]", "*"])
def test_invalid_expression_is_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="is not a regular expression"):
        Search(expression, Detail.NORMAL)


def test_ambiguous_expression_is_read_as_this_python_reads_it() -> None:
    assert Search("[[x]flaky]*", Detail.NORMAL).is_in(ENTRY, 1) is False


def test_expression_that_takes_too_long_is_aborted() -> None:
    entry = TranscriptEntry(role="user", text="a" * 64 + "!", whole={})
    before = signal.getsignal(signal.SIGALRM)

    with pytest.raises(BadRequest, match=re.escape("'(a+)+$' in entry 7 takes too long")):
        Search("(a+)+$", Detail.NORMAL, limit_s=0.05).is_in(entry, 7)

    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
