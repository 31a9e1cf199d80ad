"""Ask a program for its version, in a temporary home directory, without leaving anything.

Harnesses create folders, caches and logs in their home, even when they only print their version; and some
start processes for it. Neither remains: the home is deleted, and the processes are ended. Only a program that
fails there, such as the shim of a version manager, is asked once more in the user's home.
"""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")
_LIMIT_BYTES: Final = 64 * 1024
_QUIET: Final = {"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
_FOLDERS: Final = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "XDG_CACHE_HOME": "home/.cache",
    "CLAUDE_CONFIG_DIR": "home/.claude",
    "CODEX_HOME": "home/.codex",
    "GEMINI_CLI_HOME": "home",
}


Running = subprocess.Popen[bytes]


class NoVersionError(Exception):
    """A program did not print its version; the text says why."""


class _StatusError(NoVersionError):
    """It ran, and failed."""


def ask_version(
    program: str, environment: Mapping[str, str], limit_s: float, started: list[Running] | None = None
) -> str:
    """Return the version that a program prints; empty if it prints none. Raises NoVersionError and OSError.

    The running process is added to `started`: a person's Ctrl-C does not reach it, so the caller has to `end`
    it.
    """
    try:
        return _ask(program, environment, limit_s, started, _FOLDERS)
    except _StatusError:
        return _ask(program, environment, limit_s, started, {})


def _ask(
    program: str,
    environment: Mapping[str, str],
    limit_s: float,
    started: list[Running] | None,
    folders: Mapping[str, str],
) -> str:
    with tempfile.TemporaryDirectory(prefix="pal-doctor-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        own = {variable: folder / below for variable, below in folders.items()}
        for one in own.values():
            one.mkdir(parents=True, exist_ok=True)
        said = folder / "said"
        # Output goes to a file: a process that it leaves running would keep a pipe open.
        with said.open("wb") as out:
            running = subprocess.Popen(
                [str(Path(program).absolute()), "--version"],
                env={**environment, **_QUIET, **{variable: str(path) for variable, path in own.items()}},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        if started is not None:
            started.append(running)
        try:
            status = running.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise NoVersionError(f"no reply within {limit_s:g} seconds") from None
        finally:
            end(running)
            running.wait()
        if status:
            failure = _StatusError if status > 0 else NoVersionError  # a killed program is not asked again
            raise failure(f"'--version' ended with status {status}")
        with said.open(encoding="utf-8", errors="replace") as file:
            found = _VERSION.search(file.read(_LIMIT_BYTES))
        return found[0] if found else ""


def end(running: Running) -> None:
    """End a program with all processes that it has started."""
    with suppress(OSError):  # nothing is left of it
        os.killpg(running.pid, signal.SIGKILL)
