"""`pal claude` with a stand-in for Claude Code: its identity, its arguments and its exit."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.app.person import persons
from tests.daemon.stage import Home, Shell, check_output, run_script_as_person, wait_until
from tests.limits import LIMIT_S
from tests.processes import end_process

STAND_IN = """#!/bin/bash
echo "args: $@"
case "$*" in mcp*) exit;; esac
echo '{"session_id":"s-1"}' | pal hook claude SessionStart >/dev/null
pal whoami --json
case "$*" in *wait*) read line;; *fail*) exit 7;; esac
"""


@pytest.fixture
def claude(bus: Home) -> Path:
    """A folder that contains a program called claude."""
    folder = bus.path.parent / "bin"
    folder.mkdir()
    (folder / "claude").write_text(STAND_IN)
    (folder / "claude").chmod(0o755)
    return folder


def environment(bus: Home, claude: Path) -> dict[str, str]:
    return {"PATH": f"{claude}:{bus.environment['PATH']}"}


def shown(bus: Home) -> str:
    """Return the text of its terminal, with wrapped lines joined."""
    return bus.pal("peek", "nova").out.replace("\n", "")


def test_agent_without_a_terminal_keeps_its_own_output_and_status(bus: Home, claude: Path) -> None:
    result = bus.pal("claude", "--name", "nova", "-p", "fail", env=environment(bus, claude))

    first, second = result.out.splitlines()
    assert result.status == 7
    assert first.startswith(f"args: --plugin-dir={bus.path}/harness/claude-")
    assert first.endswith(" -p fail")
    assert '"name":"nova"' in second
    assert '"harness":"claude"' in second
    (bye,) = bus.events("--type", "agent.bye")
    assert bye["payload"]["reason"] == "exited with 7"


def test_subcommand_without_a_conversation_does_not_join_an_agent(bus: Home, claude: Path) -> None:
    result = bus.ok("claude", "mcp", "list", env=environment(bus, claude))

    assert result.out.splitlines()[0] == "args: mcp list"
    assert bus.events("--type", "agent.hello") == []


def test_first_hook_names_a_session_that_was_started_without_pal(bus: Home, claude: Path) -> None:
    names = []
    for _ in range(2):
        found = subprocess.run([claude / "claude"], env=bus.environment, capture_output=True, check=True)
        names.append(json.loads(found.stdout.splitlines()[1]))

    assert names[0]["harness"] == "claude"
    assert names[0]["name"] == names[1]["name"]  # the same session again


def test_signal_is_forwarded_to_the_program_and_its_exit_is_recorded(bus: Home, claude: Path) -> None:
    running = bus.start(
        "claude",
        "--name",
        "nova",
        "-p",
        "wait",
        env=environment(bus, claude),
        stdin=-1,
        start_new_session=True,
    )
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.readline()

    running.send_signal(signal.SIGTERM)

    assert running.wait(LIMIT_S) == 128 + signal.SIGTERM
    (bye,) = bus.events("--type", "agent.bye")
    assert bye["payload"]["reason"] == "killed by SIGTERM"


def test_person_stops_a_session_that_runs_without_a_terminal(bus: Home, claude: Path) -> None:
    running = bus.start("claude", "--name", "nova", "-p", "wait", env=environment(bus, claude), stdin=-1)
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.readline()

    stopped = check_output(run_script_as_person(bus, "pal stop nova"))

    assert "nova has ended: killed by SIGTERM" in stopped.out
    assert bus.ok("list", "--json").out == ""
    assert running.wait(LIMIT_S) == 128 + signal.SIGTERM


def test_session_keeps_running_when_the_daemon_is_killed(bus: Home, claude: Path) -> None:
    running = bus.start("claude", "--name", "nova", "-p", "wait", env=environment(bus, claude), stdin=-1)
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.readline()

    bus.kill()
    bus.ok("up")
    running.communicate(b"\n", timeout=LIMIT_S)

    assert running.returncode == 0
    wait_until(lambda: bus.events("--type", "agent.bye") != [])


def test_name_in_use_is_refused_before_anything_runs(bus: Home, claude: Path) -> None:
    shell: Shell = bus.shell()
    shell.ok("join", "--name", "nova")

    result = bus.pal("claude", "--name", "nova", "-p", "go", env=environment(bus, claude))

    assert (result.status, result.out) == (1, "")
    assert "nova" in result.err


def test_missing_program_is_reported(bus: Home) -> None:
    result = bus.pal("claude", "-p", "go", env={"PATH": f"{Path(bus.client).parent}:/nowhere"})

    assert result.status == 127
    assert "claude cannot be run: no such program" in result.err


def test_resume_in_a_terminal_keeps_the_session_and_the_name(bus: Home, claude: Path) -> None:
    path = f"PATH={claude}:$PATH"
    with persons(bus):
        check_output(run_script_as_person(bus, f"{path} pal claude --name nova --detach --model wait begin"))
        wait_until(lambda: '"name":"nova"' in shown(bus))
        wait_until(lambda: "s-1" in str(bus.events("--type", "life")))
        (agent,) = bus.ok("list", "--json").lines
        end_process(agent["pid"], signal.SIGKILL)
        wait_until(lambda: bus.events("--type", "agent.bye") != [])

        again = check_output(run_script_as_person(bus, f"{path} pal resume nova --detach"))

        assert again.out == "nova\n"
        wait_until(lambda: '"name":"nova"' in (seen := shown(bus)) and "--resume s-1" in seen)
        assert "--model wait" in shown(bus)
        assert "begin" not in shown(bus)
        (agent,) = bus.ok("list", "--json").lines
        os.kill(agent["pid"], signal.SIGKILL)


def test_detach_is_refused_for_a_session_that_runs_to_completion(bus: Home, claude: Path) -> None:
    refused = bus.pal("claude", "--detach", "-p", "hello", "--json", env=environment(bus, claude))

    assert (refused.status, refused.out) == (2, "")
    assert "leave out --detach" in refused.err
    assert bus.ok("list", "--json").out == ""


def test_session_without_a_terminal_cannot_be_peeked_at(bus: Home, claude: Path) -> None:
    running = bus.start("claude", "--name", "nova", "-p", "wait", env=environment(bus, claude), stdin=-1)
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.readline()

    refused = bus.pal("peek", "nova", "--json")

    assert refused.error["message"] == "there is no terminal of nova: it runs without one"
    running.communicate(b"\n", timeout=LIMIT_S)
