import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadName
from palaver.protocol.agents import (
    LIMIT_NAME,
    Name,
    check_name,
    full_name,
    spare_name,
    split_name,
    valid_base,
    valid_tag,
)

bases = st.from_regex(r"[a-z][a-z0-9_]*", fullmatch=True)
tags = st.from_regex(r"[a-z][a-z0-9_-]*", fullmatch=True)
tagged_bases = st.from_regex(r"[a-z0-9][a-z0-9_]*", fullmatch=True)
devices = st.just("") | st.from_regex(r"[A-Z0-9]+", fullmatch=True)
names = st.builds(Name, base=bases, device=devices) | st.builds(
    Name, base=tagged_bases, tag=tags, device=devices
)


@given(names)
def test_name_survives_formatting_and_parsing(name: Name) -> None:
    assert split_name(full_name(name.base, name.tag, name.device)) == name


@given(names)
def test_case_does_not_matter_in_a_name(name: Name) -> None:
    written = full_name(name.base, name.tag, name.device)

    assert split_name(written.upper()) == split_name(written.lower()) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("luna", Name(base="luna")),
        ("api-luna:BOXE", Name(base="luna", tag="api", device="BOXE")),
        ("luna:boxe", Name(base="luna", device="BOXE")),
        ("codex-7", Name(base="7", tag="codex")),
        ("claude-myrepo-a1b2c3d4", Name(base="a1b2c3d4", tag="claude-myrepo")),
        ("luna_reviewer_1", Name(base="luna_reviewer_1")),
    ],
)
def test_last_hyphen_divides_tag_and_base(text: str, name: Name) -> None:
    assert split_name(text) == name


@pytest.mark.parametrize(
    "text", ["", "7", "-luna", "api-", "lu na", "luna:", "luna:BO:XE", "lunä", "luna\n", "@luna"]
)
def test_invalid_name_is_refused(text: str) -> None:
    with pytest.raises(BadName):
        split_name(text)


@pytest.mark.parametrize(
    ("base", "tag"),
    [("luna", ""), ("luna", "api"), ("7", "codex"), ("a1b2c3d4", "claude-myrepo"), ("luna_reviewer_1", "")],
)
def test_valid_name_is_accepted(base: str, tag: str) -> None:
    check_name(base, tag)

    assert valid_base(base, is_tagged=bool(tag))
    assert valid_tag(tag) == bool(tag)


@pytest.mark.parametrize(
    ("base", "tag"),
    [
        ("", ""),
        ("7", ""),
        ("Luna", ""),
        ("lu-na", ""),
        ("_x", ""),
        ("luna", "7"),
        ("luna", "-"),
        ("luna", "Api"),
        ("room", ""),
        ("ALL", ""),
        ("human", "api"),
        ("system", ""),
        ("script", ""),
        ("worker", ""),
        ("Observers", ""),
        ("claude", ""),
        ("opencode", "x"),
        ("x" * (LIMIT_NAME + 1), ""),
        ("x" * LIMIT_NAME, "y"),
    ],
)
def test_bad_or_reserved_name_is_refused(base: str, tag: str) -> None:
    with pytest.raises(BadName):
        check_name(base, tag)


def test_drawn_names_differ_and_are_valid() -> None:
    drawn = [spare_name(index) for index in range(30_000)]

    assert len(set(drawn)) == len(drawn)
    assert all(re.fullmatch("[^aeiou][aeiou][^aeiou][aeiou]", name) for name in drawn[:9_900])
    for name in drawn:
        check_name(name)


def test_drawn_names_are_harmless_and_neighbours_do_not_look_alike() -> None:
    drawn = [spare_name(index) for index in range(5_000)]

    assert not {"nazi", "rape", "puta", "code", "make"} & set(drawn)
    assert all(one[:2] != other[:2] for one, other in pairwise(drawn))
    assert "luna" in {spare_name(index) for index in range(10_000)}


@pytest.mark.parametrize("word", ["human", "system", "script", "all", "room", "guest", "external", "pal"])
@pytest.mark.parametrize("more", ["", "-ops"])
def test_new_name_cannot_look_like_the_person_or_the_bus(word: str, more: str) -> None:
    with pytest.raises(BadName, match=f"a name cannot begin with {word}-"):
        check_name("zed", word + more)


@pytest.mark.parametrize("tag", ["", "api"])
def test_new_name_cannot_begin_with_human_and_an_underscore(tag: str) -> None:
    with pytest.raises(BadName, match="a name cannot begin with human_"):
        check_name("human_zed", tag)


@pytest.mark.parametrize(
    ("base", "tag"), [("1", "worker"), ("7", "codex"), ("zed", "humanoid"), ("rooms", "")]
)
def test_roles_harnesses_and_longer_words_are_allowed_in_names(base: str, tag: str) -> None:
    check_name(base, tag)
