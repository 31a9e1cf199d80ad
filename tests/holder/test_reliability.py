"""The exact bytes that reach an agent in each of its states: real daemon, real holder, scripted harness."""

import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.app.person import holders_of
from tests.daemon.stage import Home, Shell, run_as_person
from tests.holder.herd import HEAD, Herd, Scripted, herds, until
from tests.holder.stage import PROGRAMS, command_of
from tests.limits import LIMIT_S

from palaver.harness.hooks import COMPACTING, HOOK_STATES
from palaver.protocol.events import AgentState

PASTE_BEGIN, PASTE_END, ESCAPE, CTRL_C, ENTER = b"\x1b[200~", b"\x1b[201~", b"\x1b", b"\x03", b"\r"

ACTIVE_HOOKS = [
    event
    for event, (state, reason) in HOOK_STATES.items()
    if state is AgentState.ACTIVE and reason != COMPACTING
]
COMPACTING_HOOKS = [event for event, (_, reason) in HOOK_STATES.items() if reason == COMPACTING]


@pytest.fixture
def herd(tmp_path: Path) -> Iterator[Herd]:
    with herds(tmp_path) as made:
        yield made


@pytest.fixture
def home(herd: Herd) -> Home:
    return herd.home


@pytest.fixture
def framed(herd: Herd) -> Scripted:
    """Return an idle agent with a visible composer."""
    agent = herd.start("framed")
    agent.be("idle")
    return agent


@pytest.fixture
def plain(herd: Herd) -> Scripted:
    """Return an idle agent that reports its state and shows only an echo."""
    agent = herd.start("plain")
    agent.be("idle")
    return agent


def send(home: Home, agent: Scripted, text: str, *options: str) -> int:
    """Send a message and return its seq."""
    seq: int = home.ok("send", f"@{agent.name}", "--json", *options, "--", text).json["seq"]
    return seq


def pasted(text: str, head: str = HEAD) -> bytes:
    """Return the bytes of one message in a terminal with bracketed paste."""
    return PASTE_BEGIN + head.encode() + text.encode() + PASTE_END + ENTER


def state_of(home: Home, agent: Scripted) -> tuple[str, str | None]:
    found = home.ok("status", agent.name, "--json").json
    return found["state"], found["detail"]


def until_state(home: Home, agent: Scripted, state: str, reason: str | None = None) -> None:
    until(lambda: state_of(home, agent) == (state, reason))


def is_gate(home: Home, agent: Scripted, *, reason: str) -> bool:
    """Whether the daemon has this gate reason for the terminal; an empty reason means an open gate."""
    gates = home.ok("status", agent.name, "--json").json["gates"]
    return bool(gates) and gates[0]["reason"] == reason and gates[0]["open"] is (not reason)


def receipt_of(home: Home, seq: int) -> dict[str, str]:
    (receipt,) = home.ok("receipts", str(seq), "--json").json["receipts"]
    found: dict[str, str] = receipt
    return found


# Each state


@pytest.mark.parametrize("look", ["framed", "plain"])
def test_message_waits_until_the_start_is_complete(herd: Herd, home: Home, look: str) -> None:
    agent = herd.start(look)

    send(home, agent, "early", "--priority", "interrupt")
    until(lambda: is_gate(home, agent, reason="starting"))
    assert agent.keys() == b""
    agent.be("idle")

    assert agent.until_sent(1) == [f"{HEAD}early"]
    assert agent.keys("starting") == b""


def test_active_agent_gets_normal_messages_and_no_idle_ones(home: Home, framed: Scripted) -> None:
    framed.be("working")
    send(home, framed, "when idle", "--priority", "idle")
    send(home, framed, "when idle, first", "--priority", "idle-first")

    for count, event in enumerate(ACTIVE_HOOKS, start=1):
        framed.hook(home, event)
        until_state(home, framed, "active", HOOK_STATES[event][1])
        send(home, framed, event)
        framed.until_sent(count)

    assert framed.sent() == [f"{HEAD}{event}" for event in ACTIVE_HOOKS]
    framed.hook(home, "Stop")
    framed.be("idle")
    assert framed.until_sent(len(ACTIVE_HOOKS) + 2)[-2:] == [f"{HEAD}when idle, first", f"{HEAD}when idle"]
    assert ESCAPE not in framed.keys().replace(PASTE_BEGIN, b"").replace(PASTE_END, b"")


@pytest.mark.parametrize("look", ["framed", "plain"])
def test_dialog_gets_no_byte_and_an_interrupt_is_held_until_its_answer(
    herd: Herd, home: Home, look: str
) -> None:
    agent = herd.start(look)
    agent.be("dialog")
    until(lambda: is_gate(home, agent, reason="dialog"))
    nova = home.shell()
    nova.ok("join", "--name", "nova")

    send(home, agent, "waits")
    nova.ok("send", f"@{agent.name}", "--interrupt", "--", "urgent")
    notice = nova.ok("recv", "--wait", "--timeout", "30", "--json").json
    held = home.ok("status", agent.name, "--json").json["queue"]["held"]

    assert "a dialog is open" in notice["text"]
    assert held == 1
    assert agent.keys() == b""
    agent.be("idle")
    assert agent.until_sent(2) == ["[pal message from: nova] urgent", f"{HEAD}waits"]
    assert agent.keys("dialog") == b""


@pytest.mark.parametrize("look", ["framed", "plain"])
def test_dialog_that_opens_while_typing_is_not_answered(herd: Herd, home: Home, look: str) -> None:
    agent = herd.start(look)
    agent.be("idle")
    agent.order("trap")

    seq = send(home, agent, "hello")
    until(lambda: agent.lines().count(("mood", "dialog")) == 1)
    until(lambda: is_gate(home, agent, reason="dialog"))
    assert agent.sent() == []
    agent.be("idle")

    assert agent.until_sent(1) == [f"{HEAD}hello"]
    assert agent.keys("dialog") == b""
    assert agent.keys().count(ENTER) == 1
    until(lambda: receipt_of(home, seq)["state"] == "seen")


def test_nothing_is_typed_during_a_compaction_on_the_screen(home: Home, framed: Scripted) -> None:
    framed.be("compacting")

    send(home, framed, "later")
    send(home, framed, "urgent", "--interrupt")
    until(lambda: is_gate(home, framed, reason="compacting"))
    framed.be("idle")

    assert framed.until_sent(2) == [f"{HEAD}urgent", f"{HEAD}later"]
    assert framed.keys("compacting") == b""
    assert framed.keys() == pasted("urgent") + pasted("later")


@pytest.mark.parametrize("event", COMPACTING_HOOKS)
def test_nothing_is_typed_during_a_compaction_reported_by_a_hook(
    home: Home, plain: Scripted, event: str
) -> None:
    plain.hook(home, event)
    until(lambda: is_gate(home, plain, reason="compacting"))

    send(home, plain, "later")
    assert plain.keys() == b""
    plain.hook(home, "Stop")

    assert plain.until_sent(1) == [f"{HEAD}later"]


def test_burst_of_fifty_messages_arrives_complete_and_in_order(home: Home, framed: Scripted) -> None:
    texts = [f"{number} {'é' * (301 if number % 5 == 0 else 9)}" for number in range(50)]

    for text in texts:
        send(home, framed, text)

    framed.until_sent(50, limit_s=60)
    shown = [text.removeprefix(HEAD) for text in framed.sent()]
    files = [Path(text.removeprefix("Read ").strip()) for text in shown if text.startswith("Read ")]
    assert len(set(files)) == 10
    assert [file.read_text().rstrip("\n") for file in files] == texts[::5]
    assert [text for text in shown if not text.startswith("Read ")] == [
        text for number, text in enumerate(texts) if number % 5
    ]


def test_silent_program_is_idle_after_two_seconds_and_gets_idle_messages(herd: Herd, home: Home) -> None:
    agent = herd.start("mute")
    agent.be("working")

    send(home, agent, "when idle", "--priority", "idle")

    assert agent.until_sent(1) == [f"{HEAD}when idle"]


# The order of priorities, to the byte


def test_priority_order_holds_across_states_and_two_daemon_deaths(home: Home, framed: Scripted) -> None:
    framed.be("working")
    for text, priority in (("i1", "idle"), ("f1", "idle-first"), ("f2", "idle-first"), ("n1", "normal")):
        send(home, framed, text, "--priority", priority)
    framed.until_sent(1)
    home.kill()
    send(home, framed, "n2")
    framed.until_sent(2)
    # A dialog: an interrupt is held, and nothing is typed.
    framed.be("dialog")
    send(home, framed, "n3")
    urgent = send(home, framed, "x1", "--interrupt")
    until(lambda: receipt_of(home, urgent)["state"] == "held")
    # Paused and idle: the interrupt is typed without a key before it; the rest waits, also in the next
    # daemon.
    assert run_as_person(home, "pause", framed.name).status == 0
    framed.be("idle")
    framed.until_sent(3)
    home.kill()
    send(home, framed, "n4")
    send(home, framed, "x2", "--interrupt")
    framed.until_sent(4)
    assert run_as_person(home, "unpause", framed.name).status == 0
    framed.until_sent(9)
    # Active: an interrupt stops the agent first.
    framed.be("working")
    send(home, framed, "x3", "--interrupt")
    framed.until_sent(10)

    order = ["n1", "n2", "x1", "x2", "n3", "n4", "f2", "f1", "i1"]
    assert framed.keys() == b"".join(map(pasted, order)) + ESCAPE + pasted("x3")
    assert framed.keys("dialog") == b""


def test_idle_agent_gets_no_ctrl_c_and_a_busy_one_gets_one(home: Home, plain: Scripted) -> None:
    send(home, plain, "calm", "--interrupt")
    plain.until_sent(1)

    plain.be("working")
    send(home, plain, "stop", "--interrupt")
    plain.until_sent(2)

    assert plain.keys() == pasted("calm") + CTRL_C + pasted("stop")


@pytest.mark.skipif("HERD" not in os.environ, reason="takes fifteen seconds; test_typing has it in no time")
def test_agent_that_ignores_ctrl_c_gets_three_and_then_the_text(herd: Herd, home: Home) -> None:
    agent = herd.start("stubborn")
    agent.be("working")

    send(home, agent, "stop", "--interrupt")
    agent.until_sent(1, limit_s=30)

    assert agent.keys() == CTRL_C * 3 + pasted("stop")
    times_s = [float(value) for word, value in agent.lines() if word == "ctrl-c"]
    assert [round(after - before) for before, after in pairwise(times_s)] == [5, 5]


# Raw keys


def test_raw_keys_of_a_person_reach_the_dialog_unchanged(home: Home, framed: Scripted) -> None:
    framed.be("dialog")
    keys = "\x1b[B1\tü"

    sent = run_as_person(home, "send", f"@{framed.name}", "--raw", "--json", "--", keys)

    assert sent.status == 0, sent
    until(lambda: framed.keys() == keys.encode())
    assert framed.keys("dialog") == keys.encode()
    assert not (home.path / "messages").exists()


def test_raw_keys_of_an_agent_are_refused(home: Home, framed: Scripted) -> None:
    framed.be("dialog")
    nova = home.shell()
    nova.ok("join", "--name", "nova")

    refused = nova.pal("send", f"@{framed.name}", "--raw", "--json", "--", "1")

    assert refused.status == 1
    assert refused.error["error"] == "not_allowed"
    framed.be("idle")
    send(home, framed, "later")
    framed.until_sent(1)
    assert framed.keys() == pasted("later")


def test_raw_keys_for_a_plain_shell_are_refused(herd: Herd, home: Home) -> None:
    home.ok("run", "--detach", "--name", "sheila", "--", "bash", "--norc", "--noprofile", "-i")
    marker = herd.folder / "typed"

    sent = run_as_person(home, "send", "@sheila", "--raw", "--json", "--", f"touch {marker}\r")

    assert (sent.status, sent.json["state"], sent.json["reason"]) == (1, "refused", "shell"), sent
    assert receipt_of(home, sent.json["seq"])["state"] == "refused"
    assert not marker.exists()
    assert "touch" not in home.ok("peek", "sheila").out


# The agent's socket


def show(home: Home, agent: Scripted, message_id: str) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(LIMIT_S)
        wire.connect(str(home.path / "agents" / f"{agent.name}.sock"))
        wire.sendall(json.dumps({"type": "show", "message_id": message_id}).encode() + b"\n")
        answer = json.loads(wire.makefile("rb").readline())
    assert answer["ok"], answer
    found: dict[str, Any] = answer["message"]
    return found


def test_message_shows_its_priority_and_file_before_and_after_typing(home: Home, framed: Scripted) -> None:
    framed.be("dialog")
    until(lambda: is_gate(home, framed, reason="dialog"))
    seq = send(home, framed, "later", "--priority", "idle")
    ending = home.ok("show", str(seq), "--json").json["id"][-8:]
    until(lambda: show(home, framed, f"#{seq}")["file_path"] != "")

    waiting = show(home, framed, ending)
    framed.be("idle")
    framed.until_sent(1)
    until(lambda: receipt_of(home, seq)["state"] == "seen")
    typed = show(home, framed, ending)

    assert (waiting["status"], typed["status"]) == ("queued", "seen")
    assert waiting["priority"] == typed["priority"] == "idle"
    assert waiting["file_path"] == typed["file_path"]
    assert Path(waiting["file_path"]).read_text() == "later\n"


# Requests that expect a reply


@pytest.fixture
def nova(home: Home) -> Shell:
    """Return an agent that sends requests."""
    shell = home.shell()
    shell.ok("join", "--name", "nova")
    return shell


def ask(nova: Shell, agent: Scripted, text: str = "which one?") -> int:
    seq: int = nova.ok("send", f"@{agent.name}", "--expects-reply", "--json", "--", text).json["seq"]
    return seq


def test_silent_agent_gets_three_reminders_across_daemon_deaths(
    home: Home, framed: Scripted, nova: Shell
) -> None:
    (home.path / "config.toml").write_text("remind_after_s = 1\n")  # for the next daemons
    seq = ask(nova, framed)
    framed.until_sent(1)

    for count in (1, 2, 3):
        framed.be("working")
        until_state(home, framed, "active")
        home.kill()
        home.ok("up")
        framed.be("idle")
        reminder = framed.until_sent(1 + count)[-1]
        assert f"your answer to #{seq} (reminder {count} of 3)" in reminder
    framed.be("working")
    until_state(home, framed, "active")
    framed.be("idle")

    notice = nova.ok("recv", "--wait", "--timeout", "30", "--json").json
    assert "has not answered" in notice["text"]
    send(home, framed, "last")
    assert framed.until_sent(5)[-1] == f"{HEAD}last"


def test_reply_ends_the_reminders(home: Home, framed: Scripted, nova: Shell) -> None:
    seq = ask(nova, framed)
    framed.until_sent(1)
    framed.be("working")
    until_state(home, framed, "active")

    framed.run(f"{shlex.quote(home.client)} send @nova --reply-to {seq} -- this one >/dev/null")
    framed.be("idle")

    assert nova.ok("recv", "--wait", "--timeout", "30", "--json").json["text"] == "this one"
    until_state(home, framed, "idle")
    send(home, framed, "thanks")
    assert framed.until_sent(2)[-1] == f"{HEAD}thanks"


def test_requester_is_notified_when_the_agent_is_killed(home: Home, framed: Scripted, nova: Shell) -> None:
    seq = ask(nova, framed)
    until(lambda: receipt_of(home, seq)["state"] == "seen")

    assert run_as_person(home, "kill", framed.name).status == 0

    notice = nova.ok("recv", "--wait", "--timeout", "30", "--json").json
    assert f"{framed.name} has stopped without answering" in notice["text"]


# The holder


def test_queue_continues_after_the_keyboard_owner_is_killed(herd: Herd, home: Home, framed: Scripted) -> None:
    program, path = PROGRAMS / "owner.py", home.path / "agents" / f"{framed.name}.sock"
    words = shlex.join([sys.executable, "-I", str(program), str(path)])
    herd.person.press(f"{words} & echo pid $!. ; fg >/dev/null\r".encode())
    herd.person.until(b"mine")
    owner = int(herd.person.shown.rpartition(b"pid ")[2].partition(b".")[0])

    send(home, framed, "waits")
    send(home, framed, "urgent", "--interrupt")
    framed.until_sent(1)
    os.kill(owner, signal.SIGKILL)

    assert framed.until_sent(2) == [f"{HEAD}urgent", f"{HEAD}waits"]


def test_messages_arrive_once_while_the_holder_upgrades(home: Home, framed: Scripted) -> None:
    (holder,) = holders_of(home.path)

    for number in range(6):
        send(home, framed, f"number {number}")
        if number % 3 == 1:
            os.kill(holder, signal.SIGUSR2)

    assert framed.until_sent(6) == [f"{HEAD}number {number}" for number in range(6)]
    assert "--resume-fd" in command_of(holder)
    assert framed.keys().count(ENTER) == 6
