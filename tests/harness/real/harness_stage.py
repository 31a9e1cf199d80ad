"""One harness on a bus of its own, with a scripted model and nothing of whoever runs the tests.

What all harnesses have in common is here. How each is started and what it looks like stands in a module of
its own; what it must say there, in `harness.py`.
"""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.cli.person import Person
from tests.daemon.stage import JsonLine, Result, Shell, finish, run_script_as_person
from tests.harness.real.harness import Harness
from tests.harness.real.harness_home import LIMIT_S, HarnessHome
from tests.harness.real.processes import parent_of, processes_of

from palaver.cli.mock_model.script import Reply, Request, Script, ToolCall
from palaver.cli.mock_model.server import MockModel

PATIENCE_S = 3.0
"""After so long a key is pressed again: dialogs do not listen in their first moments."""
LOOK_S = 0.05
STILL = 5
"""So many looks in a row must show the same before a dialog counts as drawn."""
NAME = "nova"
SHARED = ("holder.log", "start.lock")
"""The diary of all holders, and the lock under which they start a daemon: the home's, and they stay."""


class HarnessStage(Harness):
    """One harness, its model, and others who write to it."""

    def __init__(self, home: HarnessHome, model: MockModel, people: list[Person]) -> None:
        self.home = home
        self.script = model.script
        self.script.pastime = lambda number: reply("", self.shell(f"sleep 0.2; echo {number}"))
        self._people = people
        self._friends: list[Shell] = []

    # Whether it is ready, and what it was told

    def count(self, text: str, conversation: str) -> int:
        """How often its model is told something."""
        return conversation.count(text)

    def is_ready(self, name: str) -> bool:
        """Whether it can be reached in its best way."""
        return self.lanes[0] in self.gates(name) and self.state(name)[0] in ("idle", "active", "blocked")

    @property
    def scripts(self) -> list[Script]:
        """What was asked of its model."""
        return [self.script]

    # Where

    @property
    def account(self) -> Path:
        """The home directory of the user."""
        return self.home.path.parent / "account"

    @property
    def project(self) -> Path:
        """Where it is started."""
        return self.home.path.parent

    def own_settings(self) -> dict[str, bytes]:
        """What is in the user's own settings."""
        paths = {name: self.account / name for name in self.own_files}
        return {name: path.read_bytes() for name, path in paths.items() if path.exists()}

    @property
    def pal(self) -> str:
        """Our own command: a login shell may find another one, or none."""
        found = shutil.which("pal", path=self.home.environment["PATH"])
        assert found is not None
        return found

    @property
    def shell_pal(self) -> str:
        """The same, written for a shell: the folder may have a space in its name."""
        return shlex.quote(self.pal)

    @property
    def places(self) -> list[Path]:
        """The folders of servers that there are."""
        return list((self.home.path / "agents" / "native").glob("*"))

    # Starting and ending

    def start(self, *arguments: str, name: str = NAME) -> None:
        """Start it in the background and wait until it can be reached."""
        self.launch("pal", self.harness, "--name", name, "--detach", *arguments, name=name)
        self.until(lambda: self.is_ready(name))

    def begin(self, prompt: str = "", *, asks: bool = False, lane: str = "") -> None:
        """Start it with something to do, or nothing, so that it is reached in this way."""
        words = self.words(prompt, asks=asks)
        if lane == "terminal":
            run = ("pal", "run", "--name", NAME, "--harness", self.harness, "--detach", "--", self.harness)
            self.launch(*run, *words, env={"COLORTERM": "truecolor"})  # as a terminal of today says it
            self.until(lambda: "terminal" in self.gates())
            if not prompt:
                self.until(lambda: self.state()[0] == "idle")
            return
        self.start(*words)

    def begin_asking(self, lane: str) -> None:
        """Start it so that it soon asks a person for leave, to make a file."""
        self.script.add(reply("", self.asking_to_make(self.project / "made.txt")))
        self.begin("make it", asks=True, lane=lane)

    def has_leave(self) -> bool:
        """Whether it has done what it asked leave for."""
        return (self.project / "made.txt").exists()

    def give_leave(self) -> None:
        """Have a person say yes at its terminal."""
        self.answer_dialog(self.sit_down(last=self.question.split()[0].encode()))

    def launch(self, *words: str, name: str = NAME, env: Mapping[str, str] | None = None) -> None:
        """Have a person start it and be told its name."""
        script = f"cd {self.project} && {shlex.join(words)}"
        done = run_script_as_person(self.home, script, env=env)
        assert done.out == f"{name}\n", done

    def begin_headless(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start it without a terminal."""
        return self.home.start(self.harness, *arguments, cwd=self.project)

    def run_headless(self, *arguments: str) -> Result:
        """Run it to the end of its turn."""
        return finish(self.begin_headless(*arguments), limit_s=LIMIT_S)

    def pid(self, name: str = NAME) -> int:
        """Its process."""
        (found,) = [one["pid"] for one in self.home.ok("list", "--json").lines if one["name"] == name]
        return int(found)

    def holder(self, name: str = NAME) -> int:
        """The process that holds it."""
        return parent_of(self.pid(name))

    def end(self) -> None:
        """Have its holder end it, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.kill(self.holder(), signal.SIGTERM)
        self.until(lambda: self.state()[0] in ("exited", ""))
        self.until_gone()

    # Others

    def person(self, *, cols: int = 100, rows: int = 30, term: str = "dumb") -> Person:
        """A person at a terminal in which nothing runs yet, who stays as long as the stage does."""
        person = Person(self.home, cols=cols, rows=rows, term=term)
        self._people.append(person)
        return person

    def sit_down(self, name: str = NAME, last: bytes = b"") -> Person:
        """A person at its terminal who has read its screen up to a word."""
        person = self.person()
        person.run(f"pal attach {name} --plain")
        person.until(last or self.sign)
        return person

    def friend(self, name: str = "luna") -> Shell:
        """Somebody else on the bus."""
        shell = self.home.shell()
        self._friends.append(shell)
        shell.ok("join", "--name", name)
        return shell

    def answer_dialog(self, person: Person, question: str = "") -> None:
        """Say yes, again if need be; in an empty composer the key does nothing."""
        asked = question or self.question
        while asked in self.screen():
            person.press(b"\r")
            self.wait(lambda: asked not in self.screen(), PATIENCE_S)

    # What is there

    def processes(self) -> list[str]:
        """The command lines of all that was started for a session and still runs."""
        ours = {shell.process.pid for shell in self._friends}
        found = processes_of(self.home.path)
        return [line for pid, line in found.items() if "palaver.daemon" not in line and pid not in ours]

    def left(self) -> list[Path]:
        """Every file and socket of a session. What all holders share is none, nor what a harness leaves."""
        agents, passing = self.home.path / "agents", self.project / "tmp"
        found = [path for path in (*agents.rglob("*"), *passing.rglob("*")) if not path.is_dir()]
        return [path for path in found if path.name not in SHARED and not self._is_its_own(path, passing)]

    def _is_its_own(self, path: Path, passing: Path) -> bool:
        return path.is_relative_to(passing) and path.relative_to(passing).parts[0].startswith(
            self.leaves or ("\0",)
        )

    def requests(self, count: int) -> list[Request]:
        """Wait until the model was asked so often."""
        self.until(lambda: len(self.script.main) >= count)
        return self.script.main

    def told(self, text: str) -> str:
        """Wait until the model is told something, and give the conversation as it then was."""
        found: list[str] = []

        def is_told() -> bool:
            found[:] = [one.conversation for one in self.script.main if text in one.conversation]
            return bool(found)

        self.until(is_told)
        return found[0]

    def all_told(self) -> str:
        """All that the model was told so far."""
        return self.script.main[-1].conversation

    def state(self, name: str = NAME) -> tuple[str, str]:
        """What it is doing, as the bus knows it."""
        for agent in self.home.ok("list", "--json").lines:
            if agent["name"] == name:
                return agent["state"], agent["detail"] or ""
        return "", ""

    def screen(self, name: str = NAME) -> str:
        """What its terminal shows."""
        return self.home.ok("peek", name).out

    def gates(self, name: str = NAME) -> dict[str, str]:
        """The lanes that there are, and why each is closed; empty for one that is open."""
        found = self.home.ok("status", name, "--json").json.get("gates") or []
        return {gate["lane"]: gate["reason"] or "" for gate in found}

    def receipt(self, seq: int) -> JsonLine:
        """What became of a message for its one recipient."""
        (line,) = self.home.ok("receipts", str(seq), "--json").json["receipts"]
        found: JsonLine = line
        return found

    # Waiting

    def until_seen(self, seq: int) -> JsonLine:
        """Wait until a message was seen, and give its receipt."""
        self.until(lambda: self.receipt(seq)["state"] in ("seen", "answered"))
        return self.receipt(seq)

    def until_idle(self) -> None:
        """Wait until it rests."""
        self.until(lambda: self.state()[0] == "idle")

    def until_drawn(self) -> str:
        """Wait until it asks, and draws no more at its dialog; give that."""
        found = [""]

        def is_still() -> bool:
            found.append(self.dialog())
            return bool(found[-1]) and len(set(found[-STILL:])) == 1

        self.until(is_still)
        return found[-1]

    def until_gone(self) -> None:
        """Wait until nothing runs any more that was started for a session."""
        assert self.wait(lambda: not self.processes(), LIMIT_S), f"these run on: {self.processes()}"

    def until_clean(self) -> None:
        """Wait until no file of a session is there any more."""
        assert self.wait(lambda: not self.left(), LIMIT_S), f"these are left: {self.left()}"

    def until(self, is_so: Callable[[], object]) -> None:
        """Look until something is so: what a harness does, nobody tells."""
        assert self.wait(is_so, LIMIT_S), f"it never came to be so: {self.home.pal('list', '--json')}"

    def wait(self, is_so: Callable[[], object], limit_s: float) -> bool:
        """Look until something is so, or for so long. The persons at its terminal go on reading."""
        end = time.monotonic() + limit_s
        while not is_so():
            if time.monotonic() > end:
                return False
            for person in self._people:
                person.drain()
            time.sleep(LOOK_S)
        return True


def send(shell: Shell, *words: str) -> int:
    """Send a message and give its place."""
    place = shell.ok("send", "--json", *words).json["seq"]
    assert isinstance(place, int)
    return place


def tool(name: str, **given: object) -> ToolCall:
    """A call of a tool."""
    return ToolCall(tool=name, input=given)


def reply(text: str = "", *calls: ToolCall, gate: str = "", awaits: str = "") -> Reply:
    """An answer of the model."""
    return Reply(text=text, calls=calls, gate=gate, awaits=awaits)
