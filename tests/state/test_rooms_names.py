"""Room ids are short and unique, and members are found by any name people use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.room_parts import joined, room_of

from palaver.errors import AmbiguousRecipient, UnknownMember
from palaver.state.rooms import (
    Room,
    apply_to_room,
    check_room_id,
    find_member,
    folder_name,
    room_base,
    room_id,
)


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        ("/home/ann/repo", "repo"),
        ("/home/ann/My Project!", "my-project"),
        ("/home/ann/snake_case-2", "snake_case-2"),
        ("/home/ann/日本", "room"),
        ("/home/ann/" + "x" * 99, "x" * 32),
        ("/", "room"),
    ],
)
def test_room_id_starts_with_its_folder_name(path: str, slug: str) -> None:
    base = room_base(path)

    assert base.rpartition("-")[0] == slug
    assert len(base) == len(slug) + 5


def test_equal_folder_names_at_different_paths_have_different_ids() -> None:
    assert room_base("/a/repo") != room_base("/b/repo")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 10**8))
def test_every_generated_id_is_valid(path: str, number: int) -> None:
    base = room_base(f"/{path}")

    check_room_id(room_id(base, number), base)


@pytest.mark.parametrize(
    ("id", "base"),
    [("repo", "repo"), ("x-abcd", "repo-abcd"), ("repo-abcd-x", "repo-abcd"), ("a/b-abcd", "a/b-abcd")],
)
def test_other_texts_are_not_room_ids(id: str, base: str) -> None:
    with pytest.raises(ValueError, match="not the id of a room"):
        check_room_id(id, base)


def test_folder_name_is_the_last_part_of_its_path() -> None:
    assert [folder_name(path) for path in ("/a/b", "/a/b/", "/")] == ["b", "b", "/"]


@pytest.fixture
def room() -> Room:
    made = room_of("luna", "api-luna", "nova:BOXE")
    for name, harness in (("kira", "codex"), ("mila", "Codex"), ("vera", "gemini"), ("[odd]", "")):
        made = apply_to_room(made, joined(name, harness=harness))
    return made


def present(*names: str) -> "frozenset[str]":
    return frozenset(names)


@pytest.mark.parametrize(
    ("word", "there", "name"),
    [
        ("luna", present(), "luna"),
        ("@API-Luna", present(), "api-luna"),
        ("nova", present(), "nova:BOXE"),
        ("nova:boxe", present(), "nova:BOXE"),
        ("gemini", present(), "vera"),
        ("codex", present("mila"), "mila"),
        ("[odd]", present(), "[odd]"),
    ],
)
def test_member_is_found_by_any_of_its_names(room: Room, word: str, there: frozenset[str], name: str) -> None:
    assert find_member(room, word, there.__contains__).name == name


@pytest.mark.parametrize("there", [present(), present("kira", "mila")])
def test_name_of_several_members_is_refused_with_their_names(room: Room, there: frozenset[str]) -> None:
    with pytest.raises(AmbiguousRecipient) as error:
        find_member(room, "codex", there.__contains__)

    assert error.value.candidates == ["kira", "mila"]


@pytest.mark.parametrize("word", ["eve", "", "@", "claude", "lun"])
def test_name_of_no_member_is_refused(room: Room, word: str) -> None:
    with pytest.raises(UnknownMember) as error:
        find_member(room, word, lambda name: True)

    assert error.value.agent_id == word
