"""A pseudo-terminal and what ran in it: its size, who is in the foreground, how it ended.

Leaves the terminal's settings as the system and the program in it want them. Starts nothing.
"""

import os
import signal
import struct
import termios
from dataclasses import dataclass
from fcntl import ioctl
from typing import Final, Self

_SIZE: Final = struct.Struct("HHHH")
_NUMBER: Final = struct.Struct("i")
_GET_NUMBER: Final = 0x80045430
_OPEN_END: Final = 0x5441
"""Of Linux: the number of a pseudo-terminal, and a descriptor of its program's end."""

_NO_KEY: Final = b"\0"
"""A special character of a terminal that is switched off."""

DEFAULT_COLS: Final = 80
DEFAULT_ROWS: Final = 24


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended."""

    status: int | None
    """What it exited with; None when a signal ended it."""
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
    """Name a signal as people do."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Pty:
    """The end of a pseudo-terminal that a holder has: what is written here, the program reads."""

    def __init__(self, master: int, cols: int, rows: int) -> None:
        """Take over a descriptor whose terminal has this size already."""
        self.master = master
        self.cols = cols
        self.rows = rows
        os.set_blocking(master, False)

    @classmethod
    def open(cls, cols: int, rows: int) -> tuple[Self, int]:
        """Make a pair; the second is the end for the program, which the caller closes once it was given."""
        master, slave = os.openpty()
        pty = cls(master, cols, rows)
        pty.resize(cols, rows)
        return pty, slave

    def resize(self, cols: int, rows: int) -> None:
        """Change the window; the program in the foreground is told by the system, when it is a change."""
        ioctl(self.master, termios.TIOCSWINSZ, _SIZE.pack(rows, cols, 0, 0))
        self.cols, self.rows = cols, rows

    def foreground(self) -> int:
        """Give the process group in the foreground; -1 when there is none, as after the end."""
        try:
            return os.tcgetpgrp(self.master)
        except OSError:
            return -1

    @property
    def path(self) -> str:
        """The name of the program's end, as the system has it; empty when it does not say."""
        try:
            number: bytes = ioctl(self.master, _GET_NUMBER, b"\0" * _NUMBER.size)
        except OSError:
            return ""
        return f"/dev/pts/{_NUMBER.unpack(number)[0]}"

    def unread(self) -> int | None:
        """Give how many bytes were typed that the program has not read; None when the system does not say.

        Of a terminal that hands on whole lines only those count that have their Enter. The end is opened for
        a moment only: kept open, it would hide that the program has ended.
        """
        try:
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
        """Whether the terminal takes a line and shows nothing of it."""
        flags = self._local_flags()
        return bool(flags & termios.ICANON) and not flags & termios.ECHO

    @property
    def is_raw(self) -> bool:
        """Whether the program takes keys one by one."""
        return not self._local_flags() & termios.ICANON

    @property
    def is_edited(self) -> bool:
        """Whether a line editor such as readline reads keys now: it takes Ctrl-V, which quotes a key, itself.

        A program that has such a library loaded and reads a single key by itself leaves Ctrl-V as it was.
        """
        try:
            _, _, _, flags, _, _, keys = termios.tcgetattr(self.master)
        except termios.error:  # it has ended
            return False
        return not flags & termios.ICANON and keys[termios.VLNEXT] == _NO_KEY

    def _local_flags(self) -> int:
        try:
            return int(termios.tcgetattr(self.master)[3])
        except termios.error:  # it has ended
            return termios.ICANON | termios.ECHO

    def close(self) -> None:
        """Hang up: what still runs in it is told by the system."""
        os.close(self.master)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What runs here: a process in its terminal, and the home that it belongs to."""

    home: str
    pty: Pty
    child: int
    command: tuple[str, ...]
    native: str = ""
    """The address of the harness's own way in, where it has one."""
    prompt: str = ""
    """The rule of `pal run --prompt`."""
