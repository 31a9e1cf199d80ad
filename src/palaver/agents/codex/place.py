"""The address of a Codex app-server, and the last Codex session in a directory."""

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from palaver.model.native_place import NATIVE_FOLDER

PREFIX: Final = "codex-"
"""The prefix of a server's directory; the rest is random."""

_LIMIT_PATH_BYTES: Final = 100
_LIMIT_LOOKED_AT: Final = 200
_LIMIT_LINE_BYTES: Final = 1024 * 1024


def codex_address(home: str) -> str:
    """Return a new socket path for a server: in the Palaver home, or under /tmp if that path is too long."""
    name = f"{PREFIX}{secrets.token_hex(6)}"
    path = f"{home}/{NATIVE_FOLDER}/{name}/server.sock"
    if len(os.fsencode(path)) <= _LIMIT_PATH_BYTES:
        return path
    return f"/tmp/palaver-{os.getuid()}/{name}/server.sock"  # noqa: S108 - its directories have mode 0700


def last_codex_session(environment: Mapping[str, str], cwd: str) -> str:
    """Return the session that Codex would resume in a directory; empty if there is no session."""
    folder = environment.get("CODEX_HOME") or f"{environment.get('HOME', '')}/.codex"
    files = sorted(_rollouts(Path(folder) / "sessions"), reverse=True)
    for _, path in files[:_LIMIT_LOOKED_AT]:
        session, where = _head(path)
        if where == cwd:
            return session
    return ""


def _rollouts(folder: Path) -> Iterator[tuple[float, Path]]:
    for path in folder.glob("*/*/*/rollout-*.jsonl"):
        try:
            yield path.stat().st_mtime, path
        except OSError:
            continue  # It was removed meanwhile.


def _head(path: Path) -> tuple[str, str]:
    """Read the session id and the start directory from a session file; both empty if it is unreadable."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.readline(_LIMIT_LINE_BYTES))["payload"]
            return str(found["id"]), str(found["cwd"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return "", ""
