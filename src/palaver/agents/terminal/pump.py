"""Bytes between a terminal and whoever watches it, both ways. Nothing in here waits, parses or understands.

A program that never reads holds up nobody: what it was sent waits here, in order, and `unsent` says how much.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final

_READ_BYTES: Final = 65536
_READS_AT_ONCE: Final = 16
"""A terminal gives little at a time. So much goes on together, and then others have their turn."""
_DRAINS_AT_ONCE: Final = 64


class Pump:
    """The traffic of one terminal, for as long as its program runs."""

    def __init__(
        self,
        master: int,
        on_output: Callable[[bytes], None],
        on_hangup: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> None:
        """`on_hangup`: nothing more will come. `on_drained`: the program's side took all that was written."""
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
        """Send keys, behind all that were sent before. After the hang-up they are dropped."""
        if not self._is_open or not data:
            return
        self._out.append(memoryview(data))
        self.unsent += len(data)
        if len(self._out) == 1:
            self._flush()
            if self._out:
                self._loop.add_writer(self._master, self._flush_rest)

    def drain_output(self) -> bool:
        """Take in what is there to be read now: the last words of a program that has ended.

        False when there is more than is taken at once: a program that writes all the time has no end.
        """
        return any(not self._is_open or not self._read() for _ in range(_DRAINS_AT_ONCE))

    def close(self) -> None:
        """Read and write no more. Closing twice is closing once."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._master)
            self._loop.remove_writer(self._master)
            self._out.clear()
            self.unsent = 0

    def drop_unsent(self) -> None:
        """Forget the keys that the terminal has not taken."""
        if self._out:
            self._out.clear()
            self.unsent = 0
            self._loop.remove_writer(self._master)
            self._on_drained()

    def release(self) -> bytes:
        """Let go of the terminal without closing it; give what it has not taken yet."""
        rest = b"".join(self._out)
        self.close()
        return rest

    def _read(self) -> bool:
        """Pass on what there is; False when there was nothing."""
        pieces: list[bytes] = []
        is_over = False
        for _ in range(_READS_AT_ONCE):
            try:
                piece = os.read(self._master, _READ_BYTES)
            except BlockingIOError:
                break
            except OSError:  # EIO: nobody has the other end any more
                piece = b""
            if not piece:
                is_over = True
                break
            pieces.append(piece)
        if pieces:
            self._on_output(b"".join(pieces))
        if is_over:
            self.close()
            self._on_hangup()
        return bool(pieces) and not is_over

    def _flush_rest(self) -> None:
        self._flush()
        if not self._out and self._is_open:
            self._loop.remove_writer(self._master)

    def _flush(self) -> None:
        while self._out:
            try:
                written = os.write(self._master, self._out[0])
            except BlockingIOError:
                return
            except OSError:  # the reading side says that it is over
                self._out.clear()
                self.unsent = 0
                return
            self.unsent -= written
            if written == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][written:]
        self._on_drained()
