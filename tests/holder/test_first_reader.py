"""The first process that reads a terminal: the program itself is the agent, a tool that it runs is not."""

import json
import os
import shutil
import stat
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.holder.stage import Fields, Stage, script

ASK = "import sys; print('TOOL GOT', repr(input('> ')))"
ASK_TTY = "import os; f = os.open('/dev/tty', os.O_RDWR); os.write(f, b'> '); os.read(f, 99)"
RAW_PASTE = """
import os, termios, tty
before = termios.tcgetattr(0)
tty.setraw(0)
os.write(1, b"\\x1b[?2004hsay> ")
while not os.read(0, 99).endswith(b"\\r"): pass
termios.tcsetattr(0, termios.TCSANOW, before)
os.write(1, b"\\x1b[?2004l\\r\\n")
"""
AGENT = """
import subprocess, sys
print("ready", flush=True)
subprocess.run(sys.argv[1:], **{how})
while True: print("AGENT GOT", repr(input("> ")))
"""
POLLING = """
import os, select, subprocess, sys
print("ready", flush=True)
tool = subprocess.Popen(sys.argv[1:])
while tool.poll() is None: select.select([0], [], [], 5)
"""
PYTHON = [sys.executable, "-I", "-u", "-c"]
TOOLS = {
    "input": [*PYTHON, ASK],
    "tty": [*PYTHON, ASK_TTY],
    "paste": [*PYTHON, RAW_PASTE],
    "bash": ["bash", "-c", 'read -p "> " x; echo TOOL GOT $x'],
    "nested": ["sh", "-c", f"{sys.executable} -I -u -c \"print('TOOL GOT', input('> '))\"; true"],
}


def agent(how: str = "{}") -> list[str]:
    """Return the command of a program that runs the tool in its arguments before it reads a line itself."""
    return [*PYTHON, AGENT.format(how=how)]


async def is_refused(stage: Stage, number: int, priority: str) -> None:
    stage.daemon.offer(number, "not for a tool", priority=priority)
    answer = await stage.daemon.heard("answer", offer=number)
    assert (answer["answer"], answer["reason"]) == ("deferred", "tool")


async def takes(stage: Stage, number: int) -> None:
    """Offer a message until it is typed. A daemon also repeats a deferred offer once the gate is open again.

    On a busy machine a program may read too late, so that an offer at an open gate is deferred.
    """
    await stage.daemon.heard("gate", open=True)
    answer = await answer_to(stage, number)
    while answer["answer"] == "deferred":
        await stage.daemon.until(partial(is_open_after, stage, stage.daemon.said.index(answer)))
        number += 1
        answer = await answer_to(stage, number)
    assert answer["answer"] == "seen", answer


async def answer_to(stage: Stage, number: int) -> Fields:
    stage.daemon.offer(number, "for the agent")
    return await stage.daemon.heard("answer", offer=number)


def is_open_after(stage: Stage, since: int) -> bool:
    return any(said["op"] == "gate" and said["open"] for said in stage.daemon.said[since:])


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_tool_that_reads_before_its_agent_gets_no_message(stage: Stage, tool: str) -> None:
    await stage.start([*agent(), *TOOLS[tool]])
    await stage.daemon.heard("lane")
    person = await stage.attach()
    await person.until_shown(b">")

    await stage.daemon.heard("gate", open=False, reason="tool")
    await is_refused(stage, 1, "normal")
    await is_refused(stage, 2, "interrupt")

    await person.press(b"me\r")
    await takes(stage, 3)
    await person.until_shown(b"AGENT GOT '[pal message")
    assert b"not for a tool" not in person.shown


async def test_a_tool_in_its_own_session_gets_no_first_message(stage: Stage) -> None:
    await stage.start([*agent("{'start_new_session': True}"), *TOOLS["input"]])
    await stage.daemon.heard("lane")
    person = await stage.attach()
    await person.until_shown(b">")

    await stage.daemon.heard("gate", open=False, reason="tool")
    await is_refused(stage, 1, "normal")


async def test_a_tool_gets_no_first_message_while_its_agent_polls(stage: Stage) -> None:
    await stage.start([*PYTHON, POLLING, *TOOLS["input"]])
    await stage.daemon.heard("lane")
    person = await stage.attach()
    await person.until_shown(b">")

    await stage.daemon.heard("gate", open=False, reason="tool")
    await is_refused(stage, 1, "normal")


async def test_a_tool_of_a_script_gets_no_first_message(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "start"
    path.write_text('#!/bin/bash\nssh-keygen -f "$1"\nread -p "> " x\necho AGENT GOT $x\nread y\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed here")
    (tmp_path / "key").touch()
    await stage.start([str(path), str(tmp_path / "key")])
    await stage.daemon.heard("lane")
    person = await stage.attach()
    await person.until_shown(b"Overwrite")

    await stage.daemon.heard("gate", open=False, reason="tool")
    await is_refused(stage, 1, "normal")
    await is_refused(stage, 2, "interrupt")

    await person.press(b"n\r")
    await takes(stage, 3)
    await person.until_shown(b"AGENT GOT [pal message")


@pytest.mark.parametrize("asks", ["$({tool})", "{tool} | cat", "{tool}"], ids=["captured", "piped", "line"])
async def test_a_tool_of_a_script_is_told_from_its_composer(stage: Stage, tmp_path: Path, asks: str) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text(RAW_PASTE.replace("os.write(1", "os.write(2") if asks != "{tool}" else ASK)
    command = asks.format(tool=f"{sys.executable} -I -u {tool}")
    await stage.start(
        ["bash", "-c", f"x={command}; echo $x"] if "$" in asks else ["bash", "-c", f"{command}; :"]
    )
    await stage.daemon.heard("lane")
    person = await stage.attach()
    await person.until_shown(b">")

    await stage.daemon.heard("gate", open=False, reason="tool")
    await is_refused(stage, 1, "normal")


async def test_a_composer_that_a_script_runs_is_the_agent(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "start"
    path.write_text("#!/bin/bash\n" + " ".join(script("keys", str(tmp_path / "record"))) + "\ntrue\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    await stage.start([str(path)])
    await stage.daemon.heard("lane")

    await takes(stage, 1)


LAUNCHING = "import subprocess, sys; print('starting', flush=True); subprocess.run(sys.argv[1:])"


async def test_a_named_prompt_opens_the_child_of_an_unknown_launcher(stage: Stage) -> None:
    await stage.start([*PYTHON, LAUNCHING, *script("shelling")], prompt="> ")
    await stage.daemon.heard("lane")

    await takes(stage, 1)


async def test_another_prompt_than_the_named_one_does_not_open_it(stage: Stage) -> None:
    await stage.start([*PYTHON, LAUNCHING, *script("shelling")], prompt="you> ")
    await stage.daemon.heard("lane")
    await stage.until_ready()

    await stage.daemon.heard("gate", open=False, reason="tool")
    await is_refused(stage, 1, "normal")


@pytest.mark.parametrize("body", ["{command}", "sh -c '{command}; true'"], ids=["direct", "shell"])
async def test_the_program_of_a_known_launcher_is_the_agent(stage: Stage, tmp_path: Path, body: str) -> None:
    path = tmp_path / "npx"
    path.write_text("#!/bin/sh\n" + body.format(command=" ".join(script("shelling"))) + "\ntrue\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    await stage.start([str(path), "shelling"])
    await stage.daemon.heard("lane")

    await takes(stage, 1)


async def test_the_script_that_npm_runs_is_the_agent(stage: Stage, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed here")
    command = f"{sys.executable} -I -u {script('shelling')[-1]}"
    (tmp_path / "package.json").write_text(json.dumps({"name": "chat", "scripts": {"chat": command}}))
    environment = {"HOME": str(tmp_path), "NO_UPDATE_NOTIFIER": "1"}
    await stage.start(["npm", "--prefix", str(tmp_path), "run", "chat"], env=environment)
    await stage.daemon.heard("lane")
    await stage.until_ready()

    await takes(stage, 1)


async def test_a_tool_of_the_program_of_a_launcher_is_a_tool(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "uvx"
    path.write_text('#!/bin/sh\n"$@"\ntrue\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    await stage.start([str(path), *agent(), *TOOLS["input"]])
    await stage.daemon.heard("lane")
    person = await stage.attach()
    await person.until_shown(b">")

    await stage.daemon.heard("gate", open=False, reason="tool")
    await is_refused(stage, 1, "normal")
    await person.press(b"me\r")
    await takes(stage, 2)


RELAUNCHING = """
import os, subprocess, sys
if "child" not in os.environ:
    environment = {**os.environ, "child": "1"}
    sys.exit(subprocess.run([sys.executable, "-I", "-u", *sys.argv], env=environment).returncode)
print("ready")
while True: print("AGENT GOT", repr(input("> ")))
"""


async def test_a_program_that_starts_itself_again_is_the_agent(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "agent.py"
    path.write_text(RELAUNCHING)
    await stage.start([sys.executable, str(path), "--chat"])
    await stage.daemon.heard("lane")

    await takes(stage, 1)


async def test_a_tool_gets_no_message_after_the_last_reader_has_ended(stage: Stage) -> None:
    await stage.start(script("shelling", "fork"))
    await stage.daemon.heard("lane")
    await takes(stage, 1)
    person = await stage.attach()
    await stage.daemon.until(lambda: stage.daemon.last("gate")["open"])

    await person.press(b"!%s -I -c 'input(chr(62))'\r" % os.fsencode(sys.executable))
    await stage.daemon.heard("gate", open=False, reason="tool")

    await is_refused(stage, 2, "normal")
