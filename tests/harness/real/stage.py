"""A home, a scripted model, and Claude Code with nothing of whoever runs the tests."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cli.person import Person, persons
from tests.daemon.stage import Home, JsonLine, Result, Shell, end_process, finish, run_script_as_person

from palaver.cli.mock_model.script import Reply, Request, Script, ToolCall
from palaver.cli.mock_model.server import MockModel, mock_model

LIMIT_S = 20.0
"""A harness is slow where the bus is not."""


class HarnessHome(Home):
    """A home whose environment leads a harness to the scripted model."""

    def __init__(self, path: Path, model: MockModel) -> None:
        super().__init__(path)
        self._model = model

    @property
    def environment(self) -> dict[str, str]:
        folder = self.path.parent
        inherited = super().environment
        return {
            **inherited,
            "PATH": f"{folder / 'bin'}:{inherited['PATH']}",
            "HOME": str(folder / "account"),
            "TMPDIR": str(folder / "tmp"),
            "TERM": "xterm-256color",
            "ANTHROPIC_API_KEY": "dummy",
            "ANTHROPIC_BASE_URL": self._model.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }


class ClaudeStage:
    """One Claude Code, its model, and others who write to it."""

    def __init__(self, home: HarnessHome, model: MockModel, people: list[Person]) -> None:
        self.home = home
        self.script = model.script
        self._people = people

    @property
    def account(self) -> Path:
        """The home directory of the user."""
        return self.home.path.parent / "account"

    @property
    def project(self) -> Path:
        """Where it is started."""
        return self.home.path.parent

    def start(self, *arguments: str, name: str = "nova") -> None:
        """Start it in the background and wait until it can be reached."""
        words = ("pal", "claude", "--name", name, "--detach", *arguments)
        script = f"cd {self.project} && {shlex.join(words)}"
        assert run_script_as_person(self.home, script).out == f"{name}\n"
        self.until(lambda: self.state(name)[0] == "idle")
        self.until(lambda: "monitor" in self.screen(name))

    def begin_headless(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start it without a terminal."""
        return self.home.start("claude", *arguments, cwd=self.project)

    def run_headless(self, *arguments: str) -> Result:
        """Run it to the end of its turn."""
        return finish(self.begin_headless(*arguments), limit_s=LIMIT_S)

    def sit_down(self, name: str = "nova") -> Person:
        """A person at its terminal."""
        person = Person(self.home, cols=100, rows=30)
        self._people.append(person)
        person.run(f"pal attach {name} --plain")
        person.until("❯".encode())
        return person

    def friend(self, name: str = "luna") -> Shell:
        """Somebody else on the bus."""
        shell = self.home.shell()
        shell.ok("join", "--name", name)
        return shell

    def answer_dialog(self, person: Person, question: str) -> None:
        """Say yes, again if need be: it does not listen in its first moments."""
        end = time.monotonic() + LIMIT_S
        while question in self.screen():
            assert time.monotonic() < end, "the dialog never went away"
            person.press(b"1")
            time.sleep(1)

    def processes(self) -> list[str]:
        """The command lines of all that was started for a session and still runs."""
        mark = b"PALAVER_HOME=" + os.fsencode(self.home.path)
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return [line for line in found if "palaver.daemon" not in line]

    def requests(self, count: int) -> list[Request]:
        """Wait until the model was asked so often."""
        found = self.script.wait_for_main(count, LIMIT_S)
        assert len(found) >= count, f"the model was asked {len(found)} times"
        return found

    def state(self, name: str = "nova") -> tuple[str, str]:
        """What it is doing, as the bus knows it."""
        for agent in self.home.ok("list", "--json").lines:
            if agent["name"] == name:
                return agent["state"], agent["detail"] or ""
        return "", ""

    def screen(self, name: str = "nova") -> str:
        """What its terminal shows."""
        return self.home.ok("peek", name).out

    def receipt(self, seq: int) -> JsonLine:
        """What became of a message for its one recipient."""
        (line,) = self.home.ok("receipts", str(seq), "--json").json["receipts"]
        found: JsonLine = line
        return found

    def until_seen(self, seq: int) -> JsonLine:
        """Wait until a message was seen, and give its receipt."""
        self.until(lambda: self.receipt(seq)["state"] in ("seen", "answered"))
        return self.receipt(seq)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Look until something is so: what a harness does, nobody tells."""
        end = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < end, f"it never came to be so: {self.home.pal('list', '--json')}"
            time.sleep(0.05)


def send(shell: Shell, *words: str) -> int:
    """Send a message and give its place."""
    place = shell.ok("send", "--json", *words).json["seq"]
    assert isinstance(place, int)
    return place


def tool(name: str, **given: object) -> ToolCall:
    """A call of a tool."""
    return ToolCall(tool=name, input=given)


def reply(text: str = "", *calls: ToolCall, gate: str = "") -> Reply:
    """An answer of the model."""
    return Reply(text=text, calls=calls, gate=gate)


@contextmanager
def claude_stage(program: Path) -> Iterator[ClaudeStage]:
    """All of it, ended with the block: processes, terminals, files."""
    folder = Path(tempfile.mkdtemp(prefix="pal-real-"))
    for name in ("account", "tmp", "bin"):
        (folder / name).mkdir()
    (folder / "bin" / "claude").symlink_to(program.resolve())
    write_account(folder)
    with mock_model(Script()) as model:
        home = HarnessHome(folder / "home", model)
        with bus(home) as people:
            yield ClaudeStage(home, model, people)


def write_account(folder: Path) -> None:
    """Have Claude Code ask nothing of whoever starts it there."""
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "hasSeenAutoDefaultNotice": True,
        "customApiKeyResponses": {"approved": ["dummy"], "rejected": []},
        "projects": {str(folder): {"hasTrustDialogAccepted": True}},
    }
    (folder / "account" / ".claude.json").write_text(json.dumps(settings))


@contextmanager
def bus(home: HarnessHome) -> Iterator[list[Person]]:
    """Run the bus of a home. With the block all ends: the sessions, then the bus, then the files of both."""
    home.ok("up")
    try:
        with persons(home) as people:
            yield people
    finally:
        (home.path / "down").touch()
        while end_sessions(home.path):  # what was just starting comes to light in the next look
            pass
        home.close()
        shutil.rmtree(home.path.parent, ignore_errors=True)


def end_sessions(home: Path) -> bool:
    """End all that was started for sessions of a home; False when there was nothing.

    A pump that loses its bus, and then the file that says it is stopped, would start another one.
    """
    found = False
    mark = b"PALAVER_HOME=" + os.fsencode(home)
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            is_ours = entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0")
            if is_ours and b"palaver.daemon" not in (entry / "cmdline").read_bytes():
                end_process(int(entry.name), signal.SIGKILL)
                found = True
    return found


def is_running(words: str) -> bool:
    """Whether a process runs whose command line holds these words."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words in command:
                    return True
    return False
