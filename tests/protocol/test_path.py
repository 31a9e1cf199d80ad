import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest, BadText, MessageTooLarge
from palaver.protocol.address import check_path, split_path

paths = st.text("aAgent/*:@#. é", min_size=1, max_size=40)


@given(paths.filter(lambda path: path.strip("/")))
def test_path_has_one_spelling(path: str) -> None:
    spelled = check_path(path)

    assert check_path(f"/{spelled}//") == spelled
    assert "/".join(split_path(path)).lower() == spelled.lower() or "**/**" in path.replace("//", "/")


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ("//agent//researcher/", "agent/researcher"),
        ("agent/Luna/Reviewer_1", "agent/luna/Reviewer_1"),
        ("agent/API-Luna:boxe", "agent/api-luna:BOXE"),
        ("Agent/Luna", "Agent/Luna"),
        ("agent", "agent"),
        ("agent/İ", "agent/İ"),
        ("Slack/Team/#General", "Slack/Team/#General"),
        ("slack/my team/@Joe", "slack/my team/@Joe"),
        ("**/**//**", "**"),
        ("a/**/**/b/**", "a/**/b/**"),
        ("/".join(["**"] * 300), "**"),
    ],
)
def test_path_keeps_its_case_except_for_the_name_of_an_agent(path: str, spelled: str) -> None:
    assert check_path(path) == spelled


@pytest.mark.parametrize("path", ["", "/", "///"])
def test_path_without_a_segment_is_refused(path: str) -> None:
    with pytest.raises(BadRequest, match="not a slash"):
        check_path(path)


def test_path_has_at_most_8_double_stars() -> None:
    assert check_path("/".join(["**", "a"] * 8))
    with pytest.raises(BadRequest, match=r"at most 8 '\*\*'; this one has 9"):
        check_path("/".join(["**", "a"] * 9))


def test_path_has_at_most_1024_bytes_and_64_segments() -> None:
    assert check_path("x" * 1024)
    assert check_path("/".join("x" * 64))
    with pytest.raises(MessageTooLarge):
        check_path("x" * 1025)
    with pytest.raises(BadRequest, match="64 segments"):
        check_path("/".join("x" * 65))


def test_path_with_a_control_character_is_refused() -> None:
    with pytest.raises(BadText):
        check_path("agent/\x1b")
