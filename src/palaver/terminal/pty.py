"""A pseudo-terminal: its size, its modes, its foreground process group, and how its process ended.

Does not change the settings of the terminal, except its size, and starts no process.
"""

import asyncio
import os
import signal
import struct
import termios
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import ioctl
from typing import Final, Self

_SIZE: Final = struct.Struct("HHHH")
_NUMBER: Final = struct.Struct("i")
_GET_NUMBER: Final = 0x80045430
_OPEN_END: Final = 0x5441
"""Linux ioctls: the number of a pseudo-terminal, and a new descriptor of the program's end.

The module `termios` has no names for them (TIOCGPTN, TIOCGPTPEER). On other systems they fail.
"""

_NO_KEY: Final = b"\0"
"""The value of a special character of a terminal that is disabled."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended."""

    status: int | None
    """Its exit status; None if a signal ended it."""
    signal: int = 0

    @property
    def code(self) -> int:
        """The exit status that a shell would show."""
        return 128 + self.signal if self.status is None else self.status

    def __str__(self) -> str:
        if self.status is None:
            return f"killed by {signal_name(self.signal)}"
        return f"exited with {self.status}"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGTERM."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Pty:
    """The holder's end of a pseudo-terminal. The program reads the bytes written here."""

    def __init__(self, master: int, cols: int, rows: int) -> None:
        """Take ownership of a descriptor. The terminal must have this size already."""
        self.master = master
        self.cols = cols
        self.rows = rows
        # The event loop reads and writes it: a program that does not read must not stop all else.
        os.set_blocking(master, False)

    @classmethod
    def open(cls, cols: int, rows: int) -> tuple[Self, int]:
        """Make a pair. The second is the program's end; the caller closes it after starting the program."""
        master, slave = os.openpty()
        pty = cls(master, cols, rows)
        pty.resize(cols, rows)
        return pty, slave

    def resize(self, cols: int, rows: int) -> None:
        """Change the size. The system notifies the program in the foreground if the size has changed."""
        ioctl(self.master, termios.TIOCSWINSZ, _SIZE.pack(rows, cols, 0, 0))
        self.cols, self.rows = cols, rows

    def foreground(self) -> int:
        """Return the process group in the foreground, or -1 if there is no such group, as after the end."""
        try:
            return os.tcgetpgrp(self.master)
        except OSError:
            return -1

    @property
    def path(self) -> str:
        """The path of the program's end; empty if the system does not tell."""
        try:
            number: bytes = ioctl(self.master, _GET_NUMBER, b"\0" * _NUMBER.size)
        except OSError:
            return ""
        return f"/dev/pts/{_NUMBER.unpack(number)[0]}"

    def unread(self) -> int | None:
        """Return the number of typed bytes that the program has not read; None if the system does not tell.

        In line mode only complete lines count. The program's end is opened only briefly, because an open
        descriptor would hide that the program has ended.
        """
        try:
            # Asked at the program's end: at this end the system would count the program's output.
            end = ioctl(self.master, _OPEN_END, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return int(_NUMBER.unpack(ioctl(end, termios.FIONREAD, b"\0" * _NUMBER.size))[0])
        except OSError:
            return None
        finally:
            os.close(end)

    @property
    def is_secret(self) -> bool:
        """Whether the terminal reads a line without echo."""
        flags = self._local_flags()
        return bool(flags & termios.ICANON) and not flags & termios.ECHO

    @property
    def is_raw(self) -> bool:
        """Whether the program reads single keys: the terminal is not in line mode."""
        return not self._local_flags() & termios.ICANON

    @property
    def is_edited(self) -> bool:
        """Whether a line editor such as readline reads keys now: it disables Ctrl-V (quote next key).

        A program that has loaded such a library but reads a single key itself does not disable Ctrl-V.
        """
        try:
            _, _, _, flags, _, _, keys = termios.tcgetattr(self.master)
        except termios.error:  # it has ended
            return False
        return not flags & termios.ICANON and keys[termios.VLNEXT] == _NO_KEY

    def _local_flags(self) -> int:
        try:
            return int(termios.tcgetattr(self.master)[3])
        except termios.error:  # It has ended: neither a prompt for a secret nor raw.
            return termios.ICANON | termios.ECHO

    def close(self) -> None:
        """Hang up. The system notifies the processes that still run in the terminal."""
        os.close(self.master)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process in its terminal, and the Palaver home that it belongs to."""

    home: str
    pty: Pty
    child: int
    command: tuple[str, ...]
    native: str = ""
    """The address of the harness's native API; empty if it has no such API."""
    prompt: str = ""
    """The pattern of `pal run --prompt`."""


# --------------------
# Move bytes to and from a terminal. Nothing here blocks or parses.
#
# A program that does not read blocks no other part: its keys wait here, in order and without a limit, and
# `unsent` says how many bytes there are. The callers must limit what they write.

_READ_BYTES: Final = 65536
_READS_AT_ONCE: Final = 16
"""Reads that are passed on together. A single read returns little; more would delay other work."""
_DRAINS_AT_ONCE: Final = 64
"""Rounds of reads in one `drain_output`."""


class TerminalPump:
    """The input and output of one terminal while its program runs."""

    def __init__(
        self,
        master: int,
        on_output: Callable[[bytes], None],
        on_hangup: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> None:
        """`on_hangup`: no more output will come. `on_drained`: the terminal has taken all keys."""
        self._master = master
        self._on_output = on_output
        self._on_hangup = on_hangup
        self._on_drained = on_drained
        self._out: deque[memoryview] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self.unsent = 0
        """Bytes that the terminal has not taken yet."""
        self._loop.add_reader(master, self._read)

    def write(self, data: bytes) -> None:
        """Send keys after all earlier ones. After the hang-up they are dropped."""
        if not self._is_open or not data:
            return
        self._out.append(memoryview(data))
        self.unsent += len(data)
        # With more than one, earlier keys wait for the terminal and must be written first.
        if len(self._out) == 1:
            self._flush()
            if self._out:
                self._loop.add_writer(self._master, self._flush_rest)

    def drain_output(self) -> bool:
        """Read the output that is available now.

        Return False if some is left after `_DRAINS_AT_ONCE` rounds: a program may write without a pause.
        """
        # `any` stops at the first read without output.
        return any(not self._is_open or not self._read() for _ in range(_DRAINS_AT_ONCE))

    def close(self) -> None:
        """Stop reading and writing, and drop unsent keys. The descriptor stays open.

        A second call does nothing.
        """
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._master)
            self._loop.remove_writer(self._master)
            self._out.clear()
            self.unsent = 0

    def drop_unsent(self) -> None:
        """Drop the keys that the terminal has not taken."""
        if self._out:
            self._out.clear()
            self.unsent = 0
            self._loop.remove_writer(self._master)
            # There is room again, as after writing: viewers and a message may be waiting for it.
            self._on_drained()

    def release(self) -> bytes:
        """Stop using the terminal without closing it. Return the keys that it has not taken."""
        # Before `close`, which drops them.
        rest = b"".join(self._out)
        self.close()
        return rest

    def _read(self) -> bool:
        """Pass on available output. Return False if there was no output, or the terminal has ended."""
        pieces: list[bytes] = []
        is_over = False
        for _ in range(_READS_AT_ONCE):
            try:
                piece = os.read(self._master, _READ_BYTES)
            except BlockingIOError:
                break
            except OSError:  # EIO: no process has the other end open
                piece = b""
            if not piece:
                is_over = True
                break
            pieces.append(piece)
        # Before the hang-up: the last output of a program often says why it has ended.
        if pieces:
            self._on_output(b"".join(pieces))
        # Closed first: a terminal that has hung up stays readable, so the loop would call this again and
        # again.
        if is_over:
            self.close()
            self._on_hangup()
        return bool(pieces) and not is_over

    def _flush_rest(self) -> None:
        self._flush()
        # `_on_drained` may have written new keys, or closed the pump.
        if not self._out and self._is_open:
            self._loop.remove_writer(self._master)

    def _flush(self) -> None:
        while self._out:
            try:
                written = os.write(self._master, self._out[0])
            except BlockingIOError:
                return
            except OSError:  # reading reports the end
                self._out.clear()
                self.unsent = 0
                return
            self.unsent -= written
            if written == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][written:]
        self._on_drained()
