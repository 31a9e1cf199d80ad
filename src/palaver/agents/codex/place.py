"""Where the server of a Codex listens, and which of its conversations was the last in a folder."""

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from palaver.model.native_place import NATIVE_FOLDER

PREFIX: Final = "codex-"
"""How the folder of a server begins; the rest is drawn."""

_LIMIT_PATH_BYTES: Final = 100
_LIMIT_LOOKED_AT: Final = 200
_LIMIT_LINE_BYTES: Final = 1024 * 1024


def codex_address(home: str) -> str:
    """Choose a place for a server: in the home of the bus, or where that is too deep elsewhere."""
    name = f"{PREFIX}{secrets.token_hex(6)}"
    path = f"{home}/{NATIVE_FOLDER}/{name}/server.sock"
    if len(os.fsencode(path)) <= _LIMIT_PATH_BYTES:
        return path
    return f"/tmp/palaver-{os.getuid()}/{name}/server.sock"  # noqa: S108 - its folders are ours alone


def last_codex_session(environment: Mapping[str, str], cwd: str) -> str:
    """Give the conversation that Codex would go on with in a folder, empty when there is none."""
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
            continue  # it was removed meanwhile


def _head(path: Path) -> tuple[str, str]:
    """Read whose conversation a file holds, and where it was begun."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.readline(_LIMIT_LINE_BYTES))["payload"]
            return str(found["id"]), str(found["cwd"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return "", ""
