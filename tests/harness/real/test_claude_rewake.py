"""Claude Code without a monitor: a waiting hook wakes it. With a monitor no hook waits."""

import os
import signal
from collections.abc import Iterator

import pytest
from tests.harness.real.claude_stage import ClaudeStage
from tests.harness.real.claude_versions import OldClaudeStage, old_claude_stage, waiters
from tests.harness.real.harness_stage import NAME, reply, send
from tests.harness.real.unheld import Unheld
from tests.processes import end_process

pytestmark = pytest.mark.harness


@pytest.fixture
def old() -> Iterator[OldClaudeStage]:
    """A home in which a Claude Code without monitors can be started."""
    with old_claude_stage() as stage:
        yield stage


def test_messages_wake_it_before_the_first_prompt_and_repeatedly(old: OldClaudeStage) -> None:
    old.begin()
    luna = old.friend()

    for number in (1, 2, 3):
        old.rest()
        seq = send(luna, "@nova", "--intent", "request", "--", f"look at build {number}\nand say so")
        request = old.requests(number)[-1]
        assert f"[request #{seq}] luna → nova: look at build {number} ⏎ and say so" in request.conversation
        assert request.conversation.count(f"build {number}\\nand say so") == 1
        receipt = old.until_seen(seq)
        assert (receipt["lane"], receipt["grade"]) == ("native", "context")

    old.rest()
    assert len(old.script.main) == 3
    assert "hook error" not in old.screen()
    assert "● messages from Palaver" in old.screen()


def test_draft_is_unchanged(old: OldClaudeStage) -> None:
    old.begin()
    luna = old.friend()
    person = old.sit_down()
    person.press(b"half a thou")
    old.until(lambda: old.composer("half a thou") in old.screen())

    old.until_seen(send(luna, "@nova", "--", "are you there?"))
    old.rest()

    assert old.composer("half a thou") in old.screen()


def test_busy_session_gets_messages_with_a_result_and_is_woken_later(old: OldClaudeStage) -> None:
    old.script.add(reply("working", old.shell("echo one"), gate="busy"), reply("after"))
    old.begin("do it")
    luna = old.friend()
    old.requests(1)

    seq = send(luna, "@nova", "--", "look at this")
    old.script.open("busy")

    receipt = old.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("hook", "context")
    assert old.requests(2)[1].conversation.count("look at this") == 1
    old.rest()
    assert old.until_seen(send(luna, "@nova", "--", "and now?"))["lane"] == "native"


def test_dialog_is_unchanged_and_messages_come_after_it(old: OldClaudeStage) -> None:
    made = old.project / "made.txt"
    old.script.add(reply("I need a file", old.asking_to_make(made)), reply("made"))
    old.begin("make it", asks=True)
    luna = old.friend()
    old.until(lambda: old.state() == ("blocked", f"permission: Write: {made}"))
    before = old.until_drawn()

    sent_seq = send(luna, "@nova", "--", "a normal one")
    urgent = send(luna, "@nova", "--interrupt", "--", "an urgent one")
    later = send(luna, "@luna", "--", "to myself")
    luna.ok("recv", "--json")

    assert old.receipt(later)["state"] == "seen"
    assert old.receipt(sent_seq)["state"] == "queued"
    assert old.receipt(urgent)["state"] in ("queued", "held")
    assert old.until_drawn() == before

    old.answer_dialog(old.sit_down(last=old.question.encode()))
    for seq, text in ((sent_seq, "a normal one"), (urgent, "an urgent one")):
        old.until_seen(seq)
        assert old.count(text, old.told(text)) == 1


def test_wake_message_during_a_users_prompt_comes_once_and_is_proven(old: OldClaudeStage) -> None:
    old.script.add(reply("working", old.shell("echo one"), gate="busy"), reply("after"), reply("again"))
    old.begin()
    luna = old.friend()
    old.rest()
    (waiter,) = waiters(old)
    os.kill(waiter, signal.SIGSTOP)
    seq = send(luna, "@nova", "--", "in between")
    old.until(lambda: old.receipt(seq)["state"] == "submitted")
    person = old.sit_down()
    person.press(b"do it")
    old.until(lambda: old.composer("do it") in old.screen())
    person.press(b"\r")
    old.requests(1)

    os.kill(waiter, signal.SIGCONT)
    old.until(lambda: waiter not in waiters(old))
    old.script.open("busy")

    assert old.requests(2)[1].conversation.count("in between") == 1
    old.rest()
    assert old.receipt(seq)["state"] == "submitted"
    person.press(b"go on")
    old.until(lambda: old.composer("go on") in old.screen())
    person.press(b"\r")
    receipt = old.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")
    assert old.requests(3)[2].conversation.count("in between") == 1


def test_session_is_woken_by_the_next_daemon(old: OldClaudeStage) -> None:
    old.begin()
    old.rest()

    old.home.kill(signal.SIGKILL)
    old.home.ok("up")
    old.rest()
    luna = old.friend()
    seq = send(luna, "@nova", "--", "welcome back")

    receipt = old.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")
    assert old.told("welcome back").count("welcome back") == 1


def test_session_without_a_terminal_has_no_waiting_hook(old: OldClaudeStage) -> None:
    assert old.run_headless("--name", "nova", "-p", "go").out == "done\n"
    assert waiters(old) == []


def test_no_hook_waits_after_a_session_is_killed(old: OldClaudeStage) -> None:
    old.begin()
    old.rest()

    end_process(old.pid(), signal.SIGKILL)

    old.until_gone()


def test_no_hook_waits_after_a_kill_without_a_bus(old: OldClaudeStage) -> None:
    old.begin()
    old.rest()
    pid = old.pid()
    old.home.ok("down")

    end_process(pid, signal.SIGKILL)

    old.until(lambda: not waiters(old))


def test_turn_stopped_by_a_person_ends_and_a_message_wakes_it(old: OldClaudeStage) -> None:
    old.script.add(reply("thinking", gate="busy"))
    old.begin()
    luna = old.friend()
    old.rest()
    send(luna, "@nova", "--", "think about it")
    old.requests(1)
    person = old.sit_down()
    old.until(lambda: old.state()[0] == "active")

    person.press(b"\x1b")
    old.rest()
    seq = send(luna, "@nova", "--", "and about this")

    assert old.until_seen(seq)["lane"] == "native"
    assert old.told("and about this").count("and about this") == 1


def test_new_conversation_is_woken(old: OldClaudeStage) -> None:
    old.begin()
    luna = old.friend()
    old.rest()
    before = waiters(old)
    person = old.sit_down()
    person.press(b"/clear")
    old.until(lambda: old.composer("/clear") in old.screen())
    person.press(b"\r")
    old.until(lambda: waiters(old) not in ([], before))
    old.rest()

    seq = send(luna, "@nova", "--", "a new day")

    assert old.until_seen(seq)["lane"] == "native"
    assert old.told("a new day").count("a new day") == 1


def test_session_started_without_pal_is_woken(old: OldClaudeStage) -> None:
    session = Unheld(old)
    luna = old.friend()

    seq = send(luna, f"@{session.name}", "--", "good morning")

    receipt = old.until_seen(seq)
    assert (receipt["lane"], receipt["grade"]) == ("native", "context")
    assert old.told("good morning").count("good morning") == 1
    assert old.script.main[0].text.count(f"You are {session.name} on Palaver") == 1
    end_process(old.pid(session.name), signal.SIGKILL)
    old.until(lambda: not waiters(old))


def test_with_a_monitor_no_hook_waits_and_messages_come_once(claude: ClaudeStage) -> None:
    claude.begin()
    luna = claude.friend()
    claude.until(lambda: not waiters(claude))

    for number in (1, 2, 3):
        seq = send(luna, f"@{NAME}", "--", f"message {number} of three")
        receipt = claude.until_seen(seq)
        assert (receipt["lane"], receipt["grade"]) == ("native", "context")
        claude.until_idle()
        claude.until(lambda: not waiters(claude))

    assert len(claude.script.main) == 3
    for number in (1, 2, 3):
        assert claude.script.main[-1].conversation.count(f"message {number} of three") == 1
