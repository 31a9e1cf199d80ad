"""Sessions started without `pal` after `pal install`: they are on the bus, and uninstalling works."""

import json
import os
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.daemon.stage import Home
from tests.harness.real.claude_stage import claude_stage
from tests.harness.real.harness_home import LIMIT_S, bus, new_folder
from tests.harness.real.harness_stage import send, tool
from tests.harness.real.install import installed

from palaver.app.doctor import HarnessAccount, account_for
from palaver.app.install_plan import settings_path
from palaver.app.mock_model import Script, ScriptedReply, mock_model

pytestmark = pytest.mark.harness

RUNS = {
    "claude": ("-p", "go"),
    "codex": ("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "go"),
    "gemini": ("-p", "go", "--approval-mode", "yolo"),  # otherwise it leaves out tools that need permission
}
OTHERS = {**RUNS, "opencode": ("run", "go")}


class SlowHome(Home):
    """A home with a long time limit, because a harness runs at the same time."""

    limit_s = LIMIT_S


class Stage:
    """One harness with its own account, and a bus that it knows only from the installation."""

    def __init__(
        self, harness: str, folder: Path, home: Home, account: HarnessAccount, script: Script
    ) -> None:
        self.harness = harness
        self.folder = folder
        self.home = home
        self.account = account
        self.script = script
        self.program = installed(harness)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start it as its user does, without `pal`, with these arguments or those of a session."""
        environment = {
            "PATH": f"{self.program.parent}:{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            **self.account.environment,
        }
        return subprocess.Popen(
            [self.program, *(words or OTHERS[self.harness])],
            env=environment,
            cwd=self.folder / "project",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def settings(self) -> dict[str, bytes]:
        """Return the contents of the settings files that `pal install` changes."""
        names = ("settings.json", "config.toml", "hooks.json", "opencode.json")
        paths = {name: settings_path(self.harness, name, {"HOME": str(self.folder)}) for name in names}
        return {name: path.read_bytes() for name, path in paths.items() if path.exists()}

    def has_server(self) -> bool:
        """Return whether the tools were requested: then a client process provides them."""
        mark = os.fsencode(f"HOME={self.folder}")
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"mcp" in words and mark in (entry / "environ").read_bytes().split(b"\0"):
                    return True
        return False

    def agents(self) -> list[str]:
        return [one["name"] for one in self.home.ok("list", "--json").lines if one["harness"] == self.harness]


@contextmanager
def stage(harness: str) -> Iterator[Stage]:
    folder = new_folder()
    (folder / "project").mkdir()
    (folder / "project/README").write_text("nothing\n")
    with mock_model(Script()) as model:
        account = account_for(harness, model.url, str(folder / "project"))
        for name, text in account.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        home = SlowHome(folder / ".palaver")
        with bus(home):
            yield Stage(harness, folder, home, account, model.script)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.05)


def finish(process: "subprocess.Popen[bytes]") -> None:
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, (out, err)


@pytest.mark.parametrize("harness", RUNS)
def test_session_started_without_pal_gets_its_messages(harness: str) -> None:
    with stage(harness) as made:
        before = made.settings()
        made.home.ok("install", harness, "--yes")
        made.script.add(ScriptedReply(text="working", calls=(made.account.call,), gate="busy"))

        process = made.start()
        until(lambda: len(made.script.main) == 1)
        until(lambda: len(made.agents()) == 1)
        (name,) = made.agents()
        seq = made.home.ok("send", f"@{name}", "--json", "--", "nonce-4711").json["seq"]
        made.script.open("busy")
        finish(process)

        assert f"You are {name} on Palaver" in made.script.main[0].text
        assert any("nonce-4711" in request.text for request in made.script.main[1:])
        (receipt,) = made.home.ok("receipts", str(seq), "--json").json["receipts"]
        assert (receipt["state"], receipt["lane"], receipt["grade"]) == ("seen", "hook", "context")
        made.home.ok("uninstall", harness, "--yes")
        assert made.settings() == before


@pytest.mark.parametrize("harness", OTHERS)
def test_session_started_without_pal_has_the_tools(harness: str) -> None:
    with stage(harness) as made:
        made.home.ok("install", harness, "--yes")
        made.script.add(ScriptedReply(text="wait", calls=(made.account.call,), gate="busy"))
        made.script.add(ScriptedReply(text="done", awaits="list_agents"))
        made.script.pastime = lambda number: ScriptedReply(text="wait", calls=(made.account.call,))

        process = made.start()
        until(made.has_server)
        made.script.open("busy")
        finish(process)

        assert any("list_agents" in json.dumps(request.body) for request in made.script.main)


def test_uninstall_keeps_changes_by_codex_and_removes_ours() -> None:
    with stage("codex") as made:
        before = tomllib.loads(made.settings()["config.toml"].decode())
        made.home.ok("install", "codex", "--yes")

        finish(made.start("mcp", "add", "docs", "--", "docs-server"))
        between = tomllib.loads(made.settings()["config.toml"].decode())
        made.home.ok("install", "codex", "--yes")
        made.home.ok("uninstall", "codex", "--yes")

        after = tomllib.loads(made.settings()["config.toml"].decode())
        assert {"palaver", "docs"} <= between["mcp_servers"].keys()
        assert after == {**before, "mcp_servers": {"docs": {"command": "docs-server"}}}


def test_session_started_with_pal_gets_messages_once_when_installed() -> None:
    with claude_stage(installed("claude")) as claude:
        claude.home.ok("install", "claude", "--yes")
        (claude.project / "README").write_text("nothing\n")
        claude.script.add(
            ScriptedReply(
                text="working", calls=(tool("Read", file_path=str(claude.project / "README")),), gate="busy"
            )
        )
        claude.start()
        luna = claude.friend()
        first = send(luna, "@nova", "--", "begin")
        claude.requests(1)

        second = send(luna, "@nova", "--", "nonce-4712")
        claude.script.open("busy")

        assert claude.until_seen(first)["grade"] == "context"
        assert claude.until_seen(second)["grade"] == "context"
        claude.until(lambda: claude.state()[0] == "idle")
        assert claude.script.main[0].text.count("You are nova on Palaver") == 1
        assert claude.script.main[-1].conversation.count("nonce-4712") == 1
