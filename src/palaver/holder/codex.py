"""The companion process of a Codex session that was started without `pal`; the hook of its start runs it.

    python -I -m palaver.holder.codex --home HOME      with the input of the hook

It is a client of the app-server that all plain Codex processes share. It wakes its session when idle, and
passes on the user's decisions. It handles this one session only. It starts no daemon, waits for one
indefinitely, and ends when Codex ends it with the session or the server exits. It ends at once if there is no
such server, or if `pal` runs that Codex.
"""

import argparse
import asyncio
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from palaver.clock import SystemClock
from palaver.harness.base import AgentReport, Make, Spawn
from palaver.harness.codex.integration import CodexIntegration
from palaver.harness.hooks import text_in
from palaver.harness.marks import SEAT_MARK
from palaver.holder.codex_start import listens
from palaver.holder.integration import connect_codex
from palaver.holder.native_lane import SessionCompanion, run_companion
from palaver.protocol.lines import AccompanyOp
from palaver.version import __version__

MODULE: Final = "palaver.holder.codex"
HARNESS: Final = "codex"
_LIMIT_INPUT: Final = 1024 * 1024
_LOCK: Final = "codex-companions.lock"
_LOCK_BYTES: Final = 2**40
"""Bytes of the lock file, which has no content: a session locks the one that its hash selects.

Their number makes it very unlikely that two sessions share one.
"""
_TRIES: Final = 5
"""The hook that joins the session as an agent runs at the same time, so the first attempts can be refused."""


def shared_server(environment: Mapping[str, str]) -> Path:
    """Return the socket of the app-server that all plain Codex processes share."""
    folder = environment.get("CODEX_HOME") or f"{environment.get('HOME', '')}/.codex"
    return Path(folder) / "app-server-control" / "app-server-control.sock"


def companion_of_session(home: str, server: Path, session: str, cwd: str) -> SessionCompanion:
    """Return the companion of one session of a server."""

    def make(spawn: Spawn) -> Make:
        return lambda bus: CodexIntegration(
            connect_codex(server), bus, version=__version__, clock=SystemClock(), spawn=spawn, only=session
        )

    hold = AccompanyOp(harness=HARNESS, session=session, cwd=cwd, version=__version__)
    return SessionCompanion(home, hold, make, is_news=_is_news, tries=_TRIES)


def _is_news(before: AgentReport, now: AgentReport) -> bool:
    """Return whether the state or the changed file is new. Hooks report everything else."""
    return now.state != before.state or bool(now.file and now.file != before.file)


async def attend(companion: SessionCompanion) -> int:
    """Run until the session has ended or the daemon refuses it."""
    companion.start()
    tasks = {asyncio.ensure_future(companion.run()), asyncio.ensure_future(companion.is_over.wait())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # A cancelled `run` still ends its own tasks and closes the integration.
        await asyncio.wait(tasks)
    return 0


def lock_session(home: str, session: str) -> int | None:
    """Return a lock on a session, held until it is closed; None if another process has it."""
    folder = Path(home) / "harness"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    offset = int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big") % _LOCK_BYTES
    # The system releases the lock with the process, however it ends. A file for each session would stay.
    # `lockf` and not `flock`, which can only lock a whole file.
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
    except OSError:
        os.close(lock)
        return None
    return lock


async def _run(home: str, server: Path, session: str, cwd: str) -> int:
    return await attend(companion_of_session(home, server, session, cwd))


def main() -> int:
    """Run the companion of the session named in the input of the hook."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", required=True)
    home = parser.parse_args().home
    try:
        found = json.loads(sys.stdin.buffer.read(_LIMIT_INPUT))
    except (ValueError, RecursionError):
        return 0
    given = found if isinstance(found, dict) else {}
    # Absolute, because `run_companion` changes the directory.
    session, server = text_in(given, "session_id"), shared_server(os.environ).absolute()
    # The mark means that `pal` runs this Codex, whose holder has the native lane already.
    if not session or SEAT_MARK in os.environ or not listens(server):
        return 0
    lock = lock_session(home, session)
    if lock is None:
        return 0
    try:
        return run_companion(_run(home, server, session, text_in(given, "cwd")))
    finally:
        os.close(lock)


if __name__ == "__main__":
    sys.exit(main())
