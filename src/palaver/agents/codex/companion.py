"""The process that stands beside a session of Codex started without `pal`: a hook of its start runs one.

    python -I -m palaver.agents.codex.companion --home HOME      with the input of the hook

It is a client of the server in which the session lives, the one that every plain Codex shares, and so wakes
the session when it rests and brings it a person's word. It has to do with this one session and with no other.
It starts no daemon, waits for one as long as it takes, and ends with the session: Codex ends it then, or the
server is gone. A Codex without such a server cannot be reached, and it ends at once; so it does where `pal`
runs that Codex.
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

from palaver import __version__
from palaver.agents.beside import Beside, run_beside
from palaver.agents.bus import Bus
from palaver.agents.codex.lane import CodexLane
from palaver.agents.codex.server import listens
from palaver.agents.native_way import Tell, WayIn
from palaver.agents.native_word import Word
from palaver.agents.work import Spawn
from palaver.clock import SystemClock
from palaver.harness.hook_news import text_in
from palaver.harness.marks import SEAT_MARK
from palaver.model.lines.holder_ops import AccompanyOp

MODULE: Final = "palaver.agents.codex.companion"
HARNESS: Final = "codex"
_LIMIT_INPUT: Final = 1024 * 1024
_LOCK: Final = "codex-companions.lock"
_PLACES: Final = 2**40
_TRIES: Final = 5
"""The hook that sits the session down runs at the same time: one of the two is second."""


def shared_server(environment: Mapping[str, str]) -> Path:
    """Say where the server listens that every plain Codex shares."""
    folder = environment.get("CODEX_HOME") or f"{environment.get('HOME', '')}/.codex"
    return Path(folder) / "app-server-control" / "app-server-control.sock"


def beside_session(home: str, server: Path, session: str, cwd: str) -> Beside:
    """Make what stands beside one session of a server, and of no other."""

    def make(bus: Bus, spawn: Spawn, on_word: Tell) -> WayIn:
        return CodexLane(
            server,
            bus,
            clock=SystemClock(),
            spawn=spawn,
            on_word=on_word,
            on_change=lambda: None,
            only=session,
        )

    hold = AccompanyOp(harness=HARNESS, session=session, cwd=cwd, version=__version__)
    return Beside(home, hold, make, is_news=_is_news, tries=_TRIES)


def _is_news(before: Word, now: Word) -> bool:
    """Say how the session is, and which files it changes. What else it does, its hooks say."""
    return now.state != before.state or bool(now.file and now.file != before.file)


async def attend(beside: Beside) -> int:
    """Be there until the session is gone, or the bus does not want it."""
    beside.start()
    tasks = {asyncio.ensure_future(beside.run()), asyncio.ensure_future(beside.is_over.wait())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return 0


def lock_session(home: str, session: str) -> int | None:
    """Give a lock on a session, held while it is open; None: another process has it."""
    folder = Path(home) / "harness"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    place = int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big") % _PLACES
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except OSError:
        os.close(lock)
        return None
    return lock


async def _run(home: str, server: Path, session: str, cwd: str) -> int:
    return await attend(beside_session(home, server, session, cwd))


def main() -> int:
    """Stand beside the session that the input of the hook names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", required=True)
    home = parser.parse_args().home
    try:
        found = json.loads(sys.stdin.buffer.read(_LIMIT_INPUT))
    except (ValueError, RecursionError):
        return 0
    given = found if isinstance(found, dict) else {}
    session, server = text_in(given, "session_id"), shared_server(os.environ).absolute()
    if not session or SEAT_MARK in os.environ or not listens(server):
        return 0
    lock = lock_session(home, session)
    if lock is None:
        return 0
    try:
        return run_beside(_run(home, server, session, text_in(given, "cwd")))
    finally:
        os.close(lock)


if __name__ == "__main__":
    sys.exit(main())
