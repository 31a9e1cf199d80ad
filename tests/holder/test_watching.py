"""Controls between a holder and a viewer that draws the screen itself."""

import os
import signal
import sys
from pathlib import Path

from tests.holder.stage import Stage, script


async def test_holder_answers_terminal_queries_that_no_viewer_terminal_sees(
    stage: Stage,
) -> None:
    await stage.start(["python3", "-I", "-c", ASKING])
    client = await stage.attach()
    await client.control(type="screen", on=True)
    await client.control(type="redraw")

    await client.press(b"ask\r")

    await client.until_shown(b"answered")


ASKING = """
import os, sys, tty
sys.stdin.readline()
tty.setraw(0)
os.write(1, b"\\x1b[c")
os.write(1, b"answered" if os.read(0, 64).endswith(b"c") else b"no")
os.read(0, 1)
"""


async def test_new_size_is_sent_to_all_viewers_in_order_with_the_output(stage: Stage) -> None:
    await stage.start(script("size"))
    first = await stage.attach(80, 22)
    second = await stage.attach(100, 30)

    def sizes() -> list[tuple[int, int]]:
        return [(one["cols"], one["rows"]) for one in first.controls if one["type"] == "size"]

    await first.until(lambda: (100, 30) in sizes())
    await second.until_shown(b"size 100x30")


async def test_scrolled_lines_can_be_requested(stage: Stage) -> None:
    await stage.start(script("lines"), rows=3)
    client = await stage.attach(80, 3)
    await client.until_shown(b"ready")
    for number in range(4):
        await client.press(b"%d\r" % number)
        await client.until_shown(b"got '%d'" % number)

    await client.control(type="history")

    lines = (await client.control_of("history"))["lines"]
    assert lines[0] == "ready"
    assert "got '1'" in lines


async def test_queued_line_is_left_to_the_process_of_the_person(stage: Stage) -> None:
    await stage.start(script("lines"))
    client = await stage.attach()

    await client.control(type="input", text="later", priority="idle")

    assert await client.control_of("send") == {"type": "send", "priority": "idle"}
    assert [one["request"]["type"] for one in stage.daemon.passed] == ["attach"]


async def test_unknown_priority_is_refused_and_named(stage: Stage) -> None:
    await stage.start(script("lines"))
    client = await stage.attach()

    await client.control(type="input", text="now", priority="at-once")

    refusal = await client.control_of("error")
    assert refusal["about"] == "input"
    assert "at-once" in refusal["message"]


async def test_line_is_not_typed_while_another_viewer_has_the_keyboard(stage: Stage) -> None:
    await stage.start(script("lines"))
    owner, other = await stage.attach(), await stage.attach()
    await owner.control(type="passthrough", on=True)
    await owner.until(lambda: any(one.get("passthrough") == "own" for one in owner.controls))

    await other.control(type="input", text="mine", priority="normal")

    assert "another terminal has the keyboard" in (await other.control_of("error"))["message"]
    await owner.press(b"yours\r")
    await owner.until_shown(b"got 'yours'")
    assert b"mine" not in owner.shown


async def test_attached_person_can_end_the_agent(stage: Stage) -> None:
    await stage.start(["sleep", "600"])
    client = await stage.attach()

    await client.control(type="stop")

    assert (await client.control_of("exited"))["signal"]


async def test_input_bar_line_never_answers_an_open_dialog(stage: Stage, tmp_path: Path) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "now"))
    client = await stage.attach()
    await client.until_shown(b"Proceed? [y/n]")

    await client.control(type="input", text="yes, go on", priority="normal")

    refusal = await client.control_of("error")
    assert (refusal["about"], refusal["text"]) == ("input", "yes, go on")
    assert "dialog" in refusal["message"]
    os.kill(stage.child, signal.SIGUSR1)
    await client.until_shown(b"gone")
    await client.control(type="input", text="after it", priority="normal")
    await client.until_shown(b"sent after it")
    assert record.read_bytes() == b"COMPOSER:after it\nCOMPOSER:\r\n"
    assert [one["text"] for one in stage.daemon.said if one["op"] == "typed"] == ["after it"]


async def test_dialog_that_opens_before_enter_gets_no_enter_from_the_input_bar(
    stage: Stage, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    await stage.start(script("dialog", str(record), "paste"))
    client = await stage.attach()
    await client.until_shown(b"ready")

    await client.control(type="input", text="delete it", priority="normal")

    refusal = await client.control_of("error")
    assert "Enter was not pressed" in refusal["message"]
    assert "text" not in refusal  # it is in the program's composer: restoring it would double it
    assert record.read_bytes() == b"COMPOSER:delete it\n"


async def test_question_in_an_input_bar_line_is_not_taken_for_a_dialog(stage: Stage) -> None:
    await stage.start(script("lines"))
    client = await stage.attach()
    await client.until_shown(b"ready")

    await client.control(type="input", text="is this your question?", priority="normal")

    await client.until_shown(b"got 'is this your question?'")


HIDDEN = """
import getpass, sys
secret = getpass.getpass("Password: ")
print("taken", len(secret), flush=True)
for line in sys.stdin:
    print("got", repr(line.rstrip()), flush=True)
"""


async def test_secret_input_bar_line_is_counted_and_not_stored(stage: Stage) -> None:
    await stage.start([sys.executable, "-I", "-c", HIDDEN])
    client = await stage.attach()
    await client.until(lambda: any(one.get("secret") is True for one in client.controls))

    await client.control(type="input", text="hunter2", priority="normal")

    await client.until_shown(b"taken 7")
    report = await stage.daemon.heard("typed")
    assert report["secret"] == 7
    assert "hunter2" not in str(stage.daemon.said)
    await client.control(type="input", text="hello", priority="normal")
    await client.until_shown(b"got 'hello'")
    assert (await stage.daemon.heard("typed", count=2))["text"] == "hello"
    await client.until(lambda: [one for one in client.controls if "secret" in one][-1]["secret"] is False)


async def test_queued_line_is_refused_at_a_hidden_prompt(stage: Stage) -> None:
    await stage.start([sys.executable, "-I", "-c", HIDDEN])
    client = await stage.attach()
    await client.until_shown(b"Password:")

    await client.control(type="input", text="hunter2", priority="idle")

    assert "secret" in (await client.control_of("error"))["message"]
    assert stage.daemon.passed[-1]["request"]["type"] == "attach"


async def test_messages_are_typed_although_a_harness_has_the_keyboard(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.open_gate()
    client = await stage.attach()
    await client.control(type="passthrough", on=True, mail=True)
    await client.until(lambda: any(one.get("passthrough") == "own" for one in client.controls))

    stage.daemon.offer(3, "hello")

    await client.until_shown(b"hello")
    assert (await stage.daemon.heard("answer"))["answer"] == "seen"
    assert not [one for one in stage.daemon.said if one["op"] == "gate" and one.get("paused")]


async def test_size_is_that_of_the_latest_viewer_still_attached(stage: Stage) -> None:
    await stage.start(script("size"))
    wide = await stage.attach(120, 40)
    narrow = await stage.attach(40, 10)
    await wide.until_shown(b"size 40x10")
    wide.shown = b""

    narrow.close()

    await wide.until_shown(b"size 120x40")
    other = await stage.attach(60, 20)
    await wide.control(type="resize", cols=110, rows=30)
    await other.until_shown(b"size 110x30")
    other.close()
    status = await stage.ask(type="status")
    assert (status["agent"]["cols"], status["agent"]["rows"]) == (110, 30)


WIDE = """
import signal, time
print("=" * 70 + "end of the line", flush=True)
while True:
    time.sleep(60)
"""


async def test_narrow_viewer_does_not_crop_the_text_of_others_permanently(stage: Stage) -> None:
    await stage.start([sys.executable, "-I", "-c", WIDE], cols=120, rows=40)
    wide = await stage.attach(120, 40)
    await wide.until_shown(b"end of the line")
    narrow = await stage.attach(40, 10)
    await wide.until(lambda: any(one.get("cols") == 40 for one in wide.controls))

    narrow.close()

    await wide.until(lambda: [one for one in wide.controls if "cols" in one][-1]["cols"] == 120)
    later = await stage.attach(120, 40)
    await later.until_shown(b"end of the line")
