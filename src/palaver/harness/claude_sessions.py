"""Find the folder of Claude Code's sessions and the newest of them. Pure: names in, names out."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_SIGNS: Final = re.compile(r"[^A-Za-z0-9]")
_FILE: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl\Z")


def sessions_folder(environment: Mapping[str, str], cwd: str) -> str:
    """Return the folder of the sessions that were held in a directory."""
    base = environment.get("CLAUDE_CONFIG_DIR") or f"{environment.get('HOME', '')}/.claude"
    return f"{base}/projects/{_SIGNS.sub('-', cwd)}"


def newest_session(files: Iterable[tuple[str, float]]) -> str:
    """Return the session that was written to last, from files with their times; else empty."""
    return next(iter(newest_sessions(files, 1)), "")


def newest_sessions(files: Iterable[tuple[str, float]], most: int) -> tuple[str, ...]:
    """Return the sessions that were written to last, newest first."""
    found = [(time, name[1]) for file, time in files if (name := _FILE.match(file))]
    return tuple(session for _, session in sorted(found, reverse=True)[:most])
