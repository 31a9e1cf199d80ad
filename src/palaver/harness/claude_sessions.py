"""Where Claude Code keeps its conversations, and which of them come last. Pure: names in, names out."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_SIGNS: Final = re.compile(r"[^A-Za-z0-9]")
_FILE: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl\Z")


def sessions_folder(environment: Mapping[str, str], cwd: str) -> str:
    """Give the folder of the conversations that were held in a directory."""
    base = environment.get("CLAUDE_CONFIG_DIR") or f"{environment.get('HOME', '')}/.claude"
    return f"{base}/projects/{_SIGNS.sub('-', cwd)}"


def newest_session(files: Iterable[tuple[str, float]]) -> str:
    """Give the conversation that was written to last, of files with their times; empty when there is none."""
    return next(iter(newest_sessions(files, 1)), "")


def newest_sessions(files: Iterable[tuple[str, float]], most: int) -> tuple[str, ...]:
    """Give the conversations that were written to last, the newest first."""
    found = [(time, name[1]) for file, time in files if (name := _FILE.match(file))]
    return tuple(session for _, session in sorted(found, reverse=True)[:most])
