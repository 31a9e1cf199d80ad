"""The process that stands beside an OpenCode started without `pal`: its plugin runs one for each folder.

    python -I -m palaver.agents.opencode.companion --home HOME FOLDER

Each session in which somebody writes is an agent of its own, with its own connection, lane and state: none
ever has another's mail. It starts no daemon, waits for one as long as it takes, and ends with OpenCode, whose
pipe it reads. Where `pal` runs that OpenCode, it has nothing to do and says so by its exit status.
"""

import argparse
import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from palaver import __version__
from palaver.agents.bus import Bus, Held
from palaver.agents.native_word import Word
from palaver.agents.net.http_client import Lost, NotSent
from palaver.agents.opencode import wire
from palaver.agents.opencode.lane import OpenCodeLane
from palaver.agents.opencode.relay import Relay, session_in, told_from_line
from palaver.client.request import Accompany, Leave, Status, Tell
from palaver.client.wire import Line
from palaver.errors import AlreadyJoined, PalaverError
from palaver.harness.hook_news import text_in
from palaver.harness.instructions import instructions
from palaver.harness.opencode_launch import Began

MODULE: Final = "palaver.agents.opencode.companion"
HARNESS: Final = "opencode"
NOT_NEEDED: Final = 3
"""The exit status where `pal` itself runs this OpenCode."""
_LIMIT_LINE: Final = 64 * 1024 * 1024

_logger: Final = logging.getLogger("palaver.holder")

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Attended:
    """One session, as the agent that it is."""

    def __init__(
        self, home: str, relay: Relay, session: str, cwd: str, spawn: Spawn, on_needless: Callable[[], None]
    ) -> None:
        """`on_needless` is told when this OpenCode is somebody already."""
        self._relay = relay
        self._session = session
        self._spawn = spawn
        self._on_needless = on_needless
        self._word: Word | None = None
        hold = Accompany(harness=HARNESS, session=session, cwd=cwd, version=__version__)
        self._bus = Bus(home, hold, self._on_held, self._on_push, _start_nothing)
        self._lane = OpenCodeLane(
            relay,
            Began(session=session),
            self._bus,
            spawn=spawn,
            on_word=self._say_word,
            on_change=lambda: None,
            only=session,
            on_child=self._tell_child,
        )

    async def run(self) -> None:
        """Be there until cancelled, or refused for good."""
        try:
            await self._bus.run()
        except PalaverError as refusal:
            if refusal.code == AlreadyJoined.code:
                self._on_needless()
            _logger.warning("session %s is not on the bus: %s: %s", self._session, refusal.code, refusal)
        finally:
            self._lane.close()

    async def leave(self) -> None:
        """The session was deleted."""
        try:
            await self._bus.ask(Leave(reason="its session was deleted"))
        except PalaverError as error:
            _logger.info("session %s was deleted: %s", self._session, error)

    async def _on_held(self, held: Held) -> None:
        self._relay.tell(self._session, instructions(held.name, unsure=held.unsure))
        self._word = None
        self._lane.lane.lose()  # the numbers of lanes are those of a connection
        self._lane.start()
        self._say_word()
        if self._lane.word is not None:
            await self._lane.lane.open()
        self._lane.connected()

    def _tell_child(self, session: str, name: str) -> None:
        self._relay.tell(session, instructions(name))

    def _say_word(self) -> None:
        word = self._lane.word
        if word is None or word == self._word or not self._bus.is_connected or self._bus.held is None:
            return
        self._word = word
        self._bus.mention(
            Status(state=word.state, detail=word.detail, tool=word.tool, command=word.command, file=word.file)
        )

    def _on_push(self, line: Line) -> None:
        if line.push == "offer":
            self._lane.claim(line, lambda other: _logger.warning("an offer for lane %d", other.lane))
        elif line.push == "decision":
            self._lane.decide(line)
        elif line.push == "control":
            sentence = "it runs in no terminal of Palaver"
            self._bus.mention(Tell(ask=line.ask, error="bad_request", message=sentence))


class Companion:
    """All sessions of one folder."""

    def __init__(self, home: str, folder: str, write: Callable[[bytes], None]) -> None:
        self._home = home
        self._folder = folder
        self._relay = Relay(write)
        self._attended: dict[str, Attended] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._is_needless = asyncio.Event()
        self._looked_at: dict[str, bool] = {}
        """Sessions of which it is known, or being asked, whether they are sub-agents'."""

    async def run(self, reader: asyncio.StreamReader) -> int:
        """Read what the plugin says until it ends, and give the exit status."""
        reading = asyncio.ensure_future(self._read(reader))
        needless = asyncio.ensure_future(self._is_needless.wait())
        try:
            await asyncio.wait({reading, needless}, return_when=asyncio.FIRST_COMPLETED)
            return NOT_NEEDED if needless.done() else 0
        finally:
            self._relay.close()
            tasks = [reading, needless, *self._tasks.values(), *self._work]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if (told := told_from_line(line)) is None:
                continue
            if told.begun:
                self._look_at(told.begun)
            said = wire.said_from_bytes(bytes(told.event)) if bytes(told.event) else None
            if said is not None:
                self._hear(said)
            self._relay.hear(told)

    def _hear(self, said: wire.Said) -> None:
        info = wire.as_map(said.about.get("info"))
        if said.type in ("session.created", "session.updated"):
            self._looked_at.setdefault(text_in(info, "id"), not text_in(info, "parentID"))
        elif said.type == "session.deleted":
            self._forget(text_in(said.about, "sessionID") or text_in(info, "id"))
        elif session := session_in(said):
            self._look_at(session)

    def _look_at(self, session: str) -> None:
        """Be there for a session that is worked in, if it is nobody's sub-agent."""
        if session in self._attended:
            return
        is_root = self._looked_at.get(session)
        if is_root is None:
            self._spawn(self._ask_about(session))
        elif is_root:
            self._attend(session)
        else:
            self._relay.tell(session, "")  # nobody waits for what its parent's companion will say

    async def _ask_about(self, session: str) -> None:
        try:
            head, body = await self._relay.ask("GET", wire.session_path(session))
        except (NotSent, Lost):
            return
        if head.is_ok:
            info = wire.as_map(wire.json_from_bytes(body))
            self._looked_at[session] = not text_in(info, "parentID")
            self._look_at(session)

    def _attend(self, session: str) -> None:
        made = Attended(self._home, self._relay, session, self._folder, self._spawn, self._is_needless.set)
        self._attended[session] = made
        self._tasks[session] = asyncio.get_running_loop().create_task(made.run())

    def _forget(self, session: str) -> None:
        self._looked_at.pop(session, None)
        if (one := self._attended.pop(session, None)) is not None:
            self._spawn(self._end(one, self._tasks.pop(session)))

    async def _end(self, one: Attended, task: "asyncio.Task[None]") -> None:
        await one.leave()
        task.cancel()
        await asyncio.wait({task})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(_guard(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)


async def _guard(work: Coroutine[Any, Any, None]) -> None:
    """Do some work; what goes wrong in it must not end the others."""
    try:
        await work
    except Exception:
        _logger.exception("something went wrong beside OpenCode")


async def _start_nothing() -> bool:
    """A harness that was started without `pal` starts no daemon either."""
    return False


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
    os.umask(0o077)
    os.chdir("/")  # a folder that somebody wants to take away is not held by this
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s", level=logging.WARNING)
    gc.freeze()
    return asyncio.run(_run(options.home, options.folder))


if __name__ == "__main__":
    sys.exit(main())
