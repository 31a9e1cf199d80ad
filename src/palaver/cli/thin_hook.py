"""`pal hook`, `pal monitor` and `pal rewake` in Python; native/hook.h and native/monitor.h are the same in C.

A harness waits for a hook: it is silent and ends with 0 whatever happens, writes an answer out whole or not
at all, and starts nothing. A monitor outlives the daemon, waits for the next one, and ends with its harness;
`rewake` is one that says something once, and what it says is put to the model when it ends with status 2.
"""

from __future__ import annotations

import os
import select
import signal

from palaver.cli.thin_wire import FrameReader, MalformedFrameError, frame
from palaver.client import start

TYPE_CHECKING = False  # typing itself would take longer to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

GREETING = b"PALH"
_INPUT_LIMIT_BYTES = 8 * 1024 * 1024  # the results of tools come along
_LIMIT_S = 1
_LONG_LIMIT_S = 5  # at the start of a session, when a name may have to be given
_PERSON_LIMIT_S = 3700  # when a person is asked, and only if the daemon says so
_PIECE_BYTES = 65536
_WAIT_FIRST_S = 0.05
_WAIT_MOST_S = 0.5


def begin_limit(words: list[bytes]) -> None:
    """Let nothing from here on take longer than this; `words` are the arguments from the verb on."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})  # whoever started us may keep it back
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.alarm(_LONG_LIMIT_S if words[2:3] == [b"SessionStart"] else _LIMIT_S)


def run_hook(home: str, fields: list[tuple[bytes, bytes]]) -> NoReturn:
    """Ask the daemon that is there, and write out what it says."""
    try:
        answer = _ask(home, [*fields, (b"b", _read_input())])
        while answer:
            answer = answer[os.write(1, answer) :]
    except (OSError, MalformedFrameError):
        pass  # a hook must never disturb its harness
    finally:
        os._exit(0)


def _read_input() -> bytes:
    """Read what the harness says to its end, also when it is too much: its writer finds no closed pipe."""
    content = bytearray()
    if os.isatty(0):
        return b""
    is_too_long = False
    while piece := _read_piece():
        content += piece
        if len(content) > _INPUT_LIMIT_BYTES:
            is_too_long = True
            content.clear()
    if is_too_long:
        os._exit(0)
    return bytes(content)


def _read_piece() -> bytes:
    """Wait for more, also where whoever shares the input does not wait."""
    while True:
        try:
            return os.read(0, _PIECE_BYTES)
        except BlockingIOError:
            select.select([0], [], [])


def _ask(home: str, fields: list[tuple[bytes, bytes]]) -> bytes:
    """Give the daemon's answer, and tell it that it arrived: from then on no deadline holds."""
    try:
        wire = start.reach(home)
    except start.StartError:
        return b""
    if wire is None:
        return b""
    wire.sendall(GREETING + frame(b"R", b"".join(frame(tag, value) for tag, value in fields)))
    frames = FrameReader()
    kind, answer = b"W", b""
    while kind == b"W":
        if len(answer) == 4:  # a person is asked: wait so long
            signal.alarm(max(1, min(int.from_bytes(answer, "big"), _PERSON_LIMIT_S)))
        while (taken := frames.take()) is None:
            data = wire.recv(_PIECE_BYTES)
            if not data:
                return b""
            frames.feed(data)
        kind, answer = taken
    if kind != b"H" or not answer:
        return b""
    signal.alarm(0)
    wire.sendall(frame(b"A"))
    return answer


def rewake_fields() -> list[tuple[bytes, bytes]]:
    """Take the input of the hook along. A session that prints one answer and ends would wait for us."""
    content = _read_input()
    if os.environ.get("CLAUDE_CODE_ENTRYPOINT", "sdk").startswith("sdk"):
        os._exit(0)
    return [(b"b", content)]


def run_monitor(home: str, serve: Callable[[start.Socket, int | None], bool]) -> NoReturn:
    """Serve one daemon after the other; `serve` tells whether it said anything.

    It is given what can be read once the harness has ended, where the system has that.
    """
    parent, wait_s = os.getppid(), _WAIT_FIRST_S
    harness = _watch_process(parent)
    while os.getppid() == parent:
        try:
            wire = start.reach(home)
        except start.StartError:
            wire = None
        if wire is not None and serve(wire, harness):
            wait_s = _WAIT_FIRST_S
        if is_output_lost(None, harness, wait_s):
            break
        wait_s = min(2 * wait_s, _WAIT_MOST_S)
    os._exit(0)


def _watch_process(pid: int) -> int | None:
    try:
        return start.above_stdio(os.pidfd_open(pid))
    except (OSError, AttributeError):
        return None


def is_output_lost(wire: int | None, harness: int | None, limit_s: float | None = None) -> bool:
    """Wait until the daemon says something; true when the harness has gone, or nobody can read our output."""
    waiting = select.poll()
    if wire is not None:
        waiting.register(wire, select.POLLIN)
    if harness is not None:
        waiting.register(harness, select.POLLIN)
    waiting.register(1, 0)
    lost = select.POLLERR | select.POLLHUP | select.POLLNVAL
    found = waiting.poll(None if limit_s is None else limit_s * 1000)
    return any(fd == harness or (fd == 1 and event & lost) for fd, event in found)
