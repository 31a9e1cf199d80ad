"""`pal install` and `pal uninstall`, in the client's own process and with its rights: files for harnesses.

Files that are not ours are neither overwritten nor removed.

A separate module from `offline.py`, which only finds the command: this one changes files of harnesses.
"""

import difflib
import json
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Final

from palaver.app.install_plan import (
    ASK,
    KNOWN,
    InstalledFile,
    Plan,
    Record,
    digest_of,
    folder_of,
    forget,
    is_in,
    locked,
    may_use_bus,
    missing_folders,
    note_folders,
    noted_skills,
    own_folder,
    plan_install,
    plan_shell,
    plan_uninstall,
    read_record,
    read_settings,
    remove_backups,
    remove_folders,
    remove_kept_folders,
    remove_noted_folders,
    settings_folder,
    settings_path,
    start_files,
    without_ours,
    words_for,
    write_backup,
    write_private,
    write_record,
)
from palaver.client.start import find_python
from palaver.doors.cli.spec import Parsed
from palaver.harness.base import ASKING
from palaver.harness.setup import INSTALLABLE, Setup, setup_for
from palaver.holder import codex as codex_companion
from palaver.holder import opencode as opencode_companion
from palaver.home import find_pal, replace_file

# --------------------
# `pal install HARNESS` and its reverse, in the client's own process: show changes, ask, then write.
#
# Every file is backed up. `pal uninstall` restores it, byte for byte; in a file that was changed since, it
# removes only our additions. A file that cannot be parsed is not changed.

_FILE_MODE: Final = 0o600
_YES: Final = frozenset({"y", "yes"})
_REMOVED: Final = "removed; it did not exist before"
_COMPANIONS: Final = {"codex": codex_companion.MODULE, "opencode": opencode_companion.MODULE}


def install_harness(parsed: Parsed, harness: str, environment: Mapping[str, str]) -> int:
    """Set up a harness, if the user agrees."""
    home = Path(environment["PALAVER_HOME"])
    is_asked = not (parsed.has("--yes") or parsed.has("--print"))
    is_allowed = harness in ASKING and may_use_bus(ASK if is_asked else KNOWN, str(home))
    setup = _setup(harness, home, environment, may_use_bus=is_allowed)
    try:
        with turn(parsed, home):
            return _install_harness(parsed, harness, setup, environment)
    except (OSError, ValueError) as error:
        return _complain_about(parsed, reason_of(error, harness))


def uninstall_harness(parsed: Parsed, harness: str, environment: Mapping[str, str]) -> int:
    """Restore every file in the folder that a harness uses now, if the user agrees."""
    home, folder = Path(environment["PALAVER_HOME"]), settings_folder(harness, environment)
    try:
        with turn(parsed, home):
            known = read_record(home, harness)
            here = [written for written in known.files if is_in(written, folder)] if known is not None else []
            if known is None or not here:
                return _say_nothing_is_there(parsed, harness, known, environment)
            return _uninstall_harness(parsed, known, here, home)
    except (OSError, ValueError) as error:
        return _complain_about(parsed, reason_of(error, harness))


def uninstall_everywhere(parsed: Parsed, harness: str, home: Path) -> int:
    """Restore every file of a harness in all folders, if the user agrees. Without a setup, say nothing."""
    try:
        with turn(parsed, home):
            known = read_record(home, harness)
            return 0 if known is None else _uninstall_harness(parsed, known, known.files, home)
    except (OSError, ValueError) as error:
        return _complain_about(parsed, reason_of(error, harness))


def uninstall_completion(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Remove the lines of `pal completion` from the start files of shells, if the user agrees.

    Only a line that equals one of the documented lines is removed. A file is never removed.
    """
    try:
        plans = [plan for path in start_files(environment) if (plan := plan_shell(path)) is not None]
        if parsed.has("--print"):
            return _say_line(parsed, plans, "would be restored")
        if plans and not _is_agreed(parsed, plans, None):
            return _complain_about(parsed, "nothing was written")
        for plan in plans:
            _write(plan)
        return _say_line(parsed, plans, "restored", is_short=True)
    except (OSError, ValueError) as error:
        return _complain_about(parsed, reason_of(error, "completion"))


def turn(parsed: Parsed, home: Path) -> AbstractContextManager[None]:
    """Wait until no other process installs or uninstalls; with `--print` do not wait."""
    waiting = "pal: another 'pal install' or 'pal uninstall' is running; waiting for it\n"
    return nullcontext() if parsed.has("--print") else locked(home, lambda: _warn(waiting))


def reason_of(error: OSError | ValueError, harness: str) -> str:
    """Return why something failed."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or harness}: {error.strerror}"
    return str(error)


def _install_harness(parsed: Parsed, harness: str, setup: Setup, environment: Mapping[str, str]) -> int:
    home = Path(environment["PALAVER_HOME"])
    known = read_record(home, harness)
    plans = [plan_install(harness, change, known, environment) for change in setup.changes]
    recorded = {written.path for written in known.files} if known is not None else set()
    folder = settings_folder(harness, environment)
    gone = _not_planned(known, folder, plans)
    removals = [plan_uninstall(harness, written) for written in gone]
    is_there = known is not None and known.own == setup.own and not gone
    is_there = is_there and all(one.before == one.after and str(one.path) in recorded for one in plans)
    shown = [*plans, *removals]
    if parsed.has("--print") or is_there:
        return _say_line(parsed, shown, "would be changed" if not is_there else "is up to date", setup)
    if not _is_agreed(parsed, shown, setup):
        return _complain_about(parsed, "nothing was written")
    _carry_out(home, harness, str(folder), plans, setup, known)
    if gone:
        for plan in removals:
            _write(plan)
        written = read_record(home, harness)
        assert written is not None  # it was just stored
        folders = [one for file in gone for one in file.folders]
        remove_folders(home, folders, lambda: _forget(home, written, gone))
    return _say_line(parsed, shown, "changed", setup, is_short=True)


def _not_planned(known: Record | None, folder: Path, plans: Sequence[Plan]) -> list[InstalledFile]:
    """Return the files that an earlier setup of a folder has written and that are not part of it now."""
    planned = {str(plan.path) for plan in plans}
    files = known.files if known is not None else ()
    return [one for one in files if one.path not in planned and is_in(one, folder)]


def _uninstall_harness(parsed: Parsed, known: Record, here: Sequence[InstalledFile], home: Path) -> int:
    plans = [plan_uninstall(known.harness, written) for written in here]
    if parsed.has("--print"):
        return _say_line(parsed, plans, "would be restored")
    if not _is_agreed(parsed, plans, None):
        return _complain_about(parsed, "nothing was written")
    for plan in plans:
        _write(plan)
    folders = [folder for written in here for folder in written.folders]
    remove_folders(home, folders, lambda: _forget(home, known, here))
    return _say_line(parsed, plans, "restored", is_short=True)


def _forget(home: Path, known: Record, here: Sequence[InstalledFile]) -> None:
    if forget(home, known, here):  # our own files are shared by every folder that is set up
        shutil.rmtree(own_folder(home, known.harness), ignore_errors=True)


def _setup(harness: str, home: Path, environment: Mapping[str, str], *, may_use_bus: bool = False) -> Setup:
    own = str(own_folder(home, harness))
    return setup_for(
        harness, _client(environment, home), own, _companion(harness, home), may_use_bus=may_use_bus
    )


def _client(environment: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Return the client command, with its home if that is not the default one."""
    usual = Path(environment.get("HOME") or Path.home()) / ".palaver"
    return (find_pal(),) if home == usual else (find_pal(), "--home", str(home))


def _companion(harness: str, home: Path) -> tuple[str, ...]:
    """Return the companion command that a harness runs; empty if there is no companion."""
    module = _COMPANIONS.get(harness)
    # `-I`, because the harness runs it in a folder of the user, where Python would look for modules first.
    return (find_python(), "-I", "-m", module, "--home", str(home)) if module is not None else ()


# Writing


def _carry_out(
    home: Path, harness: str, folder: str, plans: Sequence[Plan], setup: Setup, known: Record | None
) -> None:
    old = {written.path: written for written in known.files} if known is not None else {}
    files = {
        **old,
        **{str(one.path): _kept(home, harness, folder, one, old.get(str(one.path))) for one in plans},
    }
    # In this order: the record first, so that an interrupted installation can be undone; our own files before
    # the settings that name them; and backups go only when no record needs them.
    write_record(home, Record(harness=harness, files=tuple(files.values()), own=setup.own))
    for name, content in setup.own.items():
        write_private(own_folder(home, harness) / name, content.encode())
    for plan in plans:
        _write(plan)
    remove_backups(tuple(old.values()), tuple(files.values()))


def _kept(home: Path, harness: str, folder: str, plan: Plan, before: InstalledFile | None) -> InstalledFile:
    """Back up a file as it should be restored, and return the record of its change."""
    backup, folders = (before.backup, before.folders) if before is not None else ("", ())
    # An unchanged file has our additions in it: its backup is still the one from before them.
    if before is None or plan.before is None or digest_of(plan.before) != before.digest:
        kept = without_ours(harness, plan, before)
        backup = "" if kept is None else write_backup(home, harness, plan.path, kept)
    return InstalledFile(
        path=str(plan.path),
        change=plan.change,
        made=plan.made,
        digest=digest_of(plan.after or b""),
        backup=backup,
        folders=folders or missing_folders(plan.path),
        settings_folder=folder,
    )


def _write(plan: Plan) -> None:
    if plan.after == plan.before:
        return
    # The question may have been open for a long time: an edit made meanwhile must not be lost.
    if read_settings(plan.path) != plan.before:
        raise OSError(0, "it changed while you were asked; run this again", str(plan.path))
    if plan.after is None:
        plan.path.unlink(missing_ok=True)
        return
    plan.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A new file takes the place of the old one, and must keep the mode that the user has set.
    mode = stat.S_IMODE(plan.path.stat().st_mode) if plan.path.exists() else _FILE_MODE
    replace_file(plan.path, plan.after, mode)


# Output


def difference(plan: Plan) -> Iterator[str]:
    """Yield the change of a file as a unified diff."""
    before, after = (
        (content or b"").decode("utf-8", "replace").splitlines() for content in (plan.before, plan.after)
    )
    names = (
        str(plan.path) if plan.before is not None else "/dev/null",
        str(plan.path) if plan.after is not None else "/dev/null",
    )
    yield from difflib.unified_diff(before, after, *names, lineterm="")


def _is_agreed(parsed: Parsed, plans: Sequence[Plan], setup: Setup | None) -> bool:
    if parsed.has("--yes"):
        return True
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        sys.stderr.write("pal: add --yes to write this, or --print to only show it\n")
        return False
    for plan in plans:
        sys.stderr.writelines(f"{line}\n" for line in difference(plan))
        sys.stderr.write(f"{plan.path}: {plan.word}\n" if plan.word else "")
    for name in setup.own if setup is not None else ():
        sys.stderr.write(f"and in the home of the bus: {name}\n")
    sys.stderr.write("Write this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in _YES


def _say_line(
    parsed: Parsed, plans: Sequence[Plan], word: str, setup: Setup | None = None, *, is_short: bool = False
) -> int:
    for plan in plans:
        done = word
        if plan.after is None:
            done = word.replace("restored", _REMOVED).replace("changed", "removed")
        outcome = done if plan.before != plan.after else "is up to date" if setup else plan.word or "stays"
        if parsed.form == "json":
            line = {"path": str(plan.path), "result": outcome, "diff": "\n".join(difference(plan))}
            sys.stdout.write(json.dumps(line | ({"note": plan.word} if plan.word else {})) + "\n")
            continue
        if not is_short:
            sys.stdout.writelines(f"{line}\n" for line in difference(plan))
        sys.stdout.write(f"{plan.path} {outcome}\n")
        if plan.word and outcome != plan.word:
            sys.stdout.write(f"  {plan.word}\n")
    if setup is not None and parsed.form != "json":
        sys.stdout.writelines(f"{line}\n" for line in setup.advice)
    return 0


def _say_nothing_is_there(
    parsed: Parsed, harness: str, known: Record | None, environment: Mapping[str, str]
) -> int:
    """Report that there is nothing to restore here; an error only if the setup is elsewhere."""
    home, folder = Path(environment["PALAVER_HOME"]), settings_folder(harness, environment)
    folders = sorted({folder_of(written) for written in known.files}) if known is not None else []
    if folders:
        commands = " or ".join(f"'{words_for(harness, 'uninstall', other)}'" for other in folders)
        return _complain_about(
            parsed, f"{harness} was not set up in {folder} but in another folder; run {commands}"
        )
    word = f"was not set up from {home}: there is nothing to restore"
    plans = [
        Plan(
            path=settings_path(harness, change.file, environment),
            before=None,
            after=None,
            change=change,
            word=word,
        )
        for change in _setup(harness, home, environment).changes
    ]
    return _say_line(parsed, plans, word)


def _warn(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


def _complain_about(parsed: Parsed, sentence: str) -> int:
    if parsed.form == "json":
        sys.stderr.write(json.dumps({"error": "bad_request", "message": sentence}) + "\n")
    else:
        sys.stderr.write(f"pal: {sentence}\n")
    return 1


# --------------------
# `pal install` and `pal uninstall` as a whole: all harnesses, the skill, and the shell completion.

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
    statuses = [uninstall_everywhere(parsed, one, home) for one in INSTALLABLE]
    statuses.append(uninstall_completion(parsed, environment))
    try:
        statuses.append(_for_each(parsed, environment, noted_skills(home), _uninstaller(parsed)))
        if not parsed.has("--print"):
            with turn(parsed, home):
                remove_kept_folders(home)  # those of an interrupted 'pal uninstall'
    except OSError as error:
        statuses.append(_complain(parsed, reason_of(error, SKILL)))
    if max(statuses) == 0 and parsed.form != "json":
        if not parsed.has("--print"):
            _say_the_rest(home)
        elif not _is_anything_installed(home, environment):
            sys.stdout.write("nothing is installed: there is nothing to restore\n")
    return max(statuses)


def _is_anything_installed(home: Path, environment: Mapping[str, str]) -> bool:
    return (
        any(read_record(home, one) is not None for one in INSTALLABLE)
        or any(plan_shell(path) is not None for path in start_files(environment))
        or noted_skills(home) != []
    )


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
        # Before they are created, so that an interrupted installation can be undone.
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


def _say(parsed: Parsed, path: Path, outcome: Mapping[str, str]) -> None:
    if parsed.form == "json":
        sys.stdout.write(json.dumps({"path": str(path), **outcome}) + "\n")
    else:
        sys.stdout.write(f"{path} {outcome['result']}\n")


def _complain(parsed: Parsed, sentence: str) -> int:
    if parsed.form == "json":
        sys.stderr.write(json.dumps({"error": "bad_request", "message": sentence}) + "\n")
    else:
        sys.stderr.write(f"pal: {sentence}\n")
    return 1
