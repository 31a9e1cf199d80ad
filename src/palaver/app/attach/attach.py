"""`pal attach` in the client's own process: the attach screen, or the agent's terminal unchanged."""

import asyncio
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

from palaver.app.attach.link import call, has_terminal
from palaver.app.attach.session import AttachEnd, AttachSession
from palaver.app.notices import NoticeThread, print_warning
from palaver.errors import BadRequest
from palaver.home import find_pal
from palaver.protocol.agent_socket import (
    CONTROL,
    DATA,
    ViewerFrameReader,
    control_from_bytes,
    control_to_bytes,
    data_frames,
)
from palaver.terminal.emulator import Emulator
from palaver.terminal.viewers import read_ready, send_ready

_LOCALES: Final = ("LC_ALL", "LC_CTYPE", "LANG")
_MADE_UP: Final = ("C.UTF-8", "C.utf8")


def attach(
    home: str,
    name: str,
    environment: Mapping[str, str],
    *,
    is_plain: bool = False,
    keys_first: bool = False,
    can_relaunch: bool = True,
) -> int:
    """Attach this terminal until the user detaches or the agent ends. Return the exit status.

    `keys_first`: the agent has the keyboard until the user opens the bar. `is_plain`: only the agent's
    terminal, as on a terminal that cannot position its cursor. `can_relaunch`: if the agent fails, ask
    whether to start it again. Raises the refusal if there is no such terminal, or the caller may not use it.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadRequest("attach requires a terminal; to print an agent's screen, use 'pal peek'")
    if environment.get("TERM", "dumb") == "dumb":
        return _attach_unchanged(home, name, environment)
    if is_plain:
        with _titled(name):
            return _attach_unchanged(home, name, environment)
    is_ascii = not has_utf8(environment, is_utf8_mode=bool(sys.flags.utf8_mode))
    session = AttachSession(home, name, is_ascii=is_ascii, keys_first=keys_first)
    with _titled(name):
        ending = asyncio.run(session.run(call(home, name, *session.agent_size, is_drawn=True)))
    while ending.next is not None:
        name, can_relaunch = ending.next.name, True
        with _titled(name):
            ending = asyncio.run(AttachSession(home, name, is_ascii=is_ascii).run(ending.next))
    status = _report(ending, name)
    has_failed = ending.exit is not None and ending.exit.code != 0 and not ending.is_stopped
    if has_failed and can_relaunch and _wants_relaunch():
        _relaunch(home, name)
    return status


@contextmanager
def _titled(name: str) -> Iterator[None]:
    """Set the title of the user's terminal to the agent's name, and restore it afterwards."""
    # The terminal keeps a stack of titles, because it does not reveal the current one: push it here, pop it
    # later.
    os.write(1, f"\x1b[22;2t\x1b]2;{name}\x07".encode())
    try:
        yield
    finally:
        with suppress(OSError):  # the terminal may be closed
            os.write(1, b"\x1b[23;2t")


def has_utf8(environment: Mapping[str, str], *, is_utf8_mode: bool) -> bool:
    """Whether the locale is a UTF-8 one; the first variable that is set counts.

    `is_utf8_mode`: Python found no locale, and then wrote a UTF-8 one to its own environment.
    """
    is_made_up = is_utf8_mode and environment.get("LC_CTYPE") in _MADE_UP
    keys = [key for key in _LOCALES if environment.get(key) and not (is_made_up and key == "LC_CTYPE")]
    locale = environment[keys[0]] if keys else ""
    return locale.lower().replace("-", "").endswith("utf8")


def _report(ending: AttachEnd, name: str) -> int:
    """Report how it ended, and return the exit status."""
    # End by the signal itself, so that the shell sees the real cause.
    if ending.signal:
        signal.signal(ending.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ending.signal)
    if ending.is_lost:
        sys.stderr.write(f"pal: lost the connection to the holder of {name}\n")
        return 1
    if ending.exit is None:
        sys.stderr.write(f"detached from {name}; to attach again, run 'pal attach {name}'\n")
        return 0
    sys.stderr.write(f"{name} has ended: {ending.exit}; 'pal resume {name}' starts it again\n")
    return ending.exit.code


# --------------------
# Start an agent again that has failed, if the user wants that.

_ASK_S: Final = 10.0
"""Seconds to wait for a key: a terminal that no user looks at goes back to its shell."""
_GONE_S: Final = 5.0
"""Seconds that the holder of an ended agent may take to report its end."""
_LOOK_S: Final = 0.02


def _wants_relaunch() -> bool:
    """Ask the user whether to start the agent again. Return False after `_ASK_S` seconds without a key."""
    key, before = b"", termios.tcgetattr(0)
    # The terminal may be closed meanwhile; Ctrl-C leaves, as any other key does.
    with suppress(OSError, termios.error, KeyboardInterrupt):
        # Before the question, drop the keys that were meant for the agent.
        tty.setcbreak(0, termios.TCSAFLUSH)
        sys.stderr.write(f"press r to start it again, any other key to leave ({_ASK_S:g} s) ")
        sys.stderr.flush()
        if select.select([0], [], [], _ASK_S)[0]:
            key = os.read(0, 1)
    with suppress(OSError, termios.error):
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        sys.stderr.write("\n")
    return key in (b"r", b"R")


def _relaunch(home: str, name: str) -> NoReturn:
    """Become `pal resume`, once the holder of the ended agent has reported its end."""
    limit = time.monotonic() + _GONE_S
    while has_terminal(home, name) and time.monotonic() < limit:
        time.sleep(_LOOK_S)
    os.execvp(find_pal(), ["pal", "resume", name])  # noqa: S606 - no shell is wanted


# --------------------
# The agent's terminal unchanged: keys and output are passed on as they are.
#
# Ctrl-\ d detaches, Ctrl-\ t takes the keyboard, Ctrl-\ twice sends one to the agent. Closing the terminal
# detaches, too: the agent runs on in any case.

_PREFIX: Final = 0x1C
_READ_BYTES: Final = 65536
_SIZE: Final = struct.Struct("HHHH")
_RESTORE: Final = b"\x1b7\x1b[?1049l\x1b[0m\x1b7\x1b[r\x1b8\x1b[?7h\x1b[?25h\x1b[<u\x1b>" + b"".join(
    b"\x1b[?%dl" % mode for mode in (1, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004, 2026, 2031)
)
"""Restores the modes that a shell expects on the user's terminal, whatever the agent had set.

The cursor is saved before each sequence that moves it (ESC 7, ESC 8).
"""
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def _attach_unchanged(home: str, name: str, environment: Mapping[str, str]) -> int:
    attached = call(home, name, *_size(), is_drawn=False)
    warnings: list[str] = []
    with attached.wire as wire:
        session = _RawSession(wire, attached.rest)
        notices = NoticeThread(home, session.notify, warnings.append, environment, in_view=(f"agent/{name}",))
        with _raw_terminal(session), notices:
            session.run()
        # Only now: on the agent's screen a sentence would be in the way of its text.
        for sentence in warnings:
            print_warning(sentence)
        return session.report(name)


class _RawSession:
    """One user's view of one agent."""

    def __init__(self, wire: socket.socket, rest: bytes) -> None:
        self._wire = wire
        self._rest = rest
        self._frames = ViewerFrameReader()
        self._out = bytearray()
        self._has_prefix = False
        self._is_over = False
        self._status: int | None = None
        self._has_left = False
        self._signal = 0
        self._screen = Emulator(*_size())
        """The contents of the user's terminal, to find the row below them."""
        self._signals_out: deque[bytes] = deque()
        """Signals of notices that wait until the agent's output is between two sequences."""
        self._wake, self._woken = os.pipe()

    def notify(self, text: str) -> None:
        """Write a bell or another sequence to the user's terminal soon. Any thread may call it."""
        self._signals_out.append(text.encode())
        with suppress(BlockingIOError):
            os.write(self._woken, b"!")

    def run(self) -> None:
        """Pass bytes on until one side ends."""
        self._wire.setblocking(False)
        # A signal handler writes to this pipe, and must not wait if the pipe is full.
        os.set_blocking(self._woken, False)
        with self._signals():
            self._show(self._rest)
            while not self._is_over:
                waiting: list[int | socket.socket] = [self._wire, self._wake]
                # While the holder does not read, keys stay in the terminal, so the memory here is limited.
                if len(self._out) < _READ_BYTES:
                    waiting.append(0)
                ready, writable, _ = select.select(waiting, [self._wire] if self._out else [], [])
                if self._wake in ready:
                    os.read(self._wake, _READ_BYTES)
                    self._on_signals()
                if 0 in ready:
                    self._on_keys()
                if self._wire in ready:
                    self._on_wire()
                while self._signals_out and not self._screen.is_mid_sequence:
                    _write_all(1, self._signals_out.popleft())
                if writable:
                    send_ready(self._wire, self._out)

    def leave_screen(self) -> bytes:
        """Return the bytes that move the cursor below the agent's text.

        Empty for an agent on the alternate screen: leaving that screen restores the cursor of the shell.
        """
        grid = self._screen.grid
        if grid.is_alternate:
            return b""
        used = [y for y in range(grid.lines) if grid.row_text(y)]
        return b"\x1b[%d;1H" % (max(grid.cursor.y, *used, 0) + 1)

    def report(self, name: str) -> int:
        """Report how it ended, and return the exit status."""
        if self._signal:
            signal.signal(self._signal, signal.SIG_DFL)
            os.kill(os.getpid(), self._signal)
        if self._has_left:
            sys.stderr.write(f"detached from {name}; to attach again, run 'pal attach {name}'\n")
            return 0
        if self._status is None:
            return _complain(f"lost the connection to the holder of {name}")
        return self._status

    # Keys

    def _on_keys(self) -> None:
        try:
            keys = os.read(0, _READ_BYTES)
        # A closed terminal is an error or the end of the input, depending on the system.
        except OSError:
            keys = b""
        if not keys:  # the terminal was closed
            self._is_over = self._has_left = True
            return
        sent = bytearray()
        for key in keys:
            self._take_key(key, sent)
        self._send(data_frames(bytes(sent)))

    def _take_key(self, key: int, sent: bytearray) -> None:
        if not self._has_prefix:
            self._has_prefix = key == _PREFIX
            if not self._has_prefix:
                sent.append(key)
            return
        self._has_prefix = False
        if key == ord("d"):
            self._is_over = self._has_left = True
        elif key == ord("t"):
            self._send(control_to_bytes({"type": "passthrough", "on": True, "take": True}))
        elif key == _PREFIX:
            sent.append(_PREFIX)
        else:
            sent += bytes((_PREFIX, key))

    # The agent's side

    def _on_wire(self) -> None:
        data = read_ready(self._wire, _READ_BYTES)
        if data:
            self._show(data)
        # Empty: the holder has closed the connection. None: nothing has arrived.
        elif data is not None:
            self._is_over = True

    def _show(self, data: bytes) -> None:
        for kind, payload in self._frames.feed(data):
            if kind == DATA:
                _write_all(1, payload)
                self._screen.feed(payload)
            elif kind == CONTROL:
                self._on_control(control_from_bytes(payload))

    def _on_control(self, fields: dict[str, object]) -> None:
        if fields["type"] == "exited":
            status = fields.get("status")
            self._status = status if isinstance(status, int) else 1
            self._is_over = True
        elif (fields["type"], fields.get("about")) == ("error", "bus"):
            _write_all(2, f"\r\npal: {fields.get('message')}\r\n".encode())

    def _send(self, frames: bytes) -> None:
        self._out += frames
        send_ready(self._wire, self._out)

    # Signals

    @contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = (*_ENDING, signal.SIGWINCH, signal.SIGCONT)
        before = {number: signal.getsignal(number) for number in numbers}
        self._pending: list[int] = []
        for number in numbers:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        # Only noted: a handler may run in the middle of a write to the terminal.
        self._pending.append(number)
        # Python repeats a `select` that a signal interrupts, so only a byte in the pipe ends the wait.
        with suppress(BlockingIOError):
            os.write(self._woken, b"!")

    def _on_signals(self) -> None:
        pending, self._pending = self._pending, []
        for number in pending:
            if number in _ENDING:
                self._signal, self._is_over = number, True
            elif number == signal.SIGCONT:
                # While this process was stopped, the shell has set its own modes and drawn on the screen.
                tty.setraw(0, termios.TCSANOW)
                self._send(control_to_bytes({"type": "redraw"}))
        if signal.SIGWINCH in pending or signal.SIGCONT in pending:
            cols, rows = _size()
            self._screen.resize(cols, rows)
            self._send(control_to_bytes({"type": "resize", "cols": cols, "rows": rows}))


@contextmanager
def _raw_terminal(session: _RawSession) -> Iterator[None]:
    """Read every key while the block runs; then restore the terminal, with the cursor below the agent."""
    before = termios.tcgetattr(0)
    # Not the default TCSAFLUSH, which would drop keys that were typed already.
    tty.setraw(0, termios.TCSANOW)
    try:
        yield
    finally:
        with suppress(OSError, termios.error):  # it may have been closed
            _write_all(1, _RESTORE + session.leave_screen() + b"\r\n")
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _size() -> tuple[int, int]:
    rows, cols, _, _ = _SIZE.unpack(fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(_SIZE.size)))
    return cols, rows


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        # Another process that has the terminal open may have made it non-blocking for all of them.
        except BlockingIOError:
            select.select([], [fd], [])


def _complain(sentence: str) -> int:
    sys.stderr.write(f"pal: {sentence}\n")
    return 1
