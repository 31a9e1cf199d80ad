"""The life of a Claude Code session: it stays the same agent when its conversation changes."""

import json
import os
import re
import signal

import pytest
from tests.app.person import Person
from tests.daemon.stage import run_as_person
from tests.harness.real.claude_stage import ClaudeStage
from tests.harness.real.harness_home import LIMIT_S
from tests.harness.real.harness_stage import PATIENCE_S, reply, send
from tests.harness.real.unheld import Unheld
from tests.processes import processes_of

from palaver.app.mock_model import ScriptedReply

pytestmark = pytest.mark.harness


def write(claude: ClaudeStage, person: Person, text: str) -> None:
    """Have a person type a text, and send it when the composer shows it."""
    person.press(text.encode())
    claude.until(lambda: claude.composer(text) in claude.screen())
    person.press(b"\r")


def first_words(claude: ClaudeStage) -> None:
    """Start it with a prompt, and wait until the reply is stored: otherwise it cannot be resumed."""
    claude.begin("first words")
    claude.until(lambda: "● done" in claude.screen())
    claude.until_idle()
    claude.until(lambda: "first words" in claude.home.pal("transcript", "nova", "--json").out)


def lives(claude: ClaudeStage, name: str = "nova") -> list[str]:
    """Return the life events of the agent so far."""
    found = claude.home.ok("events", "--type", "life", "--from", name, "--json").lines
    return [event["payload"]["action"] for event in found]


def session(claude: ClaudeStage, name: str = "nova") -> str:
    """Return the session id that the bus has stored for it."""
    found = claude.home.ok("events", "--type", "life", "--from", name, "--json").lines
    agents = [event["payload"]["agent"] for event in found if event["payload"]["action"] == "session"]
    return str(agents[-1]["session"]) if agents else ""


def transcript(claude: ClaudeStage, name: str = "nova") -> str:
    """Return its transcript from `pal transcript`."""
    return claude.home.ok("transcript", name, "--json").out


def is_told_once(claude: ClaudeStage, text: str) -> bool:
    """Return whether the model got a text, and in no request twice."""
    counts = [one.conversation.count(text) for one in claude.script.main]
    return max(counts) == 1


def end(claude: ClaudeStage) -> None:
    """End its session as a person does from elsewhere."""
    assert run_as_person(claude.home, "stop", "nova").status == 0
    claude.until(lambda: claude.state()[0] in ("exited", ""))


def monitors(claude: ClaudeStage, word: str = "monitor") -> list[int]:
    """Return the processes that keep its native lane open."""
    running = processes_of(claude.home.path)
    return [pid for pid, line in running.items() if re.search(rf"/pal {word}\b", line)]


def wakes(claude: ClaudeStage) -> list[int]:
    """Return the processes that would wake it if it had no monitor."""
    return monitors(claude, "rewake")


def test_first_session_is_started_and_not_resumed(claude: ClaudeStage) -> None:
    first_words(claude)

    assert sorted(lives(claude)) == ["ready", "session", "started"]


def test_clear_keeps_the_agent_in_a_new_conversation(claude: ClaudeStage) -> None:
    first_words(claude)
    luna = claude.friend()
    before = session(claude)
    assert run_as_person(claude.home, "pause", "nova").status == 0
    seq = send(luna, "@nova", "--", "it waits for a new day")

    write(claude, claude.sit_down(), "/clear")
    claude.until(lambda: session(claude) != before)
    assert claude.receipt(seq)["state"] == "queued"
    assert run_as_person(claude.home, "unpause", "nova").status == 0

    assert claude.until_seen(seq)["grade"] == "context"
    assert is_told_once(claude, "it waits for a new day")
    conversation = claude.script.main[-1].conversation
    assert "first words" not in conversation
    assert "You are nova on Palaver" in conversation
    claude.until_idle()
    assert "resumed" not in lives(claude)
    assert "it waits for a new day" in transcript(claude)
    assert "first words" not in transcript(claude)


def test_messages_wait_during_a_compaction_and_then_come_once(claude: ClaudeStage) -> None:
    first_words(claude)
    luna = claude.friend()
    claude.script.add(reply("what it was about", gate="compacting"))
    write(claude, claude.sit_down(), "/compact")
    claude.until(lambda: claude.state() == ("active", "compacting"))

    seq = send(luna, "@nova", "--", "in the middle of it")
    later = send(luna, "@luna", "--", "to myself")
    luna.ok("recv", "--json")
    assert claude.receipt(later)["state"] == "seen"
    assert claude.receipt(seq)["state"] == "queued"
    claude.script.open("compacting")

    assert claude.until_seen(seq)["grade"] == "context"
    assert is_told_once(claude, "in the middle of it")
    claude.until_idle()
    assert sorted(lives(claude)) == ["ready", "session", "started"]


def test_agent_is_idle_after_a_compaction(claude: ClaudeStage) -> None:
    first_words(claude)
    claude.script.add(reply("what it was about", gate="compacting"))
    write(claude, claude.sit_down(), "/compact")
    claude.until(lambda: claude.state() == ("active", "compacting"))

    claude.script.open("compacting")

    claude.until_idle()
    states = claude.home.ok("events", "--type", "status", "--from", "nova", "--json").lines
    assert json.dumps(states[-1]["payload"]) == '{"state": "idle"}'


@pytest.mark.parametrize("how", ["--resume ID", "--continue --fork-session", "pal resume"])
def test_resumed_conversation_is_the_same_agent_with_its_messages(claude: ClaudeStage, how: str) -> None:
    first_words(claude)
    luna = claude.friend()
    before = session(claude)
    end(claude)
    seq = send(luna, "@nova", "--", "while you were away")

    if how == "pal resume":
        claude.launch("pal", "resume", "nova", "--detach")
    else:
        words = how.replace("ID", before).split()
        claude.launch("pal", "claude", "--detach", *words, *claude.words("", asks=False))

    assert claude.until_seen(seq)["grade"] == "context"
    assert is_told_once(claude, "while you were away")
    assert "first words" in claude.script.main[-1].conversation
    claude.until_idle()
    assert [one["name"] for one in claude.home.ok("list", "--json").lines] == ["luna", "nova"]
    shown = transcript(claude)
    assert "first words" in shown
    assert "while you were away" in shown
    if "fork" in how:
        claude.until(lambda: session(claude) != before)


def test_conversation_chosen_in_the_session_keeps_the_agent(claude: ClaudeStage) -> None:
    first_words(claude)
    luna = claude.friend()
    first = session(claude)
    person = claude.sit_down()
    write(claude, person, "/clear")
    claude.until(lambda: session(claude) != first)
    write(claude, person, "second words")
    claude.until(lambda: len(claude.script.main) == 2)
    claude.until_idle()

    write(claude, person, "/resume")
    claude.until(lambda: "first words" in claude.screen())
    while session(claude) != first:
        person.press(b"\r")
        claude.wait(lambda: session(claude) == first, 2 * PATIENCE_S)
    seq = send(luna, "@nova", "--", "which one are you in?")

    claude.until_seen(seq)
    assert is_told_once(claude, "which one are you in?")
    conversation = claude.script.main[-1].conversation
    assert "first words" in conversation
    assert "second words" not in conversation
    claude.until_idle()
    assert "second words" not in transcript(claude)
    assert [one["name"] for one in claude.home.ok("list", "--json").lines] == ["luna", "nova"]


def test_conversation_chosen_at_the_start_is_the_same_agent(claude: ClaudeStage) -> None:
    first_words(claude)
    luna = claude.friend()
    before = session(claude)
    end(claude)
    seq = send(luna, "@nova", "--", "while you were away")

    claude.launch("pal", "claude", "--detach", "--resume", *claude.words("", asks=False))
    person = claude.sit_down(last=b"Resume")
    claude.until(lambda: "❯ first words" in claude.screen())
    assert claude.receipt(seq)["state"] == "queued"
    while "Resume session" in claude.screen():
        person.press(b"\r")
        claude.wait(lambda: "Resume session" not in claude.screen(), PATIENCE_S)

    claude.until_seen(seq)
    assert "first words" in claude.told("while you were away")
    assert is_told_once(claude, "while you were away")
    claude.until_idle()
    assert [one["name"] for one in claude.home.ok("list", "--json").lines] == ["luna", "nova"]
    assert session(claude) == before


# Sessions whose screen no holder sees


def test_turn_stopped_by_its_user_ends_and_a_message_wakes_it(claude: ClaudeStage) -> None:
    session = Unheld(claude)
    luna = claude.friend()
    claude.script.add(reply("thinking", gate="busy"))
    session.write("ponder")
    claude.requests(2)
    claude.until(lambda: session.state == "active")

    session.person.press(b"\x1b")

    claude.until(lambda: session.state == "idle")
    seq = send(luna, f"@{session.name}", "--", "what about this?")
    claude.until_seen(seq)
    assert is_told_once(claude, "what about this?")


def test_dialog_denied_by_its_user_is_closed(claude: ClaudeStage) -> None:
    session = Unheld(claude)
    claude.script.add(reply("I need a file", claude.asking_to_make(claude.project / "made.txt")))
    session.write("make")
    claude.until(lambda: session.state == "blocked")
    session.person.until(b"3.")

    while session.state != "idle":
        session.person.press(b"\x1b")
        claude.wait(lambda: session.state == "idle", 2 * PATIENCE_S)

    assert not (claude.project / "made.txt").exists()


def test_failed_turn_ends(claude: ClaudeStage) -> None:
    session = Unheld(claude)
    error = {"type": "error", "error": {"type": "api_error", "message": "boom"}}
    claude.script.add(ScriptedReply(status=500, body=error))
    session.write("fail")
    claude.requests(2)

    claude.until(lambda: session.state == "idle")
    session.write("again")
    claude.requests(3)
    claude.until(lambda: session.state == "idle")


def test_after_a_daemon_crash_the_monitor_returns_before_typing(claude: ClaudeStage) -> None:
    claude.start()
    claude.until(lambda: monitors(claude) and not wakes(claude))
    waiting = monitors(claude)
    # The next daemon reads this. A busy machine may need more than the default.
    (claude.home.path / "config.toml").write_text(f"native_wait_s = {LIMIT_S:.0f}\n")
    for pid in waiting:
        os.kill(pid, signal.SIGSTOP)
    try:
        claude.home.kill(signal.SIGKILL)
        claude.until(lambda: "terminal" in claude.gates())
        seq = send(claude.friend(), "@nova", "--", "who brings this?")
    finally:
        for pid in waiting:
            os.kill(pid, signal.SIGCONT)

    assert claude.until_seen(seq)["lane"] == "native"


def test_state_is_corrected_after_a_restart_of_the_bus(claude: ClaudeStage) -> None:
    session = Unheld(claude)
    claude.script.add(reply("thinking", gate="busy"))
    session.write("ponder")
    claude.requests(2)
    claude.until(lambda: session.state == "active")

    claude.home.kill(signal.SIGKILL)
    claude.script.open("busy")
    session.person.until(b"thinking")
    claude.home.ok("up")

    claude.until(lambda: session.state == "idle")
