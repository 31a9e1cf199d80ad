"""OpenCode's own way in: its terminal's server takes texts for the session that the terminal shows.

It listens on a port of this machine, behind a password that was drawn for it. Idle, a text wakes it; busy, it
goes along with its next step; a person's draft stays. Its events say what its sessions do, and when the model
was asked with a text of ours. While a person is asked something nothing is put to it, and no permission is
ever answered here. When the server is lost for good, so is this lane, and the terminal is left.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from palaver.agents import opencode_wire as wire
from palaver.agents.bus import Bus
from palaver.agents.http_client import Lost, NotSent, Server
from palaver.agents.native_lane import NativeLane
from palaver.agents.native_word import Word
from palaver.agents.opencode_place import read_place, write_told
from palaver.agents.opencode_sessions import Sessions
from palaver.agents.steps import Answer, Done
from palaver.errors import PalaverError
from palaver.harness.opencode_launch import Began
from palaver.model.delivery import Grade

START_LIMIT_S: Final = 120.0
"""So long it may take until its server listens."""
BACK_LIMIT_S: Final = 15.0
"""So long it may be away afterwards."""
_HEALTH_S: Final = 3.0
_FIRST_S: Final = 10.0
"""What is asked in the very moment it begins to listen may never be answered."""
_SILENCE_S: Final = 45.0
"""It says every ten seconds that it is there."""
_PAUSE_S: Final = 0.2
_LIMIT_MESSAGES: Final = 100
_NOT_FOUND: Final = 404
_SEEN: Final = Done(Answer.SEEN, grade=Grade.CONTEXT)

_logger: Final = logging.getLogger("palaver.holder")


Spawn = Callable[[Coroutine[Any, Any, None]], object]


class OpenCodeLane:
    """One OpenCode, from its start to its end."""

    def __init__(
        self,
        server: Server,
        began: Began,
        bus: Bus,
        *,
        spawn: Spawn,
        on_word: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        """`on_word`: the agent's state may have changed, or this lane has come or gone."""
        self._server = server
        self._began = began
        self._bus = bus
        self._spawn = spawn
        self._on_word = on_word
        self._sessions = Sessions(wire.Manner(agent=began.agent, provider=began.provider, model=began.model))
        self._waiting: dict[str, tuple[str, asyncio.Future[Done]]] = {}
        """Texts on their way, by key: their session, and what became of them."""
        self._task: asyncio.Task[None] | None = None
        self._is_there = False
        self.is_over = False
        """It is gone for good, or could never be reached."""
        self.lane = NativeLane(bus, self._carry, on_change)

    @property
    def word(self) -> Word | None:
        """What the agent does, None while that is not known."""
        return self._sessions.word if self._is_there else None

    @property
    def session(self) -> str:
        """The session that texts are put to, empty while there is none."""
        return self._sessions.current

    def start(self) -> None:
        """Reach the server, once it listens; again is nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Let go of the server."""
        if self._task is not None:
            self._task.cancel()
        self._give_up()

    async def _run(self) -> None:
        """Follow the server until it is lost for good."""
        loop = asyncio.get_running_loop()
        limit, word = loop.time() + START_LIMIT_S, "never came"
        while loop.time() < limit:
            try:
                await self._follow()
            except (NotSent, Lost) as error:
                _logger.debug("OpenCode's server: %s", error)
            except Exception:  # whatever it says, the terminal must be left to carry in the end
                _logger.exception("OpenCode's server was not understood")
            if self._is_there:
                self._is_there, word = False, "is gone"
                limit = loop.time() + BACK_LIMIT_S
                self._on_word()
            await asyncio.sleep(_PAUSE_S)
        _logger.warning("OpenCode's server %s", word)
        self._give_up()

    def _give_up(self) -> None:
        if not self.is_over:
            self.is_over, self._is_there = True, False
            self.lane.close()
            self._on_word()

    async def _follow(self) -> None:
        await self._server.ask("GET", wire.HEALTH, limit_s=_HEALTH_S)
        async for data in self._server.follow(wire.EVENTS, first_s=_FIRST_S, silence_s=_SILENCE_S):
            if (said := wire.said_from_bytes(data)) is None:
                continue
            if said.type == "server.connected":
                # Read while nothing more is heard: what happens meanwhile comes behind it in the stream.
                await self._look_around()
                self._come()
            else:
                self._sessions.hear(said)
                self._settle()

    async def _look_around(self) -> None:
        """Learn all that was said while nobody listened."""
        sessions = self._sessions
        sessions.listed(await self._get(wire.SESSIONS))
        if not sessions.current:
            sessions.choose(self._first_session())
        sessions.statuses(await self._get(wire.STATUSES))
        sessions.questions(await self._get(wire.PERMISSIONS), is_permission=True)
        sessions.questions(await self._get(wire.QUESTIONS), is_permission=False)
        for session in {session for session, _ in self._waiting.values()} | {sessions.current} - {""}:
            current = sessions.current
            for said in wire.said_in_messages(await self._get(wire.messages_path(session, _LIMIT_MESSAGES))):
                sessions.hear(said)
            sessions.choose(current)
        self._settle()
        for key, (_, future) in list(self._waiting.items()):
            if not sessions.has_text(key) and not future.done():
                future.set_result(Done(Answer.DEFERRED, "OpenCode has not taken it"))

    def _first_session(self) -> str:
        began = self._began
        if began.session and not began.is_fork:
            return began.session
        if began.is_continued and not began.is_fork:
            return self._sessions.newest(0)
        return self._sessions.newest(began.started_ms, by_creation=began.is_fork)

    async def _get(self, path: str) -> object:
        head, body = await self._server.ask("GET", path)
        return wire.json_from_bytes(body) if head.is_ok else None

    def _come(self) -> None:
        if not self._is_there:
            self._is_there = True
            self._spawn(self._open())
        self._tell()

    async def _open(self) -> None:
        try:
            await self.lane.open()
        except PalaverError as error:
            _logger.info("the native lane waits for the daemon: %s", error)

    def _settle(self) -> None:
        """Let go of every text that the model was asked with, and tell what is new."""
        if self._sessions.current:
            self._bus.bind(self._sessions.current)
        for key in self._sessions.take_seen():
            if (waiting := self._waiting.get(key)) is not None and not waiting[1].done():
                waiting[1].set_result(_SEEN)
        if self._is_there:
            self._tell()

    def _tell(self) -> None:
        level = self._sessions.level
        self.lane.set_level(level.gate, is_paused=level.is_paused)
        self._on_word()

    # Texts

    async def _carry(self, text: str, key: str) -> Done:
        """Put a text to the session, and wait until the model was asked with it."""
        try:
            session = self._sessions.current or await self._begin_session()
            future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
            self._waiting[key] = session, future
            done = await self._put(session, text, key) or await future
        except (NotSent, Lost) as error:
            done = Done(Answer.DEFERRED, f"OpenCode does not answer: {error}")
        finally:
            self._waiting.pop(key, None)
        return done

    async def _put(self, session: str, text: str, key: str) -> Done | None:
        """Send a text; None when it is there, or may be: then the events say what became of it."""
        body = wire.prompt_body(text, key, self._sessions.manner)
        try:
            head, _ = await self._server.ask("POST", wire.prompt_path(session), body)
        except Lost:
            return None
        if head.status == _NOT_FOUND and session == self._sessions.current:
            self._sessions.hear(wire.Said("session.deleted", {"sessionID": session}))
            return Done(Answer.DEFERRED, "its session was deleted")
        return None if head.is_ok else Done(Answer.REFUSED, f"OpenCode answered {head.status}")

    async def _begin_session(self) -> str:
        """Begin a session where there is none yet, and have the terminal show it: a person's draft stays."""
        body = wire.session_body(self._sessions.manner)
        head, answer = await self._server.ask("POST", wire.SESSIONS, body)
        info = wire.as_map(wire.json_from_bytes(answer))
        session = info.get("id")
        if not head.is_ok or not isinstance(session, str):
            raise Lost(f"it answered {head.status} when a session was to begin")
        self._sessions.listed([info])
        self._sessions.choose(session)
        await self._server.ask("POST", wire.SELECT, wire.select_body(session))
        return session


def opencode_lane(
    path: Path, bus: Bus, *, spawn: Spawn, on_word: Callable[[], None], on_change: Callable[[], None]
) -> OpenCodeLane:
    """Make the lane of a place, and tell its agent its name before it starts.

    Where the place cannot be read, or not be written, the lane is over before it began.
    """
    place = read_place(path)
    server = Server(place.port, place.user, place.password) if place else Server(0, "", "")
    began = place.began if place else Began()
    made = OpenCodeLane(server, began, bus, spawn=spawn, on_word=on_word, on_change=on_change)
    made.is_over = place is None
    if bus.held is not None:
        try:
            write_told(path, bus.held.name)
        except OSError as error:
            _logger.warning("%s is not told about the bus: %s", bus.held.name, error)
    return made
