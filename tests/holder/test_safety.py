"""Keys that must not be pressed: in shells, secrets, questions, drafts, and terminals without a reader."""

import base64
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tests.holder.stage import Stage, command_of, script, wait_until

HEAD = "[pal message #1 from: nova] "
PYTHON = [sys.executable, "-I", "-u", "-c"]


def raw(keys: bytes) -> str:
    return base64.b64encode(keys).decode()


async def refused_by(stage: Stage, reason: str, *, number: int = 1) -> None:
    """Offer a message while the gate is closed, and check that it is deferred for that reason."""
    await stage.daemon.heard("gate", open=False, reason=reason)
    stage.daemon.offer(number, "hello")
    answer = await stage.daemon.heard("answer", offer=number)
    assert (answer["answer"], answer["reason"]) == ("deferred", reason)


async def until_open(stage: Stage) -> None:
    """Wait until the gate is open for all messages."""

    def is_open() -> bool:
        gates = [one for one in stage.daemon.said if one["op"] == "gate"]
        return bool(gates) and gates[-1]["open"] and not gates[-1].get("paused")

    await stage.daemon.until(is_open)


# The reading program


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "--norc", "--noprofile", "-xO", "extglob"],
        [*PYTHON, "import os; os.execvp('bash', ['claude', '--norc', '--noprofile'])"],
        ["script", "-q", "/dev/null"],
    ],
)
async def test_shell_in_any_form_gets_nothing(stage: Stage, command: list[str], tmp_path: Path) -> None:
    await stage.start(command)
    await stage.daemon.heard("lane")

    await stage.daemon.heard("gate", open=False, reason="shell")
    stage.daemon.offer(1, f"x; touch {tmp_path}/pwned", priority="interrupt")

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["reason"]) == ("deferred", "shell")
    assert not (tmp_path / "pwned").exists()


async def test_silent_program_that_does_not_read_is_idle_and_gets_nothing(stage: Stage) -> None:
    await stage.start(["sleep", "99"])
    await stage.daemon.heard("lane")

    await stage.daemon.heard("status", state="idle")

    await refused_by(stage, "deaf")


@pytest.mark.parametrize("is_raw", [False, True])
async def test_silent_program_that_reads_gets_nothing(stage: Stage, tmp_path: Path, is_raw: bool) -> None:
    record = tmp_path / "record"
    taking = "import tty; tty.setraw(0)" if is_raw else "pass"
    reading = f"import os; f = open({str(record)!r}, 'ab', 0)\nwhile 1: f.write(os.read(0, 4096))"
    await stage.start([*PYTHON, f"{taking}\n{reading}"])
    await stage.daemon.heard("lane")

    await refused_by(stage, "prompt")

    assert record.read_bytes() == b""


async def test_silent_program_gets_messages_if_the_empty_prompt_is_named(
    stage: Stage, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    reading = f"import os; f = open({str(record)!r}, 'ab', 0)\nwhile 1: f.write(os.read(0, 4096))"
    await stage.start([*PYTHON, reading], prompt="^$")
    await stage.daemon.heard("lane")

    await until_open(stage)
    stage.daemon.offer(1, "hello")

    await wait_until(lambda: record.exists() and record.read_bytes() == f"{HEAD}hello\n".encode())


async def test_program_that_stopped_reading_gets_nothing_until_it_reads_again(stage: Stage) -> None:
    waiting = "import signal; signal.sigwait([signal.SIGUSR1])"
    block = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])"
    await stage.start([*PYTHON, f"{block}; print('ready'); {waiting}; input('> '); input('> ')"])
    await stage.daemon.heard("lane")
    await stage.until_ready()
    await stage.hook("SessionStart")

    await refused_by(stage, "deaf")
    os.kill(stage.child, signal.SIGUSR1)

    await until_open(stage)
    stage.daemon.offer(2, "now")
    assert (await stage.daemon.heard("answer", offer=2))["answer"] == "seen"


async def test_unread_keys_close_the_gate(stage: Stage, tmp_path: Path) -> None:
    await stage.start(script("deaf"))
    await stage.daemon.heard("lane")
    await stage.open_gate()

    stage.daemon.offer(1, "", raw=raw(b"unread"), priority="interrupt")
    await stage.daemon.heard("answer", offer=1)

    await refused_by(stage, "deaf", number=2)


async def test_busy_program_that_does_not_read_can_only_be_interrupted(stage: Stage) -> None:
    working = "import time\ntry:\n print('ready')\n while 1: time.sleep(0.05); print('.')\n"
    stopped = "except KeyboardInterrupt: print('stopped'); print(repr(input('> ')))"
    await stage.start([*PYTHON, working + stopped])
    await stage.daemon.heard("lane")
    await stage.until_ready()
    await stage.hook("UserPromptSubmit")
    await stage.daemon.heard("gate", open=True, paused=True, reason="deaf")

    person = await stage.attach()
    stage.daemon.offer(1, "now", priority="interrupt")

    await person.until_shown(f"> [URGENT {HEAD[1:]}now".encode())


AT_PROMPT = """
import sys
print('ready')
while True:
    line = input('> ')
    print('got', repr(line))
    print('busy with it\\n' * 3)
"""


async def test_interrupt_right_after_output_does_not_end_an_agent_at_its_prompt(stage: Stage) -> None:
    await stage.start([*PYTHON, AT_PROMPT])
    await stage.daemon.heard("lane")
    await until_open(stage)
    person = await stage.attach()

    for number in (1, 2, 3):
        stage.daemon.offer(number, f"urgent {number}", priority="interrupt")
        assert (await stage.daemon.heard("answer", offer=number))["answer"] == "seen"
        await person.until_shown(f"urgent {number}'".encode())

    assert b"KeyboardInterrupt" not in person.shown
    assert b"^C" not in person.shown


async def test_interrupt_at_a_prompt_that_a_hook_calls_busy_presses_no_key(stage: Stage) -> None:
    await stage.start([*PYTHON, AT_PROMPT])
    await stage.daemon.heard("lane")
    await until_open(stage)
    await stage.hook("UserPromptSubmit")
    person = await stage.attach()

    stage.daemon.offer(1, "urgent", priority="interrupt")

    assert (await stage.daemon.heard("answer", offer=1))["answer"] == "seen"
    await person.until_shown(b"urgent'")
    assert b"KeyboardInterrupt" not in person.shown


# Questions


async def test_prompt_for_a_secret_gets_nothing(stage: Stage) -> None:
    await stage.start(["bash", "-c", "echo ready; read -s -p 'Say it: ' k; echo \"GOT=$k\"; sleep 99"])
    await stage.daemon.heard("lane")

    await refused_by(stage, "secret")


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "select x in one two; do echo GOT $x; done"],
        ["bash", "-c", "read -p 'Press ENTER to continue...' x; echo GOT"],
        ["bash", "-c", "read -p 'Apply this patch to 3 files? y/n: ' x; echo GOT"],
        ["bash", "-c", "printf '> 1. Yes\\n  2. No\\n'; read x; echo GOT"],
    ],
)
async def test_question_gets_nothing(stage: Stage, command: list[str]) -> None:
    await stage.start(command)
    await stage.daemon.heard("lane")

    await refused_by(stage, "dialog")


async def test_message_that_ends_in_a_question_is_still_sent(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record)))
    await stage.daemon.heard("lane")
    await stage.open_gate()

    stage.daemon.offer(1, "shall we proceed? [y/n]")

    assert (await stage.daemon.heard("answer"))["answer"] == "seen"
    assert record.read_bytes() == f"{HEAD}shall we proceed? [y/n]\r".encode()


# Full-screen programs

IN_FRONT = "print('\\x1b[?1049h' + sys.argv[1] + 'a page', flush=True); tty.setraw(0)"
READING = (
    "import sys, os, tty; f = open(sys.argv[2], 'ab', 0)\n" + IN_FRONT + "\nwhile 1: f.write(os.read(0, 99))"
)


@pytest.mark.parametrize(
    "command", [["less", "page"], ["vi", "-u", "NONE", "page"], ["top", "-d", "60"]], ids=lambda one: one[0]
)
async def test_pager_editor_and_monitor_get_no_message(stage: Stage, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed here")
    (stage.home / "page").write_text("a line\n" * 99)
    await stage.start(command, env={"LESS": "", "LESSOPEN": ""})
    await stage.daemon.heard("lane")

    await refused_by(stage, "composer")

    assert (stage.home / "page").read_text() == "a line\n" * 99


async def test_full_screen_program_without_paste_gets_only_raw_keys(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start([*PYTHON, READING, "", str(record)])
    await stage.daemon.heard("lane")

    await refused_by(stage, "composer")
    stage.daemon.offer(2, "", raw=raw(b"q"))

    await stage.daemon.heard("answer", offer=2)
    await wait_until(lambda: record.read_bytes() == b"q")


async def test_full_screen_program_with_paste_gets_its_message(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start([*PYTHON, READING, "\x1b[?2004h", str(record)])
    await stage.daemon.heard("lane")

    await until_open(stage)
    stage.daemon.offer(1, "hello")

    typed = f"\x1b[200~{HEAD}hello\x1b[201~\r".encode()
    await wait_until(lambda: record.read_bytes() == typed)


# Drafts of a person


@pytest.mark.parametrize("keys", [b"\x1b[A", b"abc\x1b[H\x7f\x7f\x7f", b"abc\x01\x15", b"\x10", b"\t"])
async def test_line_that_may_contain_a_draft_is_left_alone(stage: Stage, tmp_path: Path, keys: bytes) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record)))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    person = await stage.attach()

    await person.press(keys)

    await refused_by(stage, "draft")
    await wait_until(lambda: record.read_bytes() == keys)


async def test_raw_keys_count_as_a_draft_of_a_person(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record)))
    await stage.daemon.heard("lane")
    await stage.open_gate()

    stage.daemon.offer(1, "", raw=raw(b"my half"), priority="interrupt")

    await refused_by(stage, "draft", number=2)
    await wait_until(lambda: record.read_bytes() == b"my half")


async def test_input_bar_line_waits_for_the_message_being_typed(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record)))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    person = await stage.attach()

    stage.daemon.offer(1, "hello")
    await wait_until(lambda: b"hello" in record.read_bytes())
    await person.control(type="input", text="PERSON LINE", priority="normal")
    await person.until_shown(b"sent PERSON LINE")

    assert record.read_bytes() == f"{HEAD}hello\rPERSON LINE\r".encode()
    assert (await stage.daemon.heard("answer"))["answer"] == "seen"


async def test_message_waits_for_the_input_bar_line_being_typed(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record)))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    person = await stage.attach()

    await person.control(type="input", text="PERSON LINE", priority="normal")
    await wait_until(lambda: b"PERSON LINE" in record.read_bytes())
    stage.daemon.offer(1, "hello")

    assert (await stage.daemon.heard("answer"))["answer"] == "seen"
    assert record.read_bytes() == f"PERSON LINE\r{HEAD}hello\r".encode()


# Unsent text


async def stands_there(stage: Stage, record: Path, offer: int) -> None:
    """Offer a message and wait until it is typed but not sent."""
    stage.daemon.offer(offer, f"number {offer}")
    await wait_until(lambda: f"number {offer}".encode() in record.read_bytes())


async def test_swallowed_enter_closes_the_gate_until_the_message_is_sent(
    stage: Stage, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record), "eat-enter", "eat-enter"))
    await stage.daemon.heard("lane")
    await stage.open_gate()

    await stands_there(stage, record, 1)
    await stage.daemon.heard("gate", open=False, reason="draft")
    stage.daemon.offer(2, "", raw=raw(b"\r"), priority="interrupt")

    assert (await stage.daemon.heard("answer", offer=1))["answer"] == "seen"
    await until_open(stage)
    assert record.read_bytes() == f"{HEAD}number 1\r\r\r".encode()


async def test_message_extended_by_a_person_closes_the_gate_until_it_is_sent(
    stage: Stage, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record), "only-z"))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    person = await stage.attach()

    await stands_there(stage, record, 1)
    await person.press(b"Z")
    await stage.daemon.heard("gate", open=False, reason="draft")
    await person.press(b"\r")

    await person.until_shown(f"sent {HEAD}number 1Z".encode())
    await stage.daemon.heard("answer", offer=1)
    await until_open(stage)
    stage.daemon.offer(2, "next Z")
    assert (await stage.daemon.heard("answer", offer=2))["answer"] == "seen"
    await person.until_shown(f"sent {HEAD.replace('1', '2')}next Z".encode())


async def test_message_shortened_by_a_person_becomes_a_draft(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record), "only-z"))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    person = await stage.attach()

    await stands_there(stage, record, 1)
    await person.press(b"\x7f")

    await stage.daemon.heard("gate", open=False, reason="draft")
    assert b"sent" not in person.shown


# Upgrade to a newer version


async def renew(stage: Stage) -> None:
    holder = stage.holder
    os.kill(holder, signal.SIGUSR2)
    await stage.daemon.heard("lane", count=2)
    assert "--resume-fd" in command_of(holder)


async def test_upgraded_holder_still_knows_a_reported_dialog(stage: Stage) -> None:
    says = "print('ready\\x1b]7501;state=blocked:app=x:kind=permission\\x07')"
    await stage.start([*PYTHON, f"{says}; input()"])
    await stage.daemon.heard("gate", reason="dialog")

    await renew(stage)

    await stage.daemon.heard("gate", reason="dialog", count=2)
    stage.daemon.offer(1, "hello", lane=2)
    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["reason"]) == ("deferred", "dialog")


async def test_upgraded_holder_still_knows_a_draft(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("keys", str(record)))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    person = await stage.attach()
    await person.press(b"my half line")
    await stage.daemon.heard("gate", reason="draft")

    await renew(stage)
    await stage.daemon.heard("gate", reason="draft", count=2)
    stage.daemon.offer(1, "hello", lane=2)

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["reason"]) == ("deferred", "draft")
    await wait_until(lambda: record.read_bytes() == b"my half line")


async def test_upgraded_holder_still_knows_that_the_screen_is_unreadable(stage: Stage) -> None:
    await stage.start([*PYTHON, "print('ready\\x1b[?6h\\x1b[5d'); input()"])
    await stage.daemon.heard("gate", reason="unreadable")

    await renew(stage)

    await stage.daemon.heard("gate", reason="unreadable", count=2)
