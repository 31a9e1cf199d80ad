"""Profile defaults that apply to every program."""

import pytest

from palaver.harness.base import Profile, is_usage_limit


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
def test_usage_limit_is_distinguished_from_other_errors(text: str, is_limit: bool) -> None:
    assert is_usage_limit(text) == is_limit


def test_default_interrupt_is_three_presses_of_control_c() -> None:
    interrupt = Profile(name="some").interrupt

    assert (interrupt.keys, interrupt.presses, interrupt.most, interrupt.wait_ms) == (b"\x03", 1, 3, 5_000)
