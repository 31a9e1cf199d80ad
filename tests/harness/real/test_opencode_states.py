"""States of OpenCode: usage limits, provider errors, compaction; and its shell."""

from collections.abc import Iterator

import pytest
from tests.harness.real.harness_stage import reply, send, tool
from tests.harness.real.install import installed
from tests.harness.real.opencode_stage import OpenCodeStage, opencode_stage

from palaver.app.mock_model import Rule, ScriptedReply

pytestmark = pytest.mark.harness

QUOTA = {
    "error": {
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "type": "insufficient_quota",
        "code": "insufficient_quota",
    }
}


@pytest.fixture
def opencode() -> Iterator[OpenCodeStage]:
    """A home with a running bus in which OpenCode can be started."""
    with opencode_stage(installed("opencode")) as stage:
        yield stage


def test_usage_limit_is_reported_and_messages_wait_until_it_ends(opencode: OpenCodeStage) -> None:
    opencode.script.add(
        ScriptedReply(status=429, body=QUOTA, headers={"retry-after": "20"}), reply("I go on"), reply("read")
    )
    opencode.start("--prompt", "go on")
    luna = opencode.friend()
    opencode.until(lambda: opencode.state()[0] == "blocked")
    assert opencode.state()[1].startswith("usage limit, resets ")
    assert opencode.gates()["native"] == "usage_limit"
    assert opencode.home.ok("pending", "--json").lines == []

    seq = send(luna, "@nova", "--", "are you there?")
    opencode.until(lambda: opencode.receipt(seq)["state"] == "held")

    assert str(opencode.receipt(seq)["reason"]).startswith("usage limit until ")
    assert opencode.until_seen(seq)["grade"] == "context"
    assert len(opencode.script.main) >= 2
    (notice, *_) = luna.ok("recv", "--json").lines
    assert "usage limit is reached" in str(notice["text"])


def test_permanent_usage_limit_blocks_until_a_person_tries_again(opencode: OpenCodeStage) -> None:
    gone = {"error": {"message": "insufficient_quota: buy more", "code": "insufficient_quota"}}
    opencode.script.add(ScriptedReply(status=402, body=gone), reply("I go on"), reply("read"))
    opencode.start("--prompt", "go on")
    opencode.until(lambda: opencode.state() == ("blocked", "usage limit"))
    seq = send(opencode.friend(), "@nova", "--", "are you there?")
    opencode.until(lambda: opencode.receipt(seq)["state"] == "held")
    assert opencode.receipt(seq)["reason"] == "usage limit"

    person = opencode.sit_down()
    person.press(b"try again")
    opencode.until(lambda: "try again" in opencode.screen())
    person.press(b"\r")

    assert opencode.until_seen(seq)["grade"] == "context"


def test_provider_error_is_shown_and_the_next_message_is_delivered(opencode: OpenCodeStage) -> None:
    opencode.script.add(ScriptedReply(status=400, body={"error": {"message": "bad thing"}}), reply("better"))
    opencode.start()
    luna = opencode.friend()

    first = send(luna, "@nova", "--", "one")
    opencode.until(lambda: opencode.state() == ("idle", "error: bad thing"))
    opencode.until(lambda: bool(opencode.receipt(first).get("unconfirmed")))
    second = send(luna, "@nova", "--", "two")

    assert opencode.until_seen(second)["grade"] == "context"
    assert opencode.until_seen(first)["grade"] == "context"
    asked = opencode.script.main[-1].conversation
    assert asked.count("one</pal>") == asked.count("two</pal>") == 1


def test_messages_wait_for_the_end_of_a_compaction(opencode: OpenCodeStage) -> None:
    opencode.script.add(reply("first"), reply("read"))
    opencode.script.add_rules(Rule(pattern="anchored summary", reply=reply("short", gate="compact")))
    opencode.start("--prompt", "go on")
    opencode.requests(1)
    opencode.until(lambda: opencode.state()[0] == "idle")
    person = opencode.sit_down()
    person.press(b"/compact")
    opencode.until(lambda: "/compact" in opencode.screen())
    person.press(b"\r")
    opencode.until(lambda: opencode.state() == ("active", "compacting"))

    seq = send(opencode.friend(), "@nova", "--", "are you there?")
    opencode.until(lambda: opencode.gates()["native"] == "compacting")

    assert opencode.receipt(seq)["state"] == "queued"
    opencode.script.open("compact")
    assert opencode.until_seen(seq)["grade"] == "context"


def test_shell_does_not_have_the_password(opencode: OpenCodeStage) -> None:
    command = 'echo "shell=$0 left=[$OPENCODE_SERVER_PASSWORD]"; env; pal whoami --json'
    opencode.script.add(reply("", tool("bash", command=command, description="x")), reply("done"))

    opencode.start("--prompt", "go on")

    asked = opencode.requests(2)[1].conversation
    (folder,) = opencode.places
    assert "left=[]" in asked
    assert "OPENCODE_SERVER_PASSWORD" not in asked.split("left=[]", 1)[1]
    assert '\\"name\\":\\"nova\\"' in asked or '"name":"nova"' in asked
    assert (folder / "bash").stat().st_mode & 0o777 == 0o700
