"""Move bytes to and from a terminal. Nothing here blocks or parses.

A program that does not read blocks no other part: its keys wait here, in order and without a limit, and
`unsent` says how many bytes there are. The callers must limit what they write.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final

_READ_BYTES: Final = 65536
_READS_AT_ONCE: Final = 16
"""Reads that are passed on together. A single read returns little; more would delay other work."""
_DRAINS_AT_ONCE: Final = 64
"""Rounds of reads in one `drain_output`."""


class Pump:
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
        if len(self._out) == 1:
            self._flush()
            if self._out:
                self._loop.add_writer(self._master, self._flush_rest)

    def drain_output(self) -> bool:
        """Read the output that is available now.

        Return False if some is left after `_DRAINS_AT_ONCE` rounds: a program may write without a pause.
        """
        return any(not self._is_open or not self._read() for _ in range(_DRAINS_AT_ONCE))

    def close(self) -> None:
        """Stop reading and writing, and drop unsent keys. A second call does nothing."""
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
            self._on_drained()

    def release(self) -> bytes:
        """Stop using the terminal without closing it. Return the keys that it has not taken."""
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
