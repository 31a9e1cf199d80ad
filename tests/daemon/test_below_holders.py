"""Descendants of an agent in a terminal: whatever they shed, they are that agent, and never the human."""

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon.stage import Home, Job, Result, check_output, run_as_person, run_script_as_person

SHED = 'env -i "PATH=$PATH" PALAVER_HOME=$PALAVER_HOME'
LEAVE = "setsid -f script -qc"
TERMINAL = f"{SHED} {LEAVE} 'bash {{}}' /dev/null"
ESCAPES = {
    "a session of its own": f"{SHED} setsid -f bash {{}}",
    "a terminal of its own": TERMINAL,
    "a terminal within a terminal": f"{SHED} {LEAVE} 'script -qc \"bash {{}}\" /dev/null' /dev/null",
    "in the background": f"(({SHED} nohup bash {{}} &) &)",
    "with its environment": "(setsid script -qc 'bash {}' /dev/null &)",
}


class Held:
    """A shell that a real holder runs, fed by a pipe."""

    def __init__(self, home: Home, name: str, *options: str) -> None:
        self.home = home
        self.name = name
        feed = home.spare_path()
        os.mkfifo(feed)
        self._feed = os.open(feed, os.O_RDWR)
        program = ["bash", "-c", f"exec bash --norc --noprofile <{shlex.quote(str(feed))}"]
        check_output(run_as_person(home, "run", "--detach", "--name", name, *options, "--", *program))

    def run(self, script: str, escape: str = "bash {}") -> Result:
        """Run lines of shell as a descendant, with a method to leave the shell's process tree."""
        job = Job(self.home.spare_path())
        paths = {name: shlex.quote(str(path)) for name, path in job.paths.items()}
        file = self.home.spare_path()
        file.write_text(f"{{ {script}; }} >{paths['out']} 2>{paths['err']}; echo $? >{paths['status']}\n")
        # The script must not read from the pipe that feeds the shell.
        os.write(self._feed, f"{{ {escape.format(file)}; }} </dev/null\n".encode())
        return job.end()

    def holder(self) -> int:
        """Return the process id of its holder."""
        pid = self.home.ok("status", self.name, "--json").json["pid"]
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])

    def close(self) -> None:
        if (self.home.path / "agents" / f"{self.name}.sock").exists():
            run_as_person(self.home, "kill", self.name)
        os.close(self._feed)


@pytest.fixture
def luna(bus: Home) -> Iterator[Held]:
    held = Held(bus, "luna")
    yield held
    held.close()


@pytest.fixture(scope="module")
def shared_luna(shared_bus: Home) -> Iterator[Held]:
    held = Held(shared_bus, "luna")
    yield held
    held.close()


@pytest.mark.parametrize("way", ESCAPES)
def test_descendant_of_a_held_agent_is_that_agent(shared_luna: Held, way: str) -> None:
    found = shared_luna.run("pal whoami --json", ESCAPES[way])

    assert (found.json["name"], found.json["standing"]) == ("luna", "worker")


def test_descendant_cannot_type_raw_keys_or_stop_agents_as_a_person_could(bus: Home, luna: Held) -> None:
    other = Held(bus, "nova")

    typed = luna.run("pal send nova --raw --json -- x", TERMINAL)
    stopped = luna.run("pal stop nova --json", TERMINAL)

    assert (typed.status, typed.error["error"]) == (1, "not_allowed")
    assert (stopped.status, stopped.error["error"]) == (1, "not_allowed")
    other.close()


def test_descendant_keeps_its_identity_before_the_holder_has_reconnected(bus: Home, luna: Held) -> None:
    holder = luna.holder()
    os.kill(holder, signal.SIGSTOP)  # so it cannot reconnect
    try:
        bus.kill()
        bus.ok("up")

        found = luna.run("pal whoami --json", TERMINAL)
    finally:
        os.kill(holder, signal.SIGCONT)

    assert (found.json["name"], found.json["standing"]) == ("luna", "worker")


def test_descendant_of_an_operator_has_the_rights_of_a_worker(bus: Home) -> None:
    boss = Held(bus, "boss", "--role", "operator")
    itself = boss.run("pal whoami --json")

    found = boss.run("pal whoami --json", ESCAPES["a session of its own"])

    assert itself.json["standing"] == "operator"
    assert (found.json["name"], found.json["standing"]) == ("boss", "worker")
    boss.close()


def test_descendant_of_an_inner_agent_is_identified_by_its_mark(bus: Home, luna: Held) -> None:
    seat = '$(sed \'s/.*"seat":"\\([^"]*\\)".*/\\1/\' seat)'
    leave = f"{SHED} PALAVER_SEAT={seat} setsid -f bash -c 'pal whoami --json >said'"
    folder = bus.spare_path()
    folder.mkdir()

    found = luna.run(f"cd {folder}; pal join --name inner --json >seat; mkfifo said; {leave}; cat said")

    assert found.json["name"] == "inner"


def test_mark_of_an_outside_agent_does_not_count_below_a_holder(bus: Home, luna: Held) -> None:
    outside = bus.shell()
    mark = outside.ok("join", "--name", "nova", "--json").json["seat"]

    found = luna.run("pal whoami --json", f"{SHED} PALAVER_SEAT={mark} setsid -f bash {{}}")

    assert found.json["name"] == "luna"


def test_agent_that_left_its_name_is_a_script_and_so_are_its_descendants(luna: Held) -> None:
    luna.run("pal leave")

    found = luna.run("pal whoami --json", TERMINAL)

    assert (found.json["name"], found.json["standing"]) == ("script", "worker")


def test_person_whose_shell_started_an_agent_is_still_the_human(bus: Home) -> None:
    run = "pal run --detach --name luna -- cat"

    found = run_script_as_person(bus, f"{run} >/dev/null && pal whoami --json; pal kill luna >/dev/null")

    assert (found.json["name"], found.json["standing"]) == ("human", "human")
