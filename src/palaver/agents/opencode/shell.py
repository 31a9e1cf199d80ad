"""Find the shell that OpenCode would use, and write the wrapper that replaces it."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from palaver.harness.opencode_launch import CONTENT
from palaver.harness.opencode_shell import (
    NOT_FOR_TOOLS,
    USUAL,
    shell_in_settings,
    shell_name,
    shell_wrapper,
)

_NAMES: Final = ("opencode.json", "opencode.jsonc")
_LIMIT_BYTES: Final = 16 * 1024 * 1024


def write_shell(folder: Path, environment: Mapping[str, str], cwd: str) -> str:
    """Write the shell wrapper of a session into its directory and return its path. Raises OSError."""
    shell = find_shell(environment, cwd)
    path = folder / shell_name(shell)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb") as file:  # noqa: PTH123 - a mode
        file.write(os.fsencode(shell_wrapper(shell)))
    return str(path)


def find_shell(environment: Mapping[str, str], cwd: str) -> str:
    """Return the path of the shell in which OpenCode would run its agents' commands."""
    path = environment.get("PATH", os.defpath)
    wanted = shell_in_settings(_settings(environment, cwd)) or environment.get("SHELL", "")
    found = shutil.which(wanted, path=path) if wanted and shell_name(wanted) not in NOT_FOR_TOOLS else None
    return found or shutil.which(USUAL, path=path) or "/bin/sh"


def _settings(environment: Mapping[str, str], cwd: str) -> Iterator[str]:
    """Yield the texts of all settings that OpenCode reads, in its order: later ones take precedence."""
    home = Path(environment.get("HOME") or Path.home())
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    above = list(reversed((Path(cwd), *Path(cwd).parents)))
    folders = [*(folder / ".opencode" for folder in above), home / ".opencode"]
    if named := environment.get("OPENCODE_CONFIG_DIR"):
        folders.append(Path(named))
    paths = [own / "config.json", *(own / name for name in _NAMES)]
    if named := environment.get("OPENCODE_CONFIG"):
        paths.append(Path(named))
    paths += [folder / name for folder in (*above, *folders) for name in _NAMES]
    for path in paths:
        try:
            if path.stat().st_size <= _LIMIT_BYTES:
                yield path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    yield environment.get(CONTENT, "")
