"""One harness on its own bus, with a scripted model and without the account of the user.

This module has the common parts. Each harness has its own module for its start and its screen; `harness.py`
lists what that module must define.
"""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.app.person import Person
from tests.daemon.stage import JsonLine, Result, Shell, finish, run_script_as_person
from tests.harness.real.harness import Harness
from tests.harness.real.harness_home import LIMIT_S, HarnessHome
from tests.processes import parent_of, processes_of

from palaver.app.mock_model import MockModel, Request, Script, ScriptedReply, ScriptedToolCall

PATIENCE_S = 3.0
"""Time after which a key is pressed again; dialogs ignore keys at first."""
LOOK_S = 0.05
PASTED_S = 0.2
"""Seconds after a key in which some harnesses take an Enter for a part of pasted text."""
STILL = 5
"""Number of equal screens in a row after which a dialog counts as drawn."""
NAME = "nova"
SHARED = ("holder.log", "start.lock")
"""The log of all holders, and the lock for starting a daemon. They belong to the home and stay."""


class HarnessStage(Harness):
    """One harness, its model, and other agents that write to it."""

    def __init__(self, home: HarnessHome, model: MockModel, people: list[Person]) -> None:
        self.home = home
        self.script = model.script
        self.script.pastime = lambda number: reply("", self.shell(f"sleep 0.2; echo {number}"))
        self._people = people
        self._friends: list[Shell] = []

    # Readiness and the conversation of the model

    def count(self, text: str, conversation: str) -> int:
        """Return how often a text occurs in a conversation of its model."""
        return conversation.count(text)

    def is_ready(self, name: str) -> bool:
        """Return whether it can be reached on its best lane."""
        return self.lanes[0] in self.gates(name) and self.state(name)[0] in ("idle", "active", "blocked")

    @property
    def scripts(self) -> list[Script]:
        """The requests to its model."""
        return [self.script]

    # Paths

    @property
    def account(self) -> Path:
        """The home directory of the user."""
        return self.home.path.parent / "account"

    @property
    def project(self) -> Path:
        """The directory that it is started in."""
        return self.home.path.parent

    def own_settings(self) -> dict[str, bytes]:
        """Return the contents of the user's settings files."""
        paths = {name: self.account / name for name in self.own_files}
        return {name: path.read_bytes() for name, path in paths.items() if path.exists()}

    @property
    def pal(self) -> str:
        """The path of our `pal`; a login shell may find another one, or none."""
        found = shutil.which("pal", path=self.home.environment["PATH"])
        assert found is not None
        return found

    @property
    def shell_pal(self) -> str:
        """The same path quoted for a shell; the folder may have a space in its name."""
        return shlex.quote(self.pal)

    @property
    def places(self) -> list[Path]:
        """The existing folders of servers."""
        return list((self.home.path / "agents" / "native").glob("*"))

    # Starting and ending

    def start(self, *arguments: str, name: str = NAME) -> None:
        """Start it in the background and wait until it can be reached."""
        self.launch("pal", self.harness, "--name", name, "--detach", *arguments, name=name)
        self.until(lambda: self.is_ready(name))

    def begin(self, prompt: str = "", *, asks: bool = False, lane: str = "") -> None:
        """Start it with or without a prompt, so that it is reached on this lane."""
        words = self.words(prompt, asks=asks)
        if lane == "terminal":
            run = ("pal", "run", "--name", NAME, "--harness", self.harness, "--detach", "--", self.harness)
            self.launch(*run, *words, env={"COLORTERM": "truecolor"})  # as a modern terminal sets it
            self.until(lambda: "terminal" in self.gates())
            if not prompt:
                self.until(lambda: self.state()[0] == "idle")
            return
        self.start(*words)

    def begin_asking(self, lane: str) -> None:
        """Start it so that it soon requests permission to create a file."""
        self.script.add(reply("", self.asking_to_make(self.project / "made.txt")))
        self.begin("make it", asks=True, lane=lane)

    def has_leave(self) -> bool:
        """Return whether it has done what it requested permission for."""
        return (self.project / "made.txt").exists()

    def give_leave(self) -> None:
        """Have a person say yes at its terminal."""
        self.answer_dialog(self.sit_down(last=self.question.split()[0].encode()))

    def launch(self, *words: str, name: str = NAME, env: Mapping[str, str] | None = None) -> None:
        """Have a person start it, and check that its name is printed."""
        script = f"cd {self.project} && {shlex.join(words)}"
        done = run_script_as_person(self.home, script, env=env)
        assert done.out == f"{name}\n", done

    def begin_headless(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start it without a terminal."""
        return self.home.start(self.harness, *arguments, cwd=self.project)

    def run_headless(self, *arguments: str) -> Result:
        """Run it until the end of its turn."""
        return finish(self.begin_headless(*arguments), limit_s=LIMIT_S)

    def pid(self, name: str = NAME) -> int:
        """Return its process."""
        (found,) = [one["pid"] for one in self.home.ok("list", "--json").lines if one["name"] == name]
        return int(found)

    def holder(self, name: str = NAME) -> int:
        """Return the process that holds it."""
        return parent_of(self.pid(name))

    def end(self) -> None:
        """Have its holder end it, and wait until it has exited."""
        with suppress(ProcessLookupError):
            os.kill(self.holder(), signal.SIGTERM)
        self.until(lambda: self.state()[0] in ("exited", ""))
        self.until_gone()

    # Other participants

    def person(self, *, cols: int = 100, rows: int = 30, term: str = "dumb") -> Person:
        """Open a terminal of a person in which nothing runs yet; it stays open as long as the stage."""
        person = Person(self.home, cols=cols, rows=rows, term=term)
        self._people.append(person)
        return person

    def sit_down(self, name: str = NAME, last: bytes = b"") -> Person:
        """Attach a person to its terminal, and wait until the screen shows a text."""
        person = self.person()
        person.run(f"pal attach {name} --plain")
        person.until(last or self.sign)
        return person

    def friend(self, name: str = "luna") -> Shell:
        """Join another agent to the bus."""
        shell = self.home.shell()
        self._friends.append(shell)
        shell.ok("join", "--name", name)
        return shell

    def type_keys(self, person: Person, text: str, *, after: str = "") -> None:
        """Type a text behind a draft, each key when the composer shows the ones before.

        Codex and Gemini take fast keys for pasted text, and an Enter soon after them for a new line of it. So
        this returns some time after the last key.
        """
        shown = after
        for key in text:
            person.press(key.encode())
            shown += key
            self.until(partial(self._composer_shows, shown))
        pressed_s = time.monotonic()
        self.until(lambda: time.monotonic() - pressed_s > PASTED_S)

    def _composer_shows(self, text: str) -> bool:
        return self.composer(text) in self.screen()

    def answer_dialog(self, person: Person, question: str = "") -> None:
        """Say yes, repeatedly if necessary; in an empty composer the key does nothing."""
        asked = question or self.question
        self.wait(lambda: asked in self.screen(), PATIENCE_S)  # To attach draws the screen again.
        while asked in self.screen():
            person.press(b"\r")
            self.wait(lambda: asked not in self.screen(), PATIENCE_S)

    # Current state

    def processes(self) -> list[str]:
        """Return the command lines of all running processes of sessions."""
        ours = {shell.process.pid for shell in self._friends}
        found = processes_of(self.home.path)
        return [line for pid, line in found.items() if "palaver.daemon" not in line and pid not in ours]

    def left(self) -> list[Path]:
        """Return all files and sockets of sessions, except shared ones and those that the harness leaves."""
        agents, passing = self.home.path / "agents", self.project / "tmp"
        found = [path for path in (*agents.rglob("*"), *passing.rglob("*")) if not path.is_dir()]
        return [path for path in found if path.name not in SHARED and not self._is_its_own(path, passing)]

    def _is_its_own(self, path: Path, passing: Path) -> bool:
        return path.is_relative_to(passing) and path.relative_to(passing).parts[0].startswith(
            self.leaves or ("\0",)
        )

    def requests(self, count: int) -> list[Request]:
        """Wait until the model has got `count` requests, and return all requests."""
        self.until(lambda: len(self.script.main) >= count)
        return self.script.main

    def told(self, text: str) -> str:
        """Wait until the model gets a text, and return that conversation."""
        found: list[str] = []

        def is_told() -> bool:
            found[:] = [one.conversation for one in self.script.main if text in one.conversation]
            return bool(found)

        self.until(is_told)
        return found[0]

    def all_told(self) -> str:
        """Return the newest conversation of the model."""
        return self.script.main[-1].conversation

    def state(self, name: str = NAME) -> tuple[str, str]:
        """Return its state and detail as the bus knows them."""
        for agent in self.home.ok("list", "--json").lines:
            if agent["name"] == name:
                return agent["state"], agent["detail"] or ""
        return "", ""

    def screen(self, name: str = NAME) -> str:
        """Return the screen of its terminal."""
        return str(self.home.ok("peek", name, "--json").json["text"])

    def gates(self, name: str = NAME) -> dict[str, str]:
        """Return its lanes with the reason why each is closed; empty if it is open."""
        found = self.home.ok("status", name, "--json").json.get("gates") or []
        return {gate["lane"]: gate["reason"] or "" for gate in found}

    def receipt(self, seq: int) -> JsonLine:
        """Return the receipt of a message with one recipient."""
        (line,) = self.home.ok("receipts", str(seq), "--json").json["receipts"]
        found: JsonLine = line
        return found

    # Waiting

    def until_seen(self, seq: int) -> JsonLine:
        """Wait until a message was seen, and return its receipt."""
        self.until(lambda: self.receipt(seq)["state"] in ("seen", "answered"))
        return self.receipt(seq)

    def until_idle(self) -> None:
        """Wait until it is idle."""
        self.until(lambda: self.state()[0] == "idle")

    def until_drawn(self) -> str:
        """Wait until it asks and its dialog no longer changes; return the dialog.

        A single look may see a dialog half drawn: harnesses draw it again with each step of an animation.
        """
        found = [""]

        def is_still() -> bool:
            found.append(self.dialog())
            return bool(found[-1]) and len(set(found[-STILL:])) == 1

        self.until(is_still)
        return found[-1]

    def until_gone(self) -> None:
        """Wait until all processes of sessions have exited."""
        assert self.wait(lambda: not self.processes(), LIMIT_S), f"these run on: {self.processes()}"

    def until_clean(self) -> None:
        """Wait until all files of sessions are removed."""
        assert self.wait(lambda: not self.left(), LIMIT_S), f"these are left: {self.left()}"

    def until(self, is_so: Callable[[], object]) -> None:
        """Poll until a condition is true; a harness sends no events."""
        assert self.wait(is_so, LIMIT_S), f"it never came to be so: {self.home.pal('list', '--json')}"

    def wait(self, is_so: Callable[[], object], limit_s: float) -> bool:
        """Poll until a condition is true or the time is over. Terminals of persons are read meanwhile."""
        end = time.monotonic() + limit_s
        while not is_so():
            if time.monotonic() > end:
                return False
            for person in self._people:
                person.drain()
            time.sleep(LOOK_S)
        return True


def send(shell: Shell, *words: str) -> int:
    """Send a message and return its seq."""
    seq = shell.ok("send", "--json", *words).json["seq"]
    assert isinstance(seq, int)
    return seq


def tool(name: str, **given: object) -> ScriptedToolCall:
    """Return a tool call."""
    return ScriptedToolCall(tool=name, input=given)


def reply(text: str = "", *calls: ScriptedToolCall, gate: str = "", awaits: str = "") -> ScriptedReply:
    """Return a reply of the model."""
    return ScriptedReply(text=text, calls=calls, gate=gate, awaits=awaits)
