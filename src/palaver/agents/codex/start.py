"""Start Codex in its terminal: first its own app-server, then its terminal UI in this same process.

    python -I -m palaver.agents.codex.start ADDRESS [--hooks] -- codex ARGUMENTS...

The server is a child of the terminal UI, so all its processes belong to the agent, and it ends with the UI.
If the server cannot start, Codex runs without it, and messages are typed. `--hooks`, which requires the
user's consent, adds hooks for this session.
"""

import json
import os
import sys
from pathlib import Path
from typing import Final, NoReturn

from palaver.agents.codex.server import LOG, start_server
from palaver.harness.codex_launch import (
    Kind,
    instructions_in,
    launch_settings,
    plan_launch,
    read_arguments,
    shell_tip,
)
from palaver.harness.codex_trust import hook_settings
from palaver.harness.instructions import instructions
from palaver.home import connect_socket, find_pal

MODULE: Final = "palaver.agents.codex.start"
HOOKS: Final = "--hooks"

_ASK_LIMIT_S: Final = 2.0
_CANNOT_RUN: Final = 126
_LIMIT_SAID: Final = 500


def main(words: list[str]) -> NoReturn:
    """Replace this process with Codex."""
    address, has_hooks = words[0], HOOKS in words[: words.index("--")]
    command = words[words.index("--") + 1 :]
    home = os.environ["PALAVER_HOME"]  # `pal` sets it for every agent.
    is_woken = read_arguments(command[1:]).kind is not Kind.HEADLESS
    told = f"{instructions(_own_name(home), is_woken=is_woken)}\n{shell_tip(find_pal())}"
    if theirs := _own_settings():
        told = f"{theirs}\n\n{told}"
    settings = (*launch_settings(find_pal(), home), *(hook_settings(find_pal(), home) if has_hooks else ()))
    launch = plan_launch(command[1:], address=address, settings=settings, told=told)
    if launch.server and not _has_server(command[0], launch.server, Path(address)):
        launch = plan_launch(command[1:], address="", settings=settings, told=told)
    try:
        os.execvp(command[0], [command[0], *launch.arguments])  # noqa: S606 - no shell is involved
    except OSError as error:
        sys.stderr.write(f"pal: {command[0]} cannot be run: {error.strerror}\n")
        sys.exit(_CANNOT_RUN)


def _own_name(home: str) -> str:
    """Ask the daemon for our name: this process already has its seat."""
    try:
        with connect_socket(Path(home) / "daemon.sock") as asking, asking.makefile("rb") as answers:
            asking.settimeout(_ASK_LIMIT_S)
            asking.sendall(b'{"req":1,"op":"whoami"}\n')
            return str(json.loads(answers.readline())["ok"]["name"])
    except (OSError, ValueError, LookupError, TypeError):
        return "an agent"


def _own_settings() -> str:
    """Return the instructions from the user's own settings; ours are appended to them."""
    folder = os.environ.get("CODEX_HOME") or f"{os.environ.get('HOME', '')}/.codex"
    try:
        return instructions_in(Path(folder, "config.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""


def _has_server(program: str, arguments: tuple[str, ...], path: Path) -> bool:
    """Start the server; print the error on the terminal if that fails."""
    try:
        if start_server([program, *arguments], path):
            return True
        said = path.with_name(LOG).read_bytes()[-_LIMIT_SAID:].decode("utf-8", "replace").strip()
    except OSError as error:
        said = str(error)
    sys.stderr.write(f"pal: no server of its own for Codex, so messages are typed: {said}\n")
    return False


if __name__ == "__main__":
    main(sys.argv[1:])
