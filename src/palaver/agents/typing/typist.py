"""Carries the plan of keystrokes out: asks it, writes what it says, and comes back when it wants to be asked.

One message at a time. Every key goes out in the same step as the look that allowed it; between the two
nothing is awaited, and what the program has written until then is read and understood before.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from palaver.agents.terminal.gates import Facts, Gate, check
from palaver.agents.terminal.leftover import Leftover
from palaver.agents.terminal.look import Look
from palaver.agents.typing.steps import Answer, Done, Offer, Write
from palaver.agents.typing.typing import Typing
from palaver.harness.profile import Profile
from palaver.model.priority import Priority

_BEHIND_MS: Final = 20
"""So long a program that writes faster than we read is left to itself."""


class Desk(Protocol):
    """The terminal, as one who types needs it."""

    def is_current(self) -> bool:
        """Read and understand what the program has written until now; False when that is not done yet."""
        ...

    def has_unsent(self) -> bool:
        """Whether keys still wait for the program to read them."""
        ...

    def look(self) -> Look:
        """The screen now."""
        ...

    def facts(self, *, is_interrupt: bool) -> Facts:
        """What the screen cannot show, now."""
        ...

    def press(self, keys: bytes, *, is_persons: bool) -> None:
        """Write keys; a person's own count as typed by that person."""
        ...

    def interrupted(self) -> None:
        """The keys just written were those that stop a busy program."""
        ...

    def accepted(self, prompt: str) -> None:
        """The program took a message under this prompt."""
        ...

    def changed(self) -> None:
        """Whether the next message could be typed may have changed."""
        ...


OnDone = Callable[[Done, str], None]
"""Told how it ended, and the screen as it was before the first key."""
OnStep = Callable[[str, str], None]
"""Told what is done on the way, and why: for a trace."""


def _no_step(step: str, detail: str) -> None:
    """Forget a step."""


class Typist:
    """At rest, or busy with one message. `poke` it whenever the screen, a fact or the unsent keys changed."""

    def __init__(self, desk: Desk, leftover: Leftover, profile: Profile) -> None:
        """`leftover` is told what is put into the program's line, and what may stand there in the end."""
        self._desk = desk
        self._leftover = leftover
        self._profile = profile
        self._loop = asyncio.get_running_loop()
        self._typing: Typing | None = None
        self._offer: Offer | None = None
        self._on_done: OnDone | None = None
        self._on_step: OnStep = _no_step
        self._waits_for = ""
        """Why the message in hand waits, as a trace was last told."""
        self._timer: asyncio.TimerHandle | None = None
        self._screen_before = ""
        self._is_stopped = False
        self.has_interrupted_in_vain = False
        """The last message pressed the interrupt keys and could not be typed all the same."""
        self.reason = ""
        """Why the text that is in the composer, or half way there, does not go on; empty when it does."""

    @property
    def is_busy(self) -> bool:
        """Whether a message is in hand."""
        return self._typing is not None

    @property
    def has_typed(self) -> bool:
        """Whether any part of the message in hand was written."""
        return self._typing is not None and self._typing.has_typed

    @property
    def ours(self) -> str:
        """What stands in the composer because of us, without its blanks."""
        return "" if self._typing is None else self._typing.ours

    def gate(self, look: Look, facts: Facts) -> Gate:
        """Say whether the next message could be typed.

        What stands in the composer because it is being sent does not close the gate for the next one; once a
        person has written on, or Enter was eaten, it does.
        """
        gate = check(look, facts, ours=self.has_typed)
        return Gate(is_open=False, reason="draft") if gate.is_open and self._is_stopped else gate

    def begin(self, offer: Offer, on_done: OnDone, on_step: OnStep = _no_step) -> None:
        """Type a message; `on_done` is called when that is over, maybe before this returns."""
        assert self._typing is None
        self._offer, self._on_done, self._on_step = offer, on_done, on_step
        self._waits_for = ""
        self._typing = Typing(offer, self._profile)
        self._screen_before = ""
        self.poke()

    def poke(self) -> None:
        """Look whether there is something to do now. Costs nothing when at rest."""
        while self._typing is not None and not self._desk.has_unsent():
            if not self._desk.is_current():
                self._ask_again(_BEHIND_MS)
                return
            # What was read just now may have been the end of the terminal, and of this message.
            if self._typing is None or self._offer is None:
                return
            look, interrupts, has_typed = self._desk.look(), self._typing.interrupts, self._typing.has_typed
            step = self._typing.step(
                look, self._desk.facts(is_interrupt=self._offer.priority is Priority.INTERRUPT)
            )
            if isinstance(step, Write):
                self._screen_before = self._screen_before or look.text
                # No await between the look above and the keys.
                self._desk.press(step.data, is_persons=self._offer.is_raw)
                self._on_step("keys pressed", "1 byte" if len(step.data) == 1 else f"{len(step.data)} bytes")
                self._waits_for = ""
                if self._typing is not None and self._typing.interrupts != interrupts:
                    self._desk.interrupted()
                if self._typing is not None and not has_typed and self._typing.text:
                    self._leftover.place(self._typing.text)
            elif isinstance(step, Done):
                if step.answer is Answer.SEEN and self._typing.prompt:
                    self._desk.accepted(self._typing.prompt)
                self.has_interrupted_in_vain = step.answer is Answer.DEFERRED and self._typing.interrupts > 0
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
                    self._desk.changed()
                self._ask_again(step.ms)
                return

    def press_beside(self, offer: Offer) -> tuple[Done, str]:
        """Press a person's raw keys now, whatever else is in hand; give how that ended, and the screen."""
        if self._desk.has_unsent() or not self._desk.is_current():
            return Done(Answer.DEFERRED, "keys still wait to be read"), ""
        typing = Typing(offer, self._profile)
        look = self._desk.look()
        step = typing.step(look, self._desk.facts(is_interrupt=True))
        if isinstance(step, Write):
            # No await between the look above and the keys.
            self._desk.press(step.data, is_persons=True)
            step = typing.step(look, self._desk.facts(is_interrupt=True))
        assert isinstance(step, Done)
        return step, look.text

    def end(self, reason: str) -> None:
        """The terminal is gone: what was typed is in doubt, what was not can be offered again."""
        if self._typing is not None:
            answer = Answer.UNCONFIRMED if self._typing.has_typed else Answer.DEFERRED
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
