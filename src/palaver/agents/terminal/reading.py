"""Whether what is typed will be read: who is in the foreground, what waits unread, whether somebody waits.

Asked before every key. Nobody tells when a program begins to read, so whoever waits for it asks again.
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

_GRACE_MS: Final = 300
"""So long a program that reads may be busy with what it read before that counts."""
_ASK_AGAIN_MS: Final = 500
"""How long a process that has no line editor loaded is believed to have none."""
_TAKEN_MS: Final = 20
"""So long the system may take to hand keys on."""


class Reading:
    """What the system knows of one terminal's readers."""

    def __init__(self, pty: Pty, child: int, profile: Profile, screen: Screen) -> None:
        self._pty = pty
        self._child = child
        # A composer that can be seen says better whether somebody takes what is typed.
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
        """Take the processes of the last look for the agent: they read while its composer was proven.

        As long as one of them lives, no other process becomes the agent: neither a tool that it starts nor a
        program that draws a prompt like the agent's.
        """
        if not self.agent:
            self.agent = self._readers.waiting | self._readers.hidden

    def has_reader(self) -> bool:
        """Whether it is sure that a process of the agent waits in a read of its terminal."""
        return read_readers(self._pty, self._child).is_waiting is True

    def pressed(self, now_ms: int) -> None:
        """Keys were written: they may still be on their way into the terminal."""
        self._pressed_ms = now_ms

    def facts(self, now_ms: int, *, is_passthrough: bool) -> Facts:
        """Give what the screen cannot show, as it is in this very step."""
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
        """Whether the processes that wait have loaded readline, or a library like it.

        Asked only where it counts: keys are taken one by one, and no bracketed paste is on. A yes is kept as
        long as the process lives, a no for a moment.
        """
        waiting = self._readers.waiting
        if self._screen.terminal.has_paste_mode or not waiting:
            return False
        if not waiting <= self._editing and now_ms - self._asked_ms >= _ASK_AGAIN_MS:
            self._asked_ms = now_ms
            self._editing = frozenset(key for key in waiting if edits_lines(key[0]))
        return waiting <= self._editing

    def level(self, facts: Facts) -> Facts:
        """Give the facts without what passes within a moment, for those who plan rather than press."""
        is_unread = facts.has_unread and facts.now_ms - self._pressed_ms >= _TAKEN_MS
        is_reading = facts.is_reading or facts.now_ms - self._read_ms < _GRACE_MS
        return replace(facts, has_unread=is_unread, is_reading=is_reading)
