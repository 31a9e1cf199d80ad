"""What a profile holds for every program alike."""

import pytest

from palaver.harness.profile import Profile, is_usage_limit


@pytest.mark.parametrize(
    ("text", "is_limit"),
    [
        ("You've hit your session limit · resets 6pm (America/Los_Angeles)", True),
        ("You've hit your usage limit.", True),
        ("You've hit your org's monthly usage limit", True),
        ("usage_limit_reached", True),
        ("API Error: Server is temporarily limiting requests (not your usage limit) · Rate limited", False),
        ("internal server error", False),
    ],
)
def test_a_usage_limit_is_told_from_other_troubles(text: str, is_limit: bool) -> None:
    assert is_usage_limit(text) == is_limit


def test_a_program_that_nobody_knows_is_interrupted_by_control_c_three_times_five_seconds_apart() -> None:
    interrupt = Profile(name="some").interrupt

    assert (interrupt.keys, interrupt.presses, interrupt.most, interrupt.wait_ms) == (b"\x03", 1, 3, 5_000)
