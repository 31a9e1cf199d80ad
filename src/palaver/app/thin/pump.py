"""`pal mcp` in Python: passes lines between a harness and the daemon. native/pump.c is the same in C.

Each line of standard input gets a number and is kept until the daemon confirms that it is settled. If the
daemon is lost, it is searched and, if allowed, started, and unsettled lines are sent again. The pump does not
parse messages; only if there is no daemon, or it does not respond, does it read a line's id, to refuse it. A
daemon sends something at once; a request that it has started may then take any time.
"""

from __future__ import annotations

import _socket
import os
import select
import time

from palaver.app.thin.call import PIECE_BYTES, MalformedFrameError, ThinFrameReader, frame, request
from palaver.client import start
from palaver.client.start import ConnectDenied, StartError

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

GREETING = b"PALM"
# protocol/thin.py and native/pump.c have the same number.
LINE_LIMIT_BYTES = 1024 * 1024
_LINE_END_BYTES = 4096
_RECEIVE_BYTES = 262144
_REPEATS = 5
# JSON-RPC leaves the codes from -32099 to -32000 to errors of a server.
_STOPPED = -32000
_FIRST_LIMIT_S = 5.0  # for the first frame of a daemon: one that has just started on a busy machine is slow
_LAST_LIMIT_S = 10.0  # for the next frame after the end of input, while a line is not settled
_BYE_LIMIT_S = 2.0  # the same when all lines are settled
_NO_SIGNAL = getattr(_socket, "MSG_NOSIGNAL", 0)  # macOS has a socket option instead
FOR_A_HARNESS = (
    "a harness runs 'pal mcp' and talks to it in MCP over standard input; it is not for a terminal. "
    "Add it to a harness: claude mcp add palaver -- pal mcp"
)
_NO_BUS = "the bus is not running; try again later, or ask for 'pal up'. The call may have been carried out"
_DENIED = (
    "this process may not connect to the bus any more (a sandbox?); ask the user for access to daemon.sock "
    "in the home of the bus. The call may have been carried out"
)
_HUNG = (
    "the bus does not answer: its daemon is stopped or very busy. Try again later, or end the process "
    "in daemon.lock and run 'pal up'. The call may have been carried out"
)


class McpPump:
    """One session of MCP. Lines are settled once; none is lost while the process runs."""

    def __init__(
        self,
        home: str,
        fields: list[tuple[bytes, bytes]],
        write: Callable[[memoryview], None],
        connect: Callable[[start.Socket | None], None],
        obey: Callable[[bytes, bytes], bool],
    ) -> None:
        """`connect` receives the wire in use; `obey` carries out the frames that every command has."""
        self._home = home
        self._fields = fields
        self._write = write
        self._connect = connect
        self._obey = obey
        self._token = b""
        self._pending: dict[int, tuple[bytes, bytes]] = {}
        self._lines_read = 0
        self._rest = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._has_ended = False
        self._wire: start.Socket | None = None
        self._has_heard = False
        self._is_denied = False  # a daemon may listen, but not for this process
        self._is_stuck = False  # the daemon does not even read
        self._waited_since_s = 0.0  # when waiting for the daemon last began

    def run(self, wire: start.Socket | None) -> NoReturn:
        """Pump until the input has ended and every line is settled."""
        while True:
            is_silent = wire is not None and not self._serve(wire)
            is_done = not self._pending
            wire = None if is_silent else self._regain()
            if wire is not None:
                continue
            # An error now is better than silence: the harness would wait for the reply until its own limit.
            self._refuse_pending(_HUNG if is_silent else _DENIED if self._is_denied else _NO_BUS)
            if self._has_ended:
                os._exit(0 if is_silent and is_done and self._has_heard else 1)
            # The next line is a reason to try again. Without one, no daemon is needed, and none is started.
            harness = select.poll()  # a read does not wait if the harness has made its pipe non-blocking
            harness.register(0, select.POLLIN)
            while not self._pending and not self._has_ended:
                harness.poll()
                self._read_lines()

    # With a daemon

    def _serve(self, wire: start.Socket) -> bool:
        """Pump until the daemon is lost; return False if it was silent instead."""
        self._wire = wire
        self._connect(wire)
        self._has_heard = self._is_stuck = is_silent = False
        self._waited_since_s = time.monotonic()
        wire.setblocking(False)  # a daemon that does not read must not hide the end of input
        fields = [*self._fields, (b"r", self._token)] if self._token else self._fields
        # The request of any command, with the greeting of this protocol instead.
        self._send(GREETING + request(fields)[len(GREETING) :])
        for number, (kind, line) in self._pending.items():
            # The lost daemon may have handled these lines, so `M` marks them as repeats.
            self._hand_over(number, b"M" if kind == b"L" else kind, line)
        if self._has_ended:
            self._send(frame(b"Z"))
        frames = ThinFrameReader()
        waiting = select.poll()
        waiting.register(wire.fileno(), select.POLLIN)
        if not self._has_ended:
            waiting.register(0, select.POLLIN)
        while True:
            ready = set() if self._is_stuck else {fd for fd, _ in waiting.poll(self._silence_limit_ms())}
            if not ready:
                is_silent = True
                break
            if wire.fileno() in ready and not self._receive(wire, frames):
                break
            if 0 in ready:
                self._read_lines()
                if self._has_ended:
                    waiting.unregister(0)
        self._wire = None
        self._connect(None)
        wire.close()
        return not is_silent

    def _silence_limit_ms(self) -> float | None:
        """Return how long the daemon may be silent; None without a limit."""
        if not self._has_ended and (self._has_heard or not self._pending):
            return None
        limit_s = _BYE_LIMIT_S if not self._pending else _LAST_LIMIT_S if self._has_heard else _FIRST_LIMIT_S
        return max(0.0, self._waited_since_s + limit_s - time.monotonic()) * 1000

    def _receive(self, wire: start.Socket, frames: ThinFrameReader) -> bool:
        try:
            data = wire.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return True
        # A daemon that ends before it has read everything resets the connection: this is its end too.
        except ConnectionError:
            data = b""
        self._waited_since_s = time.monotonic()
        frames.feed(data)
        while taken := frames.take():
            self._on_frame(*taken)
        return bool(data)

    def _on_frame(self, kind: bytes, payload: bytes) -> None:
        self._has_heard = self._has_heard or kind != b"N"
        if kind == b"L":
            if len(payload) < 4:
                raise MalformedFrameError
            self._write(memoryview(payload)[4:])
            # Only after the reply was written: a line that is still pending is sent again, and none is lost.
            self._pending.pop(int.from_bytes(payload[:4], "big"), None)
        elif kind == b"T":
            self._token = payload
        elif kind != b"N":
            self._obey(kind, payload)

    def _hand_over(self, number: int, kind: bytes, line: bytes) -> None:
        self._send(frame(kind, number.to_bytes(4, "big") + line))

    def _send(self, data: bytes) -> None:
        """Send all of it. A lost connection is noticed by reading, after the last frames of the daemon."""
        assert self._wire is not None
        rest = memoryview(data)
        while rest and not self._is_stuck:
            try:
                rest = rest[self._wire.send(rest, _NO_SIGNAL) :]
            except BlockingIOError:
                self._await_room(self._wire)
            except OSError:
                return

    def _await_room(self, wire: start.Socket) -> None:
        """Wait until the daemon reads more, or give up: after the end of input it is useless to wait."""
        room, harness = select.poll(), select.poll()
        room.register(wire.fileno(), select.POLLOUT)
        # The end of input is looked for here too, because nothing is read from it meanwhile.
        harness.register(0, getattr(select, "POLLRDHUP", 0))
        while not room.poll((_LAST_LIMIT_S if self._has_heard else _FIRST_LIMIT_S) * 1000):
            if not self._has_heard or self._has_ended or harness.poll(0):
                self._is_stuck = True
                return

    # Lines

    def _read_lines(self) -> None:
        try:
            data = os.read(0, PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:  # such as a socket that the harness has reset
            data = b""
        if not data:  # an unfinished line is ignored
            self._has_ended = True
            # Without a first frame the wait for that goes on: it began with the connection.
            if self._has_heard or not self._pending:
                self._waited_since_s = time.monotonic()
            if self._wire is not None:
                self._send(frame(b"Z"))
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line)
            self._take_line()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        # Of a line that is too long both ends are kept: its id may be in either, and the error must contain
        # it.
        room = 0 if self._dropped else LINE_LIMIT_BYTES - len(self._rest)
        self._rest += piece[:room]
        beyond = piece[room:]
        if beyond:
            self._dropped += len(beyond)
            self._tail = (self._tail + beyond)[-_LINE_END_BYTES:]

    def _take_line(self) -> None:
        kind, line = b"L", bytes(self._rest)
        if self._dropped:
            kind = b"X"
            line = line[:_LINE_END_BYTES] + (line[-_LINE_END_BYTES:] + self._tail)[-_LINE_END_BYTES:]
        self._rest.clear()
        self._tail.clear()
        self._dropped = 0
        if not line.strip():
            return
        self._lines_read += 1
        if not self._pending:
            self._waited_since_s = time.monotonic()
        self._pending[self._lines_read] = kind, line
        if self._wire is not None:
            self._hand_over(self._lines_read, kind, line)

    # Without a daemon

    def _regain(self) -> start.Socket | None:
        """Search for a daemon again; start one, unless the bus was stopped on purpose."""
        self._is_denied = False
        for tries in range(_REPEATS):
            try:
                # At first only reach one: the lost daemon may be replaced by another process at this moment.
                if wire := start.reach(self._home) or (tries and start.start(self._home, person=False)):
                    return wire
            except StartError as error:
                self._is_denied = isinstance(error, ConnectDenied)
                return None
            time.sleep(0.02 * 2**tries)
        return None

    def _refuse_pending(self, why: str) -> None:
        for kind, line in self._pending.values():
            if answer := refusal(line, why, is_too_long=kind == b"X"):
                self._write(memoryview(answer))
        self._pending.clear()


def refusal(line: bytes, why: str, *, is_too_long: bool = False) -> bytes:
    """Return the error reply to a request; empty for a line that expects no reply.

    Of a line that is too long, `line` has only both ends.
    """
    import json  # only here: it takes longer to import than all the rest

    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        if not is_too_long:
            return b""
        # Both ends together are often not JSON: they may be cut in the middle of a character.
        from palaver.protocol.thin import id_of_ends

        id: object = id_of_ends(line)
    else:
        id = found.get("id") if isinstance(found, dict) else None
    if not isinstance(id, (str, int)):
        return b""
    answer = {"jsonrpc": "2.0", "id": id, "error": {"code": _STOPPED, "message": why}}
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"
