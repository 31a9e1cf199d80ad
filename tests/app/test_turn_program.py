"""The program of one job: its input and output, its time, and the processes that it starts."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemon.stage import wait_until
from tests.processes import end_process

from palaver.app import turns
from palaver.app.turns import BoundedOutput, Ended, JobFailed, JobProgram, program_of, reply_of, run_program
from palaver.errors import NotFound
from palaver.harness.base import TurnReply
from palaver.harness.registry import TURNS
from palaver.protocol.turns import TriageJob, TurnJob

LONG_S = 60.0


async def known(pid: int) -> None:
    """Accept the process of a job."""


def program(*argv: str, prompt: str = "", timeout_s: float = LONG_S) -> JobProgram:
    return JobProgram(
        argv=argv, environment=dict(os.environ), cwd=str(Path.cwd()), prompt=prompt, timeout_s=timeout_s
    )


def python(script: str, **options: str | float) -> JobProgram:
    return program(sys.executable, "-I", "-c", script, **options)  # type: ignore[arg-type]


async def run(made: JobProgram) -> Ended:
    return await run_program(made, known, asyncio.Event())


def is_gone(pid: int) -> bool:
    """Whether a process has ended, also if it was not collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # It can end while it is read.
        return True


async def test_prompt_is_the_input_and_the_output_is_the_result() -> None:
    ended = await run(program("cat", prompt="näh\n" * 100_000))

    assert (ended.status, ended.errors) == (0, "")
    assert ended.output == "näh\n" * 100_000


async def test_program_that_never_reads_its_input_does_not_hang() -> None:
    ended = await run(program("echo", "done", prompt="x" * 1_000_000))

    assert ended.output == "done\n"


async def test_program_has_no_terminal_and_its_own_session() -> None:
    script = "import os; print(os.getsid(0) == os.getpid(), os.path.exists('/dev/tty') and open('/dev/tty'))"

    ended = await run(python(script))

    assert ended.status == 1
    assert "No such device" in ended.errors


async def test_long_output_keeps_its_beginning_and_its_end() -> None:
    script = (
        "import sys; sys.stdout.write('first' + 'x' * 9_000_000 + 'last'); sys.stderr.write('e' * 99_999)"
    )

    ended = await run(python(script))

    assert ended.output.startswith("first")
    assert ended.output.endswith("last")
    assert len(ended.output) < 5_000_000
    assert len(ended.errors) < 10_000


@given(st.lists(st.binary(max_size=30)), st.integers(0, 20), st.integers(1, 20))
def test_bounded_output_is_a_beginning_and_an_end(pieces: list[bytes], head: int, tail: int) -> None:
    kept, whole = BoundedOutput(head, tail), b"".join(pieces)
    for piece in pieces:
        kept.add(piece)

    if len(whole) <= head + tail:
        assert kept.text() == whole.decode("utf-8", "replace")
    else:
        assert kept.text() == (whole[:head] + b"\n" + whole[-tail:]).decode("utf-8", "replace")


async def test_failure_names_the_status_and_the_last_errors() -> None:
    script = "import sys; sys.stderr.write(''.join(f'line {n}\\n' for n in range(9))); sys.exit(3)"

    ended = await run(python(script))

    assert ended.reason() == "the program exited with 3: line 4 / line 5 / line 6 / line 7 / line 8"
    with pytest.raises(JobFailed, match="exited with 3"):
        reply_of(ended, turns.READ_PLAIN)


async def test_program_that_is_missing_or_killed_is_a_failure() -> None:
    missing = await run(program("no-such-program"))
    killed = await run(python("import os; os.kill(os.getpid(), 9)"))

    assert missing.reason().startswith("the program exited with 127: no-such-program cannot be run: No such")
    assert killed.reason() == "the program was killed by SIGKILL"


async def test_program_is_ended_after_its_time() -> None:
    with pytest.raises(JobFailed, match=r"timed out after 0\.2 s"):
        await run(program("sleep", "1000", timeout_s=0.2))


async def test_processes_that_a_program_leaves_end_with_it(tmp_path: Path) -> None:
    script = f"setsid sleep 1000 & echo $! > {tmp_path}/pid; echo started"

    ended = await run(program("sh", "-c", script))

    assert ended.output == "started\n"
    assert is_gone(int((tmp_path / "pid").read_text()))


async def test_program_starts_only_after_the_daemon_knows_its_process(tmp_path: Path) -> None:
    made = tmp_path / "made"
    seen = []

    async def register(pid: int) -> None:
        seen.append((is_gone(pid), made.exists()))
        raise NotFound("turn", "it has ended")

    with pytest.raises(JobFailed, match="there is no turn"):
        await run_program(program("touch", str(made)), register, asyncio.Event())

    assert seen == [(False, False)]
    assert not made.exists()


async def test_stopped_runner_ends_its_programs(tmp_path: Path) -> None:
    stop = asyncio.Event()
    script = f"trap '' TERM; echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 1000"
    running = asyncio.ensure_future(run_program(program("sh", "-c", script), known, stop))
    await asyncio.to_thread(wait_until, (tmp_path / "pid").exists)

    stop.set()
    with pytest.raises(JobFailed, match="the runner was stopped"):
        await running

    assert is_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("victim", ["runner", "keeper"])
def test_program_dies_with_the_processes_above_it(tmp_path: Path, victim: str) -> None:
    new = tmp_path / "new"
    script = (
        "import asyncio, os\n"
        "from palaver.app.turns import JobProgram, run_program\n"
        f"async def known(pid): open({str(tmp_path / 'keeper')!r}, 'w').write(str(pid))\n"
        f"words = ('sh', '-c', 'echo $$ > {new}; mv {new} {tmp_path}/pid; exec sleep 1000')\n"
        "job = JobProgram(argv=words, environment=dict(os.environ), cwd='/', prompt='', timeout_s=60)\n"
        "asyncio.run(run_program(job, known, asyncio.Event()))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as runner:
        wait_until((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        keeper = int((tmp_path / "keeper").read_text())

        end_process(runner.pid if victim == "runner" else keeper, signal.SIGKILL)

        wait_until(lambda: is_gone(pid) and is_gone(keeper))


# --------------------
# Which program a job runs.


def job(**fields: object) -> TurnJob:
    return TurnJob(turn=1, agent="luna", session="main", prompt="p", timeout_ms=1500, **fields)  # type: ignore[arg-type]


def environment(folder: Path, *programs: str) -> Mapping[str, str]:
    """Return an environment whose PATH has only these programs."""
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "HOME": str(folder), "KEY": "k", "PALAVER_SEAT": "s", "CLAUDECODE": "1"}


def test_configured_command_runs_as_it_is_written(tmp_path: Path) -> None:
    command = ("my agent", "--flag", "a b")

    made, read = program_of(job(command=command, harness="claude"), str(tmp_path), environment(tmp_path))

    assert (made.argv, made.prompt, made.timeout_s, made.cwd) == (command, "p", 1.5, str(tmp_path))
    assert (made.environment["KEY"], made.environment["PWD"]) == ("k", str(tmp_path))
    assert not {"PALAVER_SEAT", "CLAUDECODE"} & set(made.environment)
    assert read(" reply\n") == TurnReply(text="reply")


def test_triage_runs_its_command_in_the_folder_of_the_agent(tmp_path: Path) -> None:
    triage = TriageJob(
        job=1, agent="luna", session="main", command=("ask",), prompt="p", timeout_ms=1, cwd=str(tmp_path)
    )

    made, _ = program_of(triage, str(tmp_path), environment(tmp_path))

    assert (made.argv, made.cwd) == (("ask",), str(tmp_path))


@pytest.mark.parametrize("harness", TURNS)
def test_harness_runs_without_a_terminal_and_with_the_bus(tmp_path: Path, harness: str) -> None:
    wanted = job(harness=harness, harness_session="s-1", arguments=("--model=m",), cwd=str(tmp_path))

    made, _ = program_of(wanted, str(tmp_path), environment(tmp_path, harness))

    words = made.argv[made.argv.index(harness) + 1 :]
    own = TURNS[harness].arguments(("--model=m",), "s-1")
    assert [word for word in words if word in own] == list(own)
    assert "pal" in {path.name for path in (tmp_path / "bin").iterdir()}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "luna has no harness; set auto_turn_command"),
        ({"harness": "aider"}, "the harness aider of luna cannot run automatic turns; set auto_turn_command"),
        ({"harness": "claude"}, "claude is not in the PATH of the runner"),
        (
            {"harness": "claude", "cwd": "/no/such/folder"},
            "the folder /no/such/folder of luna does not exist",
        ),
    ],
)
def test_job_that_cannot_run_says_what_to_do(tmp_path: Path, fields: dict[str, str], reason: str) -> None:
    with pytest.raises(JobFailed, match=reason):
        program_of(job(**fields), str(tmp_path), environment(tmp_path))


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (Ended(status=1, output="", errors="not logged in\n"), "exited with 1: not logged in"),
        (
            Ended(status=1, output='{"type":"result","is_error":true,"result":"API Error"}', errors=""),
            "API Error",
        ),
        (Ended(status=0, output="", errors=""), "its output has no reply"),
    ],
)
def test_harness_without_a_reply_has_failed(ended: Ended, reason: str) -> None:
    with pytest.raises(JobFailed, match=reason):
        reply_of(ended, TURNS["claude"].read)


def test_only_an_unknown_session_begins_a_new_one() -> None:
    unknown = Ended(status=1, output="", errors="No conversation found with session ID: s-1\n")
    other = Ended(status=1, output="", errors="not logged in\n")
    resumed = job(harness="claude", harness_session="s-1")

    assert turns.lacks_session(resumed, unknown)
    assert not turns.lacks_session(resumed, other)
    assert not turns.lacks_session(job(harness="claude"), unknown)
    assert not turns.lacks_session(job(harness="claude", harness_session="s-1", command=("x",)), unknown)
