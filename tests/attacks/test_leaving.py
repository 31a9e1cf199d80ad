"""Attacks by leaving: an agent gives up its name to become the person at its terminal."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.daemon.stage import Home, run_script_as_person
from tests.limits import LIMIT_S

_LEAVE = "pal join --name nova >/dev/null; pal leave >/dev/null"
_WHO = "pal whoami --json"


def test_agent_that_leaves_at_a_persons_terminal_is_a_script(bus: Home) -> None:
    """Promise: a process that was an agent's seat, and its children, never become the human."""
    asked = f"{_LEAVE}; {_WHO}; bash --norc -c '{_WHO}; true'; (exec {_WHO})"

    found = run_script_as_person(bus, asked).lines

    assert [(one["name"], one["standing"]) for one in found] == [("script", "worker")] * 3


@pytest.mark.parametrize(
    "words",
    [
        "config set brake_hops 0",
        "join --name boss --role operator",
        "send --raw nova -- x",
    ],
)
def test_agent_that_leaves_gains_no_right_of_a_person(bus: Home, words: str) -> None:
    """Promise: `pal leave` raises no rights."""
    refused = run_script_as_person(bus, f"{_LEAVE}; pal --json {words}")

    assert (refused.status, refused.error["error"]) == (1, "not_allowed")
    assert [one["role"] for one in bus.ok("list", "-v", "--json").lines] == ["worker"]


def test_agent_that_left_stays_a_script_after_a_restart(bus: Home) -> None:
    """Promise: the log keeps every seat, so that a new daemon knows it too."""
    os.mkfifo(left := bus.spare_path())
    os.mkfifo(taken := bus.spare_path())
    script = f"{_LEAVE}; echo >{left}; read -r x <{taken}; pal down; pal up; {_WHO}"

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(run_script_as_person, bus, script)
        left.read_text()
        bus.shell().ok("join", "--as", "nova")  # the agent has another seat by now
        taken.write_text("\n")
        output = asking.result(LIMIT_S).out

    assert json.loads(output.splitlines()[-1])["name"] == "script"


def test_leave_says_that_a_person_needs_a_new_shell(bus: Home) -> None:
    """Promise: `pal leave` says what it means for a person at that shell."""
    result = run_script_as_person(bus, "pal join --name nova >/dev/null; pal leave")
    fresh = run_script_as_person(bus, _WHO)

    assert result.out.splitlines()[0] == "nova has left"
    assert "to act as a person, open a new shell" in result.out
    assert fresh.json["name"] == "human"
