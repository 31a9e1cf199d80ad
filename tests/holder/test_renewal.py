"""The upgrade of a holder to a newer version: repeated requests during the upgrade do no harm."""

import asyncio
import os
import signal
import sys

import pytest
from tests.holder.stage import Stage, command_of, is_running, script, wait_until

from palaver.holder import agent
from palaver.holder.agent import Kept, become_new
from palaver.holder.connection import Held


async def test_repeated_upgrade_signals_during_an_upgrade_do_no_harm(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    holder, child = stage.holder, stage.child

    def has_changed_twice() -> bool:
        os.kill(holder, signal.SIGUSR2)
        return len([one for one in stage.daemon.said if one["op"] == "hold"]) >= 3

    await wait_until(has_changed_twice)

    person = await stage.attach()
    await person.press(b"still here\r")
    await person.until_shown(b"got 'still here'")
    assert "--resume-fd" in command_of(holder)
    assert (is_running(child), stage.child, stage.holder) == (True, child, holder)


async def test_termination_during_an_upgrade_ends_the_agent_and_reports(stage: Stage) -> None:
    await stage.start(script("lines"))
    await stage.daemon.heard("lane")
    holder = stage.holder

    os.kill(holder, signal.SIGUSR2)
    await wait_until(lambda: "--resume-fd" in command_of(holder))
    os.kill(holder, signal.SIGTERM)

    assert (await stage.daemon.heard("leave"))["reason"].startswith(("killed by", "exited with"))


async def test_caller_that_waits_for_the_exit_status_receives_it_after_an_upgrade(stage: Stage) -> None:
    command = [sys.executable, "-I", "-c", "import sys; input(); sys.exit(7)"]
    running = asyncio.create_task(stage.run_to_the_end(command))
    await stage.daemon.heard("lane")
    os.kill(stage.holder, signal.SIGUSR2)
    await stage.daemon.heard("lane", count=2)

    person = await stage.attach()
    await person.press(b"\r")

    assert await running == 7


def test_failed_upgrade_leaves_everything_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "find_python", lambda: "/no/such/python")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    master, listener = os.pipe()
    kept = Kept(
        home="/home",
        held=Held(name="luna", secret="s", seat="seat", harness=""),
        child=1,
        command=("x",),
        master=master,
        listener=listener,
        cols=80,
        rows=24,
        painted=b"",
    )

    with pytest.raises(FileNotFoundError):
        become_new(kept)

    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert (os.get_inheritable(master), os.get_inheritable(listener)) == (False, False)
    os.close(master)
    os.close(listener)
