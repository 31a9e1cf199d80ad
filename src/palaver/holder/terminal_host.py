"""One terminal and everything connected to it: its bytes, its screen, its viewers, and the typist.

Output goes to the viewers first and is parsed when there is time. This module does not need the daemon: the
agent runs, and users type, with or without it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from palaver.clock import Clock
from palaver.errors import BadRequest, PalaverError
from palaver.harness.base import Gate, Profile
from palaver.protocol.agent_socket import control_to_bytes, data_frames, is_size
from palaver.protocol.events import AgentState
from palaver.protocol.message import parse_priority
from palaver.protocol.redaction import asks_secret
from palaver.terminal.emulator import LIMIT_TAIL_BYTES, redraw, unfinished
from palaver.terminal.gates import GateFacts
from palaver.terminal.keyboard import clean_text, squeeze
from palaver.terminal.processes import LOOK_LATER_S, LOOK_SOON_S, ProcessKey, Reading
from palaver.terminal.pty import Pty, TerminalPump
from palaver.terminal.screen import Remembered, Screen, ScreenState
from palaver.terminal.typing import PASTE_BEGIN, PASTE_END, BarLine, InputBar, Typist
from palaver.terminal.viewers import Viewer, Viewers, error_frame

_STEP_BYTES: Final = 4096
"""Bytes to parse before other callbacks run: a parser in Python would delay keys and the bus otherwise."""
_FLOOD_BYTES: Final = 64 * 1024
"""Unparsed output above this is a flood: while it lasts, output is read and not parsed."""
_FLOOD_PAUSE_S: Final = 0.004
"""A flood has ended when the program writes nothing for this long."""
_FLOOD_LOOK_S: Final = 0.25
"""Interval at which viewers that missed output see the newest screen of an endless flood."""
_LIMIT_UNSENT_BYTES: Final = 256 * 1024
"""Keys that may wait for a program that does not read; above this, viewers' keyboards are not read."""
_LOOK_PAUSE_S: Final = 0.02
"""Minimum time between two checks of the screen during output: a check costs more than parsing."""

_ELSEWHERE: Final = "another terminal has the keyboard: take it over, or wait until it is free"

_logger: Final = logging.getLogger("palaver.holder")

_HIDDEN: Final = (
    "the terminal asks for a secret, and queued lines are stored in the log: send it as 'normal' (Tab)"
)

OnTyped = Callable[[str | int], None]
"""Called with the typed line, or with the number of its characters if it is a secret."""


class TerminalHost:
    """The host of one terminal. It reports the level of the gate to its owner with `on_level`."""

    def __init__(
        self,
        pty: Pty,
        child: int,
        profile: Profile,
        *,
        clock: Clock,
        on_level: Callable[[ScreenState, Gate], None],
        on_hangup: Callable[[], None],
        on_typed: OnTyped,
        on_size: Callable[[int, int], None],
        on_stop: Callable[[], None],
    ) -> None:
        """`on_typed` is called with each line of an input bar that was typed."""
        self._pty = pty
        self._profile = profile
        self._clock = clock
        self._on_level = on_level
        self._on_typed = on_typed
        self._on_size = on_size
        self._on_stop = on_stop
        self._loop = asyncio.get_running_loop()
        self._recent = b""
        self._is_working = False
        self._is_closed = False
        self._unparsed = 0
        self._output_at = 0.0
        self._shown_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_check_due = False
        """Whether a check of the level waits until a flood leaves little output to parse."""
        self.first_viewer = asyncio.Event()
        """Set when a viewer attaches for the first time."""
        self.screen = Screen(pty.cols, pty.rows, profile, started_ms=self.now_ms())
        self._reading = Reading(pty, child, profile, self.screen)
        self.viewers = Viewers(self)
        self.pump = TerminalPump(pty.master, self._on_output, on_hangup, self._on_drained)
        self.typist = Typist(self, self.screen.leftover, profile)
        self._bar = InputBar(self, settle_ms=profile.settle_ms)
        self._pasting: Viewer | None = None
        """The viewer that has begun a paste and not ended it."""
        self.accepts_only_interrupts = False
        """Whether the program is busy and does not read, so that only an interrupt can be delivered."""
        self._look_in(0)

    def now_ms(self) -> int:
        """Return monotonic time in milliseconds, for all comparisons here."""
        return int(self._clock.monotonic_s() * 1000)

    def close(self) -> None:
        """Stop all timers and close the terminal."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._bar.close()
        self._is_working = False
        self.pump.close()

    # Output

    def _on_output(self, data: bytes) -> None:
        # Unparsed and first, so that a viewer never waits for the parser.
        self.viewers.show(data)
        # The start of an incomplete escape sequence: `redraw` must end with it, or a new viewer would show
        # its rest as text.
        self._recent = (self._recent + data)[-LIMIT_TAIL_BYTES:]
        self.screen.feed(data, self.now_ms())
        self._unparsed += len(data)
        if self._is_check_due and self.screen.is_near:
            # The oldest output was just skipped, so little is left to parse. Later: this may be inside a read
            # of the typist.
            self._loop.call_soon(self._check_in_flood)
        self._output_at = self._clock.monotonic_s()
        if not self._is_working:
            self._is_working = True
            self._shown_at = self._output_at
            # Not parsed here: one read can return far more than one step.
            self._loop.call_soon(self._understand)
        elif self.is_flooded and self._output_at - self._shown_at >= _FLOOD_LOOK_S and self.screen.is_near:
            self._shown_at = self._output_at
            self.viewers.catch_up()

    @property
    def is_flooded(self) -> bool:
        """Whether the program writes faster than its output can be parsed."""
        return self._unparsed > _FLOOD_BYTES and self._clock.monotonic_s() - self._output_at < _FLOOD_PAUSE_S

    def _understand(self) -> None:
        """Parse a piece of the output, then let other callbacks run. During a flood, parse nothing."""
        if not self._is_working:
            return
        if self.is_flooded:
            # The program must never wait for the parser. The backlog is bounded and skips its oldest part.
            self._loop.call_later(_FLOOD_PAUSE_S, self._understand)
            return
        has_more = self.screen.step(_STEP_BYTES)
        self._answer_program()
        if has_more:
            self._loop.call_soon(self._understand)
        else:
            self._is_working = False
            # Only now: a program that keeps ahead of the parser is a flood, however little it writes at once.
            self._unparsed = 0
            self.viewers.catch_up()
            if self.typist.is_busy:
                self.typist.poke()
            self._look_in(_LOOK_PAUSE_S)

    def _answer_program(self) -> None:
        # A viewer's own terminal answers some queries of the program; two answers would arrive as typed text.
        if answers := self.screen.take_answers(is_attended=self.viewers.has_terminal):
            self.pump.write(answers)

    def redraw(self) -> bytes:
        """Return the bytes that redraw the screen, followed by an incomplete escape sequence, if any."""
        return redraw(self.screen.terminal) + unfinished(self._recent)

    def take_up(self, painted: bytes, remembered: Remembered | None) -> None:
        """Restore the screen of an earlier version of this process."""
        # `painted` ends with a sequence whose rest the older version had not received.
        self._recent = painted[-LIMIT_TAIL_BYTES:]
        self.screen.take_up(painted, remembered)

    @property
    def readers(self) -> frozenset[ProcessKey]:
        """The processes that are the agent itself, kept for the process that takes over."""
        return self._reading.agent

    @readers.setter
    def readers(self, readers: frozenset[ProcessKey]) -> None:
        self._reading.agent = readers

    # The level of the gate

    def _look_in(self, seconds: float) -> None:
        """Check the level after this many seconds, or earlier if that is already planned."""
        at_s = self._loop.time() + seconds
        # An earlier check plans the next one itself, so one timer is enough.
        if self._is_closed or (self._timer is not None and self._timer.when() <= at_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._check_in_time)

    def _check_in_time(self) -> None:
        """Check the level, but leave much waiting output to `_understand`, which parses it in pieces.

        A check parses all of it at once, and 128 KB take 100 ms or more.
        """
        self._timer = None
        if not self._is_working or self.screen.waiting_bytes <= _STEP_BYTES:
            self.check_level()
        else:
            # At the end of the output `_understand` plans a check. An endless flood has no end.
            self._is_check_due = self.is_flooded

    def _check_in_flood(self) -> None:
        if self._is_check_due and not self._is_closed:
            self.check_level()

    def check_level(self) -> None:
        """Check whether a message can be typed now, report it, and plan the next check."""
        self._is_check_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Before the facts are read: a line of the input bar may be typed here, and then the gate is closed.
        self._bar.go_on()
        # As for an interrupt: the keyboard of a viewer does not close the gate, it only pauses the lane.
        facts = self.facts(is_interrupt=True)
        level = self._reading.level(facts)
        look = self.look()
        gate = self.typist.gate(look, level)
        if gate.is_open:
            # The composer is proven, so the processes that read now are the agent.
            self._reading.prove()
        is_busy = gate.reason == "deaf" and not level.has_unread and look.state is AgentState.ACTIVE
        # If the program ignored the interrupt keys, do not interrupt it again until it reads or is idle.
        if not is_busy:
            self.typist.is_interrupt_ignored = False
        self.accepts_only_interrupts = is_busy and not self.typist.is_interrupt_ignored
        # A gate that is open with a reason: the lane is paused, so only an interrupt passes.
        self._on_level(look, Gate(is_open=True, reason="deaf") if self.accepts_only_interrupts else gate)
        next_ms = self.screen.next_change_ms(self.now_ms())
        if next_ms is not None:
            self._look_in(max(next_ms - self.now_ms(), 1) / 1000)
        has_tool = facts.has_tool or facts.is_unproven
        # The system reports neither a read by the program nor the end of a tool, so these are polled.
        if facts.has_unread or has_tool or not facts.is_reading:
            is_soon = level.is_reading and not level.has_unread and not has_tool
            self._look_in(LOOK_SOON_S if is_soon else LOOK_LATER_S)

    # Used by the typist

    def is_current(self) -> bool:
        """Read the available output. Return False if the program writes faster than it is read."""
        return self.pump.drain_output()

    def has_unsent(self) -> bool:
        """Return whether keys are still unsent, or a line of the input bar has no Enter yet."""
        return self.pump.unsent > 0 or self._bar.is_typing

    @property
    def has_lines(self) -> bool:
        """Whether a line of an input bar waits, or was typed without its Enter yet."""
        return not self._bar.is_at_rest

    def has_reader(self) -> bool:
        """Whether a process of the agent waits for input in a read of its terminal."""
        return self._reading.has_reader()

    def look(self, typed: str = "") -> ScreenState:
        """Return the state of the screen. If parsing fails, return an unreadable screen.

        `typed` is the line of an input bar that was just typed: a question in it is not the program's.
        """
        try:
            return self.screen.look(self.now_ms(), ours=squeeze(typed) or self.typist.ours)
        except Exception:  # Any error closes the gates and leaves the terminal alone.
            _logger.exception("the screen cannot be parsed")
            return ScreenState(state=AgentState.ACTIVE, is_readable=False)

    def facts(self, *, is_interrupt: bool) -> GateFacts:
        """Return the facts for the gate. A viewer with the keyboard blocks all messages except interrupts."""
        is_passthrough = self.viewers.holds_mail and not is_interrupt
        return self._reading.facts(self.now_ms(), is_passthrough=is_passthrough)

    def press(self, keys: bytes, *, is_persons: bool) -> None:
        """Write keys from the bus; `is_persons` makes them count as typed by the user."""
        if is_persons:
            self.press_for_person(keys)
        else:
            self._reading.pressed(self.now_ms())
            self.pump.write(keys)

    def interrupted(self) -> None:
        self.screen.interrupted()

    def accepted(self, prompt: str) -> None:
        self.screen.accepted(prompt)

    def changed(self) -> None:
        self._look_in(0)

    # Used by the input bar

    def can_begin(self) -> bool:
        """Whether no message is being typed."""
        # A message without a typed part does not count: it waits for the line instead (`has_unsent`).
        return not self.typist.has_typed

    def has_dialog(self, ours: str) -> bool:
        """Return whether a line, or its Enter, would answer a dialog.

        A prompt for a secret does not count.
        """
        look = self.look(ours)
        # A person who types into the bar at such a prompt means to answer it.
        if self._pty.is_secret or (not look.has_composer_rule and asks_secret(look.before_cursor)):
            return False
        return look.has_dialog

    def press_line(self, text: str) -> None:
        """Write a line as the user's own keys, cleaned for the program."""
        has_paste_mode = self.look().has_paste_mode
        has_lists = self._profile.read_composer is not None
        clean = clean_text(text, has_paste_mode=has_paste_mode, has_lists=has_lists)
        data = clean.encode("utf-8", "replace")
        self.press_for_person(PASTE_BEGIN + data + PASTE_END if has_paste_mode else data)

    def on_rest(self) -> None:
        """Resume a message that waited for the input bar."""
        self._on_drained()

    def is_hidden(self, look: ScreenState) -> bool:
        """Return whether the program asks for a secret: the terminal does not echo, or the prompt says so."""
        return self._pty.is_secret or asks_secret(look.before_cursor)

    # Viewers

    def on_keys(self, viewer: Viewer, keys: bytes) -> bool:
        """Pass a viewer's keys on, always in order; return False if too many are waiting."""
        if self.viewers.can_type(viewer):
            self.press_for_person(keys)
            self._pasting = viewer if self.screen.is_pasting else None
        return self.pump.unsent <= _LIMIT_UNSENT_BYTES

    def on_gone(self, viewer: Viewer) -> None:
        """Drop unread keys after their viewer disconnected, unless another viewer's keys are waiting."""
        # Keys of a viewer that went away would reach the program much later, when no person expects them.
        if not self.viewers.stalled:
            self.pump.drop_unsent()

    def press_for_person(self, keys: bytes) -> None:
        """Write keys that count as typed by a person."""
        self.screen.human_keys(keys, self.now_ms())
        self.pump.write(keys)
        if self.typist.is_busy:
            self.typist.poke()
        self._look_in(0)

    def _on_drained(self) -> None:
        self.viewers.resume()
        if self.typist.is_busy:
            # Later: the typist may be in the middle of a step, whose keys were just written.
            self._loop.call_soon(self.typist.poke)

    def on_control(self, viewer: Viewer, fields: dict[str, object]) -> None:
        match fields["type"]:
            case "resize":
                self._take_size(viewer, fields.get("cols"), fields.get("rows"))
            case "passthrough":
                self._set_passthrough(viewer, fields)
            case "input":
                self._take_input(viewer, str(fields.get("text", "")), str(fields.get("priority", "normal")))
            case "redraw":
                # `show` has a limit: a viewer may ask again and again without reading.
                viewer.show(data_frames(self.redraw()))
            case "screen":
                viewer.is_drawn = fields.get("on") is True
            case "history":
                lines = list(self.screen.terminal.grid.scrollback)
                viewer.answer(control_to_bytes({"type": "history", "lines": lines}))
            case "stop":
                self._on_stop()
            case kind:
                raise BadRequest(f"unknown control: {kind}")

    def _take_size(self, viewer: Viewer, cols: object, rows: object) -> None:
        """Use the size of a viewer until another viewer sends one or this one leaves.

        An impossible size is ignored.
        """
        if is_size(cols, rows) and isinstance(cols, int) and isinstance(rows, int):
            self.resize(cols, rows)
            self.viewers.sized(viewer, (cols, rows))

    def resize(self, cols: int, rows: int) -> None:
        """Resize the terminal to a size that `is_size` accepts."""
        self.screen.resize(cols, rows)
        self._pty.resize(cols, rows)
        self._on_size(cols, rows)
        self.viewers.tell({"type": "size", "cols": cols, "rows": rows})
        self._look_in(0)

    def _set_passthrough(self, viewer: Viewer, fields: dict[str, object]) -> None:
        if fields.get("on") is not True:
            self.viewers.give_up_keyboard(viewer)
            return
        viewer.takes_mail = fields.get("mail") is True
        if not self.viewers.take_keyboard(viewer, is_forced=fields.get("take") is True):
            raise BadRequest(_ELSEWHERE)

    def _take_input(self, viewer: Viewer, text: str, priority: str) -> None:
        parse_priority(priority)
        if priority != "normal":
            # Such a line becomes a message, and the log keeps messages. So a hidden line is refused, even if
            # the program writes without a pause, and some of its output is left unread.
            self.is_current()
            if self.is_hidden(self.look()):
                raise BadRequest(_HIDDEN)
            # A message in the user's name must come from the user's own process, never from the holder.
            viewer.reply(control_to_bytes({"type": "send", "priority": priority}))
            return
        if not self.viewers.can_type(viewer):
            raise BadRequest(_ELSEWHERE)

        def typed() -> None:
            # Asked when it is typed: the prompt may have changed since the line was accepted.
            self._on_typed(len(text) if self.is_hidden(self.look()) else text)

        def refused(error: PalaverError, untyped: str) -> None:
            viewer.reply(error_frame(error, "input", **({"text": untyped} if untyped else {"kept": True})))

        self._bar.add(BarLine(text=text, typed=typed, refused=refused))

    def on_viewers(self) -> None:
        self.first_viewer.set()
        self._look_in(0)
        if self._pasting is not None and not self._pasting.is_open:
            self._pasting = None
            # The end of its paste will never arrive, and until then the program takes each text as pasted.
            if not self._is_closed and self.look().is_pasting:
                self.press_for_person(PASTE_END)
        if (size := self.viewers.size) is not None and size != self.screen.size:
            self.resize(*size)  # The viewer whose size was used has disconnected.
        self.viewers.tell_state()
