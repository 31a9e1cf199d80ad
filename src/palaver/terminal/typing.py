"""Type messages into a terminal: the keys, their time, and the proof that the program took the text."""

import asyncio
import enum
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from palaver.errors import BadRequest, PalaverError, Unavailable
from palaver.harness.base import Done, Gate, Profile, Prompt, TextOutcome
from palaver.protocol.events import AgentState, Grade
from palaver.protocol.message import Priority
from palaver.protocol.redaction import asks_secret
from palaver.terminal.gates import PASSING, GateFacts, check, check_raw
from palaver.terminal.keyboard import Leftover, clean_text, has_breaks, is_at_cursor, squeeze
from palaver.terminal.screen import Composer, ScreenState

# --------------------
# The text to type, the steps of typing it, and the possible outcomes. Values only.


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedText:
    """A text to type. Raw text is written byte for byte, with no keys before or after it."""

    text: str
    priority: Priority = Priority.NORMAL
    is_raw: bool = False
    reference: str = ""
    """Typed instead of a text with tabs or line ends if the program takes no bracketed paste."""
    is_secret: bool = False
    """Raw keys for a prompt that hides what is typed. They are refused at any other prompt."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write all of these bytes now, and request the next step when they are written."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PauseStep:
    """Request the next step after `ms` milliseconds, or as soon as the screen or a fact changes.

    `reason` says why a text is held that is already in the composer, or partly; empty if it is not held.
    """

    ms: int
    reason: str = ""


TypingStep = Write | PauseStep | Done

# --------------------
# Find a pasted text on the screen: in the composer, in the transcript, or not visible. Pure.

_PART_LEAST: Final = 40
"""Characters of our text that identify it in a composer that scrolls and shows only a part of it."""


class TextPosition(enum.Enum):
    """Where the pasted text is."""

    OURS = enum.auto()
    """The composer contains our text and nothing else."""
    MIXED = enum.auto()
    """The composer contains another text, or more than ours."""
    EMPTY = enum.auto()
    HIDDEN = enum.auto()
    """The composer is not visible, or we do not know the composer of this program."""


def find_text(
    look: ScreenState, ours: str, folded: re.Pattern[str] | None, *, can_be_part: bool
) -> TextPosition:
    """Return where our text is. `ours` is that text without white space.

    `folded` matches the placeholder that a composer shows instead of a long paste. `can_be_part`: no person
    has typed since, so a composer that shows only a piece of our text, or the placeholder, contains our text.
    """
    if not look.is_readable:
        return TextPosition.HIDDEN
    if not look.has_composer_rule:
        if look.composer is Composer.DRAFT:
            return TextPosition.MIXED
        return TextPosition.OURS if squeeze(look.before_cursor).endswith(ours) else TextPosition.HIDDEN
    match look.composer:
        case Composer.EMPTY:
            return TextPosition.EMPTY
        case Composer.UNKNOWN:
            return TextPosition.HIDDEN
        case Composer.DRAFT:
            is_ours = _is_ours(look.draft, ours, folded, can_be_part=can_be_part)
            return TextPosition.OURS if is_ours else TextPosition.MIXED


def _is_ours(draft: str, ours: str, folded: re.Pattern[str] | None, *, can_be_part: bool) -> bool:
    seen = squeeze(draft)
    if seen == ours:
        return True
    if not can_be_part:
        return False
    # A placeholder does not show whose paste it is: this is believed only if no person has typed since.
    if folded is not None and folded.fullmatch(draft.strip()):
        return True
    return len(seen) >= _PART_LEAST and seen in ours


def is_in_transcript(look: ScreenState, ours: str) -> bool:
    """Return whether our text is on the screen outside the composer."""
    # Without the composer's text, once: a copy of our text there does not count.
    return bool(ours) and ours in squeeze(look.text).replace(squeeze(look.draft) or "\0", "", 1)


def may_stand(look: ScreenState, ours: str, *, is_touched: bool, is_hidden: bool) -> bool:
    """Return whether our unsent text may still be in the input line.

    False if the composer can be read: then the screen shows it. `is_touched`: a person has typed since, and
    their keys show what happened to the text. `is_hidden`: the program reacted to the paste and never showed
    the whole text at the cursor.
    """
    if look.has_composer_rule:
        return False
    return is_touched or is_hidden or is_at_cursor(look.before_cursor, ours)


# --------------------
# The plan of keystrokes, step by step.

PASTE_BEGIN: Final = b"\x1b[200~"
PASTE_END: Final = b"\x1b[201~"
ENTER: Final = b"\r"

_PASSING_MS: Final = 1_000
"""How long to wait for a reason in `PASSING` to go away before the message is deferred."""
_PASTE_SHOWN_MS: Final = 3_000
"""How long a program may take to show a paste before it counts as lost."""
_PASTE_LIMIT_MS: Final = 60_000
"""How long a pasted text may stay unsent without visible progress before it is reported as unconfirmed."""
_ENTER_AGAIN_MS: Final = 1_500
"""How long the text may stay in the composer after Enter before Enter is pressed once more."""
_CONFIRM_LIMIT_MS: Final = 60_000
"""How long to wait for proof that the text left the composer."""
_SILENT_LIMIT_MS: Final = 10_000
"""The same, for a program whose composer cannot be read."""
_BUSY_MS: Final = 300
"""How long a program without a composer rule must have been busy before it is interrupted.

A program that has just read a line usually waits for the next one soon afterwards. Then Ctrl-C would end it.
"""
_LOOK_AGAIN_MS: Final = 100
_HOLD_MS: Final = 500
_GONE_MS: Final = 1_000
"""How long our text must have been invisible before we conclude that it is no longer in the line."""
_DEAF: Final = "the program does not read its input"
_TOUCHED: Final = "a person typed before it was sent"
_HIDDEN_NOW: Final = "the program asks for a secret now: send the keys again; 'pal redact' removes these"
_SHOWN_NOW: Final = "the program no longer hides its input: nothing was typed"
_WHEN_IDLE: Final = frozenset({Priority.IDLE_FIRST, Priority.IDLE})


def _is_at_prompt(look: ScreenState, facts: GateFacts) -> bool:
    """Return whether the program certainly waits at its prompt: an interrupt would end it, not its work.

    A program that draws its own composer waits for keys even while it works, and reports that it works. A
    program that waits for a whole line is at its prompt, whatever it reports.
    """
    is_asking = not look.is_reported or look.prompt is Prompt.KNOWN or not facts.is_raw
    return facts.is_waiting and is_asking


class Typing:
    """The state machine for typing one message into one terminal. It is used for one message only."""

    def __init__(self, offer: TypedText, profile: Profile) -> None:
        self._offer = offer
        self._profile = profile
        self._phase: Callable[[ScreenState, GateFacts], TypingStep] = (
            self._raw if offer.is_raw else self._begin
        )
        self._asked_ms: int | None = None
        self.interrupts = 0
        """How many times the interrupt keys were pressed."""
        self._interrupted_ms = 0
        self._busy_ms: int | None = None
        self.text = ""
        """The text as it was typed; empty before that."""
        self.prompt = ""
        """The line before the cursor when the text was typed, for a program without a composer rule."""
        self._ours = ""
        self._pasted_ms = 0
        self._pasted_outputs = 0
        self._unread_ms = 0
        self._has_echo = False
        self._enters = 0
        self._entered_ms = 0
        self._was_visible = False
        self._gone_ms = 0
        self._needs_reader = True
        self._outputs = 0
        self._human_keys = 0
        self._done: Done | None = None
        self.is_stopped = False
        """Whether the text is in the composer and not sent: a person changed it, or Enter had no effect."""
        self.is_left = False
        """Whether the text is unconfirmed and may still be in the line; only without a composer rule."""

    @property
    def has_typed(self) -> bool:
        """Whether any part of the text was written. From then on it must not be typed again automatically."""
        return self._pasted_ms > 0 or self._phase == self._end

    @property
    def ours(self) -> str:
        """The text that we put into the composer, without white space; empty before it was pasted."""
        return self._ours

    def step(self, look: ScreenState, facts: GateFacts) -> TypingStep:
        """Return what to do now. After `Done`, every call returns the same `Done`."""
        if self._done is not None:
            return self._done
        self.is_stopped = False
        step = self._phase(look, facts)
        if isinstance(step, Done):
            self._done = step
            is_hidden = self._has_echo and not self._was_visible
            is_touched = look.human_key_count != self._human_keys
            can_stand = may_stand(look, self._ours, is_touched=is_touched, is_hidden=is_hidden)
            self.is_left = step.answer is TextOutcome.UNCONFIRMED and can_stand
        return step

    def _raw(self, look: ScreenState, facts: GateFacts) -> TypingStep:
        gate = check_raw(look, facts)
        if not gate.is_open:
            return Done(TextOutcome.REFUSED, gate.reason)
        is_hidden = facts.is_secret or asks_secret(look.before_cursor)
        if is_hidden is not self._offer.is_secret:  # the prompt has changed since the keys were sent
            return Done(TextOutcome.REFUSED, _HIDDEN_NOW if is_hidden else _SHOWN_NOW)
        self._phase = self._end
        # Raw keys can be any bytes. `TerminalLane` decodes them in the same way, so none is changed.
        return Write(self._offer.text.encode("utf-8", "surrogateescape"))

    def _end(self, _look: ScreenState, _facts: GateFacts) -> TypingStep:
        return Done(TextOutcome.SEEN, grade=Grade.HANDED)

    def _begin(self, look: ScreenState, facts: GateFacts) -> TypingStep:
        """Interrupt a busy program if the priority requires it, then paste."""
        is_busy = look.state is AgentState.ACTIVE and not _is_at_prompt(look, facts)
        is_urgent = self._offer.priority is Priority.INTERRUPT and is_busy
        # The terminal itself acts on the keys that stop a busy program, so no process needs to read them.
        self._needs_reader = not is_urgent
        gate = check(look, facts, needs_reader=self._needs_reader)
        interrupt = self._profile.interrupt
        since_ms = facts.now_ms - self._interrupted_ms
        # Before the gate: right after the keys, the screen does not show their effect yet.
        if self.interrupts and since_ms < self._profile.settle_ms:
            return PauseStep(self._profile.settle_ms - since_ms)
        if not gate.is_open:
            if self._is_restored(look, facts):
                return self._paste(look, facts, draft=look.draft)
            return self._wait_to_begin(facts, gate.reason)
        if self._offer.priority in _WHEN_IDLE and look.state is not AgentState.IDLE:
            return Done(TextOutcome.DEFERRED, "busy")  # it became busy after the message was offered
        if is_urgent:
            if self._busy_ms is None:
                self._busy_ms = facts.now_ms
            if not look.has_composer_rule and facts.now_ms - self._busy_ms < _BUSY_MS:
                return PauseStep(_LOOK_AGAIN_MS)
            # The presses of one try follow each other at once: OpenCode stops only at the second Escape.
            is_between = self.interrupts % interrupt.presses != 0
            if self.interrupts and not is_between and since_ms < interrupt.wait_ms:
                return PauseStep(min(_LOOK_AGAIN_MS, interrupt.wait_ms - since_ms))
            if self.interrupts < interrupt.most * interrupt.presses:
                self.interrupts += 1
                self._interrupted_ms = facts.now_ms
                self._remember(look)
                return Write(interrupt.keys)
            # All interrupt keys were pressed. From here on the text needs the same proof as any other.
            self._needs_reader = True
            gate = check(look, facts)
            if not gate.is_open:
                return self._wait_to_begin(facts, gate.reason)
        return self._paste(look, facts)

    def _wait_to_begin(self, facts: GateFacts, reason: str) -> TypingStep:
        """Wait if the reason usually goes away soon; otherwise defer the message."""
        # Set only once, so that the limit is for all reasons together.
        if self._asked_ms is None:
            self._asked_ms = facts.now_ms
        if reason in PASSING and facts.now_ms - self._asked_ms < _PASSING_MS:
            return PauseStep(_LOOK_AGAIN_MS)
        # A program redraws itself right after the interrupt keys. That ends soon; a dialog stays.
        since_ms = facts.now_ms - self._interrupted_ms
        if self.interrupts and since_ms < self._profile.interrupt.wait_ms and reason != "dialog":
            return PauseStep(_LOOK_AGAIN_MS)
        return Done(TextOutcome.DEFERRED, reason)

    def _is_restored(self, look: ScreenState, facts: GateFacts) -> bool:
        """Return whether the draft is the interrupted prompt, which the program put back into the composer.

        The composer was empty when the interrupt keys were pressed, and no person has typed since. That
        prompt is sent again with our text after it, because the agent would lose it otherwise.
        """
        is_alone = self.interrupts > 0 and look.human_key_count == self._human_keys
        can_add = look.has_composer_rule and look.has_paste_mode and look.state is AgentState.IDLE
        return is_alone and can_add and check(look, facts, ours=True).is_open

    def _paste(self, look: ScreenState, facts: GateFacts, draft: str = "") -> TypingStep:
        offer = self._offer
        # Without a bracketed paste, a tab and a line end are keys: they cannot be part of the text.
        is_referred = bool(offer.reference) and not look.has_paste_mode and has_breaks(offer.text)
        text = clean_text(
            offer.reference if is_referred else offer.text,
            has_paste_mode=look.has_paste_mode,
            has_lists=look.has_composer_rule,
        )
        self.text = text
        self.prompt = look.prompt_line
        self._ours = squeeze(draft) + squeeze(text)
        if draft:
            text = f"\n\n{text}"
        # 0 means that nothing was typed, and a monotonic clock may begin at 0.
        self._pasted_ms = max(facts.now_ms, 1)
        self._pasted_outputs = look.output_count
        self._remember(look)
        self._phase = self._press
        data = text.encode("utf-8", "replace")
        return Write(PASTE_BEGIN + data + PASTE_END if look.has_paste_mode else data)

    def _press(self, look: ScreenState, facts: GateFacts) -> TypingStep:
        """Press Enter once our text is in the composer and the gate is open."""
        since_ms = facts.now_ms - self._pasted_ms
        if since_ms < self._profile.settle_ms:
            return PauseStep(self._profile.settle_ms - since_ms)
        gate = check(look, facts, ours=True, needs_reader=self._needs_reader)
        match self._find(look):
            case TextPosition.OURS:
                self._was_visible, self._gone_ms = True, 0
            case TextPosition.HIDDEN if not look.has_composer_rule:
                if self._was_visible or look.human_key_count != self._human_keys:
                    return self._judge_gone(facts, gate, since_ms)
            # A person has added to our text, or replaced it: Enter would send their words.
            case TextPosition.MIXED:
                return self._hold("draft" if gate.is_open else gate.reason, since_ms, is_touched=True)
            case TextPosition.HIDDEN:
                return self._wait_unseen(look, since_ms, gate.reason)
            case TextPosition.EMPTY:
                return self._judge_vanished(look, facts, since_ms)
        if not gate.is_open:
            return self._hold(gate.reason, since_ms)
        return self._enter(look, facts)

    def _judge_gone(self, facts: GateFacts, gate: Gate, since_ms: int) -> TypingStep:
        """Decide about a text that left the cursor: a dialog may cover it, or a frame is half drawn."""
        if not gate.is_open:
            self._gone_ms = 0
            return self._hold(gate.reason, since_ms)
        self._gone_ms = self._gone_ms or facts.now_ms
        if facts.now_ms - self._gone_ms < _GONE_MS:
            return PauseStep(_LOOK_AGAIN_MS, "composer")
        return Done(TextOutcome.UNCONFIRMED, "the text left the composer before it was sent")

    def _hold(self, reason: str, since_ms: int, *, is_touched: bool = False) -> TypingStep:
        """Hold our text in the composer, without a time limit in general.

        Give up after `_PASTE_LIMIT_MS` if a person has changed the text or no process reads the terminal.
        """
        self.is_stopped = self.is_stopped or is_touched
        if since_ms >= _PASTE_LIMIT_MS and (is_touched or reason == "deaf"):
            return Done(TextOutcome.UNCONFIRMED, _TOUCHED if is_touched else _DEAF)
        return PauseStep(_HOLD_MS, reason)

    def _enter(self, look: ScreenState, facts: GateFacts) -> TypingStep:
        self._enters += 1
        self._has_echo = look.output_count != self._pasted_outputs
        self._entered_ms = facts.now_ms
        self._remember(look)
        self._phase = self._confirm
        # Enter makes some programs abandon their work. A message that is not urgent is queued instead.
        is_urgent = self._offer.priority is Priority.INTERRUPT
        key = ENTER if is_urgent or look.state is not AgentState.ACTIVE else self._profile.queue_key
        return Write(key)

    def _wait_unseen(self, look: ScreenState, since_ms: int, reason: str) -> TypingStep:
        """Wait while the composer is not visible.

        There is no time limit for a dialog or an unreadable screen; otherwise it is `_PASTE_LIMIT_MS`.
        """
        if look.has_dialog or not look.is_readable or since_ms < _PASTE_LIMIT_MS:
            return PauseStep(_HOLD_MS, reason or "composer")
        return Done(TextOutcome.UNCONFIRMED, "the composer is no longer visible")

    def _judge_vanished(self, look: ScreenState, facts: GateFacts, since_ms: int) -> TypingStep:
        """Decide about a composer that is empty although we did not press Enter."""
        if is_in_transcript(look, self._ours):
            return Done(TextOutcome.SEEN, "another process sent it", Grade.HANDED)
        # Unread input may be our text: until it is read, other output of the program proves nothing.
        if facts.has_unread:
            self._unread_ms = facts.now_ms
        read_ms = max(self._pasted_ms, self._unread_ms)
        can_come = look.output_count == self._outputs or facts.now_ms - read_ms < _PASTE_SHOWN_MS
        if can_come and since_ms < _PASTE_LIMIT_MS:
            return PauseStep(_LOOK_AGAIN_MS, "composer")
        if look.human_key_count != self._human_keys:
            return Done(TextOutcome.UNCONFIRMED, _TOUCHED)
        if can_come:
            reason = _DEAF if facts.has_unread else "the program does not react"
            return Done(TextOutcome.UNCONFIRMED, reason)
        # The program has read all input and shows nothing of our text, so it may be typed again.
        return Done(TextOutcome.DEFERRED, "swallowed")

    def _confirm(self, look: ScreenState, facts: GateFacts) -> TypingStep:
        """Check that the text left the composer. Press Enter once more if the first one had no effect."""
        if not look.has_composer_rule:
            return self._confirm_blind(look, facts)
        since_ms = facts.now_ms - self._entered_ms
        if not look.is_readable:
            return PauseStep(_LOOK_AGAIN_MS, "unreadable")
        match self._find(look):
            # Until the program has read the Enter, an empty composer does not show what became of the text.
            case TextPosition.EMPTY if facts.has_unread and since_ms < _CONFIRM_LIMIT_MS:
                return PauseStep(_LOOK_AGAIN_MS, "deaf")
            case TextPosition.EMPTY:
                return Done(TextOutcome.SEEN, grade=Grade.HANDED)
            # Another draft has replaced our text, so our text has left.
            case TextPosition.MIXED if self._ours not in squeeze(look.draft):
                return Done(TextOutcome.SEEN, grade=Grade.HANDED)
            case TextPosition.HIDDEN if not look.has_dialog and since_ms < _CONFIRM_LIMIT_MS:
                # While a frame is being drawn, our text may still be shown where the composer was.
                return PauseStep(_HOLD_MS, "composer")
            case TextPosition.MIXED if not look.has_dialog and not is_in_transcript(look, self._ours):
                return self._hold("draft", since_ms, is_touched=True)
            case TextPosition.HIDDEN | TextPosition.MIXED:
                if is_in_transcript(look, self._ours):
                    return Done(TextOutcome.SEEN, grade=Grade.HANDED)
                if look.has_dialog or since_ms < _CONFIRM_LIMIT_MS:
                    return PauseStep(_HOLD_MS, "dialog" if look.has_dialog else "composer")
                return Done(TextOutcome.UNCONFIRMED, "the composer is no longer visible")
            case TextPosition.OURS:
                return self._enter_again(look, facts, since_ms)

    def _enter_again(self, look: ScreenState, facts: GateFacts, since_ms: int) -> TypingStep:
        self.is_stopped = self._enters > 1
        if since_ms < _ENTER_AGAIN_MS:
            return PauseStep(_LOOK_AGAIN_MS, "eaten" if self.is_stopped else "")
        gate = check(look, facts, ours=True, needs_reader=self._needs_reader)
        if not gate.is_open:
            return self._hold(gate.reason, since_ms)
        if self._enters < 2:
            return self._enter(look, facts)
        if since_ms < _CONFIRM_LIMIT_MS:
            return PauseStep(_HOLD_MS, "eaten")
        return Done(TextOutcome.UNCONFIRMED, "Enter had no effect twice")

    def _confirm_blind(self, look: ScreenState, facts: GateFacts) -> TypingStep:
        """Confirm without a readable composer.

        Three things are required: the program has read its input, it has written output since Enter, and the
        text no longer ends at the cursor. The echo of the text alone proves nothing: the terminal makes it.
        """
        since_ms = facts.now_ms - self._entered_ms
        position = self._find(look)
        if position is TextPosition.MIXED and self._ours in squeeze(look.before_cursor):
            return self._hold("draft", since_ms, is_touched=True)
        is_ours = position is TextPosition.OURS
        if look.output_count != self._outputs and not is_ours and not facts.has_unread:
            return Done(TextOutcome.SEEN, grade=Grade.HANDED)
        if is_ours:
            return self._enter_again(look, facts, since_ms)
        if since_ms < _SILENT_LIMIT_MS:
            return PauseStep(_LOOK_AGAIN_MS)
        return Done(TextOutcome.UNCONFIRMED, _DEAF if facts.has_unread else "the program does not react")

    def _find(self, look: ScreenState) -> TextPosition:
        is_alone = look.human_key_count == self._human_keys
        return find_text(look, self._ours, self._profile.folded_paste, can_be_part=is_alone)

    def _remember(self, look: ScreenState) -> None:
        self._outputs = look.output_count
        self._human_keys = look.human_key_count


# --------------------
# Carry out the plan of keystrokes: request a step, write its keys, and come back when the next one is due.
#
# It types one message at a time. All output of the program is read and parsed before the screen is checked,
# and nothing is awaited between that check and the keys that it allowed.

_UNREAD_MS: Final = 20
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
        self.is_interrupt_ignored = False
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
        # New keys would wait for the unsent ones, and arrive long after the check that allowed them.
        while self._typing is not None and not self._terminal.has_unsent():
            if not self._terminal.is_current():
                self._ask_again(_UNREAD_MS)
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
                # Only the first one: later screens show our own text.
                self._screen_before = self._screen_before or look.text
                # No await between the look above and the keys.
                self._terminal.press(step.data, is_persons=self._offer.is_raw)
                self._on_step("keys pressed", "1 byte" if len(step.data) == 1 else f"{len(step.data)} bytes")
                self._waits_for = ""
                # A person's keys poke this typist inside `press`, so the message may have ended there.
                if self._typing is not None and self._typing.interrupts != interrupts:
                    self._terminal.interrupted()
                if self._typing is not None and not has_typed and self._typing.text:
                    self._leftover.put(self._typing.text)
            elif isinstance(step, Done):
                if step.answer is TextOutcome.SEEN and self._typing.prompt:
                    self._terminal.accepted(self._typing.prompt)
                self.is_interrupt_ignored = (
                    step.answer is TextOutcome.DEFERRED and self._typing.interrupts > 0
                )
                if self._typing.is_left:
                    # Before `_finish`, which forgets our text: from here on it counts as a draft.
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

    def press_now(self, offer: TypedText) -> tuple[Done, str]:
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
            # Raw keys need no proof, so the step after their keys is the outcome.
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
        # Reset everything before the call: `on_done` may begin the next message at once.
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

_UNREAD_S: Final = 0.02
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

    @property
    def is_at_rest(self) -> bool:
        """Whether no line waits to be typed or for its Enter."""
        return self._typed is None and not self._lines

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
                self._again(_UNREAD_S, self.go_on)
                return
            line = self._lines.popleft()
            if self._ground.has_dialog(""):
                line.refused(BadRequest(_OPEN), line.text)
                continue
            # Set before the keys: writing them wakes the typist, which must see that an Enter is still due.
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
            self._again(_UNREAD_S, self._enter)
            return
        self._typed = None
        # The program may have opened a dialog in the meantime, and Enter would answer it.
        if self._ground.has_dialog(line.text):
            line.refused(BadRequest(_OPENED), "")
        else:
            self._ground.press_for_person(ENTER)
        self.go_on()
        # `go_on` may have typed the next line, and a message must wait for the Enter of that line.
        if self._typed is None:
            self._ground.on_rest()

    def _again(self, seconds: float, call: Callable[[], None]) -> None:
        # One timer for both calls: a line that waits for its Enter keeps the next one from being typed.
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, call)
