"""Gemini CLI across its commands and settings: it keeps its name, and messages arrive exactly once."""

import json
from collections.abc import Iterator

import pytest
from tests.app.person import Person
from tests.harness.real.gemini_stage import GeminiStage, gemini_stage
from tests.harness.real.harness_stage import PATIENCE_S, reply, send, tool
from tests.harness.real.install import installed

from palaver.app.mock_model import ScriptedReply

pytestmark = pytest.mark.harness

REPORT = {"SummaryOfFindings": "found it", "ExplorationTrace": [], "RelevantLocations": []}
"""The report that the investigating sub-agent must return."""


@pytest.fixture
def gemini() -> Iterator[GeminiStage]:
    """A home with a running bus in which Gemini CLI can be started."""
    with gemini_stage(installed("gemini")) as stage:
        yield stage


def session(gemini: GeminiStage) -> str:
    """Return its session id as stored in the log."""
    found = [one["payload"].get("agent", {}) for one in gemini.home.events("--type", "life")]
    return str([one["session"] for one in found if one.get("session")][-1])


def say(gemini: GeminiStage, person: Person, words: str) -> None:
    """Have a person type a line, and send it when the composer shows it as a draft."""
    person.press(words.encode())
    gemini.until(lambda: gemini.gates()["terminal"] == "draft" and words.rstrip() in gemini.screen())
    while gemini.gates()["terminal"] == "draft":
        person.press(b"\r")
        gemini.wait(lambda: gemini.gates()["terminal"] != "draft", PATIENCE_S)


@pytest.mark.parametrize(
    "view",
    [
        {"useBackgroundColor": False},
        {"accessibility": {"screenReader": True}},
        {"hideBanner": True, "hideFooter": True, "hideWindowTitle": True},
        {"useAlternateBuffer": True},
    ],
    ids=["no_background", "screen_reader", "bare", "alternate"],
)
def test_message_is_typed_in_every_style_of_the_composer(
    gemini: GeminiStage, view: dict[str, object]
) -> None:
    settings = json.loads(gemini.settings.read_bytes())
    gemini.settings.write_text(json.dumps({**settings, "ui": view}))
    gemini.script.add(reply("I am awake"), reply("again"))
    gemini.start()
    luna = gemini.friend()
    gemini.until(lambda: gemini.state() == ("idle", ""))

    first = send(luna, "@nova", "--", "please look at the build\n\nand at the tests")
    asked = gemini.told(f"[pal message #{first} from: luna] please look at the build")
    receipt = gemini.until_seen(first)

    assert "and at the tests" in asked
    assert (receipt["lane"], receipt["grade"]) == ("terminal", "handed")
    gemini.until_idle()

    person = gemini.sit_down(last=b"message")
    person.press(b"half a thought")
    gemini.until(lambda: gemini.gates()["terminal"] == "draft")
    second = send(luna, "@nova", "--", "are you there?")

    assert gemini.receipt(second)["state"] == "queued"
    assert "half a thought" in gemini.screen()
    person.press(b"\x7f" * len("half a thought"))
    gemini.told("are you there?")


def test_message_during_a_sub_agent_goes_to_its_parent(gemini: GeminiStage) -> None:
    gemini.script.add(
        reply("", tool("invoke_agent", agent_name="codebase_investigator", prompt="look around")),
        reply("", tool("list_directory", dir_path="."), gate="inside"),
        reply("", tool("complete_task", report=REPORT)),
        reply("the end"),
    )
    gemini.start("--approval-mode", "yolo", "-i", "go on")
    gemini.requests(2)

    seq = send(gemini.friend(), "@nova", "--", "for the parent")
    gemini.script.open("inside")

    asked = gemini.requests(4)
    assert "for the parent" not in asked[2].conversation
    assert "for the parent" in asked[3].conversation
    receipt = gemini.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")


def test_killed_bus_delivers_no_parent_messages_to_a_sub_agent(gemini: GeminiStage) -> None:
    gemini.script.add(
        reply("", tool("invoke_agent", agent_name="codebase_investigator", prompt="look around")),
        reply("", tool("list_directory", dir_path="."), gate="inside"),
        reply("", tool("list_directory", dir_path="..")),
        reply("", tool("complete_task", report=REPORT)),
        reply("the end", gate="end"),
    )
    gemini.start("--approval-mode", "yolo", "-i", "go on")
    gemini.requests(2)
    person = gemini.sit_down()
    person.press(b"half a thought")  # so that nothing is typed
    gemini.until(lambda: gemini.gates()["terminal"] == "draft")
    seq = send(gemini.friend(), "@nova", "--", "for the parent")

    gemini.home.kill()
    gemini.home.ok("up")
    gemini.until(lambda: gemini.gates().get("terminal") == "draft")
    assert gemini.state()[0] == "active"
    gemini.script.open("inside")

    asked = gemini.requests(5)
    assert [one.conversation.count("for the parent") for one in asked] == [0, 0, 0, 0, 1]
    gemini.script.open("end")
    receipt = gemini.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")
    gemini.until_idle()


def test_cleared_conversation_keeps_the_name_and_gets_messages_once(gemini: GeminiStage) -> None:
    gemini.script.add(reply("what was before"), reply("second"))
    gemini.start("-i", "an older question")
    gemini.requests(1)
    gemini.until_idle()
    before = session(gemini)

    say(gemini, gemini.sit_down(), "/clear")
    gemini.until(lambda: session(gemini) != before)
    gemini.until_idle()
    seq = send(gemini.friend(), "@nova", "--", "are you there?")

    asked = gemini.told("are you there?")
    assert "what was before" not in asked
    assert "You are nova on Palaver" in asked
    assert asked.count("are you there?") == 1
    gemini.until_seen(seq)
    gemini.until_idle()
    shown = gemini.home.ok("transcript", "nova").out
    assert "are you there?" in shown
    assert "an older question" not in shown


def test_nothing_is_typed_during_compression_and_messages_come_later(gemini: GeminiStage) -> None:
    gemini.script.add(reply("first"), reply("read"))
    gemini.script.aside = ScriptedReply(text="<state_snapshot>short</state_snapshot>", gate="compress")
    gemini.start("-i", "go on")
    gemini.requests(1)
    gemini.until_idle()

    say(gemini, gemini.sit_down(), "/compress")
    gemini.until(lambda: gemini.state() == ("active", "compacting"))
    gemini.until(lambda: gemini.gates()["terminal"] == "compacting")
    seq = send(gemini.friend(), "@nova", "--", "are you there?")

    assert gemini.receipt(seq)["state"] == "queued"

    def is_compressed() -> bool:
        gemini.script.open("compress")
        return "Compressing" not in gemini.screen()

    gemini.until(is_compressed)
    asked = gemini.told("are you there?")
    assert asked.count("are you there?") == 1
    gemini.until_seen(seq)
    gemini.until_idle()


def test_older_conversation_resumed_inside_keeps_the_name(gemini: GeminiStage) -> None:
    gemini.script.add(reply("the older answer"), reply("the newer answer"), reply("read"))
    gemini.start("-i", "an older question")
    gemini.requests(1)
    gemini.until_idle()
    gemini.end()
    gemini.start("-i", "a newer question")
    gemini.requests(2)
    gemini.until_idle()
    before = session(gemini)
    person = gemini.sit_down()

    say(gemini, person, "/resume")
    gemini.until(lambda: gemini.state() == ("blocked", "dialog: Chat Sessions"))
    person.press(b"\x1b[B")
    gemini.until(lambda: "❯ #1 " not in gemini.screen() or "❯ #2 " in gemini.screen())
    seq = send(gemini.friend(), "@nova", "--interrupt", "--", "do you remember?")
    gemini.until(lambda: gemini.receipt(seq)["state"] == "held")
    person.press(b"\r")

    gemini.told("do you remember?")
    gemini.until_seen(seq)
    gemini.until_idle()
    assert session(gemini) != before


def test_resumed_branch_keeps_the_name_and_repeats_no_message(gemini: GeminiStage) -> None:
    gemini.script.add(reply("the first answer"), reply("the second answer"), reply("read"))
    gemini.start("-i", "the first question")
    gemini.requests(1)
    gemini.until_idle()
    before, luna, person = session(gemini), gemini.friend(), gemini.sit_down()
    say(gemini, person, "/chat save one")
    gemini.until(lambda: "saved with tag: one" in gemini.screen())
    early = send(luna, "@nova", "--", "in the second branch")
    gemini.until_seen(early)
    gemini.requests(2)
    gemini.until_idle()

    # With a trailing blank, Enter selects none of the offered completions.
    say(gemini, person, "/chat resume one ")
    gemini.until(lambda: "in the second branch" not in gemini.screen())
    late = send(luna, "@nova", "--", "which one are you in?")

    asked = gemini.told("which one are you in?")
    assert "the first question" in asked
    assert "in the second branch" not in asked
    assert asked.count("which one are you in?") == 1
    gemini.until_seen(late)
    gemini.until_idle()
    assert len(gemini.script.main) == 3
    assert session(gemini) == before
    assert [one["name"] for one in gemini.home.ok("list", "--json").lines] == ["luna", "nova"]
