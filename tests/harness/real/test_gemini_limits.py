"""Gemini CLI with a usage limit or failed requests: its state, and waiting messages."""

from collections.abc import Iterator

import pytest
from tests.harness.real.gemini_stage import GeminiStage, gemini_stage
from tests.harness.real.harness_stage import PATIENCE_S, reply, send
from tests.harness.real.install import installed

from palaver.app.mock_model import ScriptedReply

pytestmark = pytest.mark.harness


@pytest.fixture
def gemini() -> Iterator[GeminiStage]:
    """A home with a running bus in which Gemini CLI can be started."""
    with gemini_stage(installed("gemini")) as stage:
        yield stage


def refusal(code: int, status: str, message: str, *details: dict[str, object]) -> ScriptedReply:
    """Return an error in the form of Google's API."""
    error = {"code": code, "status": status, "message": message, "details": list(details)}
    return ScriptedReply(status=code, body={"error": error})


def used_up(quota: str, retry: str = "") -> ScriptedReply:
    """Return the error for an exhausted quota with an optional retry delay."""
    kind = "type.googleapis.com/google.rpc."
    failure: dict[str, object] = {
        "@type": f"{kind}QuotaFailure",
        "violations": [{"quotaMetric": "generate_requests", "quotaId": f"GenerateRequests{quota}PerModel"}],
    }
    info: dict[str, object] = {"@type": f"{kind}RetryInfo", "retryDelay": retry}
    error_text = "You exceeded your current quota, please check your plan and billing details."
    return refusal(429, "RESOURCE_EXHAUSTED", error_text, failure, *([info] if retry else []))


def stop(gemini: GeminiStage) -> None:
    """Have a person choose to stop instead of trying again."""
    person = gemini.sit_down(last=b"Keep trying")
    person.press(b"\x1b[B")
    gemini.until(lambda: "● 2. Stop" in gemini.screen())
    person.press(b"\r")


def test_daily_limit_is_a_dialog_and_messages_are_held(gemini: GeminiStage) -> None:
    gemini.script.add(used_up("PerDay"))
    gemini.start("-i", "go on")
    luna = gemini.friend()
    asked = ("blocked", "usage limit: gemini-2.5-flash; Keep trying / Stop?")
    gemini.until(lambda: gemini.state() == asked)

    seq = send(luna, "@nova", "--interrupt", "--", "are you there?")
    gemini.until(lambda: gemini.receipt(seq)["state"] == "held")

    assert gemini.receipt(seq)["reason"] == "usage limit"
    assert f"nova is blocked: {asked[1]}" in gemini.home.ok("pending").out
    # The notice is stored after the entry of the ledger.
    (notice,) = luna.ok("recv", "--wait", "--timeout", "30", "--json").lines
    assert "its usage limit is reached" in notice["text"]

    stop(gemini)
    gemini.until(lambda: gemini.state()[1].startswith("usage limit, resets "))

    assert gemini.state()[0] == "blocked"
    assert gemini.state()[1].endswith(":00am (UTC)")
    gemini.until(lambda: gemini.receipt(seq)["state"] == "held")
    assert "are you there?" not in gemini.screen()
    assert len(gemini.script.main) == 1
    assert "nova" not in gemini.home.ok("pending").out

    gemini.script.add(reply("back"), reply("read"))
    person = gemini.sit_down()
    person.press(b"I have paid")
    gemini.until(lambda: gemini.gates()["terminal"] == "draft")
    while gemini.gates()["terminal"] == "draft":
        person.press(b"\r")
        gemini.wait(lambda: gemini.gates()["terminal"] != "draft", PATIENCE_S)

    gemini.told("are you there?")
    gemini.until_seen(seq)
    gemini.until_idle()


def test_limit_with_a_known_end_ends_by_itself(gemini: GeminiStage) -> None:
    gemini.script.add(refusal(400, "FAILED_PRECONDITION", "The quota is used up: retry after 8s"))
    gemini.start("-i", "go on")
    gemini.until(lambda: gemini.state()[1].startswith("usage limit, resets "))
    gemini.script.add(reply("read"))

    seq = send(gemini.friend(), "@nova", "--", "are you there?")
    gemini.until(lambda: gemini.receipt(seq)["state"] == "held")

    assert gemini.receipt(seq)["reason"].startswith("usage limit until ")
    gemini.told("are you there?")
    gemini.until_seen(seq)
    gemini.until_idle()


def test_gemini_itself_waits_for_a_per_minute_limit(gemini: GeminiStage) -> None:
    gemini.script.add(used_up("PerMinute", "1s"), reply("well again"))

    gemini.start("-i", "go on")

    gemini.requests(2)
    gemini.until_idle()
    assert gemini.state() == ("idle", "")


def test_failed_request_ends_the_turn_and_a_message_starts_another(gemini: GeminiStage) -> None:
    gemini.script.add(refusal(400, "INVALID_ARGUMENT", "not valid."), reply("read"))
    gemini.start()
    luna = gemini.friend()

    first = send(luna, "@nova", "--", "are you there?")
    gemini.until(lambda: "✕ [API Error" in gemini.screen())
    gemini.until_seen(first)
    gemini.until(lambda: gemini.state() == ("idle", ""))
    second = send(luna, "@nova", "--", "and now?")

    gemini.told("and now?")
    gemini.until_seen(second)
    assert len(gemini.script.main) == 2
