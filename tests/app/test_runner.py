"""The runner of automatic turns with a real daemon: its start, its jobs, restarts, and its end."""

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.person import Person, persons
from tests.daemon.stage import (
    Home,
    JsonLine,
    check_output,
    new_home,
    run_as_person,
    wait_until,
    write_settings,
)
from tests.processes import end_process

ENDS = ("--type", "auto-turn-result", "--type", "auto-turn-error")
AGENT = """\
import os, pathlib, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
prompt = sys.stdin.read()
pid = folder / f"new-{os.getpid()}"
pid.write_text(str(os.getpid()))
pid.rename(folder / f"pid-{os.getpid()}")
while "hold" in prompt and not (folder / "go").exists():
    time.sleep(0.005)
if "fail" in prompt:
    sys.exit("it does not work")
print(subprocess.run(["pal", "whoami", "--json"], capture_output=True, text=True).stdout)
"""


class Stage:
    """A home with an absent agent, luna, whose turns run a configured command."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.folder = home.path.parent / "turns"
        self.folder.mkdir()
        agent = self.folder / "agent.py"
        agent.write_text(AGENT)
        triage = self.folder / "triage.py"
        triage.write_text("import sys; print('no' if 'spam' in sys.stdin.read() else ' yes, it does')")
        write_settings(
            home,
            auto_turn_command=shlex.join([sys.executable, "-I", str(agent), str(self.folder)]),
            auto_turn_triage_command=shlex.join([sys.executable, "-I", str(triage)]),
            auto_turn_debounce_ms=1,
        )
        home.ok("up")
        luna = home.shell()
        luna.ok("join", "--name", "luna")
        luna.ok("leave")
        self.person("turn", "set", "luna", "on")

    def person(self, *words: str) -> str:
        return check_output(run_as_person(self.home, *words)).out

    def start(self) -> int:
        """Start the runner and return its process."""
        pid = json.loads(self.person("turn", "start", "--json"))["pid"]
        assert isinstance(pid, int)
        return pid

    def route(self, command: str) -> int:
        seq = self.home.ok("route", "agent/luna", "--command", command, "--json").json["seq"]
        assert isinstance(seq, int)
        return seq

    def ends(self, count: int) -> list[JsonLine]:
        """Wait until `count` turns have ended, and return the events of their ends."""
        wait_until(lambda: len(self.home.events(*ENDS)) >= count)
        return self.home.events(*ENDS)

    def programs(self) -> list[int]:
        """Return the processes of the programs that have been started."""
        return sorted(int(path.name.removeprefix("pid-")) for path in self.folder.glob("pid-*"))

    def until_started(self, count: int = 1) -> list[int]:
        wait_until(lambda: len(self.programs()) >= count)
        return self.programs()

    def let_go(self) -> None:
        (self.folder / "go").touch()

    def state(self, seq: int) -> str:
        (receipt,) = self.home.ok("receipts", str(seq), "--json").json["receipts"]
        return str(receipt["state"])


@pytest.fixture
def stage() -> Iterator[Stage]:
    with new_home() as home:
        yield Stage(home)


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # It can end while it is read.
        return False


def test_turn_runs_as_the_agent_and_its_output_is_the_result(stage: Stage) -> None:
    stage.start()

    seq = stage.route("build")
    (end,) = stage.ends(1)

    assert end["type"] == "auto-turn-result"
    assert json.loads(end["payload"]["text"])["name"] == "luna"
    assert stage.state(seq) == "seen"


def test_triage_skips_a_batch_that_deserves_no_turn(stage: Stage) -> None:
    stage.start()

    stage.route("spam")
    wait_until(lambda: stage.home.events("--type", "turn.skipped"))
    stage.route("build")
    stage.ends(1)

    stats = json.loads(stage.person("turn", "stats", "--json"))
    assert [stats[name] for name in ("triageCount", "triageAccepted", "triageRejected")] == [2, 1, 1]
    assert len(stage.programs()) == 1


def test_second_runner_is_not_started(stage: Stage) -> None:
    pid = stage.start()

    again = check_output(run_as_person(stage.home, "turn", "start"))
    as_json = check_output(run_as_person(stage.home, "turn", "start", "--json", "--foreground"))

    assert again.out.startswith(f"a runner is already running (pid {pid})")
    assert as_json.json == {"pid": pid, "new": False}


def test_only_a_person_starts_and_ends_the_runner(stage: Stage) -> None:
    nova = stage.home.shell()
    nova.ok("join", "--name", "nova")

    refused = [nova.pal("turn", word, "--json") for word in ("start", "stop")]

    assert [(one.status, json.loads(one.err)["error"]) for one in refused] == [(1, "not_allowed")] * 2
    assert "no runner is running" in stage.person("turn", "stop")


def test_ticket_and_environment_reach_the_runner_and_stay_private(stage: Stage) -> None:
    pid = stage.start()

    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert [word for word in words if re.fullmatch(rb"[0-9a-f]{32}", word)] == []
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    log = stage.home.path / "runner.log"
    assert (log.stat().st_mode & 0o777, f"(pid {pid})" in log.read_text()) == (0o600, True)


def test_stopped_runner_ends_its_programs_and_reports_them(stage: Stage) -> None:
    pid = stage.start()
    seq = stage.route("hold")
    (program,) = stage.until_started()

    ended = stage.person("turn", "stop")

    assert ended == f"the runner has ended (pid {pid})\n"
    assert not is_running(program)
    assert stage.ends(1)[0]["payload"]["error"] == "the runner was stopped"
    assert stage.state(seq) == "queued"


def test_killed_runner_takes_its_programs_along_and_the_batch_runs_again(stage: Stage) -> None:
    runner = stage.start()
    seq = stage.route("hold")
    (program,) = stage.until_started()

    end_process(runner, signal.SIGKILL)
    wait_until(lambda: not is_running(program))
    stage.ends(1)
    stage.let_go()
    stage.start()
    ends = stage.ends(2)

    assert [one["type"] for one in ends] == ["auto-turn-error", "auto-turn-result"]
    wait_until(lambda: stage.state(seq) == "seen")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_turn_goes_on_while_the_daemon_is_replaced(stage: Stage, number: int) -> None:
    runner = stage.start()
    seq = stage.route("hold")
    stage.until_started()

    stage.home.kill(number)
    stage.home.ok("up")
    stage.let_go()
    (end,) = stage.ends(1)

    assert end["type"] == "auto-turn-result"
    assert json.loads(end["payload"]["text"])["name"] == "luna"
    wait_until(lambda: stage.state(seq) == "seen")
    assert len(stage.programs()) == 1
    assert json.loads(stage.person("turn", "start", "--json")) == {"pid": runner, "new": False}


def test_result_of_a_turn_that_ends_without_a_daemon_is_stored_later(stage: Stage) -> None:
    stage.start()
    seq = stage.route("hold")
    (program,) = stage.until_started()
    stage.person("down")

    stage.let_go()
    wait_until(lambda: not is_running(program))
    stage.person("up")

    assert stage.ends(1)[0]["type"] == "auto-turn-result"
    wait_until(lambda: stage.state(seq) == "seen")
    assert len(stage.programs()) == 1


def test_turn_on_demand_prints_the_reply_or_the_error(stage: Stage) -> None:
    stage.start()

    done = run_as_person(stage.home, "turn", "run", "luna", "--text", "do it", "--json")
    failed = run_as_person(stage.home, "turn", "run", "luna", "main", "--text", "fail")

    assert json.loads(done.json["text"])["name"] == "luna"
    assert (done.status, done.json["agent"], done.json["session"], done.json["error"]) == (
        0,
        "luna",
        "main",
        "",
    )
    assert (failed.status, failed.out) == (1, "")
    assert failed.err == "pal: the program exited with 1: it does not work\n"


def test_turn_on_demand_waits_for_the_running_one(stage: Stage) -> None:
    stage.start()
    stage.route("hold")
    stage.until_started()
    with persons(stage.home) as here:
        here.append(Person(stage.home))
        here[0].run("pal turn run luna --text second")
        wait_until(lambda: json.loads(stage.person("turn", "stats", "--json"))["activeTurns"] == 1)
        assert len(stage.programs()) == 1

        stage.let_go()

        here[0].until(b"status 0")
    assert len(stage.ends(2)) == 2


def test_foreground_runner_shows_its_jobs_until_it_is_interrupted(stage: Stage) -> None:
    with persons(stage.home) as here:
        here.append(Person(stage.home))
        here[0].run("pal turn start --foreground")
        here[0].until(b"the runner is running (pid ")

        stage.route("build")
        here[0].until(b"luna+main: turn replied")
        here[0].press(b"\x03")

        here[0].until(b"status 0")
    assert "no runner is running" in stage.person("turn", "stop")


def test_doctor_reports_a_missing_runner(stage: Stage) -> None:
    missing = run_as_person(stage.home, "doctor")
    stage.start()
    present = run_as_person(stage.home, "doctor")

    assert "automatic turns are on for luna, but no runner is running" in missing.out
    assert "'pal turn start' starts it" in missing.out
    assert "the runner of automatic turns is running (pid " in present.out


def test_list_says_what_a_session_waits_for(stage: Stage) -> None:
    stage.route("build")

    wait_until(lambda: "'pal turn start'" in stage.person("turn", "list", "--json"))
    (view,) = [json.loads(line) for line in stage.person("turn", "list", "--json").splitlines()]
    table = run_as_person(stage.home, "turn", "list")

    assert (view["agent"], view["session"], view["state"], view["waiting"]) == ("luna", "main", "due", 1)
    assert [line.split()[:4] for line in table.out.splitlines()] == [
        ["AGENT", "SESSION", "STATE", "WAITING"],
        ["luna", "main", "due", "1"],
    ]
    assert "no runner is running" in table.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--debounce-ms", "-5"), "--debounce-ms requires a whole number"),
        (("--json", '{"debounceMs": -5}'), "'debounceMs' must be a number from 0"),
        (("--json", '{"enabled": "yes"}'), "'enabled' must be true or false"),
        (("--json", '{"debounceMs": 1.5}'), "'debounceMs' must be a number from 0"),
        (("maybe", "perhaps"), "'perhaps' is not on, off, inherit or JSON"),
    ],
)
def test_bad_configuration_changes_nothing(stage: Stage, words: tuple[str, ...], sentence: str) -> None:
    before = stage.home.events("--type", "setting.changed")

    refused = run_as_person(stage.home, "turn", "set", "luna", *words)

    assert refused.status != 0
    assert sentence in refused.err
    assert stage.home.events("--type", "setting.changed") == before


def test_configuration_is_set_with_options_or_as_json(stage: Stage) -> None:
    stage.person("session", "create", "luna", "ci")
    by_options = stage.person("turn", "set", "luna", "ci", "--max-batch", "3", "--accept", "a, b", "--json")
    by_json = stage.person("turn", "set", "luna", "--json", '{"maxBatchSize":4,"own":[1],"debounceMs":0}')
    off = stage.person("turn", "set", "luna", "off")

    assert {"session": "ci", "maxBatchSize": 3, "accept": ["a", "b"]}.items() <= json.loads(
        by_options
    ).items()
    assert {"enabled": True, "maxBatchSize": 4, "debounceMs": 1}.items() <= json.loads(by_json).items()
    assert off == "automatic turns of luna are off\n"
