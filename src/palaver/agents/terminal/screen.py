"""Interpret a terminal: bytes, hooks and keys in, a `Look` out. Pure; time is a parameter.

Output is only stored when it arrives (`feed`), and parsed later (`step`) or when needed (`look`), so that a
program that floods its terminal never waits for us. If too much waits, the oldest output is skipped. Then the
screen is unreadable until the program redraws it, and only its status sequences are still processed.
"""

from typing import Final

from palaver.agents.terminal.backlog import KEPT_BYTES, Backlog, Skipped
from palaver.agents.terminal.cursor_line import before_cursor, dialog_asked, without_ours
from palaver.agents.terminal.gates import HUMAN_QUIET_MS, HUMAN_SHOWN_MS
from palaver.agents.terminal.keyboard import Keyboard
from palaver.agents.terminal.leftover import Leftover
from palaver.agents.terminal.look import Composer, Look
from palaver.agents.terminal.own_work import OwnWork
from palaver.agents.terminal.remembered import Remembered
from palaver.agents.terminal.signals import Signals, Word
from palaver.agents.terminal.startup import Startup
from palaver.agents.terminal.terminal import Terminal
from palaver.harness.profile import Profile, View, limit_said
from palaver.harness.prompt import LIMIT_LINE, Prompt, is_asked_for, judge_prompt
from palaver.model.delivery import AgentState

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
        self._terminal = Terminal(max(cols, 1), max(rows, 1))
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
    def is_near(self) -> bool:
        """Whether little output waits: parsing all of it takes a few tens of milliseconds at most."""
        return len(self._backlog) <= KEPT_BYTES

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
        self._catch_up()
        is_heard = self._signals.hear_hook(event, session=session, detail=detail)
        self.startup.is_over = self.startup.is_over or is_heard
        return is_heard

    def interrupted(self) -> None:
        """Record that the interrupt keys were pressed: forget an active state that a hook reported."""
        self._signals.interrupt()

    def accepted(self, prompt: str) -> None:
        """Record that the program accepted a message at this prompt, so it may receive the next one there."""
        if prompt and len(prompt) <= LIMIT_LINE and self._profile.read_composer is None:
            self._accepted.pop(prompt, None)
            self._accepted[prompt] = None
            while len(self._accepted) > _LIMIT_ACCEPTED:
                del self._accepted[next(iter(self._accepted))]

    def exit(self, reason: str) -> None:
        """Record that the program has ended."""
        self._exit = reason

    @property
    def terminal(self) -> Terminal:
        """The cells, modes and title, after all output so far was parsed."""
        self._catch_up()
        return self._terminal

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._terminal.glass.columns, self._terminal.glass.lines

    @property
    def scrollback(self) -> tuple[str, ...]:
        """The lines that scrolled off the top, oldest first; a limited number."""
        return tuple(self._terminal.glass.scrollback)

    @property
    def has_focus_mode(self) -> bool:
        """Whether the program has requested focus reports."""
        return self._terminal.has_focus_mode

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
        self._terminal.feed(painted)
        self._terminal.take_said()
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
        self.leftover.take_up(self._outputs)

    def look(self, now_ms: int, *, ours: str = "") -> Look:
        """Return the current state. All output so far is parsed first.

        `ours` is the text that we typed, without white space: a question in it is not the program's.
        """
        self._catch_up()
        terminal, glass = self._terminal, self._terminal.glass
        view, text = self._picture or self._take_picture()
        is_drawing = terminal.is_mid_frame and not self._is_silent(now_ms, FRAME_LIMIT_MS)
        is_readable = terminal.is_readable and not is_drawing
        before = before_cursor(view, glass.columns)
        draft = self._read_draft(view, before, now_ms) if is_readable else None
        rest = without_ours(before, ours)
        prompt = Prompt.OTHER
        if self._profile.read_composer is None:
            after = view.bright[view.row][view.column :] if view.row < len(view.bright) else ""
            has_cursor = not glass.cursor.hidden
            prompt = judge_prompt(self._profile, rest, self._accepted, after=after, has_cursor=has_cursor)
        asked = dialog_asked(self._profile, view, text, rest, glass.columns) if is_readable else None
        word = self._judge(view, text, draft, now_ms, asked=asked)
        return Look(
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
            is_told=self._signals.word is not None,
            is_readable=is_readable,
            has_started=self.startup.is_over,
            has_paste_mode=terminal.has_paste_mode,
            is_alternate=glass.is_alternate,
            title=terminal.title.strip(),
            text=text,
            before_cursor=before,
            output_count=self._outputs,
            output_ms=self._output_ms,
            human_key_ms=self._keyboard.last_ms,
            human_key_count=self._keyboard.count,
        )

    def next_change_ms(self, now_ms: int) -> int | None:
        """Return the next time at which the state may change without any event, or None."""
        started_ms = self.startup.started_ms
        moments = [started_ms + self._profile.start_limit_ms, self._own_work.change_ms or 0]
        if self._output_ms is not None:
            moments += [
                self._output_ms + limit
                for limit in (self._profile.idle_after_ms, FRAME_LIMIT_MS, GUESS_QUIET_MS)
            ]
        if self.startup.composer_ms is not None:
            moments.append(self.startup.composer_ms + self._profile.composer_wait_ms)
        if self._keyboard.last_ms is not None:
            moments += [self._keyboard.last_ms + limit for limit in (HUMAN_QUIET_MS, HUMAN_SHOWN_MS)]
        if self.startup.awaits_reader:
            moments += [started_ms + self._profile.idle_after_ms, now_ms + READER_LOOK_MS]
        return min((moment for moment in moments if moment > now_ms), default=None)

    def _catch_up(self) -> None:
        while self.step():
            pass

    def _take_picture(self) -> tuple[View, str]:
        glass = self._terminal.glass
        lines = tuple(glass.row_text(y) for y in range(glass.lines))
        bright = tuple(glass.row_text(y, is_bright=True) for y in range(glass.lines))
        view = View(lines=lines, bright=bright, row=glass.cursor.y, column=min(glass.cursor.x, glass.columns))
        self._picture = view, "\n".join(lines).rstrip("\n")
        return self._picture

    def _understand(self, data: bytes) -> None:
        self._picture = None
        terminal = self._terminal
        terminal.feed(data)
        for said in terminal.take_said():
            if isinstance(said, str):
                self._signals.hear_title(said)
            elif self._signals.hear_status(said):
                self.startup.is_over = True

    def _skip(self, skipped: Skipped) -> None:
        """Apply the summary of skipped output. Mark the screen as unreadable unless it was plain lines."""
        # CAN cancels a sequence that was cut off at the end of the last piece.
        self._understand(b"\x18")
        for told in skipped.told:
            self._understand(told)
        if skipped.is_linear and self._terminal.is_readable:
            lines = min(skipped.lines, self._terminal.glass.lines)
            self._understand(b"\r\n" * lines + b"\r\x1b[0m\x1b[2K")
        else:
            self._terminal.spoil()

    def _is_silent(self, now_ms: int, for_ms: int) -> bool:
        return self._output_ms is None or now_ms - self._output_ms >= for_ms

    def _read_draft(self, view: View, before: str, now_ms: int) -> str | None:
        if self._profile.read_composer is None:
            if self._terminal.glass.is_alternate and not self._terminal.has_paste_mode:
                return None  # it fills the screen, and nothing proves that it accepts text
            is_silent = self._is_silent(now_ms, GUESS_QUIET_MS)
            is_left = self.leftover.is_there(before, self._outputs, is_silent=is_silent)
            # There may be a draft even if backspaces have deleted all of its known text.
            return (self._keyboard.draft or "?") if is_left or self._keyboard.has_draft else ""
        if self._profile.has_paste and not self._terminal.has_paste_mode:
            return None
        return self._profile.read_composer(view)

    def _judge(self, view: View, text: str, draft: str | None, now_ms: int, *, asked: str | None) -> Word:
        profile = self._profile
        if self._exit is not None:
            return Word(AgentState.EXITED, self._exit)
        if asked is not None:
            return Word(AgentState.BLOCKED, asked)
        is_silent = self._is_silent(now_ms, profile.idle_after_ms)
        self.startup.see(now_ms, has_composer=draft is not None, is_silent=is_silent)
        word = self._own_work.judge(self._signals.word, self._terminal.workers, draft, text, now_ms)
        if word is not None and word.state is AgentState.BLOCKED:
            return word
        if not self.startup.is_over and not self.startup.was_quiet(now_ms):
            return Word(AgentState.STARTING)
        if any(pattern.search(text) for pattern in profile.compacting):
            return Word(AgentState.ACTIVE, "compacting")
        if word is None:
            word = self._guess(text, now_ms)
        if word.state is AgentState.IDLE and not word.reason:
            return Word(AgentState.IDLE, limit_said(profile, view, text))
        return word

    def _guess(self, text: str, now_ms: int) -> Word:
        profile = self._profile
        if profile.busy:
            is_busy = any(pattern.search(text) for pattern in profile.busy)
            # Between Enter and the first sign of work the screen looks idle.
            is_idle = not is_busy and self._is_silent(now_ms, GUESS_QUIET_MS)
            return Word(AgentState.IDLE if is_idle else AgentState.ACTIVE)
        return Word(AgentState.IDLE if self._is_silent(now_ms, profile.idle_after_ms) else AgentState.ACTIVE)
