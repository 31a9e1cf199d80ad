"""The time at which a usage limit resets."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.hooks import fix_limit, is_limit, limit_ends_ms, reset_at_ms

NOW = datetime(2026, 11, 15, 13, 30, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("3pm (UTC)", datetime(2026, 11, 15, 15, 0, tzinfo=UTC)),
        ("1:30pm (UTC)", NOW),
        ("1:20pm (UTC)", datetime(2026, 11, 15, 13, 20, tzinfo=UTC)),
        ("1:19pm (UTC)", datetime(2026, 11, 16, 13, 19, tzinfo=UTC)),
        ("12am (UTC)", datetime(2026, 11, 16, 0, 0, tzinfo=UTC)),
        ("15:45 (UTC)", datetime(2026, 11, 15, 15, 45, tzinfo=UTC)),
        ("Nov 20, 9:30am (Europe/Paris)", datetime(2026, 11, 20, 8, 30, tzinfo=UTC)),
        ("Nov 15, 1:29pm (UTC)", datetime(2026, 11, 15, 13, 29, tzinfo=UTC)),
        ("Jan 2 at 9am (UTC)", datetime(2027, 1, 2, 9, 0, tzinfo=UTC)),
        ("Nov 20th, 2026 9:30 AM (UTC)", datetime(2026, 11, 20, 9, 30, tzinfo=UTC)),
        ("Nov 2nd, 2026 9:30 AM (UTC)", datetime(2026, 11, 2, 9, 30, tzinfo=UTC)),
        ("3pm (No/Where)", datetime(2026, 11, 15, 15, 0, tzinfo=UTC)),
    ],
)
def test_reset_time_is_parsed(words: str, expected: datetime) -> None:
    assert reset_at_ms(words, NOW_MS) == int(expected.timestamp() * 1000)


@pytest.mark.parametrize(
    "words", ["", "soon", "25:00 (UTC)", "Foo 3, 9am", "Feb 30, 9am (UTC)", "Nov 3, 0000 9am (UTC)"]
)
def test_text_without_a_time_has_no_reset_time(words: str) -> None:
    assert reset_at_ms(words, NOW_MS) is None


@given(st.integers(0, 23), st.integers(0, 59), st.integers(10**12, 4 * 10**12))
def test_time_of_day_is_the_next_one_or_has_just_passed(hour: int, minute: int, now_ms: int) -> None:
    expected = reset_at_ms(f"{hour}:{minute:02} (UTC)", now_ms)

    assert expected is not None
    assert -10 * 60_000 <= expected - now_ms <= 24 * 60 * 60_000


@given(st.text(max_size=40), st.integers(0, 4 * 10**12))
def test_any_text_has_a_valid_reset_time_or_none(words: str, now_ms: int) -> None:
    expected = limit_ends_ms(f"usage limit, resets {words}", now_ms)

    assert expected is None or 0 <= expected < int(datetime(2100, 1, 1, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    "words", ["Dec 31, 9999, 11pm (America/Los_Angeles)", "Jan 1, 0001, 1am (UTC)", "99999999999"]
)
def test_absurd_reset_time_is_ignored(words: str) -> None:
    detail = f"usage limit, resets {words}"

    assert limit_ends_ms(detail, NOW_MS) is None
    assert fix_limit(detail, NOW_MS) == detail


def test_date_without_a_year_is_the_nearest_one() -> None:
    new_year_ms = int(datetime(2027, 1, 1, 0, 5, tzinfo=UTC).timestamp() * 1000)
    old_year_ms = int(datetime(2026, 12, 31, 23, 58, tzinfo=UTC).timestamp() * 1000)

    assert reset_at_ms("Dec 31, 11:58pm (UTC)", new_year_ms) == old_year_ms


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        ("usage limit, resets 3pm (UTC)", datetime(2026, 11, 15, 15, 0, tzinfo=UTC)),
        ("usage_limit until 3pm (UTC)", datetime(2026, 11, 15, 15, 0, tzinfo=UTC)),
        ("usage_limit until 1794759000", datetime.fromtimestamp(1794759000, UTC)),
    ],
)
def test_status_detail_contains_the_reset_time(detail: str, expected: datetime) -> None:
    assert is_limit(detail)
    assert limit_ends_ms(detail, NOW_MS) == int(expected.timestamp() * 1000)


@pytest.mark.parametrize(
    "detail", ["usage limit", "usage_limit", "usage_limit: try later", "usage limit, resets soon"]
)
def test_usage_limit_may_have_no_known_reset_time(detail: str) -> None:
    assert is_limit(detail)
    assert limit_ends_ms(detail, NOW_MS) is None


@pytest.mark.parametrize("detail", ["", "permission: usage limit", "usage limits", "thinking"])
def test_other_details_are_not_a_usage_limit(detail: str) -> None:
    assert not is_limit(detail)
    assert limit_ends_ms(detail, NOW_MS) is None


def test_date_missing_in_the_near_years_is_ignored() -> None:
    assert reset_at_ms("Feb 29, 9am (UTC)", NOW_MS) is None


def test_reset_time_may_be_relative() -> None:
    assert limit_ends_ms("usage limit, resets in 90s", NOW_MS) == NOW_MS + 90_000
    assert limit_ends_ms("usage limit, resets in a while", NOW_MS) is None


@pytest.mark.parametrize(
    "detail", ["usage limit", "usage limit: flash; Stop?", "usage limit, resets in 90s", ""]
)
def test_detail_without_a_date_or_with_a_near_time_is_unchanged(detail: str) -> None:
    assert fix_limit(detail, NOW_MS) == detail


@given(st.integers(120, 10**8 - 1), st.integers(0, 39 * 10**11))
def test_fixed_reset_time_means_the_same_time_whenever_it_is_read(seconds: int, now_ms: int) -> None:
    fixed = fix_limit(f"usage limit, resets in {seconds}s", now_ms)

    ends_ms = limit_ends_ms(fixed, now_ms + 10**9)
    assert ends_ms is not None
    assert 0 <= ends_ms - (now_ms + seconds * 1000) < 60_000
    assert ends_ms == limit_ends_ms(fixed, now_ms)
