"""Messages into real terminals: which are typed, which are not, and the results reported to the daemon."""

import asyncio
import base64
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.holder.stage import (
    FIRST_MS,
    Stage,
    children_of,
    command_of,
    is_running,
    script,
    started_of,
    wait_until,
)
from tests.limits import LIMIT_S

from palaver.home import write_message
from palaver.protocol.agent_text import format_message_file
from palaver.protocol.lines import screen_digest

HEAD = "[pal message #1 from: nova] "


async def start_keys(stage: Stage, record: Path, *words: str) -> None:
    """Start a program with a composer, and wait until messages can be typed."""
    await stage.start(script("keys", str(record), *words))
    await stage.daemon.heard("lane")
    await stage.open_gate()


def has_read(record: Path, text: bytes) -> bool:
    return text in record.read_bytes()


def has_gate(stage: Stage, after: int) -> bool:
    return any(one["op"] == "gate" and one["open"] for one in stage.daemon.said[after:])


# Typed messages


async def test_message_is_pasted_and_entered_and_stored_in_a_file(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record, "paste")

    stage.daemon.offer(1, "hello\nthere")

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["grade"], answer["lane"], answer["offer"]) == ("seen", "handed", 1, 1)
    assert record.read_bytes() == b"\x1b[200~" + HEAD.encode() + b"hello\nthere\x1b[201~\r"
    (file,) = (stage.home / "messages" / "luna").iterdir()
    assert file.name == "20251115-094640-00000001.md"
    assert file.read_text() == "hello\nthere\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("count", [300, 301])
async def test_text_over_300_characters_is_replaced_by_its_file(
    stage: Stage, tmp_path: Path, count: int
) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record, "paste")

    stage.daemon.offer(1, "é" * count)
    await stage.daemon.heard("answer", answer="seen")

    (file,) = (stage.home / "messages" / "luna").iterdir()
    body = "é" * count if count == 300 else f"Read {file}"
    assert record.read_bytes() == f"\x1b[200~{HEAD}{body}\x1b[201~\r".encode()
    assert file.read_text() == "é" * count + "\n"


async def test_ten_long_messages_in_one_second_get_ten_files(stage: Stage, tmp_path: Path) -> None:
    await start_keys(stage, tmp_path / "record", "paste")

    for number in range(1, 11):
        stage.daemon.offer(number, f"{number} " * 400)
        await stage.daemon.heard("answer", count=number)

    files = sorted((stage.home / "messages" / "luna").iterdir())
    assert [file.read_text().split()[0] for file in files] == [str(number) for number in range(1, 11)]


async def test_bare_message_has_no_head_and_no_file(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record, "paste")

    stage.daemon.offer(1, "do it", bare=True)
    await stage.daemon.heard("answer", answer="seen")

    assert record.read_bytes() == b"\x1b[200~do it\x1b[201~\r"
    assert not (stage.home / "messages").exists()


@pytest.mark.parametrize("is_bare", [False, True])
@pytest.mark.parametrize("text", ["one\ttwo", "one\ntwo"])
async def test_text_with_breaks_is_a_file_reference_without_bracketed_paste(
    stage: Stage, text: str, is_bare: bool
) -> None:
    await stage.start(script("lines"), cols=400)
    await stage.daemon.heard("gate", open=True)

    stage.daemon.offer(1, text, bare=is_bare)
    await stage.daemon.heard("answer", answer="seen")

    (file,) = (stage.home / "messages" / "luna").iterdir()
    person = await stage.attach(cols=400)
    await person.until_shown(f"got '{'' if is_bare else HEAD}Read {file}'".encode())
    assert file.read_text() == f"{text}\n"
    shown = await stage.ask(type="show", message_id="1")
    assert (shown["message"]["file_path"], shown["message"]["body"]) == (str(file), text)


async def test_raw_keys_are_sent_unchanged_with_the_screen_as_evidence(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "now"))
    await stage.daemon.heard("gate", reason="dialog")

    stage.daemon.offer(1, "", raw=base64.b64encode(b"\x1b[Ay\xff").decode(), priority="interrupt")

    answer = await stage.daemon.heard("answer")
    assert answer["answer"] == "seen"
    assert "Proceed? [y/n]" in answer["evidence"]
    await wait_until(lambda: record.read_bytes() == b"DIALOG:\x1b[Ay\xff\n")
    assert not (stage.home / "messages").exists()


async def test_raw_keys_for_a_plain_shell_are_refused(stage: Stage) -> None:
    await stage.start(["bash", "--norc", "--noprofile", "-i"])
    await stage.daemon.heard("gate", open=False, reason="shell")

    stage.daemon.offer(1, "", raw=base64.b64encode(b"y\r").decode(), priority="interrupt")

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["reason"]) == ("refused", "shell")


async def test_unreadable_offer_is_refused(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")

    stage.daemon.push("offer", lane=1, offer=4, name="luna", messages=[{"seq": "?"}])

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["offer"]) == ("refused", 4)


# Interrupts


async def test_idle_agent_is_not_interrupted_before_an_urgent_message(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record)

    stage.daemon.offer(1, "now", priority="interrupt")
    await stage.daemon.heard("answer", answer="seen")

    assert record.read_bytes() == f"[URGENT {HEAD[1:]}now\r".encode()


async def test_urgent_message_types_nothing_into_a_dialog(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "now"))
    await stage.daemon.heard("gate", reason="dialog")

    stage.daemon.offer(1, "now", priority="interrupt")

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["reason"]) == ("deferred", "dialog")
    assert record.read_bytes() == b""


# Messages that are not typed


async def test_dialog_that_opens_while_typing_gets_no_enter(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "paste"))
    await stage.daemon.heard("lane")
    await stage.open_gate()

    stage.daemon.offer(1, "hello")
    await stage.daemon.heard("gate", reason="dialog")
    assert b"\r" not in record.read_bytes()
    os.kill(stage.child, signal.SIGUSR1)

    assert (await stage.daemon.heard("answer"))["answer"] == "seen"
    assert b"DIALOG" not in record.read_bytes()
    assert record.read_bytes().endswith(b"COMPOSER:\r\n")


async def test_half_typed_draft_is_left_alone(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record)
    person = await stage.attach()

    await person.press(b"my dra")
    await stage.daemon.heard("gate", reason="draft")
    stage.daemon.offer(1, "hello")

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["reason"]) == ("deferred", "draft")
    await wait_until(lambda: record.read_bytes() == b"my dra")
    await person.press(b"ft\r")
    await stage.daemon.heard("gate", open=True, count=2)


async def test_starting_program_gets_no_input(stage: Stage, tmp_path: Path) -> None:
    record, word = tmp_path / "record", tmp_path / "word"
    os.mkfifo(word)
    waiting = "import os, sys; open(sys.argv[1]).read(); os.execv(sys.argv[2], sys.argv[2:])"
    await stage.start([sys.executable, "-I", "-c", waiting, str(word), *script("keys", str(record))])
    await stage.daemon.heard("lane")

    stage.daemon.offer(1, "hello")

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["reason"]) == ("deferred", "starting")
    word.write_text("go on")
    await stage.open_gate()
    assert record.read_bytes() == b""


async def test_plain_shell_after_the_exit_gets_no_input(stage: Stage, tmp_path: Path) -> None:
    command = " ".join(script("keys", str(tmp_path / "record")))
    await stage.start(["bash", "--norc", "--noprofile", "-c", f"{command}; exec bash --norc --noprofile -i"])
    await stage.daemon.heard("lane")
    await stage.open_gate()
    person = await stage.attach()

    earlier = [one for one in stage.daemon.said if one["op"] == "gate" and one.get("reason") == "shell"]
    await person.press(b"\x04")
    await stage.daemon.heard("gate", reason="shell", count=len(earlier) + 1)
    stage.daemon.offer(1, "rm -rf nothing")

    assert (await stage.daemon.heard("answer"))["answer"] == "deferred"
    assert b"rm -rf" not in person.shown


async def test_stopped_program_gets_no_input(stage: Stage, tmp_path: Path) -> None:
    await start_keys(stage, tmp_path / "record")

    os.kill(stage.child, signal.SIGSTOP)
    await wait_until(lambda: Path(f"/proc/{stage.child}/stat").read_text().rpartition(") ")[2][0] == "T")
    stage.daemon.offer(1, "hello")

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["reason"]) == ("deferred", "gone")
    os.kill(stage.child, signal.SIGCONT)


async def test_swallowed_enter_is_pressed_again(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record, "eat-enter")

    stage.daemon.offer(1, "hello")

    assert (await stage.daemon.heard("answer"))["answer"] == "seen"
    assert record.read_bytes() == f"{HEAD}hello\r\r".encode()


async def test_full_paste_buffer_blocks_nothing_and_its_message_arrives_later(stage: Stage) -> None:
    await stage.start(script("deaf"))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    person = await stage.attach()

    stage.daemon.offer(1, "x" * 99_000, bare=True)
    async with asyncio.timeout(LIMIT_S):
        while not (await stage.ask(type="status"))["agent"]["is_typing"]:
            pass
    os.kill(stage.child, signal.SIGUSR1)

    await person.until_shown(b"read 99013")


# Stored outcomes


async def test_offer_outcome_reaches_the_next_daemon_before_its_first_offer(
    stage: Stage, tmp_path: Path
) -> None:
    await start_keys(stage, tmp_path / "record")
    stage.daemon.silent.add("answer")
    stage.daemon.offer(1, "hello")
    await stage.daemon.heard("answer")

    await stage.daemon.close()
    stage.daemon.silent.clear()
    await stage.daemon.open()

    lane = await stage.daemon.heard("lane", count=2)
    assert lane["outcomes"] == [{"messages": [1], "answer": "seen", "grade": "handed"}]
    await stage.daemon.close()
    await stage.daemon.open()
    assert "outcomes" not in await stage.daemon.heard("lane", count=3)


async def test_daemon_killed_during_an_offer_receives_its_outcome(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "paste"))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    stage.daemon.offer(1, "hello")
    await stage.daemon.heard("gate", reason="dialog")

    await stage.daemon.close()
    await stage.daemon.open()
    assert (await stage.daemon.heard("lane", count=2))["carrying"] == [1]
    await stage.daemon.heard("gate", reason="dialog", count=2)
    os.kill(stage.child, signal.SIGUSR1)

    answer = await stage.daemon.heard("answer")
    assert (answer["lane"], answer["offer"], answer["answer"]) == (1, 1, "seen")
    assert record.read_bytes().count(b"\r") == 1


async def test_raw_keys_are_sent_while_a_dialog_delays_a_message(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "paste"))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    stage.daemon.offer(1, "hello")
    await stage.daemon.heard("gate", reason="dialog")

    stage.daemon.offer(2, "", raw=base64.b64encode(b"y").decode(), priority="interrupt")
    stage.daemon.offer(3, "not beside it")

    assert (await stage.daemon.heard("answer", offer=2))["answer"] == "seen"
    answer = await stage.daemon.heard("answer", offer=3)
    assert (answer["answer"], answer["reason"]) == ("deferred", "another message is in progress")
    await wait_until(lambda: record.read_bytes().endswith(b"DIALOG:y\n"))
    assert b"\r" not in record.read_bytes()


async def test_deferral_is_followed_by_the_gate_again(stage: Stage, tmp_path: Path) -> None:
    await start_keys(stage, tmp_path / "record")
    folder = stage.home / "messages"
    folder.mkdir()
    (folder / "luna").touch()
    gates = len([one for one in stage.daemon.said if one["op"] == "gate"])

    stage.daemon.offer(1, "hello")

    answer = await stage.daemon.heard("answer")
    assert (answer["answer"], answer["reason"]) == ("deferred", "its file cannot be written: File exists")
    await stage.daemon.until(lambda: len([o for o in stage.daemon.said if o["op"] == "gate"]) > gates)
    assert stage.daemon.last("gate")["open"] is True


async def test_typed_message_is_unconfirmed_when_the_program_ends(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "paste"))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    stage.daemon.offer(1, "hello")
    await stage.daemon.heard("gate", reason="dialog")

    os.kill(stage.child, signal.SIGKILL)

    await stage.daemon.heard("leave")
    assert (await stage.daemon.heard("answer"))["answer"] == "unconfirmed"


async def test_holder_killed_during_an_offer_reports_nothing(stage: Stage, tmp_path: Path) -> None:
    await stage.start(script("dialog", str(tmp_path / "record"), "paste"))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    child, holder = stage.child, stage.holder
    stage.daemon.offer(1, "hello")
    await stage.daemon.heard("gate", reason="dialog")

    os.kill(holder, signal.SIGKILL)

    await wait_until(lambda: not is_running(child))
    assert not [one for one in stage.daemon.said if one["op"] == "answer"]


async def test_offered_message_can_be_shown_without_a_daemon(stage: Stage, tmp_path: Path) -> None:
    await start_keys(stage, tmp_path / "record")
    stage.daemon.offer(1, "hello")
    await stage.daemon.heard("answer")
    (stage.home / "down").touch()
    await stage.daemon.close()

    shown = await stage.ask(type="show", message_id="01K00000000000000000000001")

    assert shown["message"]["body"] == "hello"
    assert shown["message"]["status"] == "seen"
    assert shown["message"]["file_path"].endswith("-00000001.md")


ID = "01K00000000000000000000001"
RECEIPTS = {"seq": 1, "ts": FIRST_MS, "from": "nova", "text": "hello", "receipts": [], "priority": "idle"}


async def test_waiting_message_is_shown_with_its_priority_and_file(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    stage.daemon.refusals["receipts"] = {"ok": RECEIPTS | {"id": ID}}
    before = await stage.ask(type="show", message_id="1")
    path = write_message(str(stage.home), "luna", ID, FIRST_MS, format_message_file("hello"))

    shown = await stage.ask(type="show", message_id="00000001")

    assert (before["message"]["priority"], before["message"]["file_path"]) == ("idle", "")
    assert (shown["message"]["priority"], shown["message"]["file_path"]) == ("idle", str(path))


async def test_offered_message_is_found_by_the_end_of_its_id(stage: Stage, tmp_path: Path) -> None:
    await start_keys(stage, tmp_path / "record")
    stage.daemon.offer(1, "hello", priority="interrupt")
    await stage.daemon.heard("answer")
    stage.daemon.refusals["receipts"] = {"ok": RECEIPTS | {"id": ID}}

    shown = await stage.ask(type="show", message_id="00000001")

    assert (shown["message"]["priority"], shown["message"]["status"]) == ("interrupt", "seen")
    assert shown["message"]["file_path"].endswith("-00000001.md")


# The input bar


async def test_input_bar_types_at_once_and_is_logged(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record, "paste")
    person = await stage.attach()

    await person.control(type="input", text="one", priority="normal")
    await person.control(type="input", text="two", priority="normal")

    await person.until_shown(b"sent two")
    assert record.read_bytes() == b"\x1b[200~one\x1b[201~\r\x1b[200~two\x1b[201~\r"
    assert (await stage.daemon.heard("typed", count=2))["text"] == "two"


async def test_refused_line_of_the_input_bar_does_not_end_the_next_connection(
    stage: Stage, tmp_path: Path
) -> None:
    await start_keys(stage, tmp_path / "record", "paste")
    person = await stage.attach()
    (stage.home / "down").touch()  # The holder starts no real daemon meanwhile.
    await stage.daemon.close()
    async with asyncio.timeout(LIMIT_S):
        while (await stage.ask(type="status"))["agent"]["is_connected"]:
            continue
    await person.control(type="input", text="one", priority="normal")
    await person.control(type="input", text="two", priority="normal")
    await person.until_shown(b"sent two")

    stage.daemon.refusals["typed"] = {"error": "bad_request", "message": "no"}
    await stage.daemon.open()

    assert (await stage.daemon.heard("typed", count=2))["text"] == "two"


# Requests of the daemon


async def test_daemon_can_read_the_screen(stage: Stage) -> None:
    await stage.start(["sh", "-c", "for i in $(seq 40); do echo line $i; done; read x"], rows=10)
    await stage.daemon.heard("lane")
    person = await stage.attach(rows=10)
    await person.until_shown(b"line 40")

    stage.daemon.push("control", ask=1, verb="peek", name="luna", lines=0)
    stage.daemon.push("control", ask=2, verb="peek", name="luna", lines=20)
    stage.daemon.push("control", ask=3, verb="dance", name="luna")

    screen = (await stage.daemon.heard("tell", ask=1))["ok"]
    assert screen["text"].split("\n") == [f"line {number}" for number in range(32, 41)]
    assert (screen["cols"], screen["rows"]) == (80, 10)
    more = (await stage.daemon.heard("tell", ask=2))["ok"]["text"].rstrip("\n").split("\n")
    assert more[0] == "line 21"
    assert (await stage.daemon.heard("tell", ask=3))["error"] == "bad_request"


async def test_known_screen_is_answered_when_it_has_changed(stage: Stage) -> None:
    await stage.start(["sh", "-c", "echo first; read x; echo second; read y"], rows=10)
    await stage.daemon.heard("lane")
    person = await stage.attach(rows=10)
    await person.until_shown(b"first")
    stage.daemon.push("control", ask=1, verb="peek", name="luna", lines=0)
    known = (await stage.daemon.heard("tell", ask=1))["ok"]["text"]

    stage.daemon.push("control", ask=2, verb="peek", name="luna", digest=screen_digest(known))
    stage.daemon.push("control", ask=3, verb="peek", name="luna", digest="of another screen")
    assert (await stage.daemon.heard("tell", ask=3))["ok"]["text"] == known
    assert not any(request["op"] == "tell" and request["ask"] == 2 for request in stage.daemon.said)
    await person.press(b"\r")

    changed = (await stage.daemon.heard("tell", ask=2))["ok"]["text"]
    assert changed != known


async def test_request_before_the_program_runs_is_answered(stage: Stage) -> None:
    starting = asyncio.create_task(stage.start(["sh", "-c", "read x"]))
    await stage.daemon.heard("hold")  # heard: the reply is sent too

    stage.daemon.push("control", ask=1, verb="peek", name="luna", lines=0)

    assert (await stage.daemon.heard("tell", ask=1))["ok"]["cols"] == 80
    await starting


async def test_kill_ends_all_processes_in_the_terminal(stage: Stage) -> None:
    await stage.start(["bash", "--norc", "--noprofile", "-ic", "sleep 1000 & sleep 1001"])
    await stage.daemon.heard("lane")
    holder = stage.holder
    await wait_until(lambda: len(children_of(stage.child)) == 2)
    jobs = children_of(stage.child)

    stage.daemon.push("control", ask=1, verb="kill", name="luna")

    words = await stage.daemon.heard("tell", ask=1, done=False)
    assert words["message"] == "sent SIGKILL"
    assert (await stage.daemon.heard("leave"))["reason"] == "killed by SIGKILL"
    await wait_until(lambda: not any(map(is_running, [*jobs, holder])))


async def test_stop_asks_the_program_to_quit_before_it_sends_a_signal(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record)

    stage.daemon.push("control", ask=1, verb="stop", name="luna")

    assert (await stage.daemon.heard("tell", ask=1))["message"] == "asked it to quit"
    await wait_until(lambda: record.read_bytes() == b"\x03")
    assert (await stage.daemon.heard("tell", ask=1, count=2))["message"] == "sent SIGTERM"
    assert (await stage.daemon.heard("leave"))["reason"] == "killed by SIGTERM"


async def test_stop_does_not_answer_a_dialog(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "now"))
    await stage.daemon.heard("gate", reason="dialog")

    stage.daemon.push("control", ask=1, verb="stop", name="luna")

    assert (await stage.daemon.heard("tell", ask=1))["message"] == "sent SIGTERM"
    await stage.daemon.heard("leave")
    assert record.read_bytes() == b""


# Upgrade to a newer version


@pytest.mark.parametrize("by", ["signal", "control"])
async def test_upgraded_holder_keeps_its_terminal_and_viewers(stage: Stage, tmp_path: Path, by: str) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record, "paste")
    person, other = await stage.attach(), await stage.attach()
    await person.control(type="passthrough", on=True)
    await person.press(b"half")
    await person.until_shown(b"half")
    holder, child = stage.holder, stage.child
    started = started_of(holder)

    if by == "signal":
        os.kill(holder, signal.SIGUSR2)
    else:
        stage.daemon.push("control", ask=1, verb="renew", name="luna")

    await stage.daemon.heard("hold", count=2)
    assert "--resume-fd" in command_of(holder)
    assert started_of(holder) == started
    assert (await stage.daemon.heard("hold", count=2))["pid"] == child
    await person.press(b" done\r")
    await person.until_shown(b"sent half done")
    await other.press(b"not mine\r")
    await person.control(type="passthrough", on=False)
    late = await stage.attach()
    await late.until_shown(b"sent half done")
    assert b"not mine" not in record.read_bytes()
    assert b"\x1b[?2004h" in late.shown


async def test_open_offer_is_finished_before_the_upgrade(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "paste"))
    await stage.daemon.heard("lane")
    await stage.open_gate()
    stage.daemon.offer(1, "hello")
    await stage.daemon.heard("gate", reason="dialog")

    stage.daemon.silent.add("answer")
    os.kill(stage.holder, signal.SIGUSR2)
    assert (await stage.ask(type="status"))["agent"]["is_typing"] is True
    os.kill(stage.child, signal.SIGUSR1)

    lane = await stage.daemon.heard("lane", count=2)
    assert lane["outcomes"] == [{"messages": [1], "answer": "seen", "grade": "handed"}]
    assert "--resume-fd" in command_of(stage.holder)


async def test_messages_keep_their_order_across_three_daemon_deaths(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await start_keys(stage, record)
    reported: list[int] = []

    for number in range(1, 7):
        stage.daemon.offer(number, f"number {number}")
        if number % 2 == 0:
            await wait_until(partial(has_read, record, b"number %d" % number))
            await stage.daemon.close()
            await stage.daemon.open()
            lane = await stage.daemon.heard("lane", count=1 + number // 2)
            reported += [seq for outcome in lane.get("outcomes", []) for seq in outcome["messages"]]
            if lane.get("carrying"):
                await stage.daemon.heard("answer", offer=number)
                reported += lane["carrying"]
            index = stage.daemon.said.index(lane)
            await stage.daemon.until(partial(has_gate, stage, index))
        else:
            await stage.daemon.heard("answer", offer=number)
            reported.append(number)

    assert reported == [1, 2, 3, 4, 5, 6]
    expected = "".join(f"[pal message #{number} from: nova] number {number}\r" for number in range(1, 7))
    assert record.read_bytes() == expected.encode()


async def test_nothing_waits_for_a_timer_while_the_daemon_runs(stage: Stage) -> None:
    await stage.start(script("lines"))

    await stage.daemon.heard("gate")

    # No attempt failed, so nothing had to be retried after a pause.
    asked = [one["op"] for one in stage.daemon.said]
    assert (asked.count("hold"), asked.count("lane")) == (1, 1)
