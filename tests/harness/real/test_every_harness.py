"""Tests for every harness: the real programs, started with `pal`, with a scripted model.

`pal HARNESS` opens the lanes `native` and `hook`; `pal run` opens only `terminal`. A lane that a harness does
not have is skipped with its reason. Behaviour of a single harness is tested in its own file.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

import pytest
from tests.daemon.stage import JsonLine, Shell, check_output, run_as_person, run_script_as_person
from tests.harness.real.behaviours import (
    leaves_a_dialog_as_it_is,
    leaves_a_draft_as_it_was,
    wakes_one_that_rests,
)
from tests.harness.real.claude_stage import claude_stage
from tests.harness.real.codex_stage import codex_stage
from tests.harness.real.gemini_stage import gemini_stage
from tests.harness.real.harness_stage import HarnessStage, reply, send, tool
from tests.harness.real.install import installed
from tests.harness.real.opencode_stage import OpenCodeStage, opencode_stage

pytestmark = pytest.mark.harness

STAGES: dict[str, Callable[[Path], AbstractContextManager[HarnessStage]]] = {
    "claude": claude_stage,
    "codex": codex_stage,
    "opencode": opencode_stage,
    "gemini": gemini_stage,
}
MISSING = {
    ("claude", "hook"): "besides hooks, Claude Code always has a lane that wakes it: see its own tests",
    (
        "codex",
        "hook",
    ): "Codex runs hooks only if a person has allowed them; see its own tests",
    ("opencode", "hook"): "OpenCode runs no commands at its events, so it has no hook lane",
    ("gemini", "native"): "Gemini CLI accepts no messages in a running session, so it has no native lane",
}


def by_lane(*lanes: str) -> pytest.MarkDecorator:
    """Run a test for every harness on each of these lanes."""
    cases = []
    for harness in STAGES:
        for lane in lanes:
            why = MISSING.get((harness, lane))
            marks = [pytest.mark.skip(reason=why)] if why else []
            cases.append(pytest.param(harness, lane, id=f"{harness}-{lane}", marks=marks))
    return pytest.mark.parametrize(("stage", "lane"), cases, indirect=["stage"])


every_harness = pytest.mark.parametrize("stage", STAGES, indirect=True)


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[HarnessStage]:
    """A home with a running bus in which this harness can be started."""
    with STAGES[request.param](installed(request.param)) as made:
        yield made


EDITS = {
    "opencode": tool("write", filePath="shop/plan.md", content="x\n"),
    "gemini": tool("write_file", file_path="shop/plan.md", content="x\n"),
}
"""Calls with a part of the path. The others report the full path, and are in test_conversation.py."""


def statuses(stage: HarnessStage) -> list[JsonLine]:
    """Return its status events."""
    return stage.home.events("--type", "status", "--agent", "nova")


def is_sender_notified(sender: Shell, seq: int) -> bool:
    """Return whether the sender was notified that the outcome of a message is unknown."""
    return f"#{seq} " in sender.ok("recv", "--json", "--peek").out


@by_lane("native", "terminal")
def test_message_wakes_an_idle_agent(stage: HarnessStage, lane: str) -> None:
    names = set(stage.own_settings())

    seq, asked = wakes_one_that_rests(stage, lane)

    if lane == "native":
        assert f"[request #{seq}] luna → nova: please look at the build" in asked
        assert asked.count("You are nova on Palaver") == 1
    settings = stage.own_settings()
    assert set(settings) == names
    assert not any(b"palaver" in text for text in settings.values())


@by_lane("native", "hook")
def test_message_reaches_a_busy_agent_before_its_turn_ends(stage: HarnessStage, lane: str) -> None:
    working = reply("working", stage.shell("echo the-result"), gate="busy")
    stage.script.add(working, reply("I stop", awaits="stop at the second test"))
    stage.begin("go on", lane=lane)
    stage.requests(1)
    luna = stage.friend()
    stage.until(lambda: stage.state()[0] == "active")

    seq = send(luna, "@nova", "--", "stop at the second test")
    stage.script.open("busy")

    asked = stage.told("stop at the second test")
    assert "the-result" in asked
    assert asked.count("stop at the second test") == 1
    receipt = stage.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == (lane, "context")
    stage.until(lambda: any(one["payload"].get("command") == "echo the-result" for one in statuses(stage)))


@by_lane("native", "hook", "terminal")
def test_dialog_is_unchanged_and_messages_come_after_it(stage: HarnessStage, lane: str) -> None:
    leaves_a_dialog_as_it_is(stage, lane)


@by_lane("native", "terminal")
def test_draft_is_unchanged(stage: HarnessStage, lane: str) -> None:
    leaves_a_draft_as_it_was(stage, lane)


@by_lane("native", "hook")
def test_turn_end_delivers_waiting_messages_without_a_loop(stage: HarnessStage, lane: str) -> None:
    rounds = range(5)
    stage.script.add(*(reply(f"nearly done {number}", gate=f"gate {number}") for number in rounds))
    stage.begin("go on", lane=lane)
    luna = stage.friend()

    seqs = []
    for number in rounds:
        stage.requests(number + 1)
        seqs.append(send(luna, "@nova", "--", f"one more thing {number}"))
        stage.script.open(f"gate {number}")

    for seq in seqs:
        stage.until_seen(seq)
    stage.until_idle()
    send(luna, "@nova", "--", "and the last one")
    asked = stage.told("and the last one")
    assert [stage.count(f"one more thing {number}", asked) for number in rounds] == [1] * len(rounds)
    assert len(stage.script.main) <= len(rounds) + 2


@every_harness
def test_forty_messages_in_ten_seconds_arrive_once_each(stage: HarnessStage) -> None:
    stage.begin()
    luna = stage.friend()
    texts = [f"message {number:02} of forty" for number in range(40)]

    seqs = []
    for text in texts:
        seqs.append(send(luna, "@nova", "--", text))
        stage.wait(lambda: False, 0.2)  # four or five per second, independent of their delivery

    def arrivals() -> dict[str, int]:
        """Count how often each text was added to the conversation.

        The last request is not enough: Gemini may drop a prompt, and a text sent again is then there once.
        """
        asked = ["", *(request.conversation for request in stage.script.main)]
        return {
            text: sum(max(0, stage.count(text, new) - stage.count(text, old)) for old, new in pairwise(asked))
            for text in texts
        }

    for seq in seqs:
        stage.until_seen(seq)
    stage.until(lambda: all(arrivals().values()))  # a typed text may still wait in the harness's own queue
    stage.until_idle()
    assert arrivals() == dict.fromkeys(texts, 1)


@every_harness
def test_shell_and_tools_are_the_same_agent_and_answer_a_request(stage: HarnessStage) -> None:
    luna, kira = stage.friend(), stage.friend("kira")  # a message back to luna would answer the request
    from_shell = stage.shell(f"{stage.shell_pal} send @kira -- from a shell")
    stage.script.add(reply("let me see", from_shell, gate="busy"))
    stage.begin()
    asked = send(luna, "@nova", "--intent", "request", "--", "how is the build?")
    stage.requests(1)

    stage.script.add(*stage.bus_replies("send", text="it is green", to="@luna", reply_to=str(asked)))
    stage.script.open("busy")

    stage.until(lambda: stage.receipt(asked)["state"] == "answered")
    got = [(one["from"], one["text"]) for reader in (kira, luna) for one in reader.ok("recv", "--json").lines]
    assert got == [("nova", "from a shell"), ("nova", "it is green")]


@every_harness
def test_turn_continues_without_the_daemon_and_nothing_is_lost(stage: HarnessStage) -> None:
    stage.script.add(reply("working", stage.shell("true"), gate="busy"), reply("after", awaits="welcome"))
    stage.begin("go on")
    stage.requests(1)
    luna = stage.friend()
    stage.until(lambda: stage.state()[0] == "active")
    before = send(luna, "@nova", "--", "in hand")

    stage.home.kill(signal.SIGKILL)
    stage.script.open("busy")
    stage.requests(2)
    stage.home.ok("up")

    seq = send(stage.friend("kira"), "@nova", "--", "welcome back")

    assert stage.count("welcome back", stage.told("welcome back")) == 1
    stage.until_seen(seq)
    stage.until_idle()
    stage.until(
        lambda: (
            (stage.count("in hand", stage.all_told()), stage.receipt(before)["state"]) == (1, "seen")
            or is_sender_notified(luna, before)
        )
    )
    assert stage.count("in hand", stage.all_told()) <= 1


@pytest.mark.parametrize("ended", ["killed", "its holder killed", "asked to end"])
@every_harness
def test_ended_harness_leaves_no_processes_or_files(stage: HarnessStage, ended: str) -> None:
    if ended == "its holder killed":
        stage.begin()  # while it asks, Gemini CLI takes a minute to exit by itself
    else:
        stage.begin_asking("")
        stage.until(stage.dialog)
    assert stage.left()

    pid = stage.pid() if ended == "killed" else stage.holder()
    os.kill(pid, signal.SIGTERM if ended == "asked to end" else signal.SIGKILL)

    stage.until(lambda: stage.state()[0] in ("exited", ""))
    stage.until_gone()
    stage.until_clean()
    assert not stage.has_leave()


@pytest.mark.parametrize("how", ["its own way", "pal resume"])
@every_harness
def test_resumed_conversation_keeps_its_name(stage: HarnessStage, how: str) -> None:
    stage.script.add(reply("first answer"))
    stage.begin("begin the work")
    stage.until(lambda: "first answer" in stage.screen())
    stage.until_idle()
    stage.end()

    if how == "pal resume":
        begun = run_script_as_person(stage.home, "pal resume nova --detach")
    else:
        begun = stage.home.ok(stage.harness, "--detach", *stage.resume, cwd=stage.project)

    assert begun.out == "nova\n"
    stage.until(lambda: stage.is_ready("nova"))
    stage.until_idle()
    seq = send(stage.friend(), "@nova", "--", "do you remember?")
    asked = stage.told("do you remember?")
    assert "first answer" in asked
    assert asked.count("begin the work") == 1
    stage.until_seen(seq)


@pytest.mark.parametrize("stage", EDITS, indirect=True)
def test_both_agents_are_notified_when_they_edit_one_file(stage: HarnessStage) -> None:
    if isinstance(stage, OpenCodeStage):
        stage.settings.write_text(stage.settings.read_text().replace('"ask"', '"allow"'))
    plan = stage.project / "shop" / "plan.md"
    plan.parent.mkdir()
    luna = stage.friend()
    stage.begin()
    luna.ok("room", "join", str(plan.parent))
    check_output(run_as_person(stage.home, "--as", "nova", "room", "join", str(plan.parent)))
    stage.script.add(reply("", EDITS[stage.harness]))

    luna.ok("status", "set", "active", "--file", str(plan))
    send(luna, "@nova", "--", "write the plan")

    stage.told(f"you and luna edited {plan} within 30 seconds")
    assert f"you and nova edited {plan} within 30 seconds" in luna.ok("recv", "--wait", "--timeout", "30").out
    assert plan.read_text() == "x\n"
