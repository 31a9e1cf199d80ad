"""The native lane of Codex: a client of its app-server that delivers messages into the user's thread.

In an idle thread, a message starts a turn. During a tool call, it is added to the turn. While the model
writes, only an interrupt is delivered, because it stops the model. While a question to the user is open,
nothing is delivered. The server's own report proves that a text is in the thread. Sub-agents have their own
lanes. If the server is lost, all lanes end, and offers in progress become unconfirmed.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from palaver.agents.bus import Bus
from palaver.agents.codex import wire
from palaver.agents.codex.client import CodexClient, Refused
from palaver.agents.codex.looks import Looks
from palaver.agents.codex.permissions import CodexAsker
from palaver.agents.codex.subagents import ThreadsBelow
from palaver.agents.codex.texts import Texts, UnknownQuestion
from palaver.agents.codex.threads import Threads
from palaver.agents.native_way import Reach
from palaver.agents.native_word import Word
from palaver.agents.typing.steps import Answer, Done
from palaver.agents.work import Spawn
from palaver.clock import Clock
from palaver.errors import Disconnected, PalaverError
from palaver.harness.hook_news import one_line
from palaver.harness.usage_reset import limit_ends_ms

_SUBSCRIBE_PAUSES_S: Final = (0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between attempts. A new thread accepts subscribers only after its file exists."""
_LOADING_PAUSES_S: Final = (*_SUBSCRIBE_PAUSES_S, *[2.0] * 30)
_TOOLS_LIMIT_S: Final = 60.0
"""Longest wait for our tools to start. Codex itself gives an MCP server less time by default."""
_LIMIT_TROUBLE: Final = 200
_LIMIT_S: Final = 300.0
"""Seconds for which a usage limit is assumed if its end is unknown."""

_logger: Final = logging.getLogger("palaver.holder")


class CodexLane:
    """The integration, from the time the app-server can be reached until it exits."""

    def __init__(
        self,
        path: Path,
        bus: Bus,
        *,
        clock: Clock,
        spawn: Spawn,
        on_word: Callable[[], None],
        on_change: Callable[[], None],
        only: str = "",
        tools_limit_s: float = _TOOLS_LIMIT_S,
    ) -> None:
        """`on_word` is called when the agent's status changes, and when this lane begins or ends.

        `only` is the id of the agent's thread, for a server with other users. After `tools_limit_s` seconds
        messages are delivered even if our tools have not started.
        """
        self._tools_limit_s = tools_limit_s
        self._bus = bus
        self._clock = clock
        self._spawn = spawn
        self._on_word = on_word
        self._client = CodexClient(path, self._hear, self._lose)
        self._threads = Threads(only)
        self._heard: set[str] = set()
        """The threads that we are subscribed to."""
        self._looks = Looks(self._look_at, spawn)
        self._texts = Texts(self._client, self._threads, spawn, self._on_begun)
        below = ThreadsBelow(self._threads, self._texts)
        self._asker = CodexAsker(self._client, self._threads)
        self.reach = Reach(bus, self._carry, below, self._asker, spawn=spawn, on_change=on_change)
        self._lift: asyncio.TimerHandle | None = None
        self._has_started = False
        self.is_over = False
        """Whether the integration has ended permanently or could never be reached."""
        self.word: Word | None = None
        """The status of the agent; None while unknown."""

    def start(self) -> None:
        """Connect to the server.

        The user's terminal UI must be connected already: the server is named after its first client.
        """
        if not self._has_started:
            self._has_started = True
            self._spawn(self._run())

    # The server

    async def _run(self) -> None:
        try:
            await self._client.open()
            loaded = wire.result_as(await self._client.ask(*wire.list_loaded()), wire.Loaded)
            found = [await self._read(thread) for thread in loaded.data]
            ours = sorted((one for one in found if one is not None), key=lambda one: one.moment)
            for thread in ours:
                self._threads.found(thread)
        except (PalaverError, Refused) as error:
            self._give_up(f"the app-server of Codex cannot be used: {error}")
            return
        self._update()
        self._spawn(self._wait_until_loaded())
        await self._subscribe(self._threads.current)
        await self.reach.lane.try_open()

    async def _read(self, thread: str) -> wire.Thread | None:
        try:
            answer = await self._client.ask(*wire.read_thread(thread))
        except Refused:
            return None  # The thread has ended in the meantime.
        return wire.result_as(answer, wire.ThreadRead).thread

    def close(self) -> None:
        """Disconnect from the server."""
        self._client.close()
        self._give_up("")

    def _lose(self, error: Disconnected) -> None:
        self._give_up(f"the app-server of Codex is lost: {error}")

    def _give_up(self, reason: str) -> None:
        if self.is_over:
            return
        self.is_over, self.word = True, None
        if reason:
            _logger.warning("%s", reason)
        if self._lift is not None:
            self._lift.cancel()
        self._texts.close()
        self._asker.close()
        self.reach.close()
        self._on_word()

    # Messages of the server

    def _hear(self, said: wire.Said) -> None:
        before = self._threads.current
        heard = self._threads.hear(said)
        self._texts.take(heard)
        if heard.stranger:
            self._looks.at(heard.stranger)
        if self._threads.current != before or self._threads.is_busy:
            self._follow(self._threads.current)
        for word in heard.edits:
            self._say(word)
        self._update()

    async def _look_at(self, thread: str) -> None:
        """Read a thread that is new to us."""
        found = await self._read(thread)
        if found is None:
            self._threads.refused(thread)
            return
        if self._threads.found(found):
            self._follow(found.id)
            self._spawn(self._wait_until_loaded())
        elif self._threads.has(found.id):
            self._follow_below(found.id)
        self._update()

    async def _wait_until_loaded(self) -> None:
        """Poll a thread that is still loading: the server does not report when it is loaded."""
        for pause_s in _LOADING_PAUSES_S:
            if self.is_over or not self._threads.is_loading:
                return
            await asyncio.sleep(pause_s)
            try:
                found = await self._read(self._threads.current)
            except PalaverError:
                return
            if found is not None and found.id == self._threads.current and self._threads.is_loading:
                self._threads.found(found)
                self._update()

    async def _wait_for_tools(self, thread: str) -> None:
        """Keep a thread closed until our MCP server has started; report the reason if it fails."""
        trouble = ""
        try:
            async with asyncio.timeout(self._tools_limit_s):
                answer = await self._client.ask(*wire.list_tools(thread))
            trouble = wire.result_as(answer, wire.ToolServers).trouble
        except TimeoutError:
            trouble = f"they have not started within {self._tools_limit_s:g} s"
        except Refused as refusal:
            _logger.info("this Codex does not say whether its tools have started: %s", refusal)
        except PalaverError as error:
            _logger.info("nothing is known of the tools of thread %s: %s", thread, error)
        if trouble:
            trouble = one_line(f"no Palaver tools: {trouble}", _LIMIT_TROUBLE)
            _logger.warning("thread %s of Codex has %s", thread, trouble)
        self._threads.equipped(thread, trouble)
        self._update()

    def _follow(self, thread: str) -> None:
        if thread and thread not in self._heard:
            self._heard.add(thread)
            self._spawn(self._subscribe(thread))

    def _follow_below(self, thread: str) -> None:
        """Follow a sub-agent: its news arrive without a subscription, its earlier items must be requested."""
        self._spawn(self._catch_up(thread))

    async def _catch_up(self, thread: str) -> None:
        try:
            answer = await self._client.ask(*wire.subscribe(thread))
            page = wire.result_as(answer, wire.Subscribed).initial_turns_page
        except (PalaverError, Refused) as error:
            _logger.info("what a sub-agent has begun is not known: %s", error)
            return
        for turn in page.data if page is not None and self._threads.has(thread) else ():
            self._texts.take(self._threads.begun(turn, thread))
        self._update()

    async def _subscribe(self, thread: str) -> None:
        """Subscribe to a thread and unsubscribe from all others.

        A new thread accepts this only after its first message.
        """
        self._heard.add(thread)
        for pause_s in (*_SUBSCRIBE_PAUSES_S, 0.0):
            try:
                answer = await self._client.ask(*wire.subscribe(thread))
                subscribed = wire.result_as(answer, wire.Subscribed)
                break
            except Refused as refusal:
                # A turn may have ended meanwhile. Only the subscription shows whether it failed.
                can_come = self._threads.has_begun(thread) or self._texts.are_any
                if refusal.is_unknown or not can_come or not pause_s:
                    self._heard.discard(thread)  # It is tried again when something happens in the thread.
                    return
                await asyncio.sleep(pause_s)
            except PalaverError as error:
                _logger.info("no news of thread %s: %s", thread, error)
                return
        if thread == self._threads.current:
            page = subscribed.initial_turns_page
            turns = page.data if page is not None else []
            if not any(map(self._threads.has_ended, turns)):  # Otherwise the received news are newer.
                self._threads.found(subscribed.thread)
            for turn in turns:
                self._texts.take(self._threads.begun(turn, thread))
            self._update()
        for other in self._heard - {thread, self._threads.current}:
            self._heard.discard(other)
            self._spawn(self._leave(other))

    async def _leave(self, thread: str) -> None:
        try:
            await self._client.ask(*wire.unsubscribe(thread))
        except (PalaverError, Refused) as error:
            _logger.info("still hearing of thread %s: %s", thread, error)

    def _update(self) -> None:
        """Report all changes."""
        for thread in self._threads.await_tools() if not self.is_over else ():
            self._spawn(self._wait_for_tools(thread))
        level = self._threads.level
        self.reach.lane.set_level(level.gate, is_paused=level.is_paused)
        if self._threads.current:
            self._bus.bind(self._threads.current)
        if not self.is_over:
            self.reach.subagents.look()
            self._asker.look()
            self.reach.permissions.look()
            self._say(self._threads.word)

    def _say(self, word: Word) -> None:
        if word != self.word and not self.is_over:
            self.word = word
            self._plan_lift()
            self._on_word()

    def _plan_lift(self) -> None:
        """Plan the end of the usage limit: at its known end, or after `_LIMIT_S` seconds."""
        if self._lift is not None:
            self._lift.cancel()
            self._lift = None
        if self._threads.is_limited:
            until_ms = limit_ends_ms(self._threads.word.detail, self._clock.now_ms())
            left_s = _LIMIT_S if until_ms is None else (until_ms - self._clock.now_ms()) / 1000
            self._lift = asyncio.get_running_loop().call_later(max(left_s, 1.0), self._lifted)

    def _lifted(self) -> None:
        self._threads.lifted()
        self._update()

    # Delivery

    async def _carry(self, text: str, key: str) -> Done:
        try:
            return await self._texts.put(self._threads.current, text, key)
        except UnknownQuestion as error:
            self._give_up(f"this Codex takes no mail by its app-server: {error}")
            return Done(Answer.DEFERRED, str(error))

    def _on_begun(self, thread: str) -> None:
        """Handle a turn that our text has started."""
        if thread == self._threads.current:
            self._follow(thread)
        self._update()
