"""OpenCode: how the tests start it, and what its screen shows."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from tests.harness.real.harness_home import HarnessHome, bus, new_folder
from tests.harness.real.harness_stage import HarnessStage, reply, tool
from tests.harness.real.install import NOT_TESTED, PINNED, cache_folder

from palaver.app.doctor import account_for
from palaver.app.mock_model import Script, ScriptedReply, ScriptedToolCall, mock_model

FETCH_LIMIT_S = 600


@cache
def plugin_package() -> Path:
    """Return the plugin package for its settings folder; without it OpenCode downloads it at every start."""
    version = PINNED["opencode"][1]
    folder = cache_folder() / f"opencode-plugin-{version}"
    if not (folder / "node_modules").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        words = ["npm", "install", "--save-exact", "--no-fund", "--no-audit", "--prefix", str(folder)]
        what = f"@opencode-ai/plugin@{version}"
        try:
            done = subprocess.run([*words, what], capture_output=True, timeout=FETCH_LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"{NOT_TESTED}: opencode: {what} cannot be had: {error}")
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            pytest.skip(f"{NOT_TESTED}: opencode: {what} cannot be had: {done.stderr[-200:]!r}")
    return folder


class OpenCodeStage(HarnessStage):
    """One OpenCode, its model, and other agents that write to it."""

    harness = "opencode"
    lanes = ("native", "terminal")
    resume = ("--continue",)
    sign = b"commands"
    question = "Allow once"
    tools_sign = "palaver_send"
    own_files = (".config/opencode/opencode.json",)
    leaves = (".",)

    def words(self, prompt: str, *, asks: bool) -> tuple[str, ...]:
        """Return its arguments; with these settings it requests permission only for edits."""
        return ("--prompt", prompt) if prompt else ()

    def shell(self, command: str) -> ScriptedToolCall:
        return tool("bash", command=command, description="do it")

    def asking_to_make(self, path: Path) -> ScriptedToolCall:
        return tool("edit", filePath=str(path), oldString="", newString="x")

    def bus_replies(self, name: str, **given: object) -> list[ScriptedReply]:
        return [reply("", tool(f"palaver_{name}", **given), awaits=f"palaver_{name}")]

    def composer(self, text: str) -> str:
        return f"┃  {text}"

    def dialog(self) -> str:
        """Return the dialog from its sign to its choices; the diff between them is drawn later.

        A scroll bar at its right edge is left out: OpenCode shows one until the diff has its final height.
        """
        _, sign, below = self.screen().partition("△")
        rows = [row.rstrip(" █▀▄") for row in below.splitlines()]
        last = [number for number, row in enumerate(rows) if "Reject" in row]
        is_whole = last and any("1 + x" in row for row in rows)
        return "\n".join((sign, *rows[: last[-1] + 1])) if is_whole else ""

    @property
    def port(self) -> int:
        """The port of its server."""
        (folder,) = self.places
        return int(json.loads((folder / "server.json").read_bytes())["port"])

    @property
    def settings(self) -> Path:
        """The settings file of the user."""
        return self.account / ".config" / "opencode" / "opencode.json"


@contextmanager
def opencode_stage(program: Path) -> Iterator[OpenCodeStage]:
    """Open a stage; its processes, terminals and files are removed at the end of the block."""
    package = plugin_package()
    folder = new_folder(program)
    with mock_model(Script()) as model:
        home = HarnessHome(folder / "home", model, "opencode")
        with bus(home) as people:
            stage = OpenCodeStage(home, model, people)
            shutil.copytree(package, stage.settings.parent, symlinks=True)
            stage.settings.write_text(_settings(model.url))
            yield stage


def _settings(url: str) -> str:
    (text,) = account_for("opencode", url, "").files.values()
    schema = "https://opencode.ai/config.json"  # without it OpenCode adds the line itself
    return json.dumps({"$schema": schema, **json.loads(text), "permission": {"edit": "ask"}})
