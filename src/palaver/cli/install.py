"""`pal install` and `pal uninstall`, in the client's own process and with its rights: files for harnesses.

Files that are not ours are neither overwritten nor removed.
"""

import json
import sys
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from palaver.cli.install_harness import install_harness, reason_of, turn, uninstall_harness
from palaver.cli.install_record import note_folders, remove_noted_folders
from palaver.doors.argv.parsed import Parsed
from palaver.home import replace_file

SKILL: Final = "palaver"
FILE_NAME: Final = "SKILL.md"

_OURS: Final = f"---\nname: {SKILL}\n"
_LIMIT_BYTES: Final = 1024 * 1024
_MODE: Final = 0o644


def skill_text() -> str:
    """Return the skill of this version."""
    return (files("palaver") / "skill" / FILE_NAME).read_text(encoding="utf-8")


def skill_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders in which harnesses look for a user's skills.

    Codex, Gemini CLI, OpenCode and others share `~/.agents/skills`. Claude Code has its own folder, which is
    included if Claude Code is set up.
    """
    home = Path(environment.get("HOME") or Path.home())
    claude = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    return [home / ".agents" / "skills", *([claude / "skills"] if claude.is_dir() else [])]


def install(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Set up a harness, or write the skill to a folder or to every folder that harnesses search."""
    if parsed.positionals[0] != "skill":
        return install_harness(parsed, environment)
    if parsed.has("--print") and parsed.form != "json":
        sys.stdout.write(skill_text())
        return 0
    return _for_each(parsed, environment, _would_install if parsed.has("--print") else _install)


def uninstall(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Remove what `install` wrote, or only print what would be removed."""
    if parsed.positionals[0] != "skill":
        return uninstall_harness(parsed, environment)
    return _for_each(parsed, environment, _would_uninstall if parsed.has("--print") else _uninstall)


def _for_each(
    parsed: Parsed, environment: Mapping[str, str], act: Callable[[Path, Path], Mapping[str, str]]
) -> int:
    """Run an action for each path; a failure for one path does not stop the others."""
    home, status = Path(environment["PALAVER_HOME"]), 0
    try:
        with turn(parsed, home):
            for path in _paths(parsed, environment):
                try:
                    _say(parsed, path, act(home, path))
                except OSError as error:
                    status = _complain(parsed, f"{path}: {error.strerror}")
                except ValueError as error:
                    status = _complain(parsed, f"{path}: {error}")
    except OSError as error:
        return _complain(parsed, reason_of(error, SKILL))
    return status


def _paths(parsed: Parsed, environment: Mapping[str, str]) -> list[Path]:
    chosen = parsed.positionals[1:]
    folders = [Path(one) for one in chosen] if chosen else skill_folders(environment)
    return [folder.absolute() / SKILL / FILE_NAME for folder in folders]


def _is_there(path: Path) -> bool:
    """Whether our skill is there, in any version. Raises ValueError if it is another skill."""
    if not path.exists():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        if not file.read(_LIMIT_BYTES).startswith(_OURS):
            raise ValueError("another skill has this name; it was not changed")
    return True


def _install(home: Path, path: Path) -> Mapping[str, str]:
    """Write the skill, whole or not at all."""
    word = _would_install(home, path)["result"].removeprefix("would be ")
    if word != "is up to date":
        note_folders(home, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, skill_text().encode(), _MODE)
    return {"result": word}


def _would_install(_home: Path, path: Path) -> Mapping[str, str]:
    text = skill_text()
    if not _is_there(path):
        return {"result": "would be installed", "text": text}
    is_same = path.read_text(encoding="utf-8", errors="replace") == text
    return {"result": "is up to date" if is_same else "would be updated", "text": text}


def _uninstall(home: Path, path: Path) -> Mapping[str, str]:
    """Remove the skill with its folder, and the folders that were created for it, if they are empty."""
    is_there = _is_there(path)
    if is_there:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    remove_noted_folders(home, path)
    return {"result": "removed" if is_there else "is not there"}


def _would_uninstall(_home: Path, path: Path) -> Mapping[str, str]:
    return {"result": "would be removed" if _is_there(path) else "is not there"}


def _say(parsed: Parsed, path: Path, said: Mapping[str, str]) -> None:
    if parsed.form == "json":
        sys.stdout.write(json.dumps({"path": str(path), **said}) + "\n")
    else:
        sys.stdout.write(f"{path} {said['result']}\n")


def _complain(parsed: Parsed, sentence: str) -> int:
    if parsed.form == "json":
        sys.stderr.write(json.dumps({"error": "bad_request", "message": sentence}) + "\n")
    else:
        sys.stderr.write(f"pal: {sentence}\n")
    return 1
