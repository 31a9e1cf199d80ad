"""`pal install` and `pal uninstall`, in the client's own process and with its rights: files for harnesses.

Files that are not ours are neither overwritten nor removed.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from palaver.cli.install_harness import (
    install_harness,
    reason_of,
    turn,
    uninstall_completion,
    uninstall_everywhere,
    uninstall_harness,
)
from palaver.cli.install_record import (
    created_folders,
    note_folders,
    noted_skills,
    remove_folders,
    remove_noted_folders,
)
from palaver.doors.argv.parsed import Parsed
from palaver.harness.setups import INSTALLABLE
from palaver.home import replace_file

ALL: Final = "all"
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
    what = parsed.positionals[0]
    if what == ALL:
        return _install_all(parsed, environment)
    if what != "skill":
        return install_harness(parsed, what, environment)
    if parsed.has("--print") and parsed.form != "json":
        sys.stdout.write(skill_text())
        return 0
    return _for_each(parsed, environment, _paths(parsed, environment), _installer(parsed))


def uninstall(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Remove what `install` wrote, or only print what would be removed."""
    what = parsed.positionals[0]
    if what == ALL:
        return _uninstall_all(parsed, environment)
    if what != "skill":
        return uninstall_harness(parsed, what, environment)
    return _for_each(parsed, environment, _paths(parsed, environment), _uninstaller(parsed))


# Everything


def _install_all(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Set up every harness on the PATH, one after the other, then install the skill."""
    found = [one for one in INSTALLABLE if shutil.which(one, path=environment.get("PATH", os.defpath))]
    statuses = [install_harness(parsed, one, environment) for one in found]
    if not found:
        sys.stderr.write(
            f"pal: none of these is on your PATH: {', '.join(INSTALLABLE)}; only the skill is installed\n"
        )
    return max([*statuses, _for_each(parsed, environment, _paths(parsed, environment), _installer(parsed))])


def _uninstall_all(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Undo everything that `install` wrote, in all folders, then say how to remove the rest."""
    home = Path(environment["PALAVER_HOME"])
    # One part may use a folder that was created for another, so all are removed once more at the end.
    folders = created_folders(home, INSTALLABLE)
    statuses = [uninstall_everywhere(parsed, one, home) for one in INSTALLABLE]
    statuses.append(uninstall_completion(parsed, environment))
    try:
        statuses.append(_for_each(parsed, environment, noted_skills(home), _uninstaller(parsed)))
    except OSError as error:
        statuses.append(_complain(parsed, reason_of(error, SKILL)))
    if not parsed.has("--print"):
        remove_folders(folders)
    if max(statuses) == 0 and not parsed.has("--print") and parsed.form != "json":
        _say_the_rest(home)
    return max(statuses)


def _say_the_rest(home: Path) -> None:
    """Print the commands that remove Palaver itself, with every running agent and the folder of this home."""
    agents = sorted(path.stem for path in (home / "agents").glob("*.sock"))
    commands = [*(f"pal stop {name}" for name in agents), "pal down", "pipx uninstall palaver"]
    sys.stdout.write("Every 'pal install' is undone. To remove Palaver itself, with every message:\n")
    sys.stdout.writelines(f"  {line}\n" for line in [*commands, f"rm -r {shlex.quote(str(home))}"])


# The skill


def _for_each(
    parsed: Parsed,
    environment: Mapping[str, str],
    paths: Sequence[Path],
    act: Callable[[Path, Path], Mapping[str, str]],
) -> int:
    """Run an action for each path; a failure for one path does not stop the others."""
    home, status = Path(environment["PALAVER_HOME"]), 0
    try:
        with turn(parsed, home):
            for path in paths:
                try:
                    _say(parsed, path, act(home, path))
                except OSError as error:
                    status = _complain(parsed, f"{path}: {error.strerror}")
                except ValueError as error:
                    status = _complain(parsed, f"{path}: {error}")
    except OSError as error:
        return _complain(parsed, reason_of(error, SKILL))
    return status


def _installer(parsed: Parsed) -> Callable[[Path, Path], Mapping[str, str]]:
    return _would_install if parsed.has("--print") else _install


def _uninstaller(parsed: Parsed) -> Callable[[Path, Path], Mapping[str, str]]:
    return _would_uninstall if parsed.has("--print") else _uninstall


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
