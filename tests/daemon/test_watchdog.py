"""No caller's work delays other callers: the daemon measures its loop, and large work runs elsewhere."""

import asyncio
import contextlib
import logging
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.daemon.stage import Home, check_output, run_as_person
from tests.daemon_log import check_daemon_log
from tests.limits import LIMIT_S

import palaver
from palaver.daemon.daemon import watch_loop

MEGABYTE = "const found = await lookUp(name); // the token of the parser\n" * 17_000
MANY_AGENTS = 500
LIMIT_MS = 40
"""Far above the time of any step, and far below the cost of a megabyte on the loop."""


def work_for(seconds: float) -> None:
    """Use the given seconds of processor time, whatever the elapsed time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def work_in_a_task(seconds: float) -> None:
    work_for(seconds)
    await asyncio.sleep(0)


def watched(run: Callable[[asyncio.AbstractEventLoop], object], limit_ms: int = 20) -> None:
    async def main() -> None:
        stop = watch_loop(limit_ms)
        try:
            run(asyncio.get_running_loop())
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            stop()

    asyncio.run(main())


def test_long_callback_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    watched(lambda loop: loop.call_soon(work_for, 0.03))

    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("watchdog: the event loop was busy for")
    assert record.getMessage().endswith("with work_for")


def test_long_step_of_a_task_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    tasks = []
    watched(lambda loop: tasks.append(loop.create_task(work_in_a_task(0.03))))

    (record,) = caplog.records
    assert "work_in_a_task" in record.getMessage()


def test_waiting_is_not_work(caplog: pytest.LogCaptureFixture) -> None:
    watched(lambda loop: loop.call_soon(select.select, [], [], [], 0.05))

    assert caplog.records == []


def test_limit_of_zero_watches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    watched(lambda loop: loop.call_soon(work_for, 0.03), limit_ms=0)

    assert caplog.records == []


def test_repeated_lines_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    def many(loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(30):
            loop.call_soon(work_for, 0.002)

    watched(many, limit_ms=1)

    assert len(caplog.records) == 20


@pytest.fixture
def strict(home: Home) -> Home:
    """A closely watched bus; the end of the test checks its log."""
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text(f"watchdog_ms = {LIMIT_MS}\n")
    home.ok("up")
    return home


def make_bundle(bus: Home) -> str:
    folder = bus.spare_path()
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.js").write_text(MEGABYTE)
    made = bus.ok("bundle", "create", "large", "--files", "0.js,1.js,2.js", "--json", cwd=folder).json
    return str(made["bundle_id"])


def test_other_caller_is_served_while_a_bundle_is_exported(strict: Home) -> None:
    strict.ok("send", "@human", "--", "first")
    make_bundle(strict)
    export = strict.start("export", "--type", "message", "--type", "bundle")
    assert export.stdout is not None
    first = b""
    while not first.endswith(b"\n"):
        first += os.read(export.stdout.fileno(), 1)

    strict.ok("list")
    ready, _, _ = select.select([export.stdout], [], [], 0)

    assert b"first" in first
    assert not ready, "the bundle was written before the other caller was answered"
    out, _ = export.communicate(timeout=LIMIT_S)
    assert len(out) > 3 * len(MEGABYTE)


def test_export_whose_process_was_killed_is_refused(bus: Home) -> None:
    make_bundle(bus)
    export = bus.start("export", "--type", "bundle", "--json")

    def child() -> int | None:
        for task in Path(f"/proc/{bus.pid}/task").iterdir():
            for pid in (task / "children").read_text().split():
                if b"palaver.services.queries" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
        return None

    end = time.monotonic() + LIMIT_S
    while (pid := child()) is None:
        assert time.monotonic() < end
    os.kill(pid, 9)

    _, err = export.communicate(timeout=LIMIT_S)
    assert export.returncode == 1
    assert b"run the export again" in err


def test_large_contents_do_not_block_the_loop(strict: Home) -> None:
    bundle_id = make_bundle(strict)
    strict.ok("send", "@human", "--bundle", bundle_id, "--", "look")
    for number in range(20):
        strict.ok("send", "@human", "--stdin", content=b"x" * 99_000 + b"%d" % number)

    strict.ok("bundle", "show", bundle_id)
    strict.ok("bundle", "show", bundle_id, "--full", "--json")
    strict.ok("bundle", "cat", bundle_id)
    strict.ok("export", "--format", "markdown")
    strict.ok("events", "--all", "--json")
    strict.ok("events", "--search", "parser", "--json")

    async def read() -> None:
        async with palaver.connect("luna", home=strict.path) as me:
            await me.put(
                palaver.Envelope.new("blob.large", "luna", {"text": MEGABYTE, "many": [1] * 100_000})
            )
            assert await me.events()

    asyncio.run(read())


BLOCKING = """#!{python} -I
import runpy, sys, time
from palaver.doors.cli import bus as commands_bus
plain = commands_bus.status
async def status(call):
    end = time.thread_time() + {seconds}
    while time.thread_time() < end:
        pass
    return await plain(call)
commands_bus.status = status
del sys.argv[1:3]  # -I -m
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(("seconds", "is_caught"), [(0.05, True), (0, False)])
def test_command_that_blocks_the_loop_for_50_ms_fails_its_test(
    home: Home, tmp_path: Path, seconds: float, is_caught: bool
) -> None:
    python = tmp_path / "python"
    python.write_text(BLOCKING.format(python=sys.executable, seconds=seconds))
    python.chmod(0o700)
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text(f"watchdog_ms = {LIMIT_MS}\n")
    home.ok("up", env={"PALAVER_PYTHON": str(python)})
    home.ok("status")
    home.ok("down")

    with pytest.raises(AssertionError) if is_caught else contextlib.nullcontext():
        check_daemon_log(home.path)
    home.expects_tracebacks = is_caught


def test_long_list_of_agents_does_not_block_the_loop(strict: Home) -> None:
    async def join_and_list() -> None:
        async with contextlib.AsyncExitStack() as agents:
            for number in range(MANY_AGENTS):
                await agents.enter_async_context(palaver.connect(f"agent{number}", home=strict.path))
            for words in (["list"], ["list", "-v"], ["list", "-v", "--json"]):
                listed = await asyncio.to_thread(strict.ok, *words)
                assert f"agent{MANY_AGENTS - 1}" in listed.out

    asyncio.run(join_and_list())


def test_large_archived_events_do_not_block_the_loop(strict: Home) -> None:
    for _ in range(3):
        make_bundle(strict)
    *_, event = strict.events("--type", "bundle")
    check_output(run_as_person(strict, "archive", "--before", str(event["seq"] + 1)))

    strict.ok("show", str(event["seq"]))
    strict.ok("show", str(event["seq"]), "--json")
    check_output(run_as_person(strict, "redact", str(event["seq"])))
