"""The planned changes of an installation with their record, and the consent of a person."""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from palaver.config import load
from palaver.errors import PalaverError
from palaver.harness.base import SAFE_COMMANDS
from palaver.harness.codex.hooks import TRUSTED_EVENTS, hook_command, hooks_digest
from palaver.harness.setup import INSTALLABLE, Change, Made, has_change, merge_change, unmerge_change
from palaver.home import find_pal, replace_file

# --------------------
# The record of what `pal install` has written, in the home of the bus: enough to restore every byte.
#
# A harness may be set up in several folders; each is recorded separately. Changing the record needs the lock.

_FOLDER: Final = "install"
_SKILL: Final = "skill.json"
_FOLDERS: Final = "folders.json"

_T = TypeVar("_T")


class InstalledFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a harness: our additions, and its state before."""

    path: str
    change: Change
    made: tuple[Made, ...]
    digest: str
    """Of the file after the change."""
    backup: str = ""
    """The path of its backup; empty if the file did not exist."""
    folders: tuple[str, ...] = ()
    """Folders that were created for it, outermost first."""
    # Stored as `place`, and so not renamed: existing records must stay readable.
    settings_folder: str = msgspec.field(default="", name="place")
    """The settings folder of the harness; earlier versions did not record it."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was written for a harness, in all folders."""

    harness: str
    files: tuple[InstalledFile, ...]
    own: Mapping[str, str] = msgspec.field(default_factory=dict)


def digest_of(content: bytes) -> str:
    """Return a hash that identifies a content."""
    return hashlib.sha256(content).hexdigest()


def own_folder(home: Path, harness: str) -> Path:
    """Return the folder of Palaver's files that a harness reads."""
    return home / _FOLDER / harness


def read_record(home: Path, harness: str) -> Record | None:
    """Return the record of a harness; None if nothing was written. Raises OSError if it is damaged."""
    return _read_file(_record_path(home, harness), Record)


def _read_file(path: Path, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    # msgspec raises the second one for a text that is not UTF-8, which is not a DecodeError.
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OSError(0, f"it is damaged: {error}", str(path)) from error


def write_record(home: Path, record: Record) -> None:
    """Store the record before anything is changed, so that an interrupted change can be undone."""
    write_private(_record_path(home, record.harness), msgspec.json.encode(record))


def forget(home: Path, record: Record, gone: Sequence[InstalledFile]) -> bool:
    """Remove files from the record, with their backups. True if the record is empty now."""
    left = tuple(written for written in record.files if written not in gone)
    if left:
        write_record(home, Record(harness=record.harness, files=left, own=record.own))
    else:
        _record_path(home, record.harness).unlink(missing_ok=True)
    remove_backups(gone, left)
    return not left


def remove_backups(old: Sequence[InstalledFile], kept: Sequence[InstalledFile]) -> None:
    """Remove backups that are not used any more."""
    for backup in {one.backup for one in old} - {one.backup for one in kept} - {""}:
        Path(backup).unlink(missing_ok=True)


@contextmanager
def locked(home: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock for installing and uninstalling; call `on_wait` first if another process has it."""
    folder = home / _FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The folder itself is locked, so no lock file remains after an uninstall.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_backup(home: Path, harness: str, path: Path, content: bytes) -> str:
    """Back up a file as it is now; return the path of the backup."""
    name = f"{harness}-{path.name}-{digest_of(bytes(path) + content)[:12]}.backup"
    kept = home / _FOLDER / name
    write_private(kept, content)
    return str(kept)


def write_private(path: Path, content: bytes) -> None:
    """Write one of our files, whole or not at all, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, content, 0o600)


def missing_folders(path: Path) -> tuple[str, ...]:
    """Return the folders that will be created for a file, outermost first."""
    return tuple(str(folder) for folder in reversed(path.parents) if not folder.exists())


def remove_folders(home: Path, folders: Sequence[str], forget: Callable[[], None]) -> None:
    """Remove folders that were created for something, if they are empty, while `forget` removes its record.

    A folder that also contains something else that we installed is remembered, and removed with that. A
    folder that contains only files of the user stays. The folders are stored before the record is removed, so
    that the next call completes an interrupted one.
    """
    _keep_folders(home, {*_kept_folders(home), *folders})
    forget()
    remove_kept_folders(home)


def remove_kept_folders(home: Path) -> None:
    """Remove the remembered folders that are empty now; forget those in which nothing of ours is left."""
    kept = _kept_folders(home)
    # Inner folders first: a folder can be removed only when it is empty.
    for folder in sorted(kept, key=len, reverse=True):
        with suppress(OSError):  # it contains other files
            Path(folder).rmdir()
    ours = _installed_paths(home)
    _keep_folders(home, {one for one in kept if any(path.is_relative_to(one) for path in ours)})


def _installed_paths(home: Path) -> list[Path]:
    """Return the paths of all files that are installed now. Skip damaged records."""
    found: list[Path] = []
    for harness in INSTALLABLE:
        with suppress(OSError):
            record = read_record(home, harness)
            found += [Path(one.path) for one in (record.files if record else ())]
    with suppress(OSError):
        found += noted_skills(home)
    return found


def _kept_folders(home: Path) -> list[str]:
    return _read_file(home / _FOLDER / _FOLDERS, list[str]) or []


def _keep_folders(home: Path, folders: Collection[str]) -> None:
    path = home / _FOLDER / _FOLDERS
    if folders:
        write_private(path, msgspec.json.encode(sorted(folders, key=len)))
    else:
        path.unlink(missing_ok=True)


# The skill


def note_folders(home: Path, path: Path) -> None:
    """Record which folders will be created for a skill, before they are."""
    known = _skill_folders(home)
    folders = sorted({*known.get(str(path), ()), *missing_folders(path)}, key=len)
    write_private(home / _FOLDER / _SKILL, msgspec.json.encode({**known, str(path): folders}))


def remove_noted_folders(home: Path, path: Path) -> None:
    """Remove the folders that were created for a skill, if they are empty, and forget them."""
    known = _skill_folders(home)
    folders = known.pop(str(path), ())

    def forget_skill() -> None:
        if known:
            write_private(home / _FOLDER / _SKILL, msgspec.json.encode(known))
        else:
            (home / _FOLDER / _SKILL).unlink(missing_ok=True)

    remove_folders(home, folders, forget_skill)


def noted_skills(home: Path) -> list[Path]:
    """Return the paths of every skill that was installed and not removed. Raises OSError if damaged."""
    return [Path(path) for path in _skill_folders(home)]


def _skill_folders(home: Path) -> dict[str, tuple[str, ...]]:
    return _read_file(home / _FOLDER / _SKILL, dict[str, tuple[str, ...]]) or {}


def _record_path(home: Path, harness: str) -> Path:
    return home / _FOLDER / f"{harness}.json"


# --------------------
# The plan: for each file its path, its old content and its new content.

_LIMIT_BYTES: Final = 16 * 1024 * 1024
COMPLETION_LINES: Final = (
    'eval "$(pal completion bash)"',
    'eval "$(pal completion zsh)"',
    "pal completion fish | source",
)
"""The lines that a user adds to the start file of a shell, as the help of `pal completion` shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    """Where a harness keeps its settings: the variable for the folder, its default, and the part below."""

    variable: str
    usual: str
    below: str = ""


_HOMES: Final = {
    "claude": _Home(variable="CLAUDE_CONFIG_DIR", usual=".claude"),
    "codex": _Home(variable="CODEX_HOME", usual=".codex"),
    "gemini": _Home(variable="GEMINI_CLI_HOME", usual="", below=".gemini"),
    "opencode": _Home(variable="XDG_CONFIG_HOME", usual=".config", below="opencode"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One file: its old and its new content. None means no file."""

    path: Path
    before: bytes | None
    after: bytes | None
    change: Change
    made: tuple[Made, ...] = ()
    word: str = ""
    """A note for the user."""


# Paths


def settings_folder(harness: str, environment: Mapping[str, str]) -> Path:
    """Return the folder in which a harness looks for its settings."""
    found = _HOMES[harness]
    home = Path(environment.get("HOME") or Path.home())
    folder = Path(environment.get(found.variable) or home / found.usual) / found.below
    return Path(os.path.abspath(folder))  # noqa: PTH100 - links are not resolved


def settings_path(harness: str, file: str, environment: Mapping[str, str]) -> Path:
    """Return the path of a settings file, as the harness itself would look for it."""
    folder = settings_folder(harness, environment)
    with_comments = folder / f"{file}c"
    return with_comments if harness == "opencode" and with_comments.exists() else folder / file


def words_for(harness: str, verb: str, folder: str) -> str:
    """Return the command that selects a folder, independent of the current environment."""
    found = _HOMES[harness]
    named = Path(folder).parent if found.below else Path(folder)
    return f"{found.variable}={shlex.quote(str(named))} pal {verb} {harness}"


def is_in(written: InstalledFile, folder: Path) -> bool:
    """Whether a file belongs to the settings of a harness in a folder."""
    if written.settings_folder:
        return written.settings_folder == str(folder)
    names = (written.change.file, f"{written.change.file}c")
    return written.path in {str(resolved(folder / name)) for name in names}


def folder_of(written: InstalledFile) -> str:
    """Return the folder that a file belongs to, as far as known."""
    return written.settings_folder or str(Path(written.path).parent)


def start_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the start files of shells in which a user may have put a line of `pal completion`."""
    home = Path(environment.get("HOME") or Path.home())
    zsh = Path(environment.get("ZDOTDIR") or home)
    fish = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "fish"
    bash = [home / name for name in (".bashrc", ".bash_profile", ".profile")]
    return [*bash, zsh / ".zshrc", fish / "config.fish"]


def resolved(path: Path) -> Path:
    """Follow links to the file itself. Raises ValueError for a loop of links."""
    try:
        return path.resolve()
    # Before Python 3.13 `resolve` raises RuntimeError for a loop of links.
    except RuntimeError as error:
        raise ValueError(f"{path} is a link to itself; remove it and run this again") from error


# Content


def plan_install(harness: str, change: Change, known: Record | None, environment: Mapping[str, str]) -> Plan:
    """Plan the new content of a file; additions of an earlier version are removed first."""
    # Replacing a link would leave the user's file unchanged and cut it off from the harness: change its
    # target.
    path = resolved(settings_path(harness, change.file, environment))
    before = read_settings(path)
    text = text_of(path, before)
    try:
        for written in known.files if known is not None else ():
            if written.path != str(path):
                continue
            if written.change == change and has_change(harness, change, text):
                return Plan(path=path, before=before, after=before, change=change, made=written.made)
            # Our additions of another version, or incomplete ones.
            text = unmerge_change(harness, written.change, text, written.made).text or ""
        found = merge_change(harness, change, text)
    except ValueError as error:
        raise ValueError(f"{path} was not changed: {error}") from error
    return Plan(path=path, before=before, after=found.text.encode(), change=change, made=found.made)


def plan_uninstall(harness: str, written: InstalledFile) -> Plan:
    """Plan the old content of a file; if it was changed since, its content without our additions."""
    path = Path(written.path)
    before = read_settings(path)
    if before is None:
        return Plan(path=path, before=None, after=None, change=written.change, word="it is already removed")
    # Unchanged since: only then the backup is the whole truth, and the file is restored byte for byte.
    if digest_of(before) == written.digest:
        after = Path(written.backup).read_bytes() if written.backup else None
        return Plan(path=path, before=before, after=after, change=written.change)
    try:
        found = unmerge_change(harness, written.change, text_of(path, before), written.made)
    except ValueError as error:
        raise ValueError(f"{path} was edited since and was not changed: {error}") from error
    after = None if found.text is None and not written.backup else (found.text or "").encode()
    word = "it was edited since; only the entries of Palaver are removed"
    if after == before:
        word = "it was edited since; it contains no entries of Palaver"
    elif found.missing:
        word += f"; already removed: {', '.join(found.missing)}"
    return Plan(path=path, before=before, after=after, change=written.change, word=word)


def plan_shell(path: Path) -> Plan | None:
    """Plan the content of a start file without the lines of `pal completion`; None if it has no such line."""
    path = resolved(path)
    before = read_settings(path)
    lines, ours = (before or b"").splitlines(keepends=True), {one.encode() for one in COMPLETION_LINES}
    left = [line for line in lines if line.strip() not in ours]
    if len(left) == len(lines):
        return None
    return Plan(path=path, before=before, after=b"".join(left), change=Change(file=path.name))


def without_ours(harness: str, plan: Plan, before: InstalledFile | None) -> bytes | None:
    """Return a file as it should be restored: its current content, without earlier additions."""
    if before is None or plan.before is None:
        return plan.before
    found = unmerge_change(harness, before.change, text_of(plan.path, plan.before), before.made)
    return None if found.text is None else found.text.encode()


def read_settings(path: Path) -> bytes | None:
    """Return the content of a file; None if there is no file."""
    try:
        # Opening a pipe would wait for its writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"{path} is not a file")
    except FileNotFoundError:
        return None
    with path.open("rb") as file:
        content = file.read(_LIMIT_BYTES + 1)
    if len(content) > _LIMIT_BYTES:
        raise ValueError(f"{path} is too large")
    return content


def text_of(path: Path, content: bytes | None) -> str:
    """Decode a content as text. Raises ValueError."""
    try:
        return (content or b"").decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 and was not changed") from error


# --------------------
# A person's consent, requested once in the client's terminal and stored in the home of the bus.
#
# There are two questions: whether Codex may run hooks, and whether agents may use the safe commands of the
# bus without a prompt. Only a person at the terminal is asked. For any other caller that starts a harness,
# the earlier decision counts, and without a decision the answer is no. Each version of the hooks needs a new
# consent.

OFF: Final = "off"
KNOWN: Final = "known"
ASK: Final = "ask"
AGAIN: Final = "again"
"""The daemon's permission: no hooks, those agreed to before, ask if needed, ask in any case."""

_FILE: Final = "codex-hooks.json"
_NARROWEST: Final = 20
_WIDEST: Final = 100
_YES: Final = frozenset({"y", "yes"})


def has_codex_hooks(word: str, pal: str, home: str) -> bool:
    """Whether Codex gets hooks; asks the user if that is allowed and not yet done. Raises OSError."""
    if word in ("", OFF):
        return False
    path, digest = Path(home) / "harness" / _FILE, hooks_digest(pal, home)
    known = _remembered(path, digest)
    if word == KNOWN or (known is not None and word != AGAIN) or not _is_person_there():
        return bool(known)
    sys.stderr.write(_question(pal, home))
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        return False  # no reply: ask again the next time
    is_agreed = answer.strip().lower() in _YES
    write_private(path, json.dumps({"hooks": digest, "agreed": is_agreed}).encode())
    if not is_agreed:
        sys.stderr.write("Codex runs without hooks. To be asked again, use 'pal codex --hooks'.\n")
    return is_agreed


def _remembered(path: Path, digest: str) -> bool | None:
    """Return the stored decision about these hooks; None if there was no decision."""
    try:
        found = json.loads(path.read_bytes())
        return bool(found["agreed"]) if found["hooks"] == digest else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _is_person_there() -> bool:
    # Standard output may be redirected: the question is on standard error.
    return sys.stdin.isatty() and sys.stderr.isatty()


def _question(pal: str, home: str) -> str:
    """Return the question, wrapped to the width of the terminal; the command itself is never broken."""
    before = (
        "With hooks, Codex reports its state to the bus, and receives messages where it has no server of its "
        f"own. At the events {', '.join(TRUSTED_EVENTS)} it would run"
    )
    after = (
        "in sessions started with 'pal codex'. Your settings are not changed; 'pal codex --no-hooks' runs "
        "without hooks. Codex runs only hooks that you trust."
    )
    width = min(shutil.get_terminal_size().columns - 1, _WIDEST)
    lines = [*_wrapped(before, width), "", f"    {hook_command(pal, home, 'EVENT')}", ""]
    return "\n".join([*lines, *_wrapped(after, width), "Trust these hooks? [y/N] "])


# --------------------
# The safe commands and tools of the bus. The decision is the setting `agent_commands`.

_SETTING: Final = "agent_commands"
_LIMIT_S: Final = 30.0
"""Seconds that the bus may take to store the decision."""


def may_use_bus(word: str, home: str) -> bool:
    """Whether agents may use the safe commands without a prompt; asks the user if that is allowed.

    The file is read, and not the settings of the running bus: the user may have decided a moment ago.
    """
    try:
        known = load(Path(home), {}).settings.agent_commands
    except (PalaverError, OSError):  # the bus would not start with such settings
        return False
    if known != ASK or word != ASK or not _is_person_there():
        return known == "yes"
    sys.stderr.write(_bus_question())
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        return False  # no reply: ask again the next time
    is_agreed = answer.strip().lower() in _YES
    return _store("yes" if is_agreed else "no", home) and is_agreed


def _store(value: str, home: str) -> bool:
    """Have the bus write the decision; it accepts this from a person only, and records it in the log.

    Return False if it refuses: then the reply did not come from a person.
    """
    command = [find_pal(), "--home", home, "config", "set", _SETTING, value]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False)
        trouble = done.stderr.decode("utf-8", "replace").strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        trouble = f"pal: {error}"
    if trouble:
        sys.stderr.write(f"{trouble}\npal: agents are asked as before; the reply could not be stored\n")
        return False
    sys.stderr.write(f"Stored. 'pal config set {_SETTING}' with yes, no or ask changes it.\n")
    return True


def _bus_question() -> str:
    commands = ", ".join(SAFE_COMMANDS)
    text = (
        "Agents write to each other with 'pal' and with the tools of Palaver. In a mode that asks, a harness "
        "asks you before each of these calls. You can allow the safe ones once for all agents that 'pal' "
        f"starts: pal {commands}, and the tools that do the same. Everything else is asked as before, also "
        "'pal config', 'run', 'stop', 'approve' and 'install'."
    )
    width = min(shutil.get_terminal_size().columns - 1, _WIDEST)
    return "\n".join([*_wrapped(text, width), "Allow these without a prompt? [y/N] "])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, _NARROWEST), break_long_words=False, break_on_hyphens=False)
