"""Control an agent from outside: keys, resize, stop. Ending takes quit keys, then signals.

A separate module from `agent.py`, which owns the parts: this one carries out the requests of others on them.
"""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from palaver.client.wire import ReplyLine
from palaver.clock import Clock
from palaver.errors import Disconnected, NotFound, PalaverError, Unavailable
from palaver.harness.base import KeyPress, Profile, Spawn
from palaver.holder.connection import HolderConnection
from palaver.holder.lane import TerminalLane, clip
from palaver.holder.terminal_host import TerminalHost
from palaver.home import find_message, read_message
from palaver.protocol.agent_socket import AgentRequest, SocketReply, is_size, reply_to_json
from palaver.protocol.agent_text import format_message_file, parse_message_file
from palaver.protocol.lines import ReceiptsOp, TellOp
from palaver.terminal.gates import check
from palaver.terminal.processes import is_interactive_shell, left_behind
from palaver.terminal.pty import Exit
from palaver.terminal.viewers import LIMIT_CLIENTS

# --------------------
# End an agent: by its own quit keys, then SIGTERM, then SIGKILL, with a grace period after each. A shell gets
# SIGHUP before SIGTERM: an interactive shell ignores SIGTERM, and with SIGHUP it saves its history.
#
# Descendants that the agent leaves running are ended after it, in whatever session they are: SIGTERM, then
# SIGKILL. Only signals are sent and steps reported here; the holder waits for the process.

TERM_GRACE_S: Final = 5.0
KILL_GRACE_S: Final = 5.0
REST_TERM_GRACE_S: Final = 3.0
REST_KILL_GRACE_S: Final = 2.0

_NOW: Final = ((signal.SIGKILL, REST_KILL_GRACE_S),)
_POLITELY: Final = ((signal.SIGTERM, REST_TERM_GRACE_S), *_NOW)
_LOOK_S: Final = 0.02

Say = Callable[[str], None]


class AgentEnding:
    """The end of one agent. A second request changes nothing, except that a kill overtakes a stop."""

    def __init__(self, child: int, has_ended: asyncio.Event) -> None:
        self._child = child
        self._has_ended = has_ended
        self._words: list[Say] = []
        self._at_work = 0
        self._is_at_rest = asyncio.Event()
        self._is_at_rest.set()

    def listen(self, say: Say) -> None:
        """Call `say` with every step from now on."""
        self._words.append(say)

    async def settle(self) -> None:
        """Wait until no stop or kill is in progress."""
        await self._is_at_rest.wait()

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        self._at_work += 1
        self._is_at_rest.clear()
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._is_at_rest.set()

    async def stop(self, quit_keys: Sequence[KeyPress], press: Callable[[bytes], bool]) -> None:
        """Press the quit keys, then send SIGTERM (to a shell SIGHUP first), then SIGKILL.

        `press` returns whether the keys could be pressed. Afterwards end the remaining descendants.
        """
        async with self._working():
            if not await self._has_quit(quit_keys, press):
                await self._end_by_signals()
            await self._end_rest(_POLITELY)

    async def _end_by_signals(self) -> None:
        is_shell = is_interactive_shell(self._child)
        for number in (signal.SIGHUP, signal.SIGTERM) if is_shell else (signal.SIGTERM,):
            self._signal(number)
            self._say(f"sent {number.name}")
            if await self._is_over(TERM_GRACE_S):
                return
        await self.kill()

    async def _has_quit(self, quit_keys: Sequence[KeyPress], press: Callable[[bytes], bool]) -> bool:
        for step in quit_keys:
            if not press(step.keys):
                return False
            self._say("asked it to quit")
            if await self._is_over(step.wait_ms / 1000):
                return True
        return False

    async def kill(self) -> None:
        """End the agent and its descendants immediately."""
        async with self._working():
            self._signal(signal.SIGKILL)
            self._say("sent SIGKILL")
            await self._is_over(KILL_GRACE_S)
            await self._end_rest(_NOW)

    async def _end_rest(self, steps: Sequence[tuple[signal.Signals, float]]) -> None:
        """End the remaining descendants, if the agent has ended. Give up on those that survive."""
        loop = asyncio.get_running_loop()
        for number, limit_s in steps if self._has_ended.is_set() else ():
            signalled: set[int] = set()
            limit = loop.time() + limit_s
            while (rest := set(left_behind(self._child))) and loop.time() < limit:
                for pid in rest - signalled:
                    _tell(pid, number)
                signalled |= rest
                await asyncio.sleep(_LOOK_S)

    def _say(self, word: str) -> None:
        for say in self._words:
            say(word)

    async def _is_over(self, limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._has_ended.wait()
        except TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        """Signal every process in the agent's session: jobs of a shell have their own process groups."""
        if self._has_ended.is_set():
            return
        rest = left_behind(self._child)
        for pid in [self._child, *(pid for pid in rest if _session_of(pid) == self._child)]:
            _tell(pid, number)


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _tell(pid: int, number: signal.Signals) -> None:
    _send(pid, number)
    if number != signal.SIGKILL:
        _send(pid, signal.SIGCONT)  # A stopped process handles other signals only after SIGCONT.


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # The process has ended, or its pid belongs to another user now.


# --------------------
# The control requests to a holder, from its agent's socket and from the daemon: status, show, attach, stop.
#
# The caller's rights are checked before these functions are called; nothing here checks them.

_LIMIT_TEXT_BYTES: Final = 768 * 1024
_IN_THE_WAY: Final = frozenset(
    {"dialog", "secret", "shell", "foreground", "tool", "gone", "exited", "unreadable", "passthrough"}
)
"""Reasons of a closed gate that also block the quit keys. A draft does not: the program is ending anyway."""


class HolderControl:
    """The control interface of one holder."""

    def __init__(
        self,
        *,
        home: str,
        name: str,
        child: int,
        command: tuple[str, ...],
        profile: Profile,
        host: TerminalHost,
        lane: TerminalLane,
        bus: HolderConnection,
        clock: Clock,
        has_ended: asyncio.Event,
        spawn: Spawn,
        renew: Callable[[], None],
    ) -> None:
        """`spawn` runs a coroutine as a task of the holder; `renew` upgrades it to the newer version."""
        self._home = home
        self._name = name
        self._child = child
        self._command = command
        self._profile = profile
        self._host = host
        self._lane = lane
        self._bus = bus
        self._clock = clock
        self._has_ended = has_ended
        self._spawn = spawn
        self._renew = renew
        self._since_ms = clock.now_ms()
        self.state = "starting", ""
        """The state of the agent and its detail."""
        self._ending = AgentEnding(child, has_ended)
        self._is_stopping = False
        self.exit: Exit | None = None

    def set_state(self, state: str, detail: str) -> bool:
        """Set the state of the agent. Return False if it is unchanged."""
        if (state, detail) == self.state:
            return False
        self.state, self._since_ms = (state, detail), self._clock.now_ms()
        return True

    # At the agent's socket

    def status(self) -> dict[str, object]:
        """Return the status of the agent as JSON values."""
        self._host.is_current()
        cols, rows = self._host.screen.size
        return {
            "name": self._name,
            "state": self.state[0],
            "detail": self.state[1],
            "since": self._since_ms,
            "command": list(self._command),
            "harness": self._bus.held.harness or None if self._bus.held else None,
            "pid": self._child,
            "cols": cols,
            "rows": rows,
            "attached": len(self._host.viewers),
            "passthrough": self._host.viewers.owner is not None,
            "last_activity": self._last_activity_ms(),
            "is_connected": self._bus.is_connected,
            "is_typing": self._host.typist.is_busy,
            "held_by": self._host.typist.reason,
            "secret": self._host.is_hidden(self._host.look()),
        }

    def _last_activity_ms(self) -> int | None:
        output_ms = self._host.look().output_ms
        if output_ms is None:
            return None
        return self._clock.now_ms() - (self._host.now_ms() - output_ms)

    async def show(self, message_id: str) -> dict[str, object]:
        """Return a message and its delivery state: from the ledger, or from this lane without a daemon.

        Raises NotFound if neither knows the message.
        """
        try:
            message = msgspec.json.decode(
                await self._bus.ask(ReceiptsOp(message=message_id)), type=dict[str, object]
            )
        except Disconnected:
            message = {}
        except PalaverError as error:
            raise NotFound(f"message {message_id}", str(error)) from error
        # Only the daemon can resolve an abbreviated id.
        here = self._lane.find(str(message.get("id", message_id)))
        if not message and here is None:
            raise NotFound(f"message {message_id}", "it was not offered here, and the bus is not running")
        shown = {
            "body": message.get("text", ""),
            "status": self._state_in(message),
            "file_path": self._file_of(message),
            "priority": message.get("priority", ""),
        }
        if here is not None:
            shown |= {"id": here.id, "seq": here.seq, "from": here.sender, "priority": here.priority}
            shown |= {"status": here.state, "file_path": here.file}
            shown["body"] = (
                message.get("text") or parse_message_file(read_message(here.file)) or here.beginning
            )
        return message | shown

    def _file_of(self, message: Mapping[str, object]) -> str:
        """Return the file of a message that was not offered here: it exists once the message is queued."""
        message_id, ts, text = message.get("id"), message.get("ts"), message.get("text")
        if not isinstance(message_id, str) or not isinstance(ts, int) or not isinstance(text, str):
            return ""
        return find_message(self._home, self._name, message_id, ts, format_message_file(text))

    def _state_in(self, message: Mapping[str, object]) -> str:
        """Return this agent's state from the receipts of a message."""
        receipts = message.get("receipts")
        for line in receipts if isinstance(receipts, list) else ():
            if isinstance(line, dict) and line.get("name") == self._name:
                return str(line.get("state", ""))
        return ""

    def attach(self, connection: socket.socket, request: AgentRequest) -> None:
        """Attach a viewer. The size of its terminal becomes the size of the agent's terminal."""
        if len(self._host.viewers) >= LIMIT_CLIENTS:
            raise Unavailable(f"{LIMIT_CLIENTS} terminals are already attached: detach one of them")
        self._host.resize(request.cols, request.rows)
        greeting = reply_to_json(SocketReply(is_ok=True, agent=self.status()))
        size = (request.cols, request.rows) if is_size(request.cols, request.rows) else None
        self._host.viewers.adopt(connection, greeting=greeting, size=size)

    def hook(self, event_name: str, payload: Mapping[str, object]) -> None:
        """Apply an event that the harness reports about itself; it overrides what the screen shows."""
        detail = payload.get("decision") or payload.get("notification_type") or ""
        session = payload.get("session_id") or ""
        self._host.screen.hear(event_name, session=str(session), detail=str(detail))
        self._host.check_level()

    def stop(self) -> None:
        """Ask the agent to quit. Repeats have no effect."""
        if not self._is_stopping and not self._has_ended.is_set():
            self._is_stopping = True
            self._spawn(self._ending.stop(self._profile.quit, self._press_quit))

    async def settle(self) -> None:
        """Wait until everything that must end with the agent has ended."""
        await self._ending.settle()

    def kill(self) -> None:
        """Kill the agent immediately."""
        self._spawn(self._ending.kill())

    def _press_quit(self, keys: bytes) -> bool:
        """Press the quit keys. Return False if a dialog, a shell or unsent keys would receive them."""
        host = self._host
        host.is_current()
        gate = check(host.look(), host.facts(is_interrupt=False))
        if gate.reason in _IN_THE_WAY or host.has_unsent():
            return False
        # No await between the gate check above and the keys.
        host.press(keys, is_persons=False)
        return True

    # From the daemon

    def control(self, line: ReplyLine) -> None:
        """Execute a control request of the daemon, and report the result to it."""
        match line.verb:
            case "peek":
                self._tell(line.ask, self._peek(line.lines))
            case "status":
                self._tell(line.ask, self.status())
            case "stop" | "kill":
                self._ending.listen(lambda word: self._progress(line.ask, word))
                self.stop() if line.verb == "stop" else self.kill()
                self._spawn(self._tell_end(line.ask))
            case "renew":
                self._tell(line.ask, {})
                self._renew()
            case verb:
                sentence = f"unknown request to a holder: {verb!r}"
                self._say(TellOp(ask=line.ask, error="bad_request", message=sentence))

    def _peek(self, lines: int) -> dict[str, object]:
        cols, rows = self._host.screen.size
        text = self._host.look().text
        if lines > 0:
            whole = [*self._host.screen.scrollback, *text.split("\n")]
            text = "\n".join(whole[-lines:])
        return {"text": clip(text, _LIMIT_TEXT_BYTES), "cols": cols, "rows": rows}

    async def _tell_end(self, ask: int) -> None:
        await self._has_ended.wait()
        self._tell(ask, {"reason": str(self.exit)})

    def _tell(self, ask: int, ok: dict[str, object]) -> None:
        self._say(TellOp(ask=ask, ok=ok))

    def _progress(self, ask: int, word: str) -> None:
        self._say(TellOp(ask=ask, message=word, done=False))

    def _say(self, tell: TellOp) -> None:
        self._bus.mention(tell)
