"""Claude Code and Codex, started with `pal`, talk to each other without typed keys."""

from collections.abc import Iterator

import pytest
from tests.daemon.stage import JsonLine, check_output, run_as_person, write_settings
from tests.harness.real.codex_stage import shell_call
from tests.harness.real.duo_stage import CLAUDE, CODEX, Duo, claude_says, duo
from tests.harness.real.harness_stage import reply, tool
from tests.harness.real.install import installed

pytestmark = pytest.mark.harness

ASKED = ("is the build green?", "which test fails?", "thanks, I mend it")
SAID = ("no, one test fails", "the third one", "tell me when it is done")
QUESTIONS = tuple(f"question {number:02}" for number in range(30))
ANSWERS = tuple(f"answer {number:02}" for number in range(30))
PATCH = "*** Begin Patch\n*** Update File: shop/plan.md\n@@\n-one\n+two\n*** End Patch"
MANUAL = ("--permission-mode", "manual", "--allowedTools=Bash")


@pytest.fixture
def both() -> Iterator[Duo]:
    """Both harnesses, not started yet; Claude Code still has to send its second and third line."""
    with duo(installed("claude"), installed("codex"), ASKED[1:], SAID) as stage:
        yield stage


@pytest.fixture
def patient() -> Iterator[Duo]:
    """The same with thirty lines each. As a fixture it is part of the report about a failed test."""
    with duo(installed("claude"), installed("codex"), QUESTIONS[1:], ANSWERS) as stage:
        yield stage


def messages(both: Duo) -> list[JsonLine]:
    """Return all messages so far."""
    return both.home.events("--type", "message")


def test_request_is_answered_and_the_talk_continues_to_six_messages(both: Duo) -> None:
    both.codex.start(name=CODEX)
    both.claude.script.add(reply("", claude_says(ASKED[0], "")))

    both.claude.start(*MANUAL, "ask cody about the build", name=CLAUDE)
    both.claude.until(lambda: len(messages(both)) >= 6)

    sent = messages(both)
    texts = [(one["from"], one["payload"]["text"]) for one in sent]
    expected = []
    for question, answer in zip(ASKED, SAID, strict=True):
        expected += [(CLAUDE, question), (CODEX, answer)]
    assert texts == expected
    seqs = [one["seq"] for one in sent]
    both.claude.until(lambda: both.claude.receipt(seqs[0])["state"] == "answered")
    assert {both.claude.until_seen(seq)["lane"] for seq in seqs} == {"native"}
    assert both.claude.receipt(seqs[-1])["grade"] == "context"
    assert [one for one in both.home.events("--type", "life") if one["payload"]["action"] == "typed"] == []


def test_talk_of_sixty_messages_reaches_its_end(patient: Duo) -> None:
    write_settings(patient.home, agent_commands="yes", brake_hops=100)
    patient.home.kill()
    patient.home.ok("up")
    patient.codex.start(name=CODEX)
    patient.claude.script.add(reply("", claude_says(QUESTIONS[0], "")))

    patient.claude.start(*MANUAL, "ask cody", name=CLAUDE)
    for answer in ANSWERS:  # the time limit applies to each step, not to the whole test
        patient.claude.told(f"{CLAUDE}: {answer}")

    sent = messages(patient)
    expected = [text for pair in zip(QUESTIONS, ANSWERS, strict=True) for text in pair]
    assert [one["payload"]["text"] for one in sent] == expected
    for one in sent:
        patient.claude.until_seen(one["seq"])
    patient.claude.until_idle()
    read_by_claude, read_by_codex = patient.claude.all_told(), patient.codex.all_told()
    assert {text: patient.claude.count(f"{CLAUDE}: {text}", read_by_claude) for text in ANSWERS} == (
        dict.fromkeys(ANSWERS, 1)
    )
    assert {text: patient.codex.count(f"{CODEX}: {text}", read_by_codex) for text in QUESTIONS} == (
        dict.fromkeys(QUESTIONS, 1)
    )


def test_both_members_of_a_room_are_notified_when_they_edit_one_file(both: Duo) -> None:
    plan = both.claude.project / "shop" / "plan.md"
    plan.parent.mkdir()
    both.claude.start("--permission-mode", "acceptEdits", name=CLAUDE)
    both.codex.start("-s", "danger-full-access", "-a", "never", name=CODEX)
    for name in (CLAUDE, CODEX):
        check_output(run_as_person(both.home, "--as", name, "room", "join", str(plan.parent)))
    both.claude.script.add(reply("", tool("Write", file_path=str(plan), content="one\n")))
    both.codex.script.add(reply("", shell_call(f"apply_patch <<'EOF'\n{PATCH}\nEOF")))

    both.home.ok("send", f"@{CLAUDE}", "--", "write the plan")
    both.claude.until(plan.exists)
    both.home.ok("send", f"@{CODEX}", "--", "change the plan")

    both.claude.told(f"you and {CODEX} edited {plan} within 30 seconds")
    both.codex.told(f"you and {CLAUDE} edited {plan} within 30 seconds")
    assert plan.read_text() == "two\n"


def test_no_processes_or_files_are_left_after_both_are_stopped(both: Duo) -> None:
    both.codex.start(name=CODEX)
    both.claude.start(*MANUAL, name=CLAUDE)

    reasons = [run_as_person(both.home, "stop", name, "--json").json["reason"] for name in (CODEX, CLAUDE)]

    assert reasons == ["exited with 0", "exited with 0"]
    both.claude.until(lambda: not both.claude.processes())
    both.claude.until(lambda: not both.left())
