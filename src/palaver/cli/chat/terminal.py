"""A user's terminal during a chat: keys in, lines out above the typed one. Restored at the end."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from palaver.cli.chat.editor import Editor, Key, Pressed
from palaver.cli.chat.page import Bottom, input_line

_BEGIN: Final = "\x1b[?2004h"
_END: Final = "\x1b[?2004l"
_READ: Final = 65536
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Terminal:
    """Draws the conversation and the line being typed. All text must be safe already."""

    def __init__(self, prompt: str, dim: Callable[[str], str]) -> None:
        """`dim` paints the lines between the conversation and the input."""
        self._prompt = prompt
        self._dim = dim
        self._editor = Editor()
        self._bottom = Bottom()
        self._pressed: asyncio.Queue[Pressed] = asyncio.Queue()
        self.above: Callable[[], Sequence[str]] = tuple
        """Returns the lines between the conversation and the input, each time they are drawn."""

    @property
    def width(self) -> int:
        """The current number of columns."""
        try:
            return max(os.get_terminal_size(sys.stdout.fileno()).columns, 4)
        except OSError:
            return 80

    @contextmanager
    def in_hand(self) -> Iterator[None]:
        """Read single keys, and always restore the terminal at the end."""
        loop = asyncio.get_running_loop()
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        tty.setraw(descriptor, termios.TCSADRAIN)  # keeps keys that were typed during the start
        self._write(_BEGIN)
        loop.add_reader(descriptor, self._read)
        loop.add_signal_handler(signal.SIGWINCH, self.redraw)
        for number in _ENDING:
            loop.add_signal_handler(number, self._pressed.put_nowait, Pressed(Key.QUIT))
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
            for number in (signal.SIGWINCH, *_ENDING):
                loop.remove_signal_handler(number)
            self._write(self._bottom.erase(self.width) + _END)
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    async def pressed(self) -> Pressed:
        """Wait for a key that means more than text."""
        return await self._pressed.get()

    def show(self, lines: Sequence[str]) -> None:
        """Add lines to the conversation, above the input."""
        shown = "".join(f"{line}\r\n" for line in lines)
        self._write(self._bottom.erase(self.width) + shown + self._drawn())

    def redraw(self) -> None:
        """Redraw the lines at the bottom."""
        self._write(self._bottom.erase(self.width) + self._drawn())

    def give_back(self, text: str) -> None:
        """Put a line that was not sent back into the input, if that is empty."""
        if not self._editor.text:
            self._editor.put(text)
        self.redraw()

    def _drawn(self) -> str:
        width = self.width
        line, column = input_line(self._prompt, self._editor.text, self._editor.cursor, width)
        return self._bottom.draw(self.above(), line, column, width, self._dim)

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), _READ)
        except OSError:
            data = b""
        if not data:
            self._pressed.put_nowait(Pressed(Key.QUIT))
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            return
        for pressed in self._editor.feed(data):
            self._pressed.put_nowait(pressed)
        self.redraw()

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        try:
            while data:
                data = data[os.write(sys.stdout.fileno(), data) :]
        except OSError:
            self._pressed.put_nowait(Pressed(Key.QUIT))
