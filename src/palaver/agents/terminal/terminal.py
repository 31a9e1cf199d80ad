"""Emulate a terminal: its cells and modes, the queries of its program and the status that it reports.

Does no input or output and reads no clock. Never raises, whatever the bytes: a sequence that fails makes the
screen unreadable until the program redraws it.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from palaver.agents.terminal.controls import CONTROLS, ESCAPES, SEQUENCES, read_numbers
from palaver.agents.terminal.glass import Glass
from palaver.agents.terminal.sequences import Sequences

TITLE_LIMIT: Final = 1_024
ANSWER_LIMIT: Final = 64
"""Replies that may wait. Further queries get no reply."""

MODE_KEYPAD: Final = 66
"""Application keypad mode. Set by this number or by an escape sequence."""

_KEY_FLAGS: Final = 0b11111
_LIMIT_KEY_FLAGS: Final = 16
_MODE_PASTE: Final = 2004
_MODE_FOCUS: Final = 1004
_WORKING: Final = "working"
_LIMIT_WORKERS: Final = 1000
_MODE_FRAME: Final = 2026
_MODES_ALTERNATE: Final = frozenset({47, 1047, 1049})
_MODES_PYTE: Final = frozenset({6, 7, 25})


@dataclass(frozen=True, slots=True)
class Status:
    """The status that a program reports with OSC 7501."""

    state: str
    kind: str = ""
    message: str = ""
    about: str = ""
    """The sub-agent that it describes; empty for the program itself."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The key encoding and cursor shape that a program has requested."""

    flags: int = 0
    """Flags of the kitty protocol."""
    other: int = 0
    """The level of modifyOtherKeys."""
    style: int = 0
    """The shape of the cursor."""


def change_keys(before: Keys, after: Keys) -> bytes:
    """Return the sequences that change the key encoding and cursor shape of another terminal."""
    parts = []
    if before.flags != after.flags:
        # Set the flags instead of pushing them, so that the stack does not grow if this is sent again.
        parts.append(b"\x1b[=%d;1u" % after.flags)
    if before.other != after.other:
        parts.append(b"\x1b[>4;%dm" % after.other)
    if before.style != after.style:
        parts.append(b"\x1b[%d q" % after.style)
    return b"".join(parts)


class Terminal:
    """One emulated terminal. Titles, replies and sub-agents are limited in number and size."""

    def __init__(self, columns: int, rows: int) -> None:
        self._sequences = Sequences()
        self.glass = Glass(columns, rows)
        self.is_readable = True
        self._unreadable_at = 0
        self.modes: set[int] = set()
        self._key_flags: list[int] = []
        self._other_keys = 0
        self._cursor_style = 0
        self.title = ""
        self.status: Status | None = None
        self.workers: set[str] = set()
        """Sub-agents of the program that are working."""
        self._said: dict[type, str | Status] = {}
        self._answers: list[tuple[bool, bytes]] = []

    @property
    def keys(self) -> Keys:
        """The current key encoding and cursor shape."""
        flags = self._key_flags[-1] if self._key_flags else 0
        return Keys(flags, self._other_keys, self._cursor_style)

    @property
    def has_paste_mode(self) -> bool:
        return _MODE_PASTE in self.modes

    @property
    def has_focus_mode(self) -> bool:
        return _MODE_FOCUS in self.modes

    @property
    def is_mid_frame(self) -> bool:
        """Whether the program has announced the start of a frame and not yet its end."""
        return _MODE_FRAME in self.modes

    def feed(self, data: bytes) -> None:
        """Process output. Never raises."""
        for found in self._sequences.split(data):
            try:
                self._carry_out(found)
            except Exception:  # pyte fails on some real output, so the screen is no longer known
                self.spoil()
        if not self.is_readable and self.glass.scrolled - self._unreadable_at >= self.glass.lines:
            self.is_readable = True

    def spoil(self) -> None:
        """Mark the screen as unreadable until it is cleared or reset, or has scrolled away completely."""
        self.is_readable = False
        self._unreadable_at = self.glass.scrolled

    def resize(self, columns: int, rows: int) -> None:
        """Change the size. Programs redraw their screen afterwards."""
        try:
            self.glass.resize(rows, columns)
            self.glass.ensure_hbounds()
            self.glass.ensure_vbounds()
        except Exception:  # as in feed
            self.spoil()

    def take_answers(self, *, is_attended: bool) -> bytes:
        """Return, and remove, the replies to queries of the program.

        `is_attended`: a person's terminal receives the queries too and answers them, except the one for
        OSC 7501, which terminals do not know.
        """
        answers = b"".join(data for is_ours, data in self._answers if is_ours or not is_attended)
        self._answers.clear()
        return answers

    def take_said(self) -> list[str | Status]:
        """Return the newest title and the newest status since the last call, in order of arrival."""
        said = list(self._said.values())
        self._said.clear()
        return said

    def _carry_out(self, found: re.Match[str]) -> None:
        match found.lastgroup:
            case "text":
                self.glass.draw(found[0])
            case "final":
                self._control_sequence(found["params"], found["final"])
            case "control":
                if action := CONTROLS.get(found[0]):
                    action(self.glass)
            case "escape":
                self._escape(found["escape"])
            case "osc_end":
                self._command(found["osc"])

    def _escape(self, word: str) -> None:
        if word == "c":
            self.glass.reset()
            self.modes.clear()
            self._key_flags.clear()
            self._other_keys = self._cursor_style = 0
            self.is_readable = True
        elif word[0] in "()" and len(word) == 2:
            self.glass.define_charset(word[1], word[0])
        elif word in "=>":
            self._set_modes((MODE_KEYPAD,), is_on=word == "=")
        elif action := ESCAPES.get(word):
            action(self.glass)

    def _control_sequence(self, params: str, final: str) -> None:
        private = params[:1] if params[:1] in ("?", ">", "<", "=") else ""
        numbers = read_numbers(params[len(private) :])
        if private == "?" and final in "hl":
            self._set_modes(numbers, is_on=final == "h")
        elif private in (">", "<", "=") and final == "u":
            self._set_key_flags(private, numbers)
        elif private == ">" and final == "m" and numbers[:1] == (4,):
            self._other_keys = min(numbers[1], 9) if len(numbers) > 1 else 0
        elif private:
            self._ask_private(private, numbers, final)
        elif final == "m":
            self.glass.select_graphic_rendition(*numbers)
        elif final == " q":
            self._cursor_style = min(numbers[0], 9) if numbers else 0
        elif action := SEQUENCES.get(final):
            action(self.glass, numbers)
            if final == "J" and numbers[:1] == (2,):
                self.is_readable = True
        else:
            self._ask(numbers, final)

    def _set_modes(self, numbers: tuple[int, ...], *, is_on: bool) -> None:
        for number in numbers:
            if number in _MODES_ALTERNATE:
                self.glass.show_alternate(is_on=is_on)
                self.is_readable = self.is_readable or is_on
            if number in _MODES_PYTE:
                change = self.glass.set_mode if is_on else self.glass.reset_mode
                change(number, private=True)
            if is_on:
                self.modes.add(number)
            else:
                self.modes.discard(number)

    def _set_key_flags(self, private: str, numbers: tuple[int, ...]) -> None:
        """Handle the key flags of the kitty protocol: push, pop or change the topmost."""
        first = numbers[0] if numbers else 0
        if private == ">":
            self._key_flags = [*self._key_flags, first & _KEY_FLAGS][-_LIMIT_KEY_FLAGS:]
        elif private == "<":
            del self._key_flags[-max(first, 1) :]
        else:
            before = self._key_flags.pop() if self._key_flags else 0
            how = numbers[1] if len(numbers) > 1 else 1
            changed = {1: first, 2: before | first, 3: before & ~first}.get(how, before)
            self._key_flags.append(changed & _KEY_FLAGS)

    def _ask(self, numbers: tuple[int, ...], final: str) -> None:
        glass = self.glass
        match final, numbers[:1]:
            case "c", () | (0,):
                self._answer(b"\x1b[?62;22c")
            case "n", (5,):
                self._answer(b"\x1b[0n")
            case "n", (6,):
                self._answer(b"\x1b[%d;%dR" % (glass.cursor.y + 1, min(glass.cursor.x + 1, glass.columns)))
            case "t", (18,):
                self._answer(b"\x1b[8;%d;%dt" % (glass.lines, glass.columns))
            case _:
                pass

    def _ask_private(self, private: str, numbers: tuple[int, ...], final: str) -> None:
        match private, final:
            case ">", "q":
                self._answer(b"\x1bP>|palaver\x1b\\")
            case ">", "c":
                self._answer(b"\x1b[>0;0;0c")
            case "?", "$p" if numbers:
                known = numbers[0] in (_MODE_PASTE, _MODE_FOCUS, _MODE_FRAME)
                value = 0 if not known else 1 if numbers[0] in self.modes else 2
                self._answer(b"\x1b[?%d;%d$y" % (numbers[0], value))
            case _:
                pass

    def _command(self, text: str) -> None:
        number, _, rest = text.partition(";")
        match number:
            case "0" | "2":
                self.title = rest[:TITLE_LIMIT]
                self._say(self.title)
            case "10" | "11" if rest == "?":
                colour = b"ffff/ffff/ffff" if number == "10" else b"0000/0000/0000"
                self._answer(b"\x1b]%s;rgb:%s\x1b\\" % (number.encode(), colour))
            case "7501" if rest.startswith("?"):
                self._answer(b"\x1b]7501;?ok\x1b\\", is_ours=True)
            case "7501":
                status = parse_status(rest)
                if status is not None and status.about:
                    self._hear_of(status)
                elif status is not None:
                    self.status = status
                    self._say(status)
            case _:
                pass

    def _hear_of(self, status: Status) -> None:
        if status.state != _WORKING:
            self.workers.discard(status.about)
        elif len(self.workers) < _LIMIT_WORKERS:
            self.workers.add(status.about)

    def _say(self, said: str | Status) -> None:
        self._said.pop(type(said), None)
        self._said[type(said)] = said

    def _answer(self, data: bytes, *, is_ours: bool = False) -> None:
        if len(self._answers) < ANSWER_LIMIT:
            self._answers.append((is_ours, data))


def parse_status(text: str) -> Status | None:
    """Parse the fields of OSC 7501, `state=blocked:kind=permission:msg=<base64>`; None without a state."""
    fields = dict(part.partition("=")[::2] for part in text.split(":"))
    state = fields.get("state", "")
    if not state:
        return None
    try:
        message = base64.b64decode(fields.get("msg", ""), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        message = ""
    return Status(state, fields.get("kind", ""), message, fields.get("id", ""))
