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

DEFAULT_COLS: Final = 80
DEFAULT_ROWS: Final = 24


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended."""

    status: int | None
    """What it exited with; None when a signal ended it."""
    signal: int = 0

    @classmethod
    def from_wait(cls, status: int) -> Self:
        """Read what the system says of a process that has ended."""
        if os.WIFSIGNALED(status):
            return cls(None, os.WTERMSIG(status))
        return cls(os.WEXITSTATUS(status))

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

    def close(self) -> None:
        """Hang up: what still runs in it is told by the system."""
        os.close(self.master)
