"""`pal install` and `pal uninstall`, in the client's own process: files for harnesses, with its own rights.

What is not ours is neither written over nor removed.
"""

import json
import os
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from palaver.cli.install_harness import install_harness, uninstall_harness
from palaver.doors.argv.parsed import Parsed

SKILL: Final = "palaver"
FILE_NAME: Final = "SKILL.md"

_OURS: Final = f"---\nname: {SKILL}\n"
_LIMIT_BYTES: Final = 1024 * 1024


def skill_text() -> str:
    """Give the skill as it comes with this version."""
    return (files("palaver") / "skill" / FILE_NAME).read_text(encoding="utf-8")


def skill_folders(environment: Mapping[str, str]) -> list[Path]:
    """Give the folders in which harnesses look for a person's skills.

    `~/.agents/skills` is the one that Codex, Gemini CLI, OpenCode and others share. Claude Code has its own,
    which counts when there is a Claude Code.
    """
    home = Path(environment.get("HOME") or Path.home())
    claude = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    return [home / ".agents" / "skills", *([claude / "skills"] if claude.is_dir() else [])]


def install(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Set a harness up; or write the skill into a folder, or into all that harnesses look into."""
    if parsed.positionals[0] != "skill":
        return install_harness(parsed, environment)
    if parsed.has("--print"):
        sys.stdout.write(skill_text())
        return 0
    status = 0
    for path in _paths(parsed, environment):
        try:
            word = _write(path)
        except OSError as error:
            status = _complain(parsed, path, f"{error.strerror}")
        else:
            if word is None:
                status = _complain(parsed, path, "it is somebody else's skill, and stays as it is")
            else:
                _say(parsed, path, word)
    return status


def uninstall(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Remove what `install` wrote, or only say what that would be."""
    if parsed.positionals[0] != "skill":
        return uninstall_harness(parsed, environment)
    status = 0
    for path in _paths(parsed, environment):
        try:
            if not path.exists():
                _say(parsed, path, "is not there")
            elif not _is_ours(path):
                status = _complain(parsed, path, "it is somebody else's skill, and stays as it is")
            elif parsed.has("--print"):
                _say(parsed, path, "would be removed")
            else:
                _remove(path)
                _say(parsed, path, "removed")
        except OSError as error:
            status = _complain(parsed, path, f"{error.strerror}")
    return status


def _paths(parsed: Parsed, environment: Mapping[str, str]) -> list[Path]:
    chosen = parsed.positionals[1:]
    folders = [Path(one) for one in chosen] if chosen else skill_folders(environment)
    return [folder.absolute() / SKILL / FILE_NAME for folder in folders]


def _is_ours(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_LIMIT_BYTES).startswith(_OURS)


def _write(path: Path) -> str | None:
    """Put the skill in its place, whole or not at all; None when something else is there."""
    text = skill_text()
    word = "installed"
    if path.exists():
        if not _is_ours(path):
            return None
        if path.read_text(encoding="utf-8", errors="replace") == text:
            return "is up to date"
        word = "updated"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{FILE_NAME}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    return word


def _remove(path: Path) -> None:
    path.unlink()
    if not any(path.parent.iterdir()):
        path.parent.rmdir()


def _say(parsed: Parsed, path: Path, word: str) -> None:
    if parsed.form == "json":
        sys.stdout.write(json.dumps({"path": str(path), "result": word}) + "\n")
    else:
        sys.stdout.write(f"{path} {word}\n")


def _complain(parsed: Parsed, path: Path, sentence: str) -> int:
    if parsed.form == "json":
        sys.stderr.write(json.dumps({"error": "bad_request", "message": f"{path}: {sentence}"}) + "\n")
    else:
        sys.stderr.write(f"pal: {path}: {sentence}\n")
    return 1
