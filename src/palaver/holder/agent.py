"""One agent in its terminal: everything its holder does for it, and the requests it serves."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from palaver.client.start import find_python
from palaver.client.wire import ReplyLine
from palaver.clock import Clock
from palaver.errors import BadRequest, Disconnected, NotFound, PalaverError, Unavailable
from palaver.harness import programs as generic
from palaver.harness.base import AgentReport, Gate, KeyPress, Profile, Spawn, running, status_of
from palaver.harness.programs import parse_user_profile, with_prompt
from palaver.harness.registry import PROFILES, profile_of, profile_of_start, program_names
from palaver.holder.agent_socket import DAEMON_LIMIT_S, AgentServer, socket_path
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.integration import AgentIntegration
from palaver.holder.lane import TerminalLane, clip
from palaver.holder.launch import file_with
from palaver.holder.spawn import MODULE
from palaver.holder.terminal_host import TerminalHost
from palaver.home import find_message, read_message, read_profile_files
from palaver.protocol.agent_socket import AgentRequest, SocketReply, is_size, reply_to_json
from palaver.protocol.agent_text import format_message_file, parse_message_file
from palaver.protocol.events import REPORT_END, AgentState, ExitReport, Outcome
from palaver.protocol.lines import LeaveOp, ReceiptsOp, TellOp, TypedOp, screen_digest
from palaver.terminal.gates import check
from palaver.terminal.processes import is_interactive_shell, running_descendants
from palaver.terminal.pty import Exit, Running
from palaver.terminal.screen import Remembered, ScreenState
from palaver.terminal.viewers import LIMIT_CLIENTS, KeptViewer

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
            # A kill may overtake a stop: the agent is at rest only when both are done.
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
            # What is in the way would receive the next keys too, so continue with signals.
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
            # Read again in each round: a descendant may start others until it has ended.
            while (rest := set(running_descendants(self._child))) and loop.time() < limit:
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
        # Descendants that survive the agent are ended by `_end_rest`, in whatever session they are.
        if self._has_ended.is_set():
            return
        rest = running_descendants(self._child)
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
_PEEK_WAIT_S: Final = 15.0
"""Seconds until a request for another screen than the known one is answered anyway."""
_LIMIT_PEEKS: Final = 50
"""Requests that wait for another screen; further ones are answered at once."""
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
        self._peeks: dict[int, str] = {}
        """The requests that wait for another screen, and the digest of the one that each knows."""
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
        self._host.is_current()  # Read the output that has arrived, so that the status is not an old one.
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
        # The screen has monotonic times, and callers outside this process need Unix time.
        return self._clock.now_ms() - (self._host.now_ms() - output_ms)

    async def show(self, message_id: str) -> dict[str, object]:
        """Return a message and its delivery state: from the ledger, or from this lane without a daemon.

        Raises NotFound if neither knows the message.
        """
        try:
            # With a limit, because the caller is not watched: it may have hung up.
            async with asyncio.timeout(DAEMON_LIMIT_S):
                found = await self._bus.ask(ReceiptsOp(message=message_id))
            message = msgspec.json.decode(found, type=dict[str, object])
        except (Disconnected, TimeoutError):
            message = {}  # Without a daemon, this lane still knows the messages that it was offered.
        except PalaverError as error:
            raise NotFound(f"message {message_id}", str(error)) from error
        # Only the daemon can resolve an abbreviated id.
        here = self._lane.find(str(message.get("id", message_id)))
        if not message and here is None:
            raise NotFound(f"message {message_id}", "it was not offered here, and the bus did not answer")
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
        size = (request.cols, request.rows) if is_size(request.cols, request.rows) else None
        if size is not None:
            # Before the greeting, so that the first picture the viewer gets is drawn for its own size.
            self._host.resize(*size)
        greeting = reply_to_json(SocketReply(is_ok=True, agent=self.status()))
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
                # A digest says which screen the caller has already: it wants the next one.
                self._peek_soon(line) if line.digest else self._tell(line.ask, self._peek(line.lines))
            case "status":
                self._tell(line.ask, self.status())
            case "stop" | "kill":
                # Before the stop, so that its first step is reported too.
                self._ending.listen(lambda word: self._progress(line.ask, word))
                self.stop() if line.verb == "stop" else self.kill()
                self._spawn(self._tell_end(line.ask))
            case "renew":
                # Before the upgrade, which ends this connection.
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

    def _peek_soon(self, line: ReplyLine) -> None:
        """Answer as soon as the screen is another one than the caller knows, or after a while."""
        if len(self._peeks) >= _LIMIT_PEEKS:
            self._tell(line.ask, self._peek(0))
            return
        # The timer is never cancelled: `_end_peek` ignores a request that was answered already.
        self._peeks[line.ask] = line.digest
        asyncio.get_running_loop().call_later(_PEEK_WAIT_S, self._end_peek, line.ask)
        # The screen may have changed since the caller saw it.
        self.looked()

    def looked(self) -> None:
        """Answer the requests that wait for another screen. Called after each look at the screen."""
        if not self._peeks:
            return
        now = screen_digest(str(self._peek(0)["text"]))
        for ask in [ask for ask, known in self._peeks.items() if known != now]:
            self._end_peek(ask)

    def _end_peek(self, ask: int) -> None:
        if self._peeks.pop(ask, None) is not None:
            self._tell(ask, self._peek(0))

    async def _tell_end(self, ask: int) -> None:
        await self._has_ended.wait()
        self._tell(ask, {"reason": str(self.exit)})

    def _tell(self, ask: int, ok: dict[str, object]) -> None:
        self._say(TellOp(ask=ask, ok=ok))

    def _progress(self, ask: int, word: str) -> None:
        self._say(TellOp(ask=ask, message=word, done=False))

    def _say(self, tell: TellOp) -> None:
        self._bus.mention(tell)


# --------------------
# Upgrade a holder to its newer version in the same process; the terminal, viewers and state are kept.
#
# The pid stays the same, so the agent stays its child. The newer version must be checked before this: if it
# does not load, the terminal is lost.

_HEARD: Final = (signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP)
"""The signals that a holder handles. Unhandled, each would end the process and the agent with it."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a holder that its newer version cannot find out.

    The newer version decodes what an older one wrote: a field added later must have a default.
    """

    home: str
    held: Held
    child: int
    command: tuple[str, ...]
    master: int
    listener: int
    cols: int
    rows: int
    painted: bytes
    remembered: Remembered | None = None
    """None if the older version did not store it."""
    readers: tuple[tuple[int, int], ...] = ()
    """The processes that are the agent itself, each with its pid and start time."""
    prompt: str = ""
    """The rule of `pal run --prompt`."""
    unsent: bytes = b""
    awaiting: int | None = None
    """The pipe to a caller that waits for the exit status."""
    outcomes: tuple[Outcome, ...] = ()
    native: str = ""
    native_outcomes: tuple[Outcome, ...] = ()
    typed: tuple[str | int, ...] = ()
    """Typed lines that were not reported yet; a number is the length of a secret."""
    viewers: tuple[KeptViewer, ...] = ()


def become_new(kept: Kept) -> NoReturn:
    """Execute the newer version in this process; raise OSError if that fails.

    Signals are blocked until the newer version handles them, because it takes time to load.
    """
    descriptors = _descriptors(kept)
    # An open file without a name survives the exec, needs no clean-up, and is not in the arguments, which
    # other users can read: it contains the secret.
    state = file_with(msgspec.json.encode(kept))
    descriptors.append(state)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    python = find_python()
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    try:
        # `-I` ignores PYTHON variables and the current directory, so none of the agent's files can replace a
        # module.
        words = [python, "-I", "-m", MODULE, "--resume-fd", str(state)]
        os.execv(python, words) if "/" in python else os.execvp(python, words)  # noqa: S606 - no shell is involved
    except OSError:
        hear_signals()
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        os.close(state)
        raise
    raise AssertionError("exec returned")


def hear_signals() -> None:
    """Unblock the signals, now that they are handled."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)


def _descriptors(kept: Kept) -> list[int]:
    awaiting = [] if kept.awaiting is None else [kept.awaiting]
    return [kept.master, kept.listener, *awaiting, *(viewer.descriptor for viewer in kept.viewers)]


def take_up(descriptor: int) -> Kept:
    """In the newer version: read the state of the older one. Its descriptors become non-inheritable again."""
    with open(descriptor, "rb") as file:
        kept = msgspec.json.decode(file.read(), type=Kept)
    for kept_descriptor in _descriptors(kept):
        # Otherwise commands that this holder starts would keep the terminal and the viewers open.
        os.set_inheritable(kept_descriptor, False)
    return kept


# --------------------
# The last report of a holder that could not reach the daemon: a small file next to the agent's socket.
#
# It is written when the agent has ended and the daemon stays offline. The daemon that reads it removes it.


def write_report(home: str, report: ExitReport) -> Path:
    """Write a report atomically and durably; a later report of the same agent replaces it."""
    path = Path(home) / "agents" / f"{report.name}{REPORT_END}"
    fresh = path.with_suffix(".new")
    # 0600, because the report contains the secret of the agent.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(msgspec.json.encode(report))
        file.flush()
        # The report may be the only record of the exit. It must be complete before it replaces an older one.
        os.fsync(file.fileno())
    return fresh.replace(path)


# --------------------
# The report of an agent's exit: sent to the daemon, or written to a file for the next daemon.

REPORT_LIMIT_S: Final = 3.0
"""Seconds that the holder of an exited agent waits for a daemon that is offline."""

_logger: Final = logging.getLogger("palaver.holder")


class ExitReporter:
    """The exit report of one agent. It is sent once."""

    def __init__(
        self, home: str, bus: HolderConnection, lane: TerminalLane, native: AgentIntegration, clock: Clock
    ) -> None:
        self._home = home
        self._bus = bus
        self._lane = lane
        self._native = native
        self._clock = clock
        self._reason = ""
        self._is_wanted = True
        self.is_done = asyncio.Event()
        """Set when the exit is reported, or does not have to be."""

    async def say(self, reason: str) -> None:
        """Report the exit to the daemon, or after `REPORT_LIMIT_S` seconds write it to a file."""
        self._reason = reason
        try:
            async with asyncio.timeout(REPORT_LIMIT_S):
                # Outcomes first: messages without an outcome become unconfirmed when the agent leaves.
                await self._lane.settle()
                await self._native.settle()
                if not self._is_wanted:
                    self.is_done.set()
                elif self._lane.outcomes or self._native.left:
                    self._bus.drop()  # The next connection starts with them.
                elif self._bus.is_connected:
                    await self.connected()
                await self.is_done.wait()
        except TimeoutError:
            if self._is_wanted:
                self._leave_report()
            self.is_done.set()

    def forget(self) -> None:
        """Send no report: on the bus, the agent belongs to another process."""
        self._is_wanted = False
        if self._reason:
            self.is_done.set()

    async def connected(self) -> None:
        """Report the exit on the current connection, if there is one to report."""
        if not self._reason:
            return
        try:
            await self._bus.ask(LeaveOp(reason=self._reason))
        except Unavailable:
            return  # It is sent on the next connection.
        except PalaverError as error:
            # Refused: the agent has left already, or belongs to another process. A repeat would be refused
            # too.
            _logger.info("a report was not needed: %s: %s", error.code, error)
        self.is_done.set()

    def _leave_report(self) -> None:
        assert self._bus.held is not None
        report = ExitReport(
            name=self._bus.held.name,
            secret=self._bus.held.secret,
            reason=self._reason,
            outcomes=self._lane.outcomes + self._native.outcomes,
            ts=self._clock.now_ms(),
        )
        try:
            write_report(self._home, report)
        except OSError as error:
            _logger.warning("the last report of %s was lost: %s", report.name, error)


# --------------------
# Choose the profile of the program in a terminal: the user's own, the harness's, or the generic one.


def choose_profile(home: str, harness: str, command: Sequence[str], prompt: str) -> Profile:
    """Return the profile for a program, with the rule of `--prompt`.

    A harness that Palaver knows keeps its own profile. For any other program a file of the user comes first.
    A file that cannot be used is logged and skipped: then less is known, and the gate stays closed.
    """
    if harness in PROFILES and harness != generic.GENERIC.name:
        return with_prompt(profile_of_start(harness, command), prompt)
    names = (harness, *program_names(command))
    for name, content in read_profile_files(home):
        try:
            found = parse_user_profile(name, content)
        except BadRequest as error:
            _logger.warning("%s", error)
            continue
        if not set(found.commands).isdisjoint(names):
            return with_prompt(found.profile, prompt)
    known = next((name for name in names if name in PROFILES), "")
    return with_prompt(profile_of(known), prompt)


# --------------------
# The agent: it connects its terminal host, its lane, its socket and its exit report.

VIEWER_LIMIT_S: Final = 3.0
"""Seconds that the holder of an exited agent waits for the terminal that the agent was started from."""
_OFF_THE_BUS: Final = "not on the bus"
_LIMIT_OUTPUT_LINES: Final = 200
_LIMIT_TYPED: Final = 100
"""Lines from input bars that are kept while the daemon is offline; when full, the oldest is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """The services of a holder for its agent: the connection to the bus, the clock, and callbacks."""

    bus: HolderConnection
    clock: Clock
    spawn: Spawn
    """Runs a coroutine as a task that the holder owns."""
    on_hangup: Callable[[], None]
    """Check whether the process has ended."""
    on_rest: Callable[[], None]
    """Called when `is_at_rest` may have changed: at each outcome of an offer, and each look at the screen."""
    renew: Callable[[], None]
    """Replace this process with its newer version."""


class HeldAgent:
    """One agent, from the time its process may run until its exit is reported to the daemon."""

    def __init__(self, running: Running, around: AgentContext, held: Held, listener: socket.socket) -> None:
        """Start serving the agent's socket `listener`. `held` is the agent as the daemon knows it."""
        self._running, self._around = running, around
        self._name, self._listener = held.name, listener
        self._bus, self._spawn = around.bus, around.spawn
        self._has_ended = asyncio.Event()
        self._exit: Exit | None = None
        self._typed: list[str | int] = []
        self._is_disowned = False
        self._is_hidden = False
        """Whether the program is asking for a secret."""
        self.awaits_viewer = False
        """Whether the terminal that started the agent is about to attach."""
        self._word = AgentReport(state=AgentState.STARTING)
        self._waits_for = ""
        """Why messages for the terminal wait; empty if they do not."""
        self._has_started = False
        """Whether the screen has shown that the program is ready or has a question."""
        profile = choose_profile(running.home, held.harness, running.command, running.prompt)
        self.host = self._make_host(profile)
        self._lane = TerminalLane(running.home, around.bus, self.host.typist, self._end_offer)
        self._native = self._make_native(held.harness)
        self._exit_reporter = ExitReporter(running.home, around.bus, self._lane, self._native, around.clock)
        self.is_reported = self._exit_reporter.is_done
        """Set when the exit is reported, or does not have to be."""
        self.holder_control = self._make_control(profile)
        # Last: a caller may be served at once, and it uses the parts above.
        self._spawn(AgentServer(running.home, held.name, listener, self.holder_control).run())

    def _make_host(self, profile: Profile) -> TerminalHost:
        return TerminalHost(
            self._running.pty,
            self._running.child,
            profile,
            clock=self._around.clock,
            on_level=self._set_level,
            on_hangup=self._around.on_hangup,
            on_typed=self._on_typed,
            on_size=self._bus.resized,
            on_stop=self.stop,
        )

    def _make_native(self, harness: str) -> AgentIntegration:
        return AgentIntegration(
            harness,
            self._running.native,
            self._bus,
            clock=self._around.clock,
            spawn=self._spawn,
            on_status=self.host.check_level,
            on_change=self._around.on_rest,
        )

    def _make_control(self, profile: Profile) -> HolderControl:
        return HolderControl(
            home=self._running.home,
            name=self._name,
            child=self._running.child,
            command=self._running.command,
            profile=profile,
            host=self.host,
            lane=self._lane,
            bus=self._bus,
            clock=self._around.clock,
            has_ended=self._has_ended,
            spawn=self._spawn,
            renew=self._around.renew,
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether no offer and no line of an input bar is in progress."""
        # An upgrade keeps no such line: it would be lost, or stay in the program without its Enter.
        return self._lane.is_at_rest and self._native.is_at_rest and not self.host.has_lines

    def has_life(self, *, is_harness: bool) -> bool:
        """Return whether the program has started: by its screen, or because it reads its terminal.

        A raw terminal counts only for a program that is not a harness: a harness can switch the terminal to
        raw mode and still fail.
        """
        is_raw = not is_harness and self._running.pty.is_raw
        return self._has_started or is_raw or self.host.has_reader()

    def last_output(self) -> str:
        """Return the last lines of the terminal, for the user who started a program that failed."""
        lines = [*self.host.screen.scrollback, *self.host.look().text.split("\n")]
        return "\n".join(line.rstrip() for line in lines[-_LIMIT_OUTPUT_LINES:]).strip("\n")

    def stop(self) -> None:
        """Ask the agent to quit; see `HolderControl.stop`."""
        self.holder_control.stop()

    # The daemon

    async def connected(self) -> None:
        """Report on a new connection: the status, earlier outcomes, typed lines, and the exit if any."""
        self._say_status()
        # It opens its lane in a task of its own: an offer in progress there must not delay the terminal lane.
        self._native.connected()
        # A closed native lane is never opened again, so its last outcomes go with the terminal lane.
        left = self._native.left
        await self._lane.open(left)
        self._native.forget(left)
        while self._typed:
            try:
                await self._bus.ask(_typed_op(self._typed[0]))
            except Unavailable:
                raise  # The next connection sends the line again.
            except PalaverError as refusal:
                # Raised, it would end this connection and each later one: the daemon refuses the line again.
                _logger.warning("a typed line was not stored: %s: %s", refusal.code, refusal)
            # Removed only after the reply: if the connection is lost in between, the line is sent again.
            del self._typed[0]
        await self._exit_reporter.connected()

    def hear(self, line: ReplyLine) -> None:
        """Handle a line that the daemon pushed."""
        if line.push == "offer":
            self._native.take(line, self._lane.take)
        elif line.push == "control":
            self.holder_control.control(line)
        elif line.push == "decision":
            self._native.decide(line)

    def disown(self, refusal: PalaverError) -> None:
        """Continue without the bus after the daemon refused the name permanently, and notify the viewers."""
        _logger.error("%s keeps running without the bus: %s: %s", self._name, refusal.code, refusal)
        self._is_disowned = True
        self._exit_reporter.forget()
        # The user still sees a running agent, and would otherwise wait for messages that never come.
        sentence = f"{self._name} belongs to another process on the bus now: no more messages arrive here"
        self.host.viewers.tell({"type": "error", "error": refusal.code, "message": sentence, "about": "bus"})
        self._show_state()

    def _show_state(self) -> None:
        detail = _OFF_THE_BUS if self._is_disowned else self._word.detail
        self.holder_control.set_state(self._word.state, detail)
        self.host.viewers.set_state(
            {
                "name": self._name,
                "state": self._word.state,
                "detail": detail,
                "secret": self._is_hidden,
                "gate": self._waits_for,
            }
        )

    def _set_level(self, look: ScreenState, gate: Gate) -> None:
        self._is_hidden = self.host.is_hidden(look)
        self._has_started = self._has_started or look.state is not AgentState.STARTING
        # The integration knows the state better than the screen, and closes this lane while it works.
        word, gate = self._native.see(look, gate)
        if word != self._word:
            self._word = word
            self._say_status()
        has_keyboard = self.host.viewers.holds_mail
        self._waits_for = gate.reason or ("passthrough" if has_keyboard else "")
        self._show_state()
        self._lane.set_level(gate, is_paused=has_keyboard or self.host.accepts_only_interrupts)
        self.holder_control.looked()
        self._around.on_rest()

    def _say_status(self) -> None:
        if self._bus.is_connected and self._exit is None:
            # A status that is lost with the connection is sent again on the next one.
            self._bus.mention(status_of(running(self._word)))

    def _end_offer(self) -> None:
        self.host.check_level()
        self._around.on_rest()

    def _on_typed(self, typed: str | int) -> None:
        """Report a line typed in the input bar; for a secret, only its number of characters.

        While the daemon is offline, the last `_LIMIT_TYPED` lines are kept for the next connection.
        """
        if self._bus.is_connected:
            self._bus.mention(_typed_op(typed))
        else:
            self._typed = [*self._typed, typed][-_LIMIT_TYPED:]

    # Exit

    def ended(self, ended: Exit) -> None:
        """Handle the end of the process: show its last output, disconnect the viewers, and report the exit.

        If a viewer was announced and has not attached yet, wait up to `VIEWER_LIMIT_S` seconds for it.
        """
        # First: from here on no status is sent, because the report of the exit replaces it.
        self._exit = self.holder_control.exit = ended
        host = self.host
        # Before the screen counts as exited: the rest of the output often says why the program ended.
        host.pump.drain_output()
        host.screen.exit(str(ended))
        host.typist.end(str(ended))
        host.check_level()
        if self.awaits_viewer and not host.first_viewer.is_set():
            self._spawn(self._wait_for_viewer(ended))
        else:
            self._let_go(ended)

    async def _wait_for_viewer(self, ended: Exit) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(VIEWER_LIMIT_S):
                await self.host.first_viewer.wait()
        self._let_go(ended)

    def _let_go(self, ended: Exit) -> None:
        viewers = self.host.viewers
        viewers.tell({"type": "exited", "status": ended.code, "signal": ended.signal})
        viewers.end()
        self._native.ended()
        self._has_ended.set()
        # The report waits only `REPORT_LIMIT_S` seconds, which is less than the longest pause between two
        # attempts.
        self._bus.hurry()
        self._spawn(self._exit_reporter.say(str(ended)))

    def close(self) -> None:
        """Remove the socket and close the terminal."""
        # The file first: once the listener is closed, another holder may put its own socket there, and this
        # would remove it.
        with suppress(OSError):
            socket_path(self._running.home, self._name).unlink()
        self._listener.close()
        self._native.clear()
        self.host.close()

    # Upgrade

    def keep(self, held: Held, awaiting: int | None) -> Kept:
        """Return the state that the newer version needs, and release the terminal and the viewers.

        Afterwards nothing may be done here except the upgrade itself.
        """
        running = self._running
        painted = self.host.redraw()
        unsent = self.host.pump.release()
        return Kept(
            home=running.home,
            held=held,
            child=running.child,
            command=running.command,
            master=running.pty.master,
            listener=self._listener.fileno(),
            cols=running.pty.cols,
            rows=running.pty.rows,
            painted=painted,
            remembered=self.host.screen.keep(),
            readers=tuple(self.host.readers),
            prompt=running.prompt,
            unsent=unsent,
            outcomes=self._lane.outcomes,
            awaiting=awaiting,
            native=self._native.address,
            native_outcomes=self._native.outcomes,
            typed=tuple(self._typed),
            viewers=tuple(self.host.viewers.release()),
        )

    def take_up(self, kept: Kept) -> None:
        """Restore the state of the older version."""
        self._lane.remember(kept.outcomes)
        self._native.remember(kept.native_outcomes)
        self._typed = list(kept.typed)
        self.host.take_up(kept.painted, kept.remembered)
        self.host.readers = frozenset(kept.readers)
        # Before the viewers: their new keys must come after the old ones.
        self.host.pump.write(kept.unsent)
        self.host.viewers.take_up(kept.viewers)


def _typed_op(typed: str | int) -> TypedOp:
    return TypedOp(text=typed) if isinstance(typed, str) else TypedOp(secret=typed)
