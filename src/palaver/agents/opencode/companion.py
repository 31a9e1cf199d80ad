"""The companion process of an OpenCode started without `pal`; its plugin runs one for each directory.

    python -I -m palaver.agents.opencode.companion --home HOME FOLDER

Each session that the user writes in is a separate agent with its own connection, lane and state; it never
receives another agent's messages. The companion starts no daemon, waits for one indefinitely, and ends with
OpenCode, whose pipe it reads. If `pal` runs that OpenCode, it ends at once with the exit status `NOT_NEEDED`.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from palaver import __version__
from palaver.agents.beside import Beside, run_beside
from palaver.agents.bus import Bus
from palaver.agents.native_way import Tell, WayIn
from palaver.agents.net.http_client import Lost, NotSent
from palaver.agents.opencode import wire
from palaver.agents.opencode.lane import OpenCodeLane
from palaver.agents.opencode.place import is_held
from palaver.agents.opencode.relay import Relay, Told, session_in, told_from_line
from palaver.agents.work import Spawn, Work
from palaver.errors import AlreadyJoined
from palaver.harness.hook_news import as_map, text_in
from palaver.harness.instructions import instructions
from palaver.harness.opencode_launch import Began, is_one_turn
from palaver.model.lines.holder_ops import AccompanyOp

MODULE: Final = "palaver.agents.opencode.companion"
HARNESS: Final = "opencode"
NOT_NEEDED: Final = 3
"""The exit status if `pal` itself runs this OpenCode."""
_LIMIT_LINE: Final = 64 * 1024 * 1024

_logger: Final = logging.getLogger("palaver.holder")


class Companion:
    """All sessions of one directory."""

    def __init__(self, home: str, folder: str, write: Callable[[bytes], None]) -> None:
        self._home = home
        self._folder = folder
        self._relay = Relay(write)
        self._attended: dict[str, Beside] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._work = Work()
        self._is_needless = asyncio.Event()
        self._is_woken = True
        self._is_root: dict[str, bool] = {}
        """Whether a session is not a sub-agent's, as far as known."""
        self._asking: set[str] = set()
        """Sessions whose parent is being requested."""

    async def run(self, reader: asyncio.StreamReader) -> int:
        """Read the plugin's lines until the pipe ends; return the exit status."""
        reading = asyncio.ensure_future(self._read(reader))
        needless = asyncio.ensure_future(self._is_needless.wait())
        try:
            await asyncio.wait({reading, needless}, return_when=asyncio.FIRST_COMPLETED)
            return NOT_NEEDED if needless.done() else 0
        finally:
            self._relay.close()
            self._work.cancel()
            tasks = [reading, needless, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._work.settle()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                _logger.warning("a line of OpenCode's plugin is too long, and is passed over")
                continue
            if not line:
                return
            if (told := told_from_line(line)) is not None:
                self._take(told)

    def _take(self, told: Told) -> None:
        if told.arguments is not None:
            self._is_woken = not is_one_turn(told.arguments)
        if told.begun:
            self._look_at(told.begun)
        said = wire.said_from_bytes(bytes(told.event)) if bytes(told.event) else None
        if said is not None:
            self._hear(said)
        self._relay.hear(told)

    def _hear(self, said: wire.Said) -> None:
        info = as_map(said.about.get("info"))
        if said.type in ("session.created", "session.updated"):
            self._is_root.setdefault(text_in(info, "id"), not text_in(info, "parentID"))
        elif said.type == "session.deleted":
            self._forget(text_in(said.about, "sessionID") or text_in(info, "id"))
        elif session := session_in(said):
            self._look_at(session)

    def _look_at(self, session: str) -> None:
        """Attend an active session, unless it is a sub-agent's."""
        if session in self._attended:
            return
        is_root = self._is_root.get(session)
        if is_root is None:
            if session not in self._asking:
                self._asking.add(session)
                self._work.spawn(self._ask_about(session))
        elif is_root:
            self._attend(session)
        else:
            self._relay.tell(session, "")  # Do not delay its prompt: instructions come with its name.

    async def _ask_about(self, session: str) -> None:
        try:
            head, body = await self._relay.ask("GET", wire.session_path(session))
        except (NotSent, Lost):
            return
        finally:
            self._asking.discard(session)
        if head.is_ok:
            info = as_map(wire.json_from_bytes(body))
            self._is_root[session] = not text_in(info, "parentID")
            self._look_at(session)

    def _attend(self, session: str) -> None:
        self._attended[session] = beside = self._beside(session)
        self._tasks[session] = asyncio.get_running_loop().create_task(self._run(beside))

    def _beside(self, session: str) -> Beside:
        def make(bus: Bus, spawn: Spawn, on_word: Tell) -> WayIn:
            return OpenCodeLane(
                self._relay,
                Began(session=session),
                bus,
                spawn=spawn,
                on_word=on_word,
                on_change=lambda: None,
                only=session,
                on_child=lambda child, name: self._relay.tell(child, self._instructions(name)),
            )

        hold = AccompanyOp(harness=HARNESS, session=session, cwd=self._folder, version=__version__)
        return Beside(
            self._home,
            hold,
            make,
            on_held=lambda held: self._relay.tell(session, self._instructions(held.name, held.unsure)),
        )

    def _instructions(self, name: str, unsure: Sequence[int] = ()) -> str:
        return instructions(name, unsure=unsure, is_woken=self._is_woken)

    async def _run(self, beside: Beside) -> None:
        if (await beside.run()).code == AlreadyJoined.code:
            self._is_needless.set()

    def _forget(self, session: str) -> None:
        self._is_root.pop(session, None)
        if (one := self._attended.pop(session, None)) is not None:
            self._work.spawn(self._end(one, self._tasks.pop(session)))

    async def _end(self, one: Beside, task: "asyncio.Task[None]") -> None:
        await one.leave("its session was deleted")
        task.cancel()
        await asyncio.wait({task})


async def _run(home: str, folder: str) -> int:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LIMIT_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    return await Companion(home, folder, lambda line: transport.write(line + b"\n")).run(reader)


def main(arguments: list[str] | None = None) -> int:
    """Run a companion until its pipe ends."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--home", required=True)
    parser.add_argument("folder")
    options = parser.parse_args(arguments)
    if is_held(options.home, os.getppid()):
        return NOT_NEEDED
    return run_beside(_run(options.home, options.folder))


if __name__ == "__main__":
    sys.exit(main())
