"""Usage limits reported by OpenCode."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.hooks import limit_ends_ms
from palaver.harness.opencode.wire import UsageLimit, error_text, limit_in_error, limit_in_retry

NOW = 1_794_752_294_000
QUOTA = "You exceeded your current quota, please check your plan and billing details."


def retry(message: str, wait_ms: int, attempt: int = 1, **more: object) -> dict[str, object]:
    return {"type": "retry", "message": message, "next": NOW + wait_ms, "attempt": attempt, **more}


def test_retry_time_of_the_provider_is_the_end_of_the_limit() -> None:
    assert limit_in_retry(retry(QUOTA, 3_600_000), NOW) == UsageLimit(NOW + 3_600_000)


@pytest.mark.parametrize(("attempt", "wait_ms"), [(1, 2_000), (1, 2_500), (3, 9_900), (5, 40_000)])
def test_backoff_of_opencode_itself_has_no_end_time(attempt: int, wait_ms: int) -> None:
    assert limit_in_retry(retry(QUOTA, wait_ms, attempt), NOW) == UsageLimit()


@pytest.mark.parametrize("reason", ["free_tier_limit", "account_rate_limit"])
def test_limit_reason_of_opencode_is_a_usage_limit(reason: str) -> None:
    assert limit_in_retry(retry("please subscribe", 100, action={"reason": reason}), NOW) == UsageLimit()


def test_long_retry_after_means_usage_limit_reached() -> None:
    assert limit_in_retry(retry("Rate limit reached", 600_000), NOW) == UsageLimit(NOW + 600_000)
    assert limit_in_retry(retry("Rate limit reached", 20_000), NOW) is None


@pytest.mark.parametrize(
    ("data", "limit"),
    [
        ({"message": QUOTA, "statusCode": 429}, UsageLimit()),
        ({"message": QUOTA, "responseHeaders": {"retry-after": "90"}}, UsageLimit(NOW + 90_000)),
        ({"message": QUOTA, "responseHeaders": {"retry-after-ms": "1500"}}, UsageLimit(NOW + 1_500)),
        ({"message": QUOTA, "responseHeaders": {"retry-after": "soon"}}, UsageLimit()),
        ({"message": "pay", "statusCode": 402}, UsageLimit()),
        ({"message": "x", "responseBody": '{"code":"insufficient_quota"}'}, UsageLimit()),
        ({"message": "slow down", "statusCode": 429, "responseHeaders": {"retry-after": "5"}}, None),
        ({"statusCode": 429, "responseHeaders": {"retry-after": "301"}}, UsageLimit(NOW + 301_000)),
        ({"message": "bad thing", "statusCode": 400}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_error_is_classified_as_a_usage_limit(data: dict[str, object], limit: UsageLimit | None) -> None:
    assert limit_in_error({"name": "APIError", "data": data}, NOW) == limit


def test_retry_after_may_be_a_date() -> None:
    headers = {"retry-after": "Sun, 15 Nov 2026 15:00:00 GMT"}
    resets_ms = int(datetime(2026, 11, 15, 15, tzinfo=UTC).timestamp() * 1000)

    assert limit_in_error({"data": {"message": QUOTA, "responseHeaders": headers}}, NOW) == UsageLimit(
        resets_ms
    )


@given(st.integers(min_value=0, max_value=10 * 365 * 86_400))
def test_reported_limit_end_is_never_read_as_an_earlier_time(after_s: int) -> None:
    limit = UsageLimit(NOW + after_s * 1000 + 1)

    read = limit_ends_ms(limit.detail, NOW)

    assert read is not None
    assert 0 <= read - limit.ends_ms < 60_000


@given(st.dictionaries(st.sampled_from(["message", "next", "attempt", "action"]), st.floats() | st.text()))
def test_any_status_is_safe(status: dict[str, object]) -> None:
    limit_in_retry(status, NOW)
    limit_in_error({"data": status}, NOW)

    assert error_text({"data": status}).startswith("error")
