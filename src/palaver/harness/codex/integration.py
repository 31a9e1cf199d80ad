"""A client of a Codex app-server, in addition to the user's own terminal UI: sends requests, receives news.

The server also sends requests to its clients, mostly for permissions. Only the user may answer those: this
client receives them and passes the user's decision on. It never answers by itself.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

import msgspec

from palaver.clock import Clock
from palaver.errors import BadRequest, Disconnected, PalaverError
from palaver.harness.base import (
    AgentReport,
    Done,
    LaneGate,
    NativeBus,
    PermissionQuestion,
    Spawn,
    TextOutcome,
)
from palaver.harness.codex import threads as wire
from palaver.harness.codex.threads import ThreadNews, Threads, decision, keys_of
from palaver.harness.hooks import limit_ends_ms, one_line
from palaver.protocol.events import Grade

_NO_METHOD: Final = -32601
"""The code by which JSON-RPC reports a method that the receiver does not know."""
_REPLY_LIMIT_S: Final = 300.0
"""Seconds to wait for a reply. Far longer than any request takes: the connection ends after that."""

_logger: Final = logging.getLogger("palaver.holder")


class TextSocket(Protocol):
    """A connection that carries whole texts, in order."""

    def send(self, text: bytes) -> None:
        """Send one text. It is lost if the connection is lost."""

    def close(self) -> None:
        """Close the connection after the sent texts."""


Connect = Callable[[Callable[[bytes], None], Callable[[Disconnected], None]], Awaitable[TextSocket]]
"""Connects to an app-server, for a receiver of texts and one of the connection's end; raises Disconnected."""


class Refused(Exception):
    """The app-server refused a request. This error is handled inside the lane."""

    def __init__(self, refusal: wire.Refusal) -> None:
        super().__init__(refusal.message)
        self.message = refusal.message
        self.is_unknown = refusal.code == _NO_METHOD
        """Whether the app-server does not know the method: a different version of Codex."""

    def __str__(self) -> str:
        return self.message or "the app-server refused without a reason"


class CodexClient:
    """One connection. `on_news` receives everything except results; `on_lost` is called once, at the end."""

    def __init__(
        self,
        connect: Connect,
        version: str,
        on_news: Callable[[wire.CodexMessage], None],
        on_lost: Callable[[Disconnected], None],
        *,
        reply_limit_s: float = _REPLY_LIMIT_S,
    ) -> None:
        """`version` is the version of Palaver, which the server shows.

        A request without a reply for `reply_limit_s` seconds ends the connection.
        """
        self._connect = connect
        self._version = version
        self._on_news = on_news
        self._on_lost = on_lost
        self._numbers = count(1)
        self._calls: dict[int | str | None, asyncio.Future[msgspec.Raw]] = {}
        self._socket: TextSocket | None = None
        self._reply_limit_s = reply_limit_s
        self._is_lost = False

    async def open(self) -> None:
        """Connect and initialize; raises Disconnected, or Refused if the server rejects this client."""
        self._socket = await self._connect(self._hear, self._lose)
        await self.ask(*wire.initialize(self._version))
        self._socket.send(wire.to_json(wire.INITIALIZED))

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()

    async def ask(self, method: str, params: dict[str, object]) -> msgspec.Raw:
        """Send a request and return its result; raises Refused, or Disconnected if the outcome is unknown."""
        if self._socket is None or self._is_lost:
            raise Disconnected("the app-server has ended")
        number = next(self._numbers)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            self._socket.send(wire.to_json(wire.CodexRequest(id=number, method=method, params=params)))
            # Not `asyncio.timeout`: it would drop a reply that arrives together with the end of the limit,
            # for example after this process was paused.
            if not (await asyncio.wait((answer,), timeout=self._reply_limit_s))[0]:
                self.close()
                # At once: `close` first waits until the server reads the sent texts, which may never happen.
                self._lose(
                    Disconnected(f"the app-server did not reply to {method} within {self._reply_limit_s:g} s")
                )
            return answer.result()
        finally:
            del self._calls[number]

    def answer(self, question: int | str, result: dict[str, object]) -> None:
        """Send the user's decision on a request of the server; raises Disconnected.

        The server reports separately when it has accepted the decision.
        """
        if self._socket is None:
            raise Disconnected("the app-server has ended")
        self._socket.send(wire.to_json(wire.CodexReply(id=question, result=result)))

    def _hear(self, data: bytes) -> None:
        try:
            message = wire.message_from_json(data)
        # One unreadable message does not end the connection: a newer Codex may send kinds that we do not
        # know.
        except BadRequest as error:
            _logger.warning("%s", error)
            return
        if message.method:
            self._on_news(message)
        # A request that was cancelled has no entry any more, and its late result is dropped.
        elif (answer := self._calls.get(message.id)) is not None and not answer.done():
            if message.error is not None:
                answer.set_exception(Refused(message.error))
            else:
                answer.set_result(message.result)

    def _lose(self, error: Disconnected) -> None:
        # A connection that was closed for a missing reply reports its end here once more.
        if self._is_lost:
            return
        # First, so that a request that is made from here on fails at once instead of waiting for a result.
        self._is_lost, self._socket = True, None
        # The callers remove their entries when they run again, so the dictionary does not change during the
        # loop.
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(error)
        self._on_lost(error)


# --------------------
# Texts on their way into Codex threads: sent through the app-server, and proven by its reports.
#
# In an idle thread a text starts a turn; in a busy thread it is added to the running turn. When a turn ends
# without reporting the text, the turn is read once more; a turn that ended before it took the text never
# will. Reports of a new thread can be missed, so the turns are also read while a text waits for its report.

_TRIES: Final = 3
"""Attempts to send a text. Each one can be refused because a turn began or ended at that time."""
_TURNS: Final = 20
"""The number of newest turns to read: others may have begun after the turn in question."""
_LOOK_S: Final = 5.0
"""Seconds after which the turns are read for a text without a report. They double up to the limit below."""
_LIMIT_LOOK_S: Final = 60.0
_SEEN: Final = Done(TextOutcome.SEEN, grade=Grade.CONTEXT)
_LEFT_OUT: Final = Done(TextOutcome.DEFERRED, "its turn ended before it included the message")
_UNKNOWN: Final = Done(TextOutcome.UNCONFIRMED, "it is not known whether its turn included the message")
_CLOSED: Final = Done(TextOutcome.UNCONFIRMED, "its thread was closed")
_ENDED: Final = 20
"""Ended turns to remember: the report of an end can arrive before the result that the turn began."""


@dataclass(slots=True, eq=False)
class _Text:
    """One text and its result."""

    thread: str
    became: "asyncio.Future[Done]"
    turn: str = ""


class UnknownQuestion(Exception):
    """This Codex does not accept texts through its app-server. This error is handled inside the lane."""


class CodexInjections:
    """The texts that were sent to the threads of one server and are not proven yet."""

    def __init__(
        self,
        client: CodexClient,
        threads: Threads,
        spawn: Spawn,
        on_begun: Callable[[str], None],
        look_s: float,
    ) -> None:
        """`on_begun` is called with the thread in which a text has started a turn.

        `look_s` is the time after which the turns are read for a text without a report.
        """
        self._look_s = look_s
        self._client = client
        self._threads = threads
        self._spawn = spawn
        self._on_begun = on_begun
        self._texts: dict[str, _Text] = {}
        self._ended: deque[str] = deque(maxlen=_ENDED)

    @property
    def are_any(self) -> bool:
        """Whether any text is in progress."""
        return bool(self._texts)

    def is_waiting(self, thread: str) -> bool:
        """Return whether a text was sent to this thread and is not known to be in it yet."""
        return any(text.thread == thread and not text.became.done() for text in self._texts.values())

    def close(self) -> None:
        """Fail all texts: the server is lost, so their outcome is unknown."""
        for text in self._texts.values():
            if not text.became.done():
                text.became.set_exception(Disconnected("the connection to the app-server was lost"))
                # Retrieve the exception, or asyncio logs that it was never retrieved.
                text.became.exception()

    def take(self, heard: ThreadNews) -> None:
        """Apply a report of the server."""
        for key in heard.seen:
            self._settle(key, heard.thread, _SEEN)
        for key, text in self._texts.items():
            if text.thread in heard.closed:
                self._settle(key, text.thread, _CLOSED)
        # Noted also if no text waits for this turn: the result that names the turn may come after its end.
        if heard.ended:
            self._ended.append(heard.ended)
            if any(text.turn == heard.ended for text in self._texts.values()):
                self._spawn(self._look_back(heard.thread, heard.ended))

    def _settle(self, key: str, thread: str, done: Done) -> None:
        text = self._texts.get(key)
        if text is not None and text.thread == thread and not text.became.done():
            text.became.set_result(done)

    async def _look_back(self, thread: str, turn: str) -> None:
        """Read which texts an ended turn took: not all news of a new thread are received."""
        turns = await self._read_turns(thread)
        shown = frozenset[str]().union(*map(keys_of, turns.values()))
        for key in [key for key, text in self._texts.items() if text.turn == turn]:
            # Only a turn that was read can prove that it left the text out.
            self._settle(key, thread, _SEEN if key in shown else _LEFT_OUT if turn in turns else _UNKNOWN)

    async def _look_for(self, key: str) -> None:
        """Read whether a text without a report is in its thread."""
        text = self._texts[key]
        turns = await self._read_turns(text.thread)
        own = turns.get(text.turn)
        if any(key in keys_of(one) for one in turns.values()):
            self._settle(key, text.thread, _SEEN)
        # Without a status it is not known that the turn has ended, and it may still take the text.
        elif own is not None and own.status not in ("", "inProgress"):
            self._settle(key, text.thread, _LEFT_OUT)

    async def _read_turns(self, thread: str) -> dict[str, wire.CodexTurn]:
        """Return the newest turns of a thread by id; none if they cannot be read."""
        try:
            answer = await self._client.ask(*wire.subscribe(thread, _TURNS))
            page = wire.result_as(answer, wire.Subscribed).initial_turns_page
        except (PalaverError, Refused) as error:
            _logger.info("the turns of thread %s cannot be read: %s", thread, error)
            return {}
        return {one.id: one for one in (page.data if page is not None else ())}

    async def put(self, thread: str, text: str, key: str) -> Done:
        """Send a text to a thread and return the result.

        Raises UnknownQuestion if Codex does not support it.
        """
        waiting: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        # Before the request: the report that the text is in the thread may arrive before the response.
        self._texts[key] = _Text(thread, waiting)
        try:
            if reason := await self._send(thread, text, key):
                return Done(TextOutcome.DEFERRED, reason)
            pause_s = self._look_s
            # Not `wait_for`, which would cancel the future at the timeout: a report may still settle it.
            while not (await asyncio.wait((waiting,), timeout=pause_s))[0]:
                await self._look_for(key)
                pause_s = min(2 * pause_s, _LIMIT_LOOK_S)
            return waiting.result()
        except Disconnected as error:
            # The request may have reached the server, so the text must not be sent again automatically.
            return Done(TextOutcome.UNCONFIRMED, str(error))
        finally:
            del self._texts[key]

    async def _send(self, thread: str, text: str, key: str) -> str:
        """Send a text to a thread; return why it was not accepted, or an empty string."""
        reason = ""
        # A turn may end or begin while the request is on its way: then it is refused, and the next one fits.
        for _ in range(_TRIES):
            level = self._threads.level_of(thread)
            if not level.gate.is_open:
                return level.gate.reason
            try:
                await self._say(thread, text, key)
            except Refused as refusal:
                if refusal.is_unknown:
                    raise UnknownQuestion(str(refusal)) from refusal
                reason = str(refusal)
            else:
                return ""
        return reason

    async def _say(self, thread: str, text: str, key: str) -> None:
        """Add the text to the running turn, or start a turn with it."""
        known, turn = self._texts[key], self._threads.turn_in(thread)
        if turn:
            # Before the request: the turn may end before the response, and then its texts are looked for.
            known.turn = turn
            await self._client.ask(*wire.steer_turn(thread, turn, text, key))
            return
        answer = await self._client.ask(*wire.start_turn(thread, text, key))
        started = wire.result_as(answer, wire.TurnStarted)
        known.turn = started.turn.id
        # The report of the end has overtaken the result: no further report will settle this text.
        if started.turn.id in self._ended:
            await self._look_back(thread, started.turn.id)
        elif self._threads.has(thread):
            self.take(self._threads.begun(started.turn, thread))
            self._on_begun(thread)


# --------------------
# The permission requests of Codex, and the user's decisions passed on to it.
#
# The server does not reply to a decision; it reports later that the request is resolved. `reply` waits for
# that.


@dataclass(frozen=True, slots=True, eq=False)
class _Passed:
    """A decision that the server has received and has not accepted yet."""

    asked: PermissionQuestion
    is_allowed: bool
    over: asyncio.Future[bool]
    """Whether the server accepted it. Every call of `reply` with this decision waits for it."""


class CodexAsker:
    """The requests in the agent's thread and those of its sub-agents."""

    def __init__(self, client: CodexClient, threads: Threads) -> None:
        self._client = client
        self._threads = threads
        self._passed: dict[str, _Passed] = {}
        self._is_closed = False

    async def reply(self, asked: PermissionQuestion, *, is_allowed: bool) -> bool:
        """Pass a decision on if the same request is still open; return whether the server accepted it.

        A request has one decision. The same decision again, after a restart of the daemon, waits for the
        same result; a different one is not passed on.
        """
        self.look()  # From here on, an earlier decision is about exactly this request.
        if self._is_closed or self._threads.questions().get(asked.request) != asked:
            return False
        passed = self._passed.get(asked.request)
        if passed is None:
            try:
                self._client.answer(asked.id, decision(is_allowed=is_allowed))
            except Disconnected as error:
                _logger.warning("a person's decision did not reach Codex: %s", error)
                return False
            passed = _Passed(asked, is_allowed, asyncio.get_running_loop().create_future())
            self._passed[asked.request] = passed
        # Shielded: if one caller is cancelled, the others still wait.
        return passed.is_allowed is is_allowed and await asyncio.shield(passed.over)

    def look(self) -> None:
        """Finish the replies whose requests are resolved."""
        now = self._threads.questions()
        for request in [one for one, passed in self._passed.items() if now.get(one) != passed.asked]:
            self._settle(request, is_taken=True)

    def close(self) -> None:
        """Fail waiting and later replies: the server is lost, so it is unknown whether it accepts them."""
        self._is_closed = True
        for request in list(self._passed):
            self._settle(request, is_taken=False)

    def _settle(self, request: str, *, is_taken: bool) -> None:
        self._passed.pop(request).over.set_result(is_taken)


# --------------------
# Queries about threads that are new to us: one at a time per thread, however often it is mentioned.

_LOOKS: Final = 2


class Looks:
    """The queries in progress. `look` queries a thread and raises PalaverError if there is no reply."""

    def __init__(self, look: Callable[[str], Awaitable[None]], spawn: Spawn) -> None:
        self._look = look
        self._spawn = spawn
        self._under_way: dict[str, bool] = {}
        """Whether a thread was mentioned again since its query began."""

    def at(self, thread: str) -> None:
        """Query a thread, and once more if it is mentioned during the query: that result may be outdated."""
        if thread in self._under_way:
            self._under_way[thread] = True
        else:
            self._under_way[thread] = False
            self._spawn(self._run(thread))

    async def _run(self, thread: str) -> None:
        try:
            for _ in range(_LOOKS):
                self._under_way[thread] = False
                await self._look(thread)
                if not self._under_way[thread]:
                    return
        # Nothing is known of the thread then. Its next mention asks again.
        except PalaverError:
            return
        finally:
            del self._under_way[thread]


# --------------------
# The integration of Codex: a client of its app-server that delivers messages into the user's thread.
#
# In an idle thread, a message starts a turn. During a tool call, it is added to the turn. While the model
# writes, only an interrupt is delivered, because it stops the model. While a question to the user is open,
# nothing is delivered. The server's own report proves that a text is in the thread. Sub-agents have their own
# lanes. If the server is lost, all lanes end, and offers in progress become unconfirmed.

_SUBSCRIBE_PAUSES_S: Final = (0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between attempts. A new thread accepts subscribers only after its file exists."""
_LOADING_PAUSES_S: Final = (*_SUBSCRIBE_PAUSES_S, *[2.0] * 30)
_TOOLS_LIMIT_S: Final = 60.0
"""Longest wait for our tools to start. Codex itself gives an MCP server less time by default."""
_RESUMES: Final = 3
"""Attempts to subscribe to a thread and receive its state. Reports can overtake each of them."""
_LIMIT_TROUBLE: Final = 200
_LIMIT_S: Final = 300.0
"""Seconds for which a usage limit is assumed if its end is unknown."""


class CodexIntegration:
    """The integration, from the time the app-server can be reached until it exits.

    Each sub-agent has a child thread of the agent's thread; it begins and ends with that thread.
    """

    ending = "its thread was closed"

    def __init__(
        self,
        connect: Connect,
        bus: NativeBus,
        *,
        version: str,
        clock: Clock,
        spawn: Spawn,
        only: str = "",
        tools_limit_s: float = _TOOLS_LIMIT_S,
        look_s: float = _LOOK_S,
    ) -> None:
        """`version` is the version of Palaver.

        `only` is the id of the agent's thread, for a server with other users. After `tools_limit_s` seconds
        messages are delivered even if our tools have not started. After `look_s` seconds without a report of
        a text, its thread is read.
        """
        self._tools_limit_s = tools_limit_s
        self._bus = bus
        self._clock = clock
        self._spawn = spawn
        self._client = CodexClient(connect, version, self._hear, self._lose)
        self._threads = Threads(only)
        self._heard: set[str] = set()
        """The threads that we are subscribed to."""
        self._read_again: set[str] = set()
        """The threads of sub-agents that are read from time to time, because they work."""
        self._ended = asyncio.Event()
        self._look_s = look_s
        self._looks = Looks(self._look_at, spawn)
        self._texts = CodexInjections(self._client, self._threads, spawn, self._on_begun, look_s)
        self._asker = CodexAsker(self._client, self._threads)
        self._lift: asyncio.TimerHandle | None = None
        self._has_started = False
        self.is_over = False
        """Whether the integration has ended permanently or could never be reached."""
        self.status: AgentReport | None = None
        """The status of the agent; None while unknown."""

    @property
    def session(self) -> str:
        """The thread of the agent; empty while there is no thread."""
        return self._threads.current

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
            loaded = wire.result_as(await self._client.ask(*wire.list_loaded()), wire.LoadedThreads)
            found = [await self._read(thread) for thread in loaded.data]
            # In the order of use, because each thread becomes the agent's: the one that was used last must
            # be the last.
            ours = sorted((one for one in found if one is not None), key=lambda one: one.last_used)
            for thread in ours:
                self._threads.found(thread)
        except (PalaverError, Refused) as error:
            self._give_up(f"the app-server of Codex cannot be used: {error}")
            return
        self._update()
        # The lane opens last: before that, the gate and the texts of the running turn are not known.
        self._spawn(self._wait_until_loaded())
        await self._subscribe(self._threads.current)
        await self._bus.open()

    async def _read(self, thread: str) -> wire.CodexThread | None:
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
        self._give_up(f"the connection to the app-server of Codex was lost: {error}")

    def _give_up(self, reason: str) -> None:
        if self.is_over:
            return
        # First, because the bus reads both when it is notified at the end, and `_update` must do nothing
        # more.
        self.is_over, self.status = True, None
        self._ended.set()
        if reason:
            _logger.warning("%s", reason)
        if self._lift is not None:
            self._lift.cancel()
        self._texts.close()
        self._asker.close()
        self._bus.close()
        self._bus.report()

    # Messages of the server

    def _hear(self, message: wire.CodexMessage) -> None:
        before = self._threads.current
        heard = self._threads.hear(message)
        self._texts.take(heard)
        if heard.stranger:
            self._looks.at(heard.stranger)
        # Also when it is busy: a subscription before the first turn of a thread was refused.
        if self._threads.current != before or self._threads.is_busy:
            self._follow(self._threads.current)
        # Each changed file is reported as a status by itself: otherwise a collision with another agent
        # would be missed for all but the first. `_update` then restores the actual status.
        for word in heard.edits:
            self._say(word)
        self._update()

    async def _look_at(self, thread: str) -> None:
        """Read a thread that is new to us."""
        before = self._threads.version_of(thread)
        found = await self._read(thread)
        if found is None:
            self._threads.refused(thread)
            return
        if self._threads.found(found, is_outdated=self._threads.version_of(thread) != before):
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
        # A Codex that cannot be asked may have the tools: messages are delivered as if they had started.
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
        """Read a sub-agent, and again while it works: the end of its first turn is not always reported."""
        await self._read_below(thread)
        # One loop for each thread: it is mentioned often, and each mention leads here.
        if thread in self._read_again:
            return
        self._read_again.add(thread)
        pause_s = self._look_s
        try:
            while self._is_working(thread):
                # A pause that ends early when the integration ends.
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._ended.wait()
                # Not if it was closed during the pause: the server would load it again.
                if self._is_working(thread):
                    await self._read_below(thread)
                pause_s = min(2 * pause_s, _LIMIT_LOOK_S)
        finally:
            self._read_again.discard(thread)

    def _is_working(self, thread: str) -> bool:
        return self._threads.is_active(thread) and not self.is_over

    async def _read_below(self, thread: str) -> None:
        """Subscribe to a sub-agent and apply its state and newest turn."""
        try:
            subscribed, is_outdated = await self._resume(thread)
        # A new thread accepts this only after its file exists. A later answer may be readable.
        except (PalaverError, Refused) as error:
            _logger.info("the work of a sub-agent is not known: %s", error)
            return
        # Otherwise it was closed while the request was on its way.
        if self._threads.has(thread):
            self._apply(thread, subscribed, is_outdated=is_outdated)

    async def _resume(self, thread: str) -> tuple[wire.Subscribed, bool]:
        """Subscribe to a thread. Return its state, and whether a received report is newer.

        Raises Refused, or PalaverError if there is no readable result.
        """
        tries_left = _RESUMES
        while True:
            before = self._threads.version_of(thread)
            answer = await self._client.ask(*wire.subscribe(thread))
            subscribed = wire.result_as(answer, wire.Subscribed)
            is_outdated = self._threads.version_of(thread) != before
            tries_left -= 1
            # Not if it was closed meanwhile: the server would load it again.
            if not (is_outdated and tries_left and self._threads.is_loaded(thread)):
                return subscribed, is_outdated

    def _apply(self, thread: str, subscribed: wire.Subscribed, *, is_outdated: bool) -> None:
        """Apply the state of a thread and its newest turn."""
        page = subscribed.initial_turns_page
        turns = page.data if page is not None else []
        is_outdated = is_outdated or any(map(self._threads.has_ended, turns))
        self._threads.found(subscribed.thread, is_outdated=is_outdated)
        for turn in turns:
            self._texts.take(self._threads.begun(turn, thread, is_outdated=is_outdated))
        self._update()

    async def _subscribe(self, thread: str) -> None:
        """Subscribe to a thread and unsubscribe from all others.

        A new thread accepts this only after its first message.
        """
        self._heard.add(thread)
        for pause_s in (*_SUBSCRIBE_PAUSES_S, 0.0):
            try:
                subscribed, is_outdated = await self._resume(thread)
                break
            except Refused as refusal:
                # A turn may have ended meanwhile. Only the subscription shows whether it failed.
                can_come = self._threads.has_begun(thread) or self._texts.are_any
                if refusal.is_unknown or not can_come or not pause_s:
                    self._heard.discard(thread)  # It is tried again when something happens in the thread.
                    return
                await asyncio.sleep(pause_s)
            except PalaverError as error:
                _logger.info("no events of thread %s: %s", thread, error)
                return
        if thread == self._threads.current:
            self._apply(thread, subscribed, is_outdated=is_outdated)
        # A subscribed thread stays in the memory of the server.
        for other in self._heard - {thread, self._threads.current}:
            self._heard.discard(other)
            self._spawn(self._leave(other))

    async def _leave(self, thread: str) -> None:
        try:
            await self._client.ask(*wire.unsubscribe(thread))
        except (PalaverError, Refused) as error:
            _logger.info("thread %s is still subscribed: %s", thread, error)

    def _update(self) -> None:
        """Report all changes."""
        if not self.is_over:
            for thread in self._threads.await_tools():
                self._spawn(self._wait_for_tools(thread))
            self._asker.look()
            self._bus.update()
            self._say(self._threads.word)

    def _say(self, word: AgentReport) -> None:
        if word != self.status and not self.is_over:
            self.status = word
            self._plan_lift()
            self._bus.report()

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

    async def carry(self, key: str, text: str, mark: str) -> Done:
        """Send a text to a thread and return the result."""
        try:
            return await self._texts.put(key or self._threads.current, text, mark)
        except UnknownQuestion as error:
            if not key:
                self._give_up(f"this Codex accepts no messages through its app-server: {error}")
            return Done(TextOutcome.DEFERRED, str(error))

    def _on_begun(self, thread: str) -> None:
        """Handle a turn that our text has started."""
        if thread == self._threads.current:
            self._follow(thread)
        self._update()

    def is_waiting(self, key: str) -> bool:
        """Return whether a text was sent to a thread and is not known to be in it yet."""
        return self._texts.is_waiting(key)

    # Sub-agents and permissions

    def subagents(self) -> dict[str, tuple[str, str]]:
        """Return the running sub-agents by thread, parents first: the parent thread and the role of each."""
        return self._threads.subagents()

    def status_of(self, key: str) -> AgentReport:
        """Return the current status of a thread."""
        return self._threads.word_of(key)

    def gate_of(self, key: str) -> LaneGate:
        """Return whether a message can be delivered to a thread now."""
        return self._threads.level_of(key) if key else self._threads.level

    def questions(self) -> dict[str, PermissionQuestion]:
        """Return the open requests that can be decided remotely."""
        return self._threads.questions()

    async def decide(self, question: PermissionQuestion, *, is_allowed: bool) -> bool:
        """Pass a decision on if the same request is still open; return whether the server accepted it."""
        return await self._asker.reply(question, is_allowed=is_allowed)
