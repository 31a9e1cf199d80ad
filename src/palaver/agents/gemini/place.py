"""The home directory for Gemini CLI, made of links into the user's own; and its last session in a directory.

In the user's own directory, no file is written, moved or removed here. Only the two directories that Gemini
CLI itself makes at its first start are created if they are missing.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from palaver.harness.gemini_launch import EXTENSION, EXTENSIONS, FOLDER, HOME, SHARED, WORKING

_PREFIX: Final = "gemini-home-"
_LIMIT_LOOKED_AT: Final = 20
_LIMIT_LINE_BYTES: Final = 1024 * 1024


def gemini_home(home: str, environment: Mapping[str, str], extension: Path) -> Path:
    """Make a home that mirrors the user's own, with one more extension. Raises OSError.

    There is one for each home of the user. Repeating this updates the links; running sessions are not
    disturbed.
    """
    theirs = _theirs(environment)
    number = hashlib.sha256(os.fsencode(theirs)).hexdigest()[:12]
    made = Path(home) / "harness" / f"{_PREFIX}{number}"
    ours = made / FOLDER
    for name in WORKING:
        (theirs / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    (ours / EXTENSIONS).mkdir(mode=0o700, parents=True, exist_ok=True)
    _mirror(theirs, ours, {EXTENSIONS}, also=SHARED)
    _mirror(theirs / EXTENSIONS, ours / EXTENSIONS, {EXTENSION})
    _link(ours / EXTENSIONS / EXTENSION, extension)
    return made


def last_gemini_session(environment: Mapping[str, str], cwd: str) -> str:
    """Return the session that Gemini CLI would resume in a directory; empty if there is no session."""
    where = os.path.realpath(cwd)
    found: list[tuple[float, Path]] = []
    for folder in (_theirs(environment) / "tmp").glob("*"):
        try:
            if (folder / ".project_root").read_text("utf-8").strip() == where:
                found += [(path.stat().st_mtime, path) for path in folder.glob("chats/session-*.jsonl")]
        except (OSError, UnicodeDecodeError):
            continue
    for _, path in sorted(found, reverse=True)[:_LIMIT_LOOKED_AT]:
        if session := _session_in(path):
            return session
    return ""


def _session_in(path: Path) -> str:
    """Read the session id from a session file; empty if it is unreadable."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.readline(_LIMIT_LINE_BYTES))["sessionId"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


def _theirs(environment: Mapping[str, str]) -> Path:
    return Path(environment.get(HOME) or environment.get("HOME") or Path.home()) / FOLDER


def _mirror(theirs: Path, ours: Path, kept: set[str], also: tuple[str, ...] = ()) -> None:
    """Link everything in a directory, and the names in `also` even if missing; remove outdated links."""
    names = {entry.name for entry in os.scandir(theirs)} if theirs.is_dir() else set()
    for entry in list(os.scandir(ours)):
        if entry.is_symlink() and entry.name not in names | kept | set(also):
            Path(entry.path).unlink()
    for name in (names | set(also)) - kept:
        _link(ours / name, theirs / name)


def _link(link: Path, target: Path) -> None:
    """Point a link at a target. A real file there was made by a session and is kept."""
    if link.is_symlink():
        if link.readlink() == target:
            return
    elif link.exists():
        return
    beside = link.with_name(f".{link.name}-{os.getpid()}")
    beside.symlink_to(target)
    beside.replace(link)
