"""Durations as people write and read them in rooms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.cli.spec import Command, Option, Parsed, relative_time, timeout_ms
from palaver.errors import UsageError

COMMAND = Command(
    path=("wait",),
    summary="Wait.",
    options=(Option(name="--timeout", metavar="TIME", help="How long."),),
)


def given_as(value: str | None) -> Parsed:
    return Parsed(command=COMMAND, options={} if value is None else {"--timeout": value})


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("110s", 110_000),
        ("250ms", 250),
        ("1h", 3_600_000),
        ("30", 30_000),
        ("5m", 300_000),
        ("0", 0),
        (None, None),
    ],
)
def test_duration_is_in_seconds_or_has_a_unit(written: str | None, ms: int | None) -> None:
    assert timeout_ms(given_as(written), "--timeout") == ms


@pytest.mark.parametrize("written", ["1.5s", "-1s", "", "s", "1 s", "1d", "1w", "ten", "٣", "1e3", "1s\n"])
def test_invalid_duration_is_refused_with_the_valid_forms(written: str) -> None:
    with pytest.raises(UsageError, match=r"requires a time such as 30 \(seconds\), 250ms, 90s, 5m or 1h"):
        timeout_ms(given_as(written), "--timeout")


@pytest.mark.parametrize(
    ("delta_ms", "text"),
    [
        (-500, "1s ago"),
        (-59_000, "59s ago"),
        (-61_000, "1m ago"),
        (-3_600_000, "1h ago"),
        (90_000, "in 2m"),
        (172_800_000, "in 2d"),
        (0, "in 1s"),
        (-1, "1s ago"),
        (59_600, "in 1m"),
        (45 * 60_000, "in 45m"),
        (-23 * 3_600_000, "23h ago"),
    ],
)
def test_time_is_shown_relative_to_now(delta_ms: int, text: str) -> None:
    assert relative_time(delta_ms) == text


@given(st.integers(-(10**13), 10**13))
def test_relative_time_is_rounded_to_at_most_half_a_unit(delta_ms: int) -> None:
    text = relative_time(delta_ms)

    word = text.removeprefix("in ").removesuffix(" ago")
    size_ms = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[word[-1]]
    told_ms = int(word[:-1]) * size_ms
    assert text.startswith("in ") == (delta_ms >= 0)
    assert abs(told_ms - abs(delta_ms)) <= max(size_ms / 2 + 500, 1000)
