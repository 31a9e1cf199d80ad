"""OpenCode's own way in: its terminal's server takes texts for the session that the terminal shows.

It listens on a port of this machine, behind a password that was drawn for it. Idle, a text wakes it; busy, it
goes along with its next step; a person's draft stays. Its events say what its sessions do, and when the model
was asked with a text of ours. While a person is asked something nothing is put to it, and a permission is
answered only by a person's own word. When the server is lost for good, so is this lane, and the terminal is
left.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from palaver.agents.bus import Bus
from palaver.agents.native_way import Reach
from palaver.agents.native_word import Word
from palaver.agents.net.http_client import Lost, NotSent
from palaver.agents.opencode import wire
from palaver.agents.opencode.asking import Asking
from palaver.agents.opencode.permissions import OpenCodeAsker
from palaver.agents.opencode.sessions import Sessions
from palaver.agents.opencode.subagents import SessionsBelow
from palaver.agents.opencode.texts import Texts
from palaver.agents.typing.steps import Answer, Done
from palaver.agents.work import Spawn
from palaver.clock import Clock, SystemClock
from palaver.harness.hook_news import as_map
from palaver.harness.opencode_launch import Began

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

_logger: Final = logging.getLogger("palaver.holder")


class OpenCodeLane:
    """One OpenCode, from its start to its end; or, where `only` names one, a single session of it."""

    def __init__(
        self,
        server: Asking,
        began: Began,
        bus: Bus,
        *,
        spawn: Spawn,
        on_word: Callable[[], None],
        on_change: Callable[[], None],
        only: str = "",
        clock: Clock | None = None,
        on_child: Callable[[str, str], None] = lambda session, name: None,
    ) -> None:
        """`on_word`: the agent's state may have changed, or this lane has come or gone.

        `on_child` is told the session and the name of each sub-agent.
        """
        self._server = server
        self._began = began
        self._bus = bus
        self._spawn = spawn
        self._on_word = on_word
        self._clock = clock or SystemClock()
        manner = wire.Manner(agent=began.agent, provider=began.provider, model=began.model)
        self._sessions = Sessions(manner, only=only)
        self._texts = Texts(server, self._sessions, self._prove)
        below = SessionsBelow(self._sessions, self._texts)
        asker = OpenCodeAsker(server, self._sessions)
        self.reach = Reach(
            bus, self._carry, below, asker, spawn=spawn, on_change=on_change, on_child=on_child
        )
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_there = False
        self.is_over = False
        """It is gone for good, or could never be reached."""

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

    # The server

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
            self._set_timer(0)
            self.reach.close()
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
                self._sessions.hear(said, self._clock.now_ms())
                self._settle()

    async def _look_around(self) -> None:
        """Learn all that was said while nobody listened."""
        sessions = self._sessions
        sessions.listed(await self._get(wire.SESSIONS))
        if not sessions.current:
            sessions.choose(self._first_session())
        sessions.statuses(await self._get(wire.STATUSES), self._clock.now_ms())
        sessions.questions(await self._get(wire.PERMISSIONS), is_permission=True)
        sessions.questions(await self._get(wire.QUESTIONS), is_permission=False)
        for session in self._texts.sessions | sessions.asking() | {sessions.current} - {""}:
            current = sessions.current
            for said in wire.said_in_messages(await self._messages(session)):
                sessions.hear(said)
            sessions.choose(current if sessions.has(current) else "")
        self._settle()
        self._texts.missed()

    def _first_session(self) -> str:
        began = self._began
        if began.session and not began.is_fork:
            return began.session
        if began.is_continued and not began.is_fork:
            return self._sessions.newest(0)
        return self._sessions.newest(began.started_ms, by_creation=began.is_fork)

    async def _messages(self, session: str) -> object:
        """Give what was last said in a session. Raises Lost: what cannot be read may hold anything."""
        head, body = await self._server.ask("GET", wire.messages_path(session, _LIMIT_MESSAGES))
        if head.status == wire.NOT_FOUND:
            self._sessions.hear(wire.Said("session.deleted", {"sessionID": session}))
        elif not head.is_ok:
            raise Lost(f"OpenCode answered {head.status} when it was asked what was said")
        return wire.json_from_bytes(body) if head.is_ok else None

    async def _get(self, path: str) -> object:
        head, body = await self._server.ask("GET", path)
        return wire.json_from_bytes(body) if head.is_ok else None

    def _come(self) -> None:
        if not self._is_there:
            self._is_there = True
            self._spawn(self.reach.lane.try_open())
        self._tell()

    def _settle(self) -> None:
        """Let go of what has come to its end, and tell what is new."""
        if self._sessions.current:
            self._bus.bind(self._sessions.current)
        self._texts.settle()
        if self._is_there:
            self._tell()

    def _tell(self) -> None:
        level = self._sessions.level
        self.reach.lane.set_level(level.gate, is_paused=level.is_paused)
        self.reach.subagents.look()
        self.reach.permissions.look()
        self._set_timer(self._sessions.limit_ends_ms())
        self._on_word()

    def _set_timer(self, ends_ms: int) -> None:
        """Look again when an allowance is there again; 0 for never."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if ends_ms:
            wait_s = max(0, ends_ms - self._clock.now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._limit_over)

    def _limit_over(self) -> None:
        self._timer = None
        self._sessions.limit_over(self._clock.now_ms())
        self._settle()

    # Texts

    async def _carry(self, text: str, key: str) -> Done:
        """Put a text to the session, and wait until the model was asked with it."""
        try:
            session = self._sessions.current or await self._begin_session()
            return await self._texts.put(session, text, key)
        except (NotSent, Lost) as error:
            return Done(Answer.DEFERRED, f"OpenCode does not answer: {error}")

    def _prove(self, key: str) -> None:
        self.reach.lane.prove(key)
        self.reach.subagents.prove(key)

    async def _begin_session(self) -> str:
        """Begin a session where there is none yet, and have the terminal show it: a person's draft stays."""
        body = wire.session_body(self._sessions.manner)
        head, answer = await self._server.ask("POST", wire.SESSIONS, body)
        info = as_map(wire.json_from_bytes(answer))
        session = info.get("id")
        if not head.is_ok or not isinstance(session, str):
            raise Lost(f"it answered {head.status} when a session was to begin")
        self._sessions.listed([info])
        self._sessions.choose(session)
        await self._server.ask("POST", wire.SELECT, wire.select_body(session))
        return session
