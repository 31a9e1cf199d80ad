"""The end of an agent and of the processes it started."""

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.holder.stage import Stage, is_running, wait_until

LEFT = """
import os, signal, subprocess, sys
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
words = [sys.executable, "-I", "-c", "import signal; print(end='.', flush=True); signal.pause()"]
if "holder" in sys.argv:
    words += ["-m", "palaver.holder.main"]
left = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
left.stdout.read(1)
open(sys.argv[1], "w").write(str(left.pid))
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print("ready", flush=True)
input()
"""


async def leaving(stage: Stage, path: Path, *words: str) -> int:
    """Start an agent that leaves a process in a separate session; return the id of that process."""
    await stage.start([sys.executable, "-I", "-c", LEFT, str(path), *words])
    await stage.daemon.heard("lane")
    await stage.until_ready()
    return number_in(path)


def number_in(path: Path) -> int:
    return int(path.read_text())


@pytest.mark.parametrize("words", [(), ("stubborn",)])
async def test_left_processes_end_when_the_holder_is_terminated(
    stage: Stage, tmp_path: Path, words: tuple[str, ...]
) -> None:
    left = await leaving(stage, tmp_path / "left", *words)
    holder = stage.holder

    os.kill(holder, signal.SIGTERM)

    await stage.daemon.heard("leave")
    await wait_until(lambda: not is_running(left))
    await wait_until(lambda: not is_running(holder))


async def test_kill_ends_stubborn_processes_at_once(stage: Stage, tmp_path: Path) -> None:
    left = await leaving(stage, tmp_path / "left", "stubborn")

    stage.daemon.push("control", ask=1, verb="kill", name="luna")

    assert (await stage.daemon.heard("tell", ok={"reason": "killed by SIGKILL"}))["ask"] == 1
    await wait_until(lambda: not is_running(left))


async def test_holder_of_another_agent_started_from_inside_keeps_running(
    stage: Stage, tmp_path: Path
) -> None:
    left = await leaving(stage, tmp_path / "left", "holder")
    holder = stage.holder

    try:
        os.kill(holder, signal.SIGTERM)
        await wait_until(lambda: not is_running(holder))

        assert is_running(left)
    finally:
        os.kill(left, signal.SIGKILL)


async def test_left_processes_keep_running_when_the_agent_exits_by_itself(
    stage: Stage, tmp_path: Path
) -> None:
    left = await leaving(stage, tmp_path / "left")
    person, holder = await stage.attach(), stage.holder

    try:
        await person.press(b"\r")
        await wait_until(lambda: not is_running(holder))

        assert is_running(left)
    finally:
        os.kill(left, signal.SIGKILL)


async def test_stop_ends_a_shell_with_a_hangup(stage: Stage, tmp_path: Path) -> None:
    rc = tmp_path / "rc"
    rc.write_text("PS1='ready$ '\n")
    await stage.start(["bash", "--rcfile", str(rc), "-i"])
    await stage.daemon.heard("lane")
    await stage.until_ready()

    stage.daemon.push("control", ask=1, verb="stop", name="luna")

    assert (await stage.daemon.heard("tell", ask=1))["message"] == "sent SIGHUP"
    assert (await stage.daemon.heard("leave"))["reason"] == "killed by SIGHUP"


async def test_stop_ends_a_shell_that_ignores_the_hangup(stage: Stage, tmp_path: Path) -> None:
    rc = tmp_path / "rc"
    rc.write_text("trap '' HUP; trap 'exit 0' TERM; PS1='ready$ '\n")
    await stage.start(["bash", "--rcfile", str(rc), "-i"])
    await stage.daemon.heard("lane")
    await stage.until_ready()

    stage.daemon.push("control", ask=1, verb="stop", name="luna")

    assert (await stage.daemon.heard("tell", ask=1))["message"] == "sent SIGHUP"
    assert (await stage.daemon.heard("tell", ask=1, count=2))["message"] == "sent SIGTERM"
    assert (await stage.daemon.heard("leave"))["reason"] == "exited with 0"
