"""`pal install HARNESS` and back, in the client's own process: shows what changes, asks, and then writes.

Every file is kept as it was before. `pal uninstall` puts that back, byte for byte; in a file that was changed
since, it takes out what is ours and nothing else. What cannot be read is not written to.
"""

import difflib
import json
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from palaver.agents.codex import companion as codex_companion
from palaver.agents.opencode import companion as opencode_companion
from palaver.cli.install_record import (
    Record,
    Written,
    digest_of,
    own_folder,
    read_record,
    remove_record,
    replace_file,
    write_backup,
    write_private,
    write_record,
)
from palaver.cli.launch import find_pal
from palaver.client.start import find_python
from palaver.doors.argv.parsed import Parsed
from palaver.harness.merging import Made
from palaver.harness.setups import Change, Setup, merge_change, setup_for, unmerge_change

_LIMIT_BYTES: Final = 16 * 1024 * 1024
_MODE: Final = 0o600
_YES: Final = frozenset({"y", "yes"})
_REMOVED: Final = "removed: it was not there before"
_COMPANIONS: Final = {"codex": codex_companion.MODULE, "opencode": opencode_companion.MODULE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One file: what it holds, and what it is to hold. None is no file."""

    path: Path
    before: bytes | None
    after: bytes | None
    change: Change
    made: tuple[Made, ...] = ()
    word: str = ""
    """What somebody should know of it."""


def install_harness(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Set a harness up, if whoever asks says so."""
    harness, home = parsed.positionals[0], Path(environment["PALAVER_HOME"])
    own = str(own_folder(home, harness))
    setup = setup_for(harness, _client(environment, home), own, _companion(harness, home))
    try:
        known = read_record(home, harness)
        plans = [_plan_install(harness, change, known, environment) for change in setup.changes]
    except (OSError, ValueError) as error:
        return _complain(parsed, str(error))
    is_there = known is not None and known.own == setup.own and all(one.before == one.after for one in plans)
    if parsed.has("--print") or is_there:
        return _say(parsed, plans, "would be changed" if not is_there else "is up to date", setup)
    if not _is_agreed(parsed, plans, setup):
        return _complain(parsed, "nothing was written")
    try:
        _carry_out(home, harness, plans, setup, known)
    except OSError as error:
        return _complain(parsed, f"{error.filename or harness}: {error.strerror or error}")
    return _say(parsed, plans, "changed", setup, is_short=True)


def uninstall_harness(parsed: Parsed, environment: Mapping[str, str]) -> int:
    """Put everything back, if whoever asks says so."""
    harness, home = parsed.positionals[0], Path(environment["PALAVER_HOME"])
    try:
        known = read_record(home, harness)
        if known is None:
            return _complain(parsed, f"{harness} was not set up from {home}: there is nothing to put back")
        plans = [_plan_uninstall(harness, written) for written in known.files]
    except (OSError, ValueError) as error:
        return _complain(parsed, str(error))
    if parsed.has("--print"):
        return _say(parsed, plans, "would be put back")
    if not _is_agreed(parsed, plans, None):
        return _complain(parsed, "nothing was written")
    try:
        for plan, written in zip(plans, known.files, strict=True):
            _write(plan)
            _remove_folders(written.folders)
        shutil.rmtree(own_folder(home, harness), ignore_errors=True)
        remove_record(home, known)
    except OSError as error:
        return _complain(parsed, f"{error.filename or harness}: {error.strerror or error}")
    return _say(parsed, plans, "put back", is_short=True)


# What is to be done


def settings_path(harness: str, file: str, environment: Mapping[str, str]) -> Path:
    """Say where a file of a harness is, as the harness itself would look for it."""
    home = Path(environment.get("HOME") or Path.home())
    if harness == "claude":
        return Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / file
    if harness == "codex":
        return Path(environment.get("CODEX_HOME") or home / ".codex") / file
    if harness == "gemini":
        return Path(environment.get("GEMINI_CLI_HOME") or home) / ".gemini" / file
    folder = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    beside = folder / f"{file}c"
    return beside if beside.exists() else folder / file


def _client(environment: Mapping[str, str], home: Path) -> tuple[str, ...]:
    """Give the client, with its home where that is not the one it looks into by itself."""
    usual = Path(environment.get("HOME") or Path.home()) / ".palaver"
    return (find_pal(),) if home == usual else (find_pal(), "--home", str(home))


def _companion(harness: str, home: Path) -> tuple[str, ...]:
    """Give what a harness runs beside its sessions; nothing where it runs no such thing."""
    module = _COMPANIONS.get(harness)
    return (find_python(), "-I", "-m", module, "--home", str(home)) if module is not None else ()


def _plan_install(harness: str, change: Change, known: Record | None, environment: Mapping[str, str]) -> Plan:
    path = settings_path(harness, change.file, environment).resolve()
    before = _read(path)
    text = _text(path, before)
    try:
        for written in known.files if known is not None else ():
            if written.path == str(path):  # ours of another version, or the same again
                text = unmerge_change(harness, written.change, text, written.made).text or ""
        found = merge_change(harness, change, text)
    except ValueError as error:
        raise ValueError(f"{path} stays as it is: {error}") from error
    return Plan(path=path, before=before, after=found.text.encode(), change=change, made=found.made)


def _plan_uninstall(harness: str, written: Written) -> Plan:
    path = Path(written.path)
    before = _read(path)
    if before is None:
        return Plan(path=path, before=None, after=None, change=written.change, word="it is gone already")
    if digest_of(before) == written.digest:
        after = Path(written.backup).read_bytes() if written.backup else None
        return Plan(path=path, before=before, after=after, change=written.change)
    try:
        found = unmerge_change(harness, written.change, _text(path, before), written.made)
    except ValueError as error:
        raise ValueError(f"{path} was changed since and stays as it is: {error}") from error
    word = "it was changed since: only what is ours is taken out"
    if found.missing:
        word += f"; not there any more: {', '.join(found.missing)}"
    after = None if found.text is None and not written.backup else (found.text or "").encode()
    return Plan(path=path, before=before, after=after, change=written.change, word=word)


def _read(path: Path) -> bytes | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"{path} is no file")
    except FileNotFoundError:
        return None
    with path.open("rb") as file:
        content = file.read(_LIMIT_BYTES + 1)
    if len(content) > _LIMIT_BYTES:
        raise ValueError(f"{path} is too large")
    return content


def _text(path: Path, content: bytes | None) -> str:
    try:
        return (content or b"").decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 and stays as it is") from error


# Doing it


def _carry_out(home: Path, harness: str, plans: Sequence[Plan], setup: Setup, known: Record | None) -> None:
    old = {written.path: written for written in known.files} if known is not None else {}
    files = []
    for plan in plans:
        before = old.get(str(plan.path))
        backup, folders = (before.backup, before.folders) if before is not None else ("", ())
        if before is None or (plan.before is not None and digest_of(plan.before) != before.digest):
            kept = _without_ours(harness, plan, before)
            backup = "" if kept is None else write_backup(home, harness, plan.path, kept)
        missing = [folder for folder in reversed(plan.path.parents) if not folder.exists()]
        files.append(
            Written(
                path=str(plan.path),
                change=plan.change,
                made=plan.made,
                digest=digest_of(plan.after or b""),
                backup=backup,
                folders=folders or tuple(map(str, missing)),
            )
        )
    write_record(home, Record(harness=harness, files=tuple(files), own=setup.own))
    for name, content in setup.own.items():
        write_private(own_folder(home, harness) / name, content.encode())
    for plan in plans:
        _write(plan)


def _without_ours(harness: str, plan: Plan, before: Written | None) -> bytes | None:
    """Give a file as it is to be put back: as it is now, without what an earlier installation added."""
    if before is None or plan.before is None:
        return plan.before
    found = unmerge_change(harness, before.change, _text(plan.path, plan.before), before.made)
    return None if found.text is None else found.text.encode()


def _write(plan: Plan) -> None:
    if plan.after == plan.before:
        return
    if plan.after is None:
        plan.path.unlink(missing_ok=True)
        return
    plan.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(plan.path.stat().st_mode) if plan.path.exists() else _MODE
    if _read(plan.path) != plan.before:
        raise OSError(0, "it was changed while you were asked; run this again", str(plan.path))
    replace_file(plan.path, plan.after, mode)


def _remove_folders(folders: Sequence[str]) -> None:
    for folder in reversed(folders):
        with suppress(OSError):  # somebody else's files are in it
            Path(folder).rmdir()


# Saying it


def difference(plan: Plan) -> Iterator[str]:
    """Give what would change in a file, as a person reads it."""
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
        sys.stderr.write("pal: say --yes to have it written, or --print to see what would be\n")
        return False
    for plan in plans:
        sys.stderr.writelines(f"{line}\n" for line in difference(plan))
        sys.stderr.write(f"{plan.path}: {plan.word}\n" if plan.word else "")
    for name in setup.own if setup is not None else ():
        sys.stderr.write(f"and in the home of the bus: {name}\n")
    sys.stderr.write("Write this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in _YES


def _say(
    parsed: Parsed, plans: Sequence[Plan], word: str, setup: Setup | None = None, *, is_short: bool = False
) -> int:
    for plan in plans:
        done = word if plan.after is not None else word.replace("put back", _REMOVED)
        said = done if plan.before != plan.after else "is up to date" if setup else plan.word or "stays"
        if parsed.form == "json":
            line = {"path": str(plan.path), "result": said, "diff": "\n".join(difference(plan))}
            sys.stdout.write(json.dumps(line | ({"note": plan.word} if plan.word else {})) + "\n")
            continue
        if not is_short:
            sys.stdout.writelines(f"{line}\n" for line in difference(plan))
        sys.stdout.write(f"{plan.path} {said}\n")
        if plan.word and said != plan.word:
            sys.stdout.write(f"  {plan.word}\n")
    if setup is not None and parsed.form != "json":
        sys.stdout.writelines(f"{line}\n" for line in setup.advice)
    return 0


def _complain(parsed: Parsed, sentence: str) -> int:
    if parsed.form == "json":
        sys.stderr.write(json.dumps({"error": "bad_request", "message": sentence}) + "\n")
    else:
        sys.stderr.write(f"pal: {sentence}\n")
    return 1
