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
import gc
import hashlib
import json
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from palaver import __version__
from palaver.agents.bus import Bus, Held
from palaver.agents.codex.lane import CodexLane
from palaver.agents.codex.server import listens
from palaver.agents.native_word import Word
from palaver.client.request import Accompany, Status, Tell
from palaver.client.wire import Line
from palaver.clock import SystemClock
from palaver.errors import AlreadyJoined, PalaverError
from palaver.harness.hook_news import text_in
from palaver.harness.marks import SEAT_MARK

MODULE: Final = "palaver.agents.codex.companion"
HARNESS: Final = "codex"
_LIMIT_INPUT: Final = 1024 * 1024
_LOCK: Final = "codex-companions.lock"
_PLACES: Final = 2**40
_TRIES: Final = 5
_PAUSE_S: Final = 0.2
"""The hook that sits the session down runs at the same time: one of the two is second."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]


def shared_server(environment: Mapping[str, str]) -> Path:
    """Say where the server listens that every plain Codex shares."""
    folder = environment.get("CODEX_HOME") or f"{environment.get('HOME', '')}/.codex"
    return Path(folder) / "app-server-control" / "app-server-control.sock"


class Companion:
    """Beside one session, from its start to its end."""

    def __init__(self, home: str, server: Path, session: str, cwd: str, spawn: Spawn) -> None:
        self._word: Word | None = None
        self._is_over = asyncio.Event()
        hold = Accompany(harness=HARNESS, session=session, cwd=cwd, version=__version__)
        self._bus = Bus(home, hold, self._on_held, self._on_push, _start_nothing)
        self._lane = CodexLane(
            server,
            self._bus,
            clock=SystemClock(),
            spawn=spawn,
            on_word=self._say_word,
            on_change=lambda: None,
            only=session,
        )

    async def run(self) -> None:
        """Be there until the session is gone, or the bus does not want it."""
        self._lane.start()
        serving = asyncio.ensure_future(self._serve())
        ending = asyncio.ensure_future(self._is_over.wait())
        await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, ending):
            task.cancel()
        self._lane.close()

    async def _serve(self) -> None:
        for _ in range(_TRIES):
            try:
                await self._bus.run()
            except AlreadyJoined:
                await asyncio.sleep(_PAUSE_S)
            except PalaverError as refusal:
                sys.stderr.write(f"pal: this session is not on the bus: {refusal}\n")
                return

    async def _on_held(self, held: Held) -> None:
        self._word = None
        self._lane.lane.lose()  # the numbers of lanes are those of a connection
        self._say_word()
        if self._lane.word is not None:
            await self._lane.lane.open()
        self._lane.connected()

    def _on_push(self, line: Line) -> None:
        if line.push == "offer":
            self._lane.claim(line, lambda other: None)
        elif line.push == "decision":
            self._lane.decide(line)
        elif line.push == "control":
            sentence = "it runs in no terminal of Palaver"
            self._bus.mention(Tell(ask=line.ask, error="bad_request", message=sentence))

    def _say_word(self) -> None:
        """Say how the session is, and which files it changes. What else it does, its hooks say."""
        word, before = self._lane.word, self._word
        if self._lane.is_over:
            self._is_over.set()
        if word is None or not self._bus.is_connected or self._bus.held is None:
            return
        self._word = word
        if before is None or word.state != before.state or (word.file and word.file != before.file):
            self._bus.mention(
                Status(
                    state=word.state,
                    detail=word.detail,
                    tool=word.tool,
                    command=word.command,
                    file=word.file,
                )
            )


async def _start_nothing() -> bool:
    return False


def is_first(home: str, session: str) -> int | None:
    """Give a descriptor that must stay open while this process is beside a session; None: there is one."""
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


async def _run(home: str, server: Path, session: str, cwd: str) -> None:
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await Companion(home, server, session, cwd, spawn).run()
    for task in list(tasks):
        task.cancel()


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
    session, server = text_in(given, "session_id"), shared_server(os.environ)
    if not session or SEAT_MARK in os.environ or not listens(server):
        return 0
    if is_first(home, session) is None:
        return 0
    gc.freeze()
    asyncio.run(_run(home, server, session, text_in(given, "cwd")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
