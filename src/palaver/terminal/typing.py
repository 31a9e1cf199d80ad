"""The plan of keystrokes for one message: interrupt if requested, paste, wait, press Enter, confirm. Pure.

The caller calls `Typing.step` repeatedly, each time with the current screen and facts, and carries out the
returned step. It awaits nothing in between, so the gate is still open when the keys are written. This state
machine never presses a key to correct an error. It waits for proof, or reports that there was no proof.

    begin -> interrupt -> paste -> settle -> press Enter -> confirm
                                                 |             |
                                                 +-- held -----+   a dialog, a person, an unreadable screen

Once pasted, the text is our draft. It is never pasted a second time: while it is in the composer, it is held,
and Enter is pressed when the gate opens again.
"""

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from palaver.harness.base import Done, Gate, Profile, Prompt, TextOutcome
from palaver.protocol.events import AgentState, Grade
from palaver.protocol.message import Priority
from palaver.protocol.redaction import asks_secret
from palaver.terminal.gates import PASSING, GateFacts, check, check_raw
from palaver.terminal.keyboard import clean_text, has_breaks, is_at_cursor, squeeze
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
    if folded is not None and folded.fullmatch(draft.strip()):
        return True
    return len(seen) >= _PART_LEAST and seen in ours


def is_in_transcript(look: ScreenState, ours: str) -> bool:
    """Return whether our text is on the screen outside the composer."""
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
    is_asking = not look.is_told or look.prompt is Prompt.KNOWN or not facts.is_raw
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
        if self.interrupts and since_ms < self._profile.settle_ms:
            return PauseStep(self._profile.settle_ms - since_ms)
        if not gate.is_open:
            if self._is_restored(look, facts):
                return self._paste(look, facts, behind=look.draft)
            return self._wait_to_begin(facts, gate.reason)
        if self._offer.priority in _WHEN_IDLE and look.state is not AgentState.IDLE:
            return Done(TextOutcome.DEFERRED, "busy")  # it became busy after the message was offered
        if is_urgent:
            if self._busy_ms is None:
                self._busy_ms = facts.now_ms
            if not look.has_composer_rule and facts.now_ms - self._busy_ms < _BUSY_MS:
                return PauseStep(_LOOK_AGAIN_MS)
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

    def _paste(self, look: ScreenState, facts: GateFacts, behind: str = "") -> TypingStep:
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
        self._ours = squeeze(behind) + squeeze(text)
        if behind:
            text = f"\n\n{text}"
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
        return Done(TextOutcome.DEFERRED, "swallowed")

    def _confirm(self, look: ScreenState, facts: GateFacts) -> TypingStep:
        """Check that the text left the composer. Press Enter once more if the first one had no effect."""
        if not look.has_composer_rule:
            return self._confirm_blind(look, facts)
        since_ms = facts.now_ms - self._entered_ms
        if not look.is_readable:
            return PauseStep(_LOOK_AGAIN_MS, "unreadable")
        match self._find(look):
            case TextPosition.EMPTY if facts.has_unread and since_ms < _CONFIRM_LIMIT_MS:
                return PauseStep(_LOOK_AGAIN_MS, "deaf")
            case TextPosition.EMPTY:
                return Done(TextOutcome.SEEN, grade=Grade.HANDED)
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
