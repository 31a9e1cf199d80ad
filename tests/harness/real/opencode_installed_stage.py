"""OpenCode started as a user does, without `pal`, after `pal install opencode`."""

import json
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
from tests.app.person import Person
from tests.daemon.stage import JsonLine
from tests.harness.real.harness_home import HarnessHome, bus, new_folder
from tests.harness.real.opencode_stage import OpenCodeStage, plugin_package

from palaver.app.doctor import account_for
from palaver.app.mock_model import Script, mock_model
from palaver.holder.opencode import MODULE, free_port

COLS, ROWS = 100, 30


class InstalledStage(OpenCodeStage):
    """One OpenCode that knows the bus only from the installation."""

    port_ = 0

    def open_terminal(self, *arguments: str, sign: str = "commands") -> Person:
        """Have a person start it in a window, and wait until the window shows a text."""
        person = self.person(cols=COLS, rows=ROWS, term="xterm-256color")
        words = shlex.join(("opencode", *arguments))
        person.press(f"unset PALAVER_HOME; cd {self.project}; exec {words}\r".encode())
        self.until(lambda: sign in self.shown(person))
        return person

    def shown(self, person: Person) -> str:
        """Return the current screen of a person's window."""
        person.drain()
        screen = pyte.Screen(COLS, ROWS)
        pyte.ByteStream(screen).feed(person.shown)
        return "\n".join(row.rstrip() for row in screen.display)

    def serve(self) -> "subprocess.Popen[bytes]":
        """Start it as a server without a terminal: one process with many sessions."""
        self.port_ = free_port()
        process = self.run_without_terminal("serve", "--port", str(self.port_))
        self.until(self._is_listening)
        return process

    def run_without_terminal(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start it without a terminal."""
        environment = {**self.home.environment}
        environment.pop("PALAVER_HOME", None)
        return subprocess.Popen(
            ["opencode", *arguments],
            env=environment,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            executable=str(self.project / "bin" / "opencode"),
        )

    def _is_listening(self) -> bool:
        try:
            self.ask("GET", "/global/health")
        except OSError:
            return False
        return True

    def ask(self, method: str, path: str, body: object = None) -> object:
        """Send a request to its server, as its user may."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        address = f"http://127.0.0.1:{self.port_}{path}"
        request = urllib.request.Request(address, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = answer.read()
        return json.loads(found) if found else None

    def begin_session(self, prompt: str) -> str:
        """Begin a session with a prompt, and return its id."""
        made = self.ask("POST", "/session", {})
        assert isinstance(made, dict)
        parts = [{"type": "text", "text": prompt}]
        self.ask("POST", f"/session/{made['id']}/prompt_async", {"parts": parts})
        return str(made["id"])

    def agents(self) -> dict[str, str]:
        """Return the names of the present OpenCode agents by session."""
        here = {one["name"] for one in self.home.ok("list", "--json").lines}
        known = [one["payload"]["agent"] for one in self.home.events("--type", "agent.hello")]
        return {
            str(one.get("session", "")): str(one["name"])
            for one in known
            if _is_ours(one) and one["name"] in here
        }

    def companions(self) -> list[str]:
        """Return the command lines of its companions."""
        return [line for line in self.processes() if MODULE in line.split()]


def _is_ours(agent: JsonLine) -> bool:
    return agent.get("harness") == "opencode" and not agent.get("parent")


@contextmanager
def installed_stage(program: Path) -> Iterator[InstalledStage]:
    """Open a stage; its processes, terminals and files are removed at the end of the block."""
    package = plugin_package()
    folder = new_folder(program)
    with mock_model(Script()) as model:
        home = HarnessHome(folder / "home", model, "opencode")
        with bus(home) as people:
            stage = InstalledStage(home, model, people)
            shutil.copytree(package, stage.settings.parent, symlinks=True)
            (text,) = account_for("opencode", model.url, "").files.values()
            stage.settings.write_text(json.dumps({**json.loads(text), "permission": {"edit": "ask"}}))
            home.ok("install", "opencode", "--yes")
            yield stage
