"""Automatic turns with a real daemon, a real runner and a configured command, also when either is killed.

The command of a turn writes a line when it begins, and waits until the test lets it go on. The commands here
stand for a harness; turns of the real ones are in `tests/harness/real`.
"""

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.person import Person, persons
from tests.daemon.stage import Home, Shell, wait_until
from tests.forked_daemons import fork_daemon
from tests.processes import end_process

WAITS = """#!/bin/bash
cat >"$0.prompt"
gate="$0.gate$(($(wc -l <"$0.runs") + 1))"
mkfifo "$gate"
echo begun >>"$0.runs"
read -r word <"$gate"
"""
TURN = """
[ "$word" = fail ] && { echo "it broke" >&2; exit 3; }
[ "$word" = send ] && pal send @nova -- "from the turn" >&2
echo "the reply"
"""
TRIAGE = """
if [ "$word" = attack ]; then
  pal whoami --json
  pal recv || pal leave || pal join --name evil || pal session create luna evil && echo "it did something"
fi >"$0.attack" 2>&1
[ "$word" = no ] && echo NO || echo "YES $word"
"""


class Program:
    """A command that waits for a word of the test, each time it runs."""

    def __init__(self, folder: Path, name: str, script: str) -> None:
        self.path = folder / name
        self.path.write_text(WAITS + script)
        self.path.chmod(stat.S_IRWXU)
        self._runs = self.path.with_name(f"{name}.runs")
        self._runs.touch()

    @property
    def runs(self) -> int:
        """How often it has begun."""
        return len(self._runs.read_text().splitlines())

    @property
    def prompt(self) -> str:
        """The last input that it has read."""
        return self.path.with_name(f"{self.path.name}.prompt").read_text()

    def begun(self, count: int = 1) -> None:
        """Wait until it has begun so often."""
        wait_until(lambda: self.runs == count)

    def release(self, word: str = "") -> None:
        """Let the command that began last go on with a word. Each run waits at a gate of its own."""
        gate = self.path.with_name(f"{self.path.name}.gate{self.runs}")
        wait_until(lambda: _is_written(gate, word))


def _is_written(gate: Path, word: str) -> bool:
    """Write a line into a pipe; return False if it has no reader yet."""
    try:
        writer = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(writer, "w") as file:
        file.write(f"{word}\n")
    return True


class Stage:
    """A bus with luna, whose automatic turns are on, and a person who starts runners."""

    def __init__(self, home: Home, person: Person) -> None:
        self.bus = home
        self.person = person
        folder = home.path.parent
        self.turn = Program(folder, "turn", TURN)
        self.triage = Program(folder, "triage", TRIAGE)
        home.path.mkdir(mode=0o700, exist_ok=True)
        (home.path / "config.toml").write_text(
            f"auto_turn_command = {json.dumps(str(self.turn.path))}\n"
            f"auto_turn_triage_command = {json.dumps(str(self.triage.path))}\n"
            "auto_turn_debounce_ms = 1\n"
        )
        fork_daemon(home.path, home.environment)
        self.luna = self.agent("luna")
        self.nova = self.agent("nova")

    def agent(self, name: str) -> Shell:
        shell = self.bus.shell()
        shell.ok("join", "--name", name)
        return shell

    def switch_on(self, *options: str) -> None:
        self.bus.ok("turn", "set", "luna", "on", *options)

    def start_runner(self) -> int:
        """Start the runner and return its pid."""
        result = self.person.output_of("pal turn start --json")
        return int(json.loads(result.splitlines()[-1])["pid"])

    def send(self, text: str = "please look") -> int:
        return int(self.nova.ok("send", "@luna", "--json", "--", text).json["seq"])

    def state(self, seq: int) -> str:
        (found,) = self.bus.ok("receipts", str(seq), "--json").json["receipts"]
        return str(found["state"])

    def turns(self, type_: str = "auto-turn") -> list[dict[str, object]]:
        return [event["payload"] for event in self.bus.events("--type", type_)]

    def restart(self) -> None:
        self.bus.kill(signal.SIGKILL)
        self.bus.ok("up")


@pytest.fixture
def stage(home: Home) -> Iterator[Stage]:
    with persons(home) as here:
        here.append(Person(home))
        yield Stage(home, here[0])


def test_message_starts_a_turn_after_the_triage_and_is_seen(stage: Stage) -> None:
    stage.switch_on()
    stage.start_runner()

    seq = stage.send()
    stage.triage.begun()
    stage.triage.release("yes, it should")
    stage.turn.begun()
    assert stage.state(seq) == "submitted"
    stage.turn.release("send")

    wait_until(lambda: stage.state(seq) == "seen")
    assert stage.turns("auto-turn-result")[0]["text"] == "the reply"
    assert "please look" in stage.turn.prompt
    assert "please look" in stage.triage.prompt
    (sent,) = stage.bus.events("--type", "message", "--from", "luna")
    assert sent["payload"]["hops"] == 1


def test_triage_that_says_no_leaves_the_message_in_the_mailbox(stage: Stage) -> None:
    stage.switch_on()
    stage.start_runner()

    seq = stage.send()
    stage.triage.begun()
    stage.triage.release("no")

    wait_until(lambda: len(stage.turns("turn.skipped")) == 1)
    assert stage.state(seq) == "queued"
    assert stage.turn.runs == 0
    assert "please look" in stage.luna.ok("recv").out


def test_failed_turn_is_tried_three_times_and_then_held(stage: Stage) -> None:
    stage.switch_on("--accept", "message")
    stage.start_runner()

    seq = stage.send()
    for count in (1, 2, 3):
        stage.turn.begun(count)
        stage.turn.release("fail")

    wait_until(lambda: stage.state(seq) == "held")
    errors = stage.turns("auto-turn-error")
    assert [(error["attempt"], error.get("held", False)) for error in errors] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    assert "it broke" in str(errors[0]["error"])
    wait_until(lambda: f"#{seq} is held for luna" in stage.nova.ok("recv").out)  # It is sent next.


@pytest.mark.parametrize("step", ["triage", "turn"])
def test_killed_runner_loses_nothing_and_its_programs_end_with_it(stage: Stage, step: str) -> None:
    stage.switch_on()
    pid = stage.start_runner()
    seq = stage.send()
    stage.triage.begun()
    if step == "turn":
        stage.triage.release("YES")
        stage.turn.begun()

    end_process(pid, signal.SIGKILL)
    if step == "turn":
        wait_until(lambda: stage.state(seq) == "queued")
    stage.start_runner()
    if step == "triage":
        stage.triage.begun(2)
        stage.triage.release("YES")
    stage.turn.begun(2 if step == "turn" else 1)
    stage.turn.release()

    wait_until(lambda: stage.state(seq) == "seen")
    assert len(stage.turns("auto-turn-error")) == (1 if step == "turn" else 0)
    assert len(stage.turns("auto-turn-result")) == 1


@pytest.mark.parametrize("step", ["queued", "triage", "turn", "ended"])
def test_killed_daemon_loses_nothing_and_runs_no_batch_twice(stage: Stage, step: str) -> None:
    stage.switch_on("--accept", "message") if step == "queued" else stage.switch_on()
    if step != "queued":
        stage.start_runner()
    seq = stage.send()
    if step in ("triage", "turn", "ended"):
        stage.triage.begun()
    if step in ("turn", "ended"):
        stage.triage.release("YES")
        stage.turn.begun()
    if step == "ended":
        stage.turn.release()
        wait_until(lambda: len(stage.turns("auto-turn-result")) == 1)

    stage.restart()
    if step == "queued":
        stage.start_runner()
    if step == "triage":  # The new daemon begins it again.
        stage.triage.begun(2)
        stage.triage.release("YES")
    if step in ("queued", "triage"):
        stage.turn.begun()
    if step != "ended":
        stage.turn.release()

    wait_until(lambda: stage.state(seq) == "seen")
    later = stage.send("a later one")
    if step != "queued":
        stage.triage.begun(3 if step == "triage" else 2)
        stage.triage.release("YES")
    stage.turn.begun(2)
    stage.turn.release()
    wait_until(lambda: stage.state(later) == "seen")
    assert len(stage.turns()) == 2
    assert stage.turns("auto-turn-error") == []


def test_processes_of_a_turn_act_as_the_agent_after_a_restart_too(stage: Stage) -> None:
    stage.switch_on("--accept", "message")
    stage.start_runner()
    seq = stage.send()
    stage.turn.begun()

    stage.restart()
    stage.turn.release("send")

    wait_until(lambda: stage.state(seq) == "seen")
    senders = [event["from"] for event in stage.bus.events("--type", "message")]
    assert senders == ["nova", "luna"]


def test_second_runner_does_not_start(stage: Stage) -> None:
    pid = stage.start_runner()

    assert stage.start_runner() == pid


def test_no_turn_runs_while_the_session_is_live_in_a_harness(stage: Stage) -> None:
    shell = stage.bus.shell()
    shell.ok("join", "--name", "kira", "--harness", "claude")
    stage.bus.ok("turn", "set", "kira", "on", "--accept", "message")
    stage.switch_on("--accept", "message")
    stage.start_runner()

    stage.nova.ok("send", "@kira", "--", "for the open session")
    stage.send("later, but first")
    stage.turn.begun()
    assert "later, but first" in stage.turn.prompt
    stage.turn.release()
    shell.close()
    stage.turn.begun(2)
    stage.turn.release()

    assert "for the open session" in stage.turn.prompt
    wait_until(lambda: len(stage.turns("auto-turn-result")) == 2)


def test_triage_cannot_take_messages_or_change_anything(stage: Stage) -> None:
    stage.switch_on()
    stage.start_runner()
    seq = stage.send()
    stage.triage.begun()

    stage.triage.release("attack")

    stage.turn.begun()
    stage.turn.release()
    wait_until(lambda: stage.state(seq) == "seen")
    tried = stage.triage.path.with_name("triage.attack").read_text()
    assert json.loads(tried.splitlines()[0])["standing"] == "observer"
    assert "it did something" not in tried
    assert "please look" in stage.turn.prompt
