"""Find out whether typed text will be read: the foreground program, unread input, waiting readers.

This is queried before every key. The system does not notify us when a program begins to read, so a caller
that waits for that must query again.
"""

from dataclasses import replace
from typing import Final

from palaver.agents.terminal.foreground import ProcessKey, Readers, edits_lines, read_readers
from palaver.agents.terminal.gates import Facts, Foreground
from palaver.agents.terminal.pty import Pty
from palaver.agents.terminal.screen import Screen
from palaver.harness.profile import Profile

LOOK_SOON_S: Final = 0.1
LOOK_LATER_S: Final = 0.5
"""Intervals between queries while a program does not read: in a short interruption, and otherwise."""

_GRACE_MS: Final = 300
"""How long a reader may be busy with its last input before it counts as not reading."""
_ASK_AGAIN_MS: Final = 500
"""How long to trust that a process has not loaded a line editor."""
_TAKEN_MS: Final = 20
"""How long the system may take to pass keys on."""


class Reading:
    """The readers of one terminal, as the system reports them."""

    def __init__(self, pty: Pty, child: int, profile: Profile, screen: Screen) -> None:
        self._pty = pty
        self._child = child
        # A readable composer is better evidence that the program accepts input than the system is.
        self._is_asked = profile.read_composer is None
        self._screen = screen
        self._read_ms = -_GRACE_MS
        self._pressed_ms = -_TAKEN_MS
        self._editing: frozenset[ProcessKey] = frozenset()
        self._asked_ms = -_ASK_AGAIN_MS
        self._readers = Readers(Foreground.GONE, is_waiting=False)
        self.agent: frozenset[ProcessKey] = frozenset()
        """The processes that read the terminal when the composer was proven: the agent itself."""

    def prove(self) -> None:
        """Record the readers of the last `facts` as the agent: they read while the composer was proven.

        While one of them lives, no other process can become the agent: neither a tool that it starts nor a
        program that draws a similar prompt.
        """
        if not self.agent:
            self.agent = self._readers.waiting | self._readers.hidden

    def has_reader(self) -> bool:
        """Return whether a process of the agent certainly waits for input from the terminal."""
        return read_readers(self._pty, self._child).is_waiting is True

    def pressed(self, now_ms: int) -> None:
        """Record that keys were written: the program may not have received them yet."""
        self._pressed_ms = now_ms

    def facts(self, now_ms: int, *, is_passthrough: bool) -> Facts:
        """Return the facts that the screen does not show. They are valid only in this step."""
        is_raw = self._pty.is_raw
        has_composer = self._is_asked and is_raw and self._screen.terminal.has_paste_mode
        readers = self._readers = read_readers(
            self._pty, self._child, is_asked=self._is_asked, has_composer=has_composer
        )
        if readers.alive:
            self.agent &= readers.alive
        waiting = readers.waiting | readers.hidden
        has_tool = bool(self.agent) and not waiting <= self.agent
        is_unproven = self._is_asked and not self.agent and not waiting <= readers.own
        startup = self._screen.startup
        if startup.awaits_reader:
            startup.see_reader(now_ms, is_waiting=readers.is_waiting, is_raw=is_raw)
        if readers.is_waiting is not False:
            self._read_ms = now_ms
        return Facts(
            now_ms=now_ms,
            foreground=readers.foreground,
            has_tool=has_tool,
            is_unproven=is_unproven,
            is_passthrough=is_passthrough,
            is_secret=self._pty.is_secret,
            has_unread=(self._pty.unread() or 0) > 0 or now_ms - self._pressed_ms < _TAKEN_MS,
            is_reading=readers.is_waiting is not False,
            is_waiting=readers.is_waiting is True,
            is_raw=is_raw,
            edits_lines=self._is_asked and self._pty.is_edited and self._edits_lines(now_ms),
            takes_commands=readers.takes_commands,
        )

    def _edits_lines(self, now_ms: int) -> bool:
        """Return whether all waiting processes have loaded readline or a similar library.

        This is relevant only if the program reads single keys without bracketed paste. A positive result is
        kept while the process lives, a negative one for `_ASK_AGAIN_MS`.
        """
        waiting = self._readers.waiting
        if self._screen.terminal.has_paste_mode or not waiting:
            return False
        if not waiting <= self._editing and now_ms - self._asked_ms >= _ASK_AGAIN_MS:
            self._asked_ms = now_ms
            self._editing = frozenset(key for key in waiting if edits_lines(key[0]))
        return waiting <= self._editing

    def level(self, facts: Facts) -> Facts:
        """Return the facts without short interruptions. For planning only, not for pressing keys."""
        is_unread = facts.has_unread and facts.now_ms - self._pressed_ms >= _TAKEN_MS
        is_reading = facts.is_reading or facts.now_ms - self._read_ms < _GRACE_MS
        return replace(facts, has_unread=is_unread, is_reading=is_reading)
