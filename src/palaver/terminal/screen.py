"""Interpret a terminal: bytes, hooks and keys in, a `ScreenState` out. Pure; time is a parameter."""

import enum
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.harness.base import LIMIT_LINE, Profile, Prompt, View, is_asked_for, judge_prompt, limit_detail
from palaver.harness.hooks import PERMISSION, hook_state
from palaver.protocol.events import AgentState
from palaver.terminal.emulator import Emulator, Status, width_of
from palaver.terminal.keyboard import (
    HUMAN_QUIET_MS,
    HUMAN_SHOWN_MS,
    Keyboard,
    KeyboardMemory,
    Leftover,
    squeeze,
)

# --------------------
# The state of a terminal at one instant: its program and its composer. Values only.


class Composer(enum.StrEnum):
    """Whether the input field contains a text."""

    EMPTY = "empty"
    DRAFT = "draft"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenState:
    """The screen and the state of its program at one instant."""

    state: AgentState
    reason: str = ""
    """Reason for the state: `thinking`, `tool_use`, `permission`, `compacting`, `usage_limit`, … or empty."""
    has_dialog: bool = False
    """A dialog is open that a key would answer."""
    composer: Composer = Composer.UNKNOWN
    draft: str = ""
    """The text in the composer, as far as it can be read; lines joined by line feeds."""
    has_composer_rule: bool = False
    """The program's composer can be read from the screen; otherwise `composer` comes from a person's keys."""
    prompt: Prompt = Prompt.OTHER
    """The kind of line before the cursor, for a program without a composer rule."""
    is_named_prompt: bool = False
    """The user has named this line as a prompt: with `--prompt`, or in a profile file."""
    prompt_line: str = ""
    """That line without our own text, stripped."""
    is_reported: bool = False
    """The program or one of its hooks reported the state; otherwise it is inferred from the output."""
    is_readable: bool = True
    has_started: bool = True
    """The program has shown that it is ready. A program without output can be idle without this."""
    has_paste_mode: bool = False
    """The program has requested bracketed paste."""
    is_alternate: bool = False
    title: str = ""
    text: str = ""
    """The whole screen, rows joined by line feeds."""
    before_cursor: str = ""
    """The text that ends at the cursor, including the rows that it wraps over."""
    output_count: int = 0
    """How many pieces of output the program has written."""
    output_ms: int | None = None
    """When the program last wrote output."""
    human_key_ms: int | None = None
    """When a person last pressed a key."""
    human_key_count: int = 0
    is_pasting: bool = False
    """A person's paste has begun and not ended, so the program would take any text as a part of it."""


# --------------------
# Read the line at the cursor, without our own text, and decide whether it is a question. Pure.

PROMPT_ROWS: Final = 12

_OWN_HEAD: Final = re.compile(r"\[(?:URGENT )?pal message #\d+ from:")
"""The head of a message that we typed. A line that contains it is not a question of the program."""
_RULE: Final = re.compile(r"\W*[\u2500-\u259f]{8,}\W*")
"""A rule drawn across the screen: the next row does not continue it."""
_PROMPT_SIGNS: Final = frozenset("><$#%:»›❯➜|│┃ \t")


def before_cursor(view: View, columns: int) -> str:
    """Return the text that ends at the cursor, including the full rows above that it wraps over."""
    if view.row >= len(view.lines):
        return ""
    return _wrapped(view, view.row, columns, split_at(view.lines[view.row], view.column)[0])


def split_at(row: str, column: int) -> tuple[str, str]:
    """Return the text of a row before a column, padded with blanks to it, and the text from there on."""
    at, used = 0, 0
    # A wide character has two columns on the screen and is one character of the row.
    while at < len(row) and used < column:
        used += width_of(row[at])
        at += 1
    return row[:at] + " " * (column - used), row[at:]


def _columns_of(row: str) -> int:
    return len(row) if row.isascii() else sum(map(width_of, row))


def without_ours(before: str, ours: str) -> str:
    """Remove our own text from the end. `ours` has no white space.

    Return an empty text if only the end of our text is visible.
    """
    if not ours:
        return before
    seen = squeeze(before)
    if not seen.endswith(ours):
        # The beginning may have scrolled away. A much shorter match could be a text of the program.
        return "" if seen and ours.endswith(seen) and len(seen) >= len(ours) // 2 else before
    left = len(seen) - len(ours)
    for index, sign in enumerate(before):
        if not left and not sign.isspace():
            return before[:index]
        left -= not sign.isspace()
    return before


def dialog_asked(profile: Profile, view: View, text: str, before: str, columns: int) -> str | None:
    """Return the subject of the open dialog, or None. The arguments are those of `sees_dialog`."""
    if profile.read_dialog is not None and (asked := profile.read_dialog(view)) is not None:
        return asked
    return PERMISSION if sees_dialog(profile, view, text, before, columns) else None


def sees_dialog(profile: Profile, view: View, text: str, before: str, columns: int) -> bool:
    """Return whether a dialog is open, judged by the screen `text` and the line `before` the cursor."""
    if any(pattern.search(text) for pattern in profile.dialogs):
        return True
    # A prompt that the user named is believed, even if it looks like a question. A dialog is not overruled.
    if is_asked_for(profile, before):
        return False
    rules = (*profile.prompts, *profile.questions)
    if any(pattern.search(before) for pattern in rules):
        return True
    # The question may be on the line above the one in which it is answered.
    above = _line_above(view, columns)
    above_rules = rules if not before.strip() else profile.prompts if set(before) <= _PROMPT_SIGNS else ()
    return any(pattern.search(above) for pattern in above_rules)


def _line_above(view: View, columns: int) -> str:
    """Return the line above the cursor line, with the rows that it wraps over; empty if it is our own."""
    if not 0 < view.row < len(view.lines):
        return ""
    above = _wrapped(view, view.row - 1, columns, view.lines[view.row - 1])
    return "" if _OWN_HEAD.search(above) else above


def _wrapped(view: View, row: int, columns: int, end: str) -> str:
    parts = [end]
    # A full row may end one column early, because a wide character that does not fit is on the next row.
    while row > 0 and len(parts) < PROMPT_ROWS and _columns_of(view.lines[row - 1]) >= columns - 1:
        row -= 1
        if _RULE.fullmatch(view.lines[row]):
            break
        parts.append(view.lines[row])
    return "".join(reversed(parts))


# --------------------
# Combine the states that a program reports by hooks, OSC 7501 and its title into one state. Pure.
#
# The newest report counts. A later report of the terminal overrides a hook, because hooks do not report some
# ends (an interrupt, a refused dialog). A title is ignored once the program has used OSC 7501.

_STATUS_STATES: Final = {
    "idle": AgentState.IDLE,
    "done": AgentState.IDLE,
    "working": AgentState.ACTIVE,
    "blocked": AgentState.BLOCKED,
}

PERMISSION_REASON: Final = "permission"


@dataclass(frozen=True, slots=True)
class ReportedState:
    """One state with its reason."""

    state: AgentState
    reason: str = ""


class ReportedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The reported state of a program, for the process that takes over."""

    state: AgentState | None = None
    reason: str = ""
    session: str = ""
    has_status: bool = False
    from_hook: bool = False


class Signals:
    """Receives all reports of a program and keeps the newest."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._session = ""
        self._has_status = False
        self._from_hook = False
        self.word: ReportedState | None = None

    def hear_hook(self, event: str, *, session: str = "", detail: str = "") -> bool:
        """Process a hook event. Return False if it belongs to another session or has no state."""
        found = hook_state(event, detail)
        if session and self._session and session != self._session:
            return False
        if found is None:
            return False
        # After the end of a session another one may begin in the same program.
        self._session = "" if found[0] is AgentState.EXITED else session or self._session
        self.word = ReportedState(*found)
        self._from_hook = True
        return True

    def hear_status(self, status: Status) -> bool:
        """Process an OSC 7501 status. Return False if its state is unknown."""
        state = _STATUS_STATES.get(status.state)
        if state is None:
            return False
        self._has_status = True
        self._say(
            ReportedState(state, (status.kind or PERMISSION_REASON) if state is AgentState.BLOCKED else "")
        )
        return True

    def hear_title(self, title: str) -> None:
        """Process a title. Ignored if the program has used OSC 7501, which is more precise."""
        if self._has_status:
            return
        for rule in self._profile.titles:
            if rule.pattern.search(title):
                self._say(ReportedState(rule.state, rule.reason))
                return

    def interrupt(self) -> None:
        """Record an interrupt: forget an active state that a hook reported."""
        # No hook reports that a turn was interrupted, so the active state would stay.
        if self._from_hook and self.word is not None and self.word.state is AgentState.ACTIVE:
            self.word = None

    def keep(self) -> ReportedMemory:
        """Return the reported state for the process that takes over."""
        return ReportedMemory(
            state=None if self.word is None else self.word.state,
            reason="" if self.word is None else self.word.reason,
            session=self._session,
            has_status=self._has_status,
            from_hook=self._from_hook,
        )

    def take_up(self, heard: ReportedMemory) -> None:
        """Continue with the state of the replaced process."""
        self.word = None if heard.state is None else ReportedState(heard.state, heard.reason)
        self._session, self._has_status, self._from_hook = heard.session, heard.has_status, heard.from_hook

    def _say(self, word: ReportedState) -> None:
        # A hook gives a more precise reason for an active state.
        if self._from_hook and self.word is not None and self.word.state is word.state is AgentState.ACTIVE:
            return
        self.word = word
        self._from_hook = False


# --------------------
# Decide whether a program itself works while its sub-agents work. Pure; time is a parameter.
#
# A program reports `working` with OSC 7501 while any sub-agent works, even if a person has stopped its own
# turn. In that case only the screen shows whether the program itself works.

QUIET_MS: Final = 1_000
"""How long the signs of work must be missing. They also disappear briefly between two frames."""


class OwnWork:
    """The decision for one program."""

    def __init__(self, profile: Profile) -> None:
        self._signs = profile.own_work
        self._rests_ms: int | None = None
        """Since when the screen shows no sign of work; None if it shows one."""

    @property
    def change_ms(self) -> int | None:
        """When it will count as idle, unless a sign of work appears before."""
        return None if self._rests_ms is None else self._rests_ms + QUIET_MS

    def judge(
        self, word: ReportedState | None, others: Collection[str], draft: str | None, text: str, now_ms: int
    ) -> ReportedState | None:
        """Return the reported state, or idle if only `others` work.

        `text` is the screen. It proves nothing while the composer is not visible (`draft` is None).
        """
        is_shared = word is not None and word.state is AgentState.ACTIVE and bool(others)
        if not is_shared or not self._signs or draft is None or self._has_sign(text):
            self._rests_ms = None
            return word
        if self._rests_ms is None:
            self._rests_ms = now_ms
        return ReportedState(AgentState.IDLE) if now_ms - self._rests_ms >= QUIET_MS else word

    def _has_sign(self, text: str) -> bool:
        return any(sign.search(text) for sign in self._signs)


# --------------------
# Decide whether a program has started and is ready for input. Pure; time is a parameter.


class Startup:
    """The startup of one program."""

    def __init__(self, profile: Profile, started_ms: int) -> None:
        self._profile = profile
        self.started_ms = started_ms
        self.is_over = False
        """Whether it has shown that it is ready."""
        self.has_output = False
        """Whether it has written any output."""
        self._was_quiet = False
        self.composer_ms: int | None = None
        """When its composer was first seen."""

    @property
    def awaits_reader(self) -> bool:
        """Whether only a wait for input can show that the program has started."""
        return not self.is_over and not self.has_output and self._profile.read_composer is None

    def was_quiet(self, now_ms: int) -> bool:
        """Return whether it was silent for `idle_after_ms` from its start, and so counts as idle."""
        is_quiet = self.awaits_reader and now_ms - self.started_ms >= self._profile.idle_after_ms
        # Kept: its first output must not turn a program that counted as idle into a starting one.
        self._was_quiet = self._was_quiet or is_quiet
        return self._was_quiet

    def see_reader(self, now_ms: int, *, is_waiting: bool | None, is_raw: bool) -> None:
        """Record whether the program waits for input; None if the system does not tell.

        A program without output has started once it waits for input. If the system does not tell, it has
        started if it reads single keys after `start_limit_ms`.
        """
        since_ms = now_ms - self.started_ms
        if self.awaits_reader and (
            (is_waiting and since_ms >= self._profile.idle_after_ms)
            or (is_waiting is None and is_raw and since_ms >= self._profile.start_limit_ms)
        ):
            self.is_over = True

    def see(self, now_ms: int, *, has_composer: bool, is_silent: bool) -> None:
        """Record the screen: a composer proves the start, or else output that is silent or lasts long."""
        if self._profile.read_composer is not None:
            if has_composer and self.composer_ms is None:
                self.composer_ms = now_ms
            is_ready = has_composer and now_ms - (self.composer_ms or 0) >= self._profile.composer_wait_ms
        else:
            is_late = now_ms - self.started_ms >= self._profile.start_limit_ms
            is_ready = self.has_output and (is_late or is_silent)
        self.is_over = self.is_over or is_ready


# --------------------
# The state of a screen without its cells, for the process that takes over. Values only.


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """Reported status, the draft of a person, startup, readability and accepted prompts."""

    # At an upgrade an older version wrote this, so a field added later needs a default (see `Kept`).
    heard: ReportedMemory
    draft: KeyboardMemory
    started_ms: int
    is_started: bool
    is_readable: bool
    outputs: int
    output_ms: int | None
    prompts: tuple[str, ...] = ()
    """Prompts at which the program accepted a message."""


# --------------------
# A bounded queue of output that waits to be parsed. Pure.
#
# When the queue is full, the oldest output is skipped. Of the skipped output only the status sequences of the
# program are kept, and whether it could have drawn anywhere but on the current line.

BACKLOG_BYTES: Final = 128 * 1024
"""Bytes of output that may wait to be parsed."""
KEPT_BYTES: Final = 32 * 1024
"""The newest bytes, which are kept when the limit is exceeded."""

# Not between CR and LF: the kept part would then begin with an extra line.
_LINE_START: Final = re.compile(rb"[\r\n](?!\n)")
_TELLING: Final = re.compile(
    rb"\x1b\[\?[0-9;]{1,64}[hl]|\x1b\](?:0|2|7501);[^\x07\x1b]{0,1024}(?:\x07|\x1b\\)"
)
"""Sequences that are kept of skipped output: modes, titles, and the status that the program reports."""
_DRAWING: Final = re.compile(
    rb"\x1b(?!\[[0-9;:]{0,64}[mK]|\[\?25[hl]|\][^\x07\x1b]{0,1024}(?:\x07|\x1b\\)|\\)"
)
"""Escape sequences that may draw on another line; colours, clearing a line and hiding the cursor do not."""
_MOVING: Final = b"\x0b\x0c\x0e\x0f"
"""Single control characters that may draw on another line."""


@dataclass(frozen=True, slots=True)
class SkippedOutput:
    """Summary of skipped output: its status sequences and its number of lines."""

    status_sequences: tuple[bytes, ...]
    lines: int
    is_linear: bool
    """It wrote only line by line, so the earlier text has moved up or was overwritten."""


class Backlog:
    """Waiting output, oldest first. At most `BACKLOG_BYTES`; older output is skipped."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, data: bytes) -> SkippedOutput | None:
        """Add output. If the limit is exceeded, keep the newest part and return a summary of the rest."""
        if len(self._waiting) + len(data) <= BACKLOG_BYTES:
            self._waiting += data
            return None
        whole = bytes(self._waiting) + data
        # The kept part begins at a line, so that it does not begin inside a sequence or a character.
        start = _LINE_START.search(whole, len(whole) - KEPT_BYTES)
        kept_from = len(whole) - KEPT_BYTES if start is None else start.end()
        self._waiting = bytearray(whole[kept_from:])
        return SkippedOutput(
            status_sequences=tuple(found[0] for found in _TELLING.finditer(whole, 0, kept_from)),
            lines=whole.count(b"\n", 0, kept_from),
            is_linear=start is not None and not _draws_elsewhere(whole, kept_from),
        )

    def take(self, limit_bytes: int) -> bytes:
        """Remove and return the oldest bytes, at most `limit_bytes`."""
        piece = bytes(self._waiting[:limit_bytes])
        del self._waiting[:limit_bytes]
        return piece


def _draws_elsewhere(data: bytes, end: int) -> bool:
    # This must be fast for a flood of output: a pattern that starts with a character set is 20 times slower.
    skipped = data[:end]
    return len(skipped.translate(None, _MOVING)) < end or _DRAWING.search(skipped) is not None


# --------------------
# Interpret a terminal: bytes, hooks and keys in, a `ScreenState` out. Pure; time is a parameter.
#
# Output is only stored when it arrives (`feed`), and parsed later (`step`) or when needed (`look`), so that
# a program that floods its terminal never waits for us. If too much waits, the oldest output is skipped.
# Then the screen is unreadable until the program redraws it, and only its status sequences are still
# processed.

STEP_BYTES: Final = 8 * 1024
"""Bytes parsed in one step: a few milliseconds, or about 20 if every byte scrolls the screen."""
FRAME_LIMIT_MS: Final = 1_000
"""How long an announced frame may last in silence. Then it counts as complete."""
GUESS_QUIET_MS: Final = 1_000
"""Silence required before a harness that does not report its state counts as idle."""
_LIMIT_ACCEPTED: Final = 20
"""Accepted prompts that are kept. Over the limit the oldest is dropped."""
READER_LOOK_MS: Final = 1_000
"""Interval at which a program without output is checked for a wait for input."""


class Screen:
    """One terminal with its program."""

    def __init__(self, cols: int, rows: int, profile: Profile, *, started_ms: int) -> None:
        self._profile = profile
        self._terminal = Emulator(max(cols, 1), max(rows, 1))
        self._signals = Signals(profile)
        self._own_work = OwnWork(profile)
        self._keyboard = Keyboard()
        self.leftover = Leftover(self._keyboard)
        """The text that we put into the line of a program whose composer cannot be read."""
        self.startup = Startup(profile, started_ms)
        self._accepted: dict[str, None] = {}
        self._backlog = Backlog()
        self._outputs = 0
        self._output_ms: int | None = None
        self._exit: str | None = None
        self._picture: tuple[View, str] | None = None

    def feed(self, data: bytes, now_ms: int) -> None:
        """Store output for later. Cheap; never raises. Over the limit the oldest output is skipped."""
        if not data:
            return
        self._outputs += 1
        self._output_ms = now_ms
        self.startup.has_output = True
        if (skipped := self._backlog.add(data)) is not None:
            self._skip(skipped)

    def step(self, limit_bytes: int = STEP_BYTES) -> bool:
        """Parse a piece of the stored output. Return True while more is left."""
        piece = self._backlog.take(limit_bytes)
        for start in range(0, len(piece), STEP_BYTES):
            self._understand(piece[start : start + STEP_BYTES])
        return bool(self._backlog)

    @property
    def waiting_bytes(self) -> int:
        """How much output waits to be parsed."""
        return len(self._backlog)

    @property
    def is_near(self) -> bool:
        """Whether little output waits: parsing all of it takes a few tens of milliseconds at most."""
        return self.waiting_bytes <= KEPT_BYTES

    def take_answers(self, *, is_attended: bool) -> bytes:
        """Return, and remove, the replies to queries of the program.

        `is_attended`: a person's terminal is attached and answers all queries except OSC 7501.
        """
        return self._terminal.take_answers(is_attended=is_attended)

    def resize(self, cols: int, rows: int) -> None:
        """Change the size. Stored output is parsed first: it was drawn for the old size."""
        self._catch_up()
        self._terminal.resize(max(cols, 1), max(rows, 1))
        self._picture = None

    def human_keys(self, data: bytes, now_ms: int) -> None:
        """Process the keys of a person, also from the input bar. Not for our own keys."""
        self._keyboard.press(data, now_ms)

    def hear(self, event: str, *, session: str = "", detail: str = "") -> bool:
        """Process a hook event. Return False if it has no state or belongs to another session."""
        # Output that came before the hook must be parsed before it, because the newest report counts.
        self._catch_up()
        is_heard = self._signals.hear_hook(event, session=session, detail=detail)
        self.startup.is_over = self.startup.is_over or is_heard
        return is_heard

    def interrupted(self) -> None:
        """Record that the interrupt keys were pressed: forget an active state that a hook reported."""
        self._signals.interrupt()

    def accepted(self, prompt: str) -> None:
        """Record that the program accepted a message at this prompt, so it may receive the next one there."""
        # A longer line is never taken for a prompt, so it need not be kept.
        if prompt and len(prompt) <= LIMIT_LINE and self._profile.read_composer is None:
            # Removed first, so that a repeated prompt becomes the newest and is not dropped as the oldest.
            self._accepted.pop(prompt, None)
            self._accepted[prompt] = None
            while len(self._accepted) > _LIMIT_ACCEPTED:
                del self._accepted[next(iter(self._accepted))]

    def exit(self, reason: str) -> None:
        """Record that the program has ended."""
        self._exit = reason

    @property
    def terminal(self) -> Emulator:
        """The cells, modes and title, after all output so far was parsed."""
        self._catch_up()
        return self._terminal

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._terminal.grid.columns, self._terminal.grid.lines

    @property
    def scrollback(self) -> tuple[str, ...]:
        """The lines that scrolled off the top, oldest first; a limited number."""
        return tuple(self._terminal.grid.scrollback)

    @property
    def has_focus_mode(self) -> bool:
        """Whether the program has requested focus reports."""
        return self._terminal.has_focus_mode

    @property
    def is_pasting(self) -> bool:
        """Whether a person's paste has begun and not ended."""
        return self._keyboard.is_pasting

    def keep(self) -> Remembered:
        """Return the state without the cells, for the process that takes over."""
        self._catch_up()
        return Remembered(
            heard=self._signals.keep(),
            draft=self._keyboard.keep(),
            started_ms=self.startup.started_ms,
            is_started=self.startup.is_over,
            is_readable=self._terminal.is_readable,
            outputs=self._outputs,
            output_ms=self._output_ms,
            prompts=tuple(self._accepted),
        )

    def take_up(self, painted: bytes, remembered: Remembered | None) -> None:
        """Start with the screen of the replaced process. `painted` are the bytes that draw it.

        Without `remembered`, the screen is unreadable until the program redraws it.
        """
        # The replaced process has handled the title and the queries already: they are dropped here.
        self._terminal.feed(painted)
        self._terminal.take_reports()
        self._terminal.take_answers(is_attended=False)
        self._picture = None
        if remembered is None:
            self._terminal.spoil()
            return
        if not remembered.is_readable:
            self._terminal.spoil()
        self._signals.take_up(remembered.heard)
        self._accepted = dict.fromkeys(remembered.prompts)
        self._keyboard.take_up(remembered.draft)
        self.startup.started_ms, self.startup.is_over = remembered.started_ms, remembered.is_started
        self.startup.has_output = remembered.outputs > 0
        self._outputs, self._output_ms = remembered.outputs, remembered.output_ms
        # After the keyboard, which knows whether a text of ours was left.
        self.leftover.take_up(self._outputs)

    def look(self, now_ms: int, *, ours: str = "") -> ScreenState:
        """Return the current state. All output so far is parsed first.

        `ours` is the text that we typed, without white space: a question in it is not the program's.
        """
        self._catch_up()
        terminal, grid = self._terminal, self._terminal.grid
        # Kept until the next output: the gate looks before every key, and reading all cells is slow.
        view, text = self._picture or self._take_picture()
        is_drawing = terminal.is_mid_frame and not self._is_silent(now_ms, FRAME_LIMIT_MS)
        is_readable = terminal.is_readable and not is_drawing
        before = before_cursor(view, grid.columns)
        draft = self._read_draft(view, before, now_ms) if is_readable else None
        rest = without_ours(before, ours)
        prompt = Prompt.OTHER
        if self._profile.read_composer is None:
            after = split_at(view.bright[view.row], view.column)[1] if view.row < len(view.bright) else ""
            has_cursor = not grid.cursor.hidden
            prompt = judge_prompt(self._profile, rest, self._accepted, after=after, has_cursor=has_cursor)
        asked = dialog_asked(self._profile, view, text, rest, grid.columns) if is_readable else None
        word = self._judge(view, text, draft, now_ms, asked=asked)
        return ScreenState(
            state=word.state,
            reason=word.reason,
            has_dialog=asked is not None or word.state is AgentState.BLOCKED,
            composer=Composer.UNKNOWN
            if draft is None
            else Composer.DRAFT
            if draft.strip()
            else Composer.EMPTY,
            draft=draft or "",
            has_composer_rule=self._profile.read_composer is not None,
            prompt=prompt,
            is_named_prompt=self._profile.has_named_prompt and is_asked_for(self._profile, rest),
            prompt_line=rest.strip(),
            is_reported=self._signals.word is not None,
            is_readable=is_readable,
            has_started=self.startup.is_over,
            has_paste_mode=terminal.has_paste_mode,
            is_alternate=grid.is_alternate,
            title=terminal.title.strip(),
            text=text,
            before_cursor=before,
            output_count=self._outputs,
            output_ms=self._output_ms,
            human_key_ms=self._keyboard.last_ms,
            human_key_count=self._keyboard.count,
            # A program that has ended this mode, or its successor, waits for no end of a paste.
            is_pasting=self._keyboard.is_pasting and terminal.has_paste_mode,
        )

    def next_change_ms(self, now_ms: int) -> int | None:
        """Return the next time at which the state may change without any event, or None."""
        started_ms = self.startup.started_ms
        times_ms = [started_ms + self._profile.start_limit_ms, self._own_work.change_ms or 0]
        if self._output_ms is not None:
            times_ms += [
                self._output_ms + limit
                for limit in (self._profile.idle_after_ms, FRAME_LIMIT_MS, GUESS_QUIET_MS)
            ]
        if self.startup.composer_ms is not None:
            times_ms.append(self.startup.composer_ms + self._profile.composer_wait_ms)
        if self._keyboard.last_ms is not None:
            times_ms += [self._keyboard.last_ms + limit for limit in (HUMAN_QUIET_MS, HUMAN_SHOWN_MS)]
        if self.startup.awaits_reader:
            times_ms += [started_ms + self._profile.idle_after_ms, now_ms + READER_LOOK_MS]
        return min((at_ms for at_ms in times_ms if at_ms > now_ms), default=None)

    def _catch_up(self) -> None:
        while self.step():
            pass

    def _take_picture(self) -> tuple[View, str]:
        grid = self._terminal.grid
        lines = tuple(grid.row_text(y) for y in range(grid.lines))
        bright = tuple(grid.row_text(y, is_bright=True) for y in range(grid.lines))
        view = View(lines=lines, bright=bright, row=grid.cursor.y, column=min(grid.cursor.x, grid.columns))
        self._picture = view, "\n".join(lines).rstrip("\n")
        return self._picture

    def _understand(self, data: bytes) -> None:
        self._picture = None
        terminal = self._terminal
        terminal.feed(data)
        for report in terminal.take_reports():
            if isinstance(report, str):
                self._signals.hear_title(report)
            elif self._signals.hear_status(report):
                self.startup.is_over = True

    def _skip(self, skipped: SkippedOutput) -> None:
        """Apply the summary of skipped output. Mark the screen as unreadable unless it was plain lines."""
        # CAN cancels a sequence that was cut off at the end of the last piece.
        self._understand(b"\x18")
        for sequence in skipped.status_sequences:
            self._understand(sequence)
        if skipped.is_linear and self._terminal.is_readable:
            lines = min(skipped.lines, self._terminal.grid.lines)
            # Scroll as far as the skipped lines did, and clear the line, whose content is not known.
            self._understand(b"\r\n" * lines + b"\r\x1b[0m\x1b[2K")
        else:
            self._terminal.spoil()

    def _is_silent(self, now_ms: int, for_ms: int) -> bool:
        return self._output_ms is None or now_ms - self._output_ms >= for_ms

    def _read_draft(self, view: View, before: str, now_ms: int) -> str | None:
        if self._profile.read_composer is None:
            if self._terminal.grid.is_alternate and not self._terminal.has_paste_mode:
                return None  # it fills the screen, and nothing proves that it accepts text
            is_silent = self._is_silent(now_ms, GUESS_QUIET_MS)
            is_left = self.leftover.is_there(before, self._outputs, is_silent=is_silent)
            # There may be a draft even if backspaces have deleted all of its known text.
            return (self._keyboard.draft or "?") if is_left or self._keyboard.has_draft else ""
        # Its composer may be drawn already, but the program does not read it yet, or another program is in
        # front.
        if self._profile.has_paste and not self._terminal.has_paste_mode:
            return None
        return self._profile.read_composer(view)

    def _judge(
        self, view: View, text: str, draft: str | None, now_ms: int, *, asked: str | None
    ) -> ReportedState:
        profile = self._profile
        if self._exit is not None:
            return ReportedState(AgentState.EXITED, self._exit)
        # Before any report: a program may draw a dialog earlier than it reports that it waits.
        if asked is not None:
            return ReportedState(AgentState.BLOCKED, asked)
        is_silent = self._is_silent(now_ms, profile.idle_after_ms)
        self.startup.see(now_ms, has_composer=draft is not None, is_silent=is_silent)
        # A reported question counts at any time: a program may ask one before it has started.
        word = self._own_work.judge(self._signals.word, self._terminal.workers, draft, text, now_ms)
        if word is not None and word.state is AgentState.BLOCKED:
            return word
        if not self.startup.is_over and not self.startup.was_quiet(now_ms):
            return ReportedState(AgentState.STARTING)
        if any(pattern.search(text) for pattern in profile.compacting):
            return ReportedState(AgentState.ACTIVE, "compacting")
        if word is None:
            word = self._guess(text, now_ms)
        if word.state is AgentState.IDLE and not word.reason:
            return ReportedState(AgentState.IDLE, limit_detail(profile, view, text))
        return word

    def _guess(self, text: str, now_ms: int) -> ReportedState:
        profile = self._profile
        if profile.busy:
            is_busy = any(pattern.search(text) for pattern in profile.busy)
            # Between Enter and the first sign of work the screen looks idle.
            is_idle = not is_busy and self._is_silent(now_ms, GUESS_QUIET_MS)
            return ReportedState(AgentState.IDLE if is_idle else AgentState.ACTIVE)
        return ReportedState(
            AgentState.IDLE if self._is_silent(now_ms, profile.idle_after_ms) else AgentState.ACTIVE
        )
