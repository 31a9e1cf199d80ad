"""The profile of each harness, and rules for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.base import Profile, View
from palaver.harness.marks import SESSION_MARKS
from palaver.harness.registry import PROFILES, profile_of, profile_of_start, program_names

SIGNS = "─❯›>┃╹▀▄│ \u00a01.ab!#"
rows = st.lists(
    st.text(SIGNS, max_size=12) | st.sampled_from(["─" * 12, "▄" * 12, "▀" * 12, "  ╹" + "▀" * 12])
)


def test_every_harness_with_session_marks_has_a_profile() -> None:
    assert set(PROFILES) == {*SESSION_MARKS, "aider", "qwen", "copilot", "generic"}


@pytest.mark.parametrize(("harness", "name"), [("claude", "claude"), ("vim", "generic"), ("", "generic")])
def test_unknown_harness_is_a_generic_program(harness: str, name: str) -> None:
    assert profile_of(harness).name == name


@pytest.mark.parametrize(
    "profile", [profile for profile in PROFILES.values() if profile.read_composer is not None]
)
def test_known_harness_is_never_interrupted_by_control_c(profile: Profile) -> None:
    assert profile.interrupt.keys == b"\x1b"
    assert profile.interrupt.most == 1


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("/usr/bin/aider", "x"), ("aider",)),
        (("npx", "-y", "@github/copilot@1.0"), ("npx", "copilot")),
        (("npx", "@qwen-code/qwen-code"), ("npx", "qwen")),
        (("python3", "-m", "aider", "claude"), ("python3", "aider")),
        (("./chat.py", "aider"), ("chat.py",)),
        ((), ()),
    ],
)
def test_program_is_recognized_by_its_name_also_after_a_launcher(
    command: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert program_names(command) == names


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: str(profile.name))
def test_enter_is_delayed_after_a_paste(profile: Profile) -> None:
    assert profile.settle_ms == 300
    assert profile.quit


@given(st.sampled_from(sorted(PROFILES)), rows, st.integers(0, 20), st.integers(0, 14))
def test_any_screen_can_be_read(name: str, lines: list[str], row: int, column: int) -> None:
    picture = tuple(line.rstrip() for line in lines) or ("",)
    view = View(lines=picture, bright=picture, row=min(row, len(picture) - 1), column=column)
    read = profile_of(name).read_composer

    draft = None if read is None else read(view)

    assert draft is None or isinstance(draft, str)


def test_resumed_gemini_delays_its_composer() -> None:
    assert profile_of_start("gemini", ["gemini", "--resume", "latest"]).composer_wait_ms > 0
    assert profile_of_start("gemini", ["gemini"]) is profile_of("gemini")
    assert profile_of_start("claude", ["claude", "--resume"]) is profile_of("claude")
