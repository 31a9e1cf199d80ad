"""Attacks at terminals: an agent or a script tries to look like the person at the terminal."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from tests.daemon.stage import Home, Result, Shell, run_script_as_person

_CLONE = """\
import ctypes, json, os, signal, subprocess, sys
subprocess.run(["pal", "join", "--name", "mole"], check=True, stdout=subprocess.DEVNULL)
read, write = os.pipe()
CLONE_PARENT, SYS_clone = 0x8000, {"x86_64": 56, "aarch64": 220}[os.uname().machine]
sys.stdout.flush()
if ctypes.CDLL(None).syscall(SYS_clone, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PALAVER_HOME")}
    os.set_inheritable(write, True)
    if "group" in sys.argv:  # a group of its own in the foreground, as a command of the shell has it
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
    os.execvpe("pal", ["pal", "whoami", "--json"], kept)
os.close(write)
os.read(read, 1)
"""

_TO_FRONT = """\
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.setpgid(0, 0)
terminal = os.open("/dev/tty", os.O_RDWR)
os.tcsetpgrp(terminal, os.getpid())
os.execvp("pal", ["pal", "whoami", "--json"])
"""

_SPAWN = "import os, pty, sys; pty.spawn(['bash', '-c', sys.argv[1]])"


def python(home: Home, source: str, *words: str) -> str:
    """Return a command that runs a Python program."""
    program = home.spare_path()
    program.write_text(source)
    return shlex.join([sys.executable, "-I", str(program), *words])


def names(result: Result) -> list[str]:
    return [one["name"] for one in result.lines]


@pytest.mark.parametrize("words", [(), ("group",)], ids=["same group", "own group"])
def test_child_given_to_the_persons_shell_is_not_the_human(bus: Home, words: tuple[str, ...]) -> None:
    """Promise: while an agent runs at a terminal, no process there is the human (clone with CLONE_PARENT)."""
    found = run_script_as_person(bus, f"{python(bus, _CLONE, *words)} </dev/tty")

    assert names(found) == ["script"]


def test_person_is_the_human_again_after_the_agent_has_ended(bus: Home) -> None:
    """Promise: a person does not lose the terminal to an agent that ran there."""
    agent = "bash --norc -c 'pal join --name mole --pid $$ >/dev/null; true'"

    found = run_script_as_person(bus, f"{agent}; pal whoami --json")

    assert names(found) == ["human"]


def test_no_process_next_to_a_background_agent_is_the_human(bus: Home) -> None:
    """Promise: an agent in the background cannot become the human by typing for the person (TIOCSTI)."""
    agent = "bash --norc -c 'pal join --name mole --pid $$; read -r x <{}' & "
    pipe = bus.spare_path()

    script = (
        f"mkfifo {pipe}; {agent.format(pipe)} while ! pal list | grep -q mole; do :; done; pal whoami --json"
    )
    found = run_script_as_person(bus, f"{script}; echo >{pipe}; wait; pal whoami --json")

    lines = [json.loads(line)["name"] for line in found.out.splitlines() if line.startswith("{")]
    assert lines == ["script", "human"]


@pytest.mark.parametrize("before", ["", "CLAUDECODE=1 "], ids=["a script", "a harness"])
def test_script_cannot_seat_an_agent_at_the_persons_shell(bus: Home, before: str) -> None:
    """Promise: only a person can make the shell of their terminal an agent (`--pid`)."""
    join = f'{before}setsid --wait bash --norc -c "pal join --name mole --pid $$ --json; true"'

    found = run_script_as_person(bus, f"{join}; pal whoami --json")

    assert json.loads(found.err)["error"] == "bad_request"
    assert names(found) == ["human"]


def test_person_may_make_their_own_shell_an_agent(bus: Home) -> None:
    """Promise: a person can make their own shell an agent."""
    found = run_script_as_person(bus, "pal join --name luna --json; pal whoami --json")

    assert names(found) == ["luna", "luna"]


@pytest.mark.parametrize(
    "way",
    [
        "{pal}",
        "setsid --wait {pal}",
        "script -qec '{pal}' /dev/null",
        'env -i "PATH=$PATH" PALAVER_HOME=$PALAVER_HOME {pal}',
        "nohup {pal} 2>/dev/null",
        "{spawn}",
    ],
)
def test_any_process_below_an_agent_is_that_agent(bus: Home, way: str) -> None:
    """Promise: a new session, a new terminal or an empty environment does not hide the agent above."""
    if way.startswith("script") and shutil.which("script") is None:
        pytest.skip("script is not installed: a terminal made by it is NOT tested here")
    spawn = f"{shlex.quote(sys.executable)} -I -c {shlex.quote(_SPAWN)} 'pal whoami --json'"
    ways = way.format(pal="pal whoami --json", spawn=spawn)

    found = run_script_as_person(bus, f"pal join --name mole >/dev/null; {ways}")

    assert json.loads(found.out)["name"] == "mole"


def test_agent_that_moves_to_the_foreground_is_still_that_agent(bus: Home) -> None:
    """Promise: the foreground of a terminal (tcsetpgrp) makes no agent the human."""
    to_front = python(bus, _TO_FRONT)
    agent = shlex.join(
        ["bash", "--norc", "-c", f"pal join --name mole --pid $$ >/dev/null; {to_front}; true"]
    )

    found = run_script_as_person(bus, f"{agent} & wait")

    assert names(found) == ["mole"]


def test_job_whose_parent_has_ended_is_not_the_human(bus: Home) -> None:
    """Promise: a process orphaned at a terminal is a script: the terminal has another owner."""
    pipe, out = bus.spare_path(), bus.spare_path()
    left = f"bash --norc -c '(read -r x <{pipe}; pal whoami --json >{out}) & true'"

    found = run_script_as_person(bus, f"mkfifo {pipe} {out}; {left}; echo >{pipe}; cat {out}")

    assert names(found) == ["script"]


def test_worker_without_a_terminal_is_not_the_human(bus: Home) -> None:
    """Promise: a process of a service manager or cron is not the human: it has no foreground terminal."""
    found = bus.shell().begin_script(
        'env -i "PATH=$PATH" PALAVER_HOME=$PALAVER_HOME setsid --wait pal whoami --json'
    )

    assert found.end().json["name"] == "script"


def test_text_written_to_a_persons_terminal_is_not_a_command(bus: Home) -> None:
    """Promise: text on a person's terminal is only shown; it is not a command."""
    nova: Shell = bus.shell()
    nova.ok("join", "--name", "nova")
    pipe = bus.spare_path()

    nova.begin_script(f"mkfifo {pipe}; read -r tty <{pipe}; printf 'pal send @nova -- x\\n' >$tty")
    run_script_as_person(bus, f"while [ ! -p {pipe} ]; do :; done; tty </dev/tty >{pipe}; pal whoami --json")

    assert bus.texts() == []


def test_limits_of_identification_are_documented() -> None:
    """Promise: every limit that these attacks found is in the documentation."""
    page = (Path(__file__).parents[2] / "docs" / "identity.md").read_text()

    for limit in ("CLONE_PARENT", "TIOCSTI", "tmux", "service manager", "pseudo-terminal", "debugger", "ssh"):
        assert limit in page, limit
