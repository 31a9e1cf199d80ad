"""Carry out the plan of keystrokes: request a step, write its keys, and come back when the next one is due.

It types one message at a time. All output of the program is read and parsed before the screen is checked, and
nothing is awaited between that check and the keys that it allowed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from palaver.errors import BadRequest, PalaverError, Unavailable
from palaver.harness.base import Done, Gate, Profile, TextOutcome
from palaver.protocol.message import Priority
from palaver.terminal.gates import GateFacts, check
from palaver.terminal.keyboard import Leftover
from palaver.terminal.screen import ScreenState
from palaver.terminal.typing import ENTER, TypedText, Typing, Write

_BEHIND_MS: Final = 20
"""Delay before the next attempt, in milliseconds, while a program writes faster than we read."""


class TypingTerminal(Protocol):
    """The parts of the terminal that `Typist` uses."""

    def is_current(self) -> bool:
        """Read and parse the program's output up to now. Return False if some of it is left."""
        ...

    def has_unsent(self) -> bool:
        """Return whether keys wait to be written, or a person's line waits for its Enter."""
        ...

    def look(self) -> ScreenState:
        """Return the current state of the screen."""
        ...

    def facts(self, *, is_interrupt: bool) -> GateFacts:
        """Return the current facts that the screen does not show."""
        ...

    def press(self, keys: bytes, *, is_persons: bool) -> None:
        """Write keys. With `is_persons` they count as typed by a person."""
        ...

    def interrupted(self) -> None:
        """Note that the keys just written were interrupt keys."""
        ...

    def accepted(self, prompt: str) -> None:
        """Note that the program accepted a message at this prompt."""
        ...

    def changed(self) -> None:
        """Note that the gate for the next message may have changed."""
        ...


OnDone = Callable[[Done, str], None]
"""Called with the outcome and the text of the screen before the first key."""
OnStep = Callable[[str, str], None]
"""Called with each action and its details, for a trace."""


def _no_step(step: str, detail: str) -> None:
    """Ignore a step."""


class Typist:
    """Types one message at a time. Call `poke` whenever the screen, a fact or the unsent keys change."""

    def __init__(self, terminal: TypingTerminal, leftover: Leftover, profile: Profile) -> None:
        """`leftover` records the text put into the input line, and whether it may be left there."""
        self._terminal = terminal
        self._leftover = leftover
        self._profile = profile
        self._loop = asyncio.get_running_loop()
        self._typing: Typing | None = None
        self._offer: TypedText | None = None
        self._on_done: OnDone | None = None
        self._on_step: OnStep = _no_step
        self._waits_for = ""
        """The last reason for waiting that was reported to `on_step`."""
        self._timer: asyncio.TimerHandle | None = None
        self._screen_before = ""
        self._is_stopped = False
        self.has_interrupted_in_vain = False
        """Whether the last message was deferred although the interrupt keys had been pressed."""
        self.reason = ""
        """Why the text is held that is in the composer, or partly; empty if it is not held."""

    @property
    def is_busy(self) -> bool:
        """Whether a message is being typed."""
        return self._typing is not None

    @property
    def has_typed(self) -> bool:
        """Whether any part of the current message was written."""
        return self._typing is not None and self._typing.has_typed

    @property
    def ours(self) -> str:
        """The text that we put into the composer, without white space."""
        return "" if self._typing is None else self._typing.ours

    def gate(self, look: ScreenState, facts: GateFacts) -> Gate:
        """Return whether the next message could be typed.

        Our text in the composer does not close this gate while it is being sent. It does close it once a
        person has changed the text or Enter had no effect.
        """
        gate = check(look, facts, ours=self.has_typed)
        return Gate(is_open=False, reason="draft") if gate.is_open and self._is_stopped else gate

    def begin(self, offer: TypedText, on_done: OnDone, on_step: OnStep = _no_step) -> None:
        """Type a message. `on_done` is called once with the outcome, possibly before this returns."""
        assert self._typing is None
        self._offer, self._on_done, self._on_step = offer, on_done, on_step
        self._waits_for = ""
        self._typing = Typing(offer, self._profile)
        self._screen_before = ""
        self.poke()

    def poke(self) -> None:
        """Carry out the steps that are due. Does nothing if no message is being typed."""
        while self._typing is not None and not self._terminal.has_unsent():
            if not self._terminal.is_current():
                self._ask_again(_BEHIND_MS)
                return
            # The output just read may have ended the terminal, and with it this message.
            if self._typing is None or self._offer is None:
                return
            look, interrupts, has_typed = (
                self._terminal.look(),
                self._typing.interrupts,
                self._typing.has_typed,
            )
            step = self._typing.step(
                look, self._terminal.facts(is_interrupt=self._offer.priority is Priority.INTERRUPT)
            )
            if isinstance(step, Write):
                self._screen_before = self._screen_before or look.text
                # No await between the look above and the keys.
                self._terminal.press(step.data, is_persons=self._offer.is_raw)
                self._on_step("keys pressed", "1 byte" if len(step.data) == 1 else f"{len(step.data)} bytes")
                self._waits_for = ""
                if self._typing is not None and self._typing.interrupts != interrupts:
                    self._terminal.interrupted()
                if self._typing is not None and not has_typed and self._typing.text:
                    self._leftover.place(self._typing.text)
            elif isinstance(step, Done):
                if step.answer is TextOutcome.SEEN and self._typing.prompt:
                    self._terminal.accepted(self._typing.prompt)
                self.has_interrupted_in_vain = (
                    step.answer is TextOutcome.DEFERRED and self._typing.interrupts > 0
                )
                if self._typing.is_left:
                    self._leftover.leave(look.output_count)
                self._finish(step)
            else:
                is_news = self._typing.is_stopped is not self._is_stopped
                self.reason, self._is_stopped = step.reason, self._typing.is_stopped
                if step.reason not in ("", self._waits_for):
                    self._on_step("waits", step.reason)
                self._waits_for = step.reason
                if is_news:
                    self._terminal.changed()
                self._ask_again(step.ms)
                return

    def press_beside(self, offer: TypedText) -> tuple[Done, str]:
        """Write a person's raw keys now, even while a message is being typed.

        Return the outcome and the text of the screen before the keys.
        """
        if self._terminal.has_unsent() or not self._terminal.is_current():
            return Done(TextOutcome.DEFERRED, "earlier keys are not read yet"), ""
        typing = Typing(offer, self._profile)
        look = self._terminal.look()
        step = typing.step(look, self._terminal.facts(is_interrupt=True))
        if isinstance(step, Write):
            # No await between the look above and the keys.
            self._terminal.press(step.data, is_persons=True)
            step = typing.step(look, self._terminal.facts(is_interrupt=True))
        assert isinstance(step, Done)
        return step, look.text

    def end(self, reason: str) -> None:
        """End with the terminal. A message is unconfirmed if keys were written, and deferred otherwise."""
        if self._typing is not None:
            answer = TextOutcome.UNCONFIRMED if self._typing.has_typed else TextOutcome.DEFERRED
            self._finish(Done(answer, reason))

    def _finish(self, done: Done) -> None:
        self._leftover.clear()
        on_done, screen = self._on_done, self._screen_before
        self._typing = self._offer = self._on_done = None
        self.reason, self._is_stopped = "", False
        self._ask_again(None)
        assert on_done is not None
        on_done(done, screen)

    def _ask_again(self, ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if ms is None else self._loop.call_later(ms / 1000, self.poke)


# --------------------
# Type the lines that people send from their input bars: one at a time, in order.
#
# Enter follows each line after a short delay. Lines wait while a message is being typed, and a message
# waits while a line is being typed; the two are never merged. While a dialog is open, nothing is typed, and
# Enter is not pressed for a line that was typed just before.

LIMIT_LINES: Final = 100
"""Lines that may wait to be typed."""

_BEHIND_S: Final = 0.02
"""Delay before the next attempt, in seconds, while some of the program's output has not been read."""
_OPEN: Final = r"a dialog is open, and a line would answer it: Ctrl-\ p gives you the agent's keyboard"
_OPENED: Final = "a dialog opened: the line is in the agent's input and Enter was not pressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BarLine:
    """One line, and the callbacks for its outcome."""

    text: str
    typed: Callable[[], None]
    """Called just before the first key of the line is written, in the same step."""
    refused: Callable[[PalaverError, str], None]
    """Called with the reason, and with the text if no part of it was typed (otherwise an empty text)."""


class Ground(Protocol):
    """The parts of the terminal that an input bar uses."""

    def is_current(self) -> bool:
        """Read the program's output up to now. Return False if some of it is still unread."""
        ...

    def can_begin(self) -> bool:
        """Return whether a line may start: no message is being typed."""
        ...

    def has_dialog(self, ours: str) -> bool:
        """Return whether a key would answer a dialog. `ours` is the typed line, or empty."""
        ...

    def press_line(self, text: str) -> None:
        """Write a line without Enter."""
        ...

    def press_for_person(self, keys: bytes) -> None:
        """Write a person's keys."""
        ...

    def on_rest(self) -> None:
        """Continue with a message that waited for the lines: none of them is left."""
        ...


class InputBar:
    """The lines of all input bars of one terminal. At most `LIMIT_LINES` wait; further ones are refused."""

    def __init__(self, ground: Ground, *, settle_ms: int) -> None:
        self._ground = ground
        self._settle_s = settle_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._lines: deque[BarLine] = deque()
        self._typed: BarLine | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_typing(self) -> bool:
        """Whether a line was typed and its Enter is still due."""
        return self._typed is not None

    def add(self, line: BarLine) -> None:
        """Queue a line after the waiting ones. Raises Unavailable if `LIMIT_LINES` lines wait already."""
        if len(self._lines) >= LIMIT_LINES:
            raise Unavailable(f"{LIMIT_LINES} lines already wait to be typed: let the agent read them first")
        self._lines.append(line)
        self.go_on()

    def go_on(self) -> None:
        """Type the next line, if one waits and nothing else is being typed."""
        while self._lines and self._typed is None and self._ground.can_begin():
            if not self._ground.is_current():
                self._again(_BEHIND_S, self.go_on)
                return
            line = self._lines.popleft()
            if self._ground.has_dialog(""):
                line.refused(BadRequest(_OPEN), line.text)
                continue
            self._typed = line
            line.typed()
            self._again(self._settle_s, self._enter)
            # No await between the check for a dialog above and the keys.
            self._ground.press_line(line.text)

    def close(self) -> None:
        """Drop the waiting lines and type nothing more. Their callbacks are not called."""
        self._lines.clear()
        self._typed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _enter(self) -> None:
        line = self._typed
        assert line is not None
        if not self._ground.is_current():
            self._again(_BEHIND_S, self._enter)
            return
        self._typed = None
        if self._ground.has_dialog(line.text):
            line.refused(BadRequest(_OPENED), "")
        else:
            self._ground.press_for_person(ENTER)
        self.go_on()
        if self._typed is None:
            self._ground.on_rest()

    def _again(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, call)
