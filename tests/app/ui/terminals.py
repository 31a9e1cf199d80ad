"""The real program on a terminal of its own: keys go in, the screen comes out as text."""

import os
import select
import time
from collections.abc import Callable

import pyte
import pytest
from tests.app.person import Person
from tests.daemon.stage import Home


class ScreenPerson(Person):
    """A person at a terminal that draws."""

    def __init__(self, home: Home, *, cols: int = 80, rows: int = 24) -> None:
        super().__init__(home, cols=cols, rows=rows, term="xterm-256color")
        self._screen = pyte.Screen(cols, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._end_s = home.limit_s

    @property
    def screen(self) -> pyte.Screen:
        """The screen with its colours."""
        return self._screen

    @property
    def lines(self) -> list[str]:
        """The visible lines."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The visible screen."""
        return "\n".join(self.lines)

    def resize(self, cols: int, rows: int) -> None:
        super().resize(cols, rows)
        if hasattr(self, "_screen"):
            self._screen.resize(rows, cols)

    def sees(self, *texts: str) -> str:
        """Read until the screen shows all these texts, and return it. A text may go on in the next line."""

        def are_shown() -> bool:
            # pyte has no second screen: the cursor of the shell may be near the end of a line of the program.
            unwrapped = "".join(self._screen.display)
            return all(text in self.text or text in unwrapped for text in texts)

        return self.sees_that(are_shown, f"{texts}")

    def sees_that(self, is_so: Callable[[], bool], what: str) -> str:
        """Read until something is so on the screen, and return it."""
        end = time.monotonic() + self._end_s
        while not is_so():
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                pytest.fail(f"{what} was not to be seen in:\n{self.text}")
            data = os.read(self._master, 65536)
            self.shown += data
            # Two sequences that pyte does not know, and would show as text.
            self._stream.feed(
                data.replace(b"\x1b[>25u", b"").replace(b"\x1b[<u", b"").replace(b"\x1b[?2026$p", b"")
            )
        return self.text
