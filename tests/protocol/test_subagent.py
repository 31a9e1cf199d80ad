"""The names of sub-agents."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadName
from palaver.protocol.agents import (
    LIMIT_NAME,
    check_name,
    split_name,
    split_subagent_name,
    subagent_name,
    subagent_stem,
)

_PARENTS = st.from_regex(r"([a-z][a-z0-9_-]{0,20}-)?[a-z][a-z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: not name.startswith("pal-")
)


@pytest.mark.parametrize(
    ("type_", "stem"),
    [
        ("reviewer", "luna_reviewer"),
        ("general-purpose", "luna_general_purpose"),
        ("My Plugin:Code Reviewer", "luna_my_plugin_code_reviewer"),
        ("", "luna_sub"),
        ("→ ☃", "luna_sub"),
        ("__x__", "luna_x"),
        ("Prüfer", "luna_prufer"),
        ("éclaireur ﬁn", "luna_eclaireur_fin"),
    ],
)
def test_type_becomes_a_part_of_the_name(type_: str, stem: str) -> None:
    assert subagent_stem("luna", type_) == stem


def test_type_that_is_too_long_is_cut_and_leaves_space_for_a_number() -> None:
    stem = subagent_stem("luna", "x" * 100)

    assert len(subagent_name(stem, 9999)) == LIMIT_NAME


def test_parent_with_a_name_that_is_too_long_has_no_sub_agents() -> None:
    with pytest.raises(BadName, match="too long for a sub-agent"):
        subagent_stem("x" * (LIMIT_NAME - 6), "reviewer")


@given(_PARENTS, st.text(max_size=80), st.integers(min_value=1, max_value=9999))
def test_every_generated_name_is_valid(parent: str, type_: str, number: int) -> None:
    name = subagent_name(subagent_stem(parent, type_), number)

    parts = split_name(name)
    check_name(parts.base, parts.tag)
    assert parts.tag == split_name(parent).tag
    assert re.fullmatch(rf"{parent}_[a-z0-9_]+_{number}", name)


@given(_PARENTS, st.text(max_size=20), st.integers(min_value=1, max_value=9999))
def test_name_is_split_as_it_was_built(parent: str, type_: str, number: int) -> None:
    stem = subagent_stem(parent, type_)

    assert split_subagent_name(subagent_name(stem, number)) == (stem, number)


@pytest.mark.parametrize("name", ["luna", "luna_x", "_1", "luna_", "luna_²"])
def test_name_without_a_number_is_not_of_a_sub_agent(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(name)):
        split_subagent_name(name)
