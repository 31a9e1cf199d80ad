"""The interface to the server of OpenCode, over HTTP or through its plugin."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from palaver.clock import Clock, SystemClock
from palaver.harness.base import (
    AgentReport,
    Done,
    LaneGate,
    NativeBus,
    PermissionQuestion,
    Spawn,
    TextOutcome,
)
from palaver.harness.hooks import as_list, as_map
from palaver.harness.opencode import wire
from palaver.harness.opencode.launch import Began
from palaver.harness.opencode.sessions import Sessions, asked_of
from palaver.harness.opencode.wire import Head, Lost, NotSent
from palaver.protocol.events import Grade


class OpenCodeServer(Protocol):
    """The server of OpenCode, over either transport."""

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = 30.0
    ) -> tuple[Head, bytes]:
        """Send a request and return the complete response. Raises NotSent or Lost."""

    def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        """Yield the events of a stream in order. Raises NotSent or Lost."""


# --------------------
# Texts on their way into OpenCode sessions, each until it was sent to a model.
#
# A text is sent to a session once. If the response is lost, the session's own messages show whether it
# arrived.

_SEEN: Final = Done(TextOutcome.SEEN, grade=Grade.CONTEXT)


class OpenCodeInjections:
    """The texts that were sent to sessions and are not seen yet."""

    def __init__(self, server: OpenCodeServer, sessions: Sessions, prove: Callable[[str], None]) -> None:
        """`prove` receives the keys of texts that were unconfirmed here and are seen after all."""
        self._server = server
        self._sessions = sessions
        self._prove = prove
        self._waiting: dict[str, tuple[str, asyncio.Future[Done]]] = {}
        """By key: the session, and the future result."""

    @property
    def sessions(self) -> set[str]:
        """The sessions with waiting texts."""
        return {session for session, _ in self._waiting.values()}

    def is_waiting(self, session: str) -> bool:
        """Return whether a text in this session is not known to be seen yet."""
        return any(where == session and not future.done() for where, future in self._waiting.values())

    async def put(self, session: str, text: str, key: str) -> Done:
        """Send a text to a session, and wait until it was sent to the model or cannot be any more."""
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._waiting[key] = session, future
        try:
            return await self._send(session, text, key) or await future
        finally:
            self._waiting.pop(key, None)

    async def _send(self, session: str, text: str, key: str) -> Done | None:
        """Send a text; None if it arrived or may have arrived: then the events decide the result."""
        body = wire.prompt_body(text, key, self._sessions.manner_of(session))
        try:
            head, _ = await self._server.ask("POST", wire.prompt_path(session), body)
        except NotSent as error:
            return Done(TextOutcome.DEFERRED, f"OpenCode does not respond: {error}")
        except Lost:
            return None
        if head.status == wire.NOT_FOUND:
            self._sessions.hear(wire.OpenCodeEvent("session.deleted", {"sessionID": session}))
            return Done(TextOutcome.DEFERRED, "its session was deleted")
        return None if head.is_ok else Done(TextOutcome.REFUSED, f"OpenCode responded with {head.status}")

    def settle(self) -> None:
        """Finish every text that was sent to the model, and those that no turn will read now."""
        for key in self._sessions.take_seen():
            if (waiting := self._waiting.get(key)) is None:
                self._prove(key)
            elif not waiting[1].done():
                waiting[1].set_result(_SEEN)
        for key, (session, future) in self._waiting.items():
            if future.done():
                continue
            if not self._sessions.has(session):
                future.set_result(Done(TextOutcome.UNCONFIRMED, "its session was deleted"))
            elif self._sessions.has_text(key) and self._sessions.has_stopped(session):
                future.set_result(Done(TextOutcome.UNCONFIRMED, "its turn was aborted"))

    def missed(self) -> None:
        """Finish the texts that are not in the sessions, after all messages were read: they never arrived."""
        for key, (_, future) in self._waiting.items():
            if not self._sessions.has_text(key) and not future.done():
                future.set_result(Done(TextOutcome.DEFERRED, "OpenCode did not accept it"))


# --------------------
# The permission requests of OpenCode, and the user's decisions passed on to it.
#
# A request can be decided remotely only if it is known in full, with the input of the tool. Everything else
# must be answered at the terminal.

_logger: Final = logging.getLogger("palaver.holder")


class OpenCodeAsker:
    """The requests in the agent's session and those of its sub-agents."""

    def __init__(self, server: OpenCodeServer, sessions: Sessions) -> None:
        self._server = server
        self._sessions = sessions

    async def reply(self, asked: PermissionQuestion, *, is_allowed: bool) -> bool:
        """Pass a decision on if exactly this request is still open; return whether the server accepted it."""
        try:
            return await self._reply(asked, is_allowed=is_allowed)
        except (NotSent, Lost) as error:
            _logger.warning("a person's decision did not reach OpenCode: %s", error)
            return False

    async def _reply(self, asked: PermissionQuestion, *, is_allowed: bool) -> bool:
        head, body = await self._server.ask("GET", wire.PERMISSIONS)
        found = [asked_of(one) for one in as_list(wire.json_from_bytes(body))] if head.is_ok else []
        if asked not in map(self._sessions.whole, found):
            return False
        reply = wire.reply_body(is_allowed=is_allowed)
        head, _ = await self._server.ask("POST", wire.reply_path(asked.request), reply)
        return head.is_ok


# --------------------
# The integration of OpenCode: its server accepts texts for the session that its terminal UI shows.
#
# The server listens on a local port with a random password. A text wakes an idle session; a busy one reads
# it with its next step; the user's draft is kept. The server's events report the status of its sessions,
# and when a text was sent to the model. While a question to the user is open, nothing is delivered. A
# permission is granted only by the user's own decision. If the server is lost permanently, this lane ends
# and the terminal lane is used.

START_LIMIT_S: Final = 120.0
"""Seconds that the server may take until it listens, or until it has copied the session to continue."""
BACK_LIMIT_S: Final = 15.0
"""Seconds that the server may be offline after that."""
_HEALTH_S: Final = 3.0
_FIRST_S: Final = 10.0
"""Seconds to wait for the first event: a request during the server's start may never be answered."""
_SILENCE_S: Final = 45.0
"""Seconds without an event before the stream is lost. The server sends a heartbeat every ten seconds."""
_PAUSE_S: Final = 0.2
_LIMIT_MESSAGES: Final = 100


class OpenCodeIntegration:
    """One OpenCode from start to exit, or only the session named by `only`.

    Each sub-agent has a child session of the agent's session; it exists while that session is busy.
    """

    ending = "done"

    def __init__(
        self,
        server: OpenCodeServer,
        began: Began,
        bus: NativeBus,
        *,
        spawn: Spawn,
        only: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._server = server
        self._began = began
        self._bus = bus
        self._spawn = spawn
        self._clock = clock or SystemClock()
        manner = wire.ReplySettings(agent=began.agent, provider=began.provider, model=began.model)
        self._sessions = Sessions(manner, only=only)
        self._texts = OpenCodeInjections(server, self._sessions, bus.prove)
        self._asker = OpenCodeAsker(server, self._sessions)
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_there = False
        self.is_over = False
        """Whether the integration has ended permanently or could never be reached."""

    @property
    def status(self) -> AgentReport | None:
        """The status of the agent; None while unknown."""
        return self._sessions.word if self._is_there else None

    @property
    def session(self) -> str:
        """The session that receives texts; empty while there is no session."""
        return self._sessions.current

    def start(self) -> None:
        """Connect to the server once it listens. Repeats have no effect."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Disconnect from the server."""
        if self._task is not None:
            self._task.cancel()
        self._give_up()

    # The server

    async def _run(self) -> None:
        """Follow the server until it is lost permanently."""
        loop = asyncio.get_running_loop()
        limit, word = loop.time() + START_LIMIT_S, "never came"
        while loop.time() < limit:
            try:
                await self._follow()
            except (NotSent, Lost) as error:
                _logger.debug("OpenCode's server: %s", error)
            except Exception:  # Any error must end in the fallback to the terminal lane.
                _logger.exception("OpenCode's server sent an unknown response")
            if self._is_there:
                self._is_there, word = False, "is gone"
                limit = loop.time() + BACK_LIMIT_S
                self._bus.report()
            await asyncio.sleep(_PAUSE_S)
        _logger.warning("OpenCode's server %s", word)
        self._give_up()

    def _give_up(self) -> None:
        if not self.is_over:
            self.is_over, self._is_there = True, False
            self._set_timer(0)
            self._bus.close()
            self._bus.report()

    async def _follow(self) -> None:
        await self._server.ask("GET", wire.HEALTH, limit_s=_HEALTH_S)
        async for data in self._server.follow(wire.EVENTS, first_s=_FIRST_S, silence_s=_SILENCE_S):
            if (event := wire.event_from_bytes(data)) is None:
                continue
            if event.type == "server.connected":
                # Later events stay queued in the stream until this is done.
                await self._look_around()
            else:
                self._sessions.hear(event, self._clock.now_ms())
                self._texts.settle()
            if not self._awaits_copy:
                self._come()

    @property
    def _awaits_copy(self) -> bool:
        """Whether it has yet to copy the session that it was started with: a text would begin another one."""
        limit_ms = self._began.started_ms + START_LIMIT_S * 1000
        return self._began.is_fork and not self._sessions.current and self._clock.now_ms() < limit_ms

    async def _look_around(self) -> None:
        """Read the current state of the server, to catch up on missed events."""
        sessions = self._sessions
        sessions.listed(await self._get(wire.SESSIONS))
        if not sessions.current:
            sessions.choose(self._first_session())
        sessions.statuses(await self._get(wire.STATUSES), self._clock.now_ms())
        sessions.questions(await self._get(wire.PERMISSIONS), is_permission=True)
        sessions.questions(await self._get(wire.QUESTIONS), is_permission=False)
        for session in self._texts.sessions | sessions.asking() | {sessions.current} - {""}:
            current = sessions.current
            for event in wire.events_in_messages(await self._messages(session)):
                sessions.hear(event)
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
        """Return the last messages of a session.

        Raises Lost if they cannot be read: any text may be among them.
        """
        head, body = await self._server.ask("GET", wire.messages_path(session, _LIMIT_MESSAGES))
        if head.status == wire.NOT_FOUND:
            self._sessions.hear(wire.OpenCodeEvent("session.deleted", {"sessionID": session}))
        elif not head.is_ok:
            raise Lost(f"OpenCode answered {head.status} when its messages were read")
        return wire.json_from_bytes(body) if head.is_ok else None

    async def _get(self, path: str) -> object:
        head, body = await self._server.ask("GET", path)
        return wire.json_from_bytes(body) if head.is_ok else None

    def _come(self) -> None:
        if not self._is_there:
            self._is_there = True
            self._spawn(self._bus.open())
        self._tell()

    def _settle(self) -> None:
        """Finish texts with a known outcome, and report changes."""
        self._texts.settle()
        if self._is_there:
            self._tell()

    def _tell(self) -> None:
        self._bus.update()
        self._set_timer(self._sessions.limit_ends_ms())
        self._bus.report()

    def _set_timer(self, ends_ms: int) -> None:
        """Check again at the end of a usage limit; 0 means never."""
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

    async def carry(self, key: str, text: str, mark: str) -> Done:
        """Send a text to a session, and wait until it was sent to the model."""
        try:
            session = key or self._sessions.current or await self._begin_session()
            return await self._texts.put(session, text, mark)
        except (NotSent, Lost) as error:
            return Done(TextOutcome.DEFERRED, f"OpenCode does not respond: {error}")

    def is_waiting(self, key: str) -> bool:
        """Return whether a text was sent to a session and is not known to be seen yet."""
        return self._texts.is_waiting(key)

    async def _begin_session(self) -> str:
        """Create a session if there is no session yet, and show it in the terminal UI.

        Keep the user's draft.
        """
        body = wire.session_body(self._sessions.manner)
        head, answer = await self._server.ask("POST", wire.SESSIONS, body)
        info = as_map(wire.json_from_bytes(answer))
        session = info.get("id")
        if not head.is_ok or not isinstance(session, str):
            raise Lost(f"it answered {head.status} when a session was created")
        self._sessions.listed([info])
        self._sessions.choose(session)
        await self._server.ask("POST", wire.SELECT, wire.select_body(session))
        return session

    # Sub-agents and permissions

    def subagents(self) -> dict[str, tuple[str, str]]:
        """Return the busy sub-agents by session, parents first: the parent session and the kind of each."""
        return self._sessions.children()

    def status_of(self, key: str) -> AgentReport:
        """Return the current status of a session, including open questions of its sub-agents."""
        return self._sessions.word_of(key)

    def gate_of(self, key: str) -> LaneGate:
        """Return whether a message can be delivered to a session now."""
        return self._sessions.level_of(key) if key else self._sessions.level

    def questions(self) -> dict[str, PermissionQuestion]:
        """Return the open permission requests by id."""
        return self._sessions.permissions()

    async def decide(self, question: PermissionQuestion, *, is_allowed: bool) -> bool:
        """Pass a decision on if exactly this request is still open; return whether the server accepted it."""
        return await self._asker.reply(question, is_allowed=is_allowed)
