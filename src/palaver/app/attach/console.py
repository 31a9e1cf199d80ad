r"""Interpret the user's keys: a line for the agent, a choice in the menu, keys for the agent. Pure.

It is always in one mode. Ctrl-\ opens the menu from the input bar, and returns there from every other mode;
pasted text is never read as that key.
"""

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from palaver.app.chat.editor import Editor, Key, Pressed

PRIORITIES: Final = ("normal", "interrupt", "idle-first", "idle")
PREFIX: Final = b"\x1c"

_KEY: Final = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[@-~]|\x1b[^\[O\x1b]|\x1b(?=\x1b)|[^\x1b]", re.DOTALL
)
_MARKS: Final = re.compile(
    rb"\x1b\[20(?P<paste>[01])~|\x1c|\x1b\[92;(?:5|69|133|197)(?::[12])?u|\x1b\[27;5;92~"
    rb"|(?P<suspend>\x1a|\x1b\[122;(?:5|69|133|197)(?::[12])?u|\x1b\[27;5;122~)"
)
r"""The ends of a paste, Ctrl-\ and Ctrl-Z, in every encoding of keys. Ctrl-\ is never passed on."""
_MARK_BYTES: Final = 12
_ESCAPE: Final = b"\x1b"
_ALL: Final = 1_000_000
_PAGE: Final = 2
_ELSEWHERE: Final = r"another terminal has the keyboard: Ctrl-\ t takes it over"


class Mode(enum.Enum):
    """Where keys go."""

    INPUT = "input"
    MENU = "menu"
    KEYS = "passthrough"
    SCROLL = "scroll back"
    QUIT = "quit?"
    HELP = "help"


class Act(enum.Enum):
    """Actions other than lines and keys."""

    LEAVE = enum.auto()
    STOP = enum.auto()
    REDRAW = enum.auto()
    SCROLL = enum.auto()
    TAKE_KEYBOARD = enum.auto()
    FORCE_KEYBOARD = enum.auto()
    GIVE_KEYBOARD = enum.auto()
    SUSPEND = enum.auto()


@dataclass(frozen=True, slots=True)
class Say:
    """A line for the agent."""

    text: str
    priority: str


@dataclass(frozen=True, slots=True)
class RawKeys:
    """Keys for the agent, unchanged."""

    keys: bytes


Meant = Act | Say | RawKeys


class Console:
    """One user's side. `feed` it keys and carry out the results; the display depends on its fields."""

    def __init__(self, name: str, *, keys_first: bool = False) -> None:
        """`keys_first`: the agent has the keyboard until the user opens the bar."""
        self.name = name
        self.keys_first = keys_first
        self.editor = Editor()
        self.mode = Mode.INPUT
        self.notice = ""
        """A note on the last action; it stays until the next key."""
        self.back = 0
        """Rows scrolled in the scroll-back, or in the help."""
        self.limit = _ALL
        """The limit of `back`."""
        self.page = 10
        """Rows that Page Up goes."""
        self.keyboard = "free"
        self.is_bare = False
        """There is no room for a bar: keys go to the agent."""
        self._priority = 0
        self._rest = b""
        self._is_pasting = False
        self._tail = b""

    @property
    def priority(self) -> str:
        return PRIORITIES[self._priority]

    def feed(self, data: bytes) -> Iterator[Meant]:
        """Take input of the terminal, and yield its meaning, in order."""
        self.notice = ""
        self._rest += data
        while self._rest:
            match self.mode:
                case Mode.INPUT:
                    yield from self._edit()
                case Mode.KEYS:
                    yield from self._pass_on()
                case _:
                    found = _KEY.match(self._rest)
                    if found is None:
                        return
                    self._rest = self._rest[found.end() :]
                    yield from self._choose(found[0])

    def begin(self) -> Iterator[Meant]:
        """Assign the keyboard to the agent at the start, if configured."""
        if self.keys_first and self.mode is Mode.INPUT:
            yield from self._take_keyboard()

    @property
    def has_half(self) -> bool:
        """Whether the last key may be incomplete."""
        return bool(self._rest) or self.editor.has_half

    def settle(self) -> Iterator[Meant]:
        """Handle a pause in the input: a lone Escape was the Escape key."""
        if self.editor.settle() and self.mode is Mode.INPUT and self.keys_first:
            yield from self._take_keyboard()
            return
        rest, self._rest = self._rest, b""
        if rest == _ESCAPE:
            yield from self._choose(_ESCAPE)

    # Changes from outside

    def hear_secret(self, *, is_secret: bool) -> None:
        """Record whether the agent asks for a secret: then the bar shows dots and remembers no line."""
        self.editor.is_secret = is_secret

    def hear_keyboard(self, word: str) -> None:
        """Record who has the keyboard: `free`, `own` or `other`."""
        was, self.keyboard = self.keyboard, word
        if self.mode is Mode.KEYS and was == "own" and word == "other":
            self._go(Mode.INPUT)
            self.notice = _ELSEWHERE if self.is_bare else "another terminal took the keyboard"

    def refuse(self, sentence: str, about: str) -> None:
        """Record a refusal, and what it was about."""
        if about == "passthrough" and self.mode is Mode.KEYS and not self.is_bare:
            self._go(Mode.INPUT)
        self.notice = sentence

    def set_bare(self, *, is_bare: bool) -> Iterator[Meant]:
        """Remove the bar, or show it again, after the terminal's size has changed."""
        if is_bare == self.is_bare:
            return
        self.is_bare = is_bare
        if not is_bare:
            if self.mode is Mode.KEYS and not self.keys_first:
                self.mode = Mode.INPUT
            if self.mode is not Mode.KEYS:
                yield Act.GIVE_KEYBOARD
        elif self.mode in (Mode.INPUT, Mode.KEYS):
            yield from self._take_keyboard()

    # The bar

    def _edit(self) -> Iterator[Meant]:
        data, self._rest = self._rest, b""
        for pressed in self.editor.feed(data):
            yield from self._obey(pressed)
            if self.mode is not Mode.INPUT:
                self._rest = self.editor.take_rest()
                return

    def _obey(self, pressed: Pressed) -> Iterator[Meant]:
        match pressed.key:
            case Key.SUBMIT if pressed.text.strip():
                yield Say(pressed.text, self.priority)
            case Key.SUBMIT:
                self.notice = r"nothing to send; Ctrl-\ p gives you the agent's keyboard"
            case Key.CANCEL if not pressed.text:
                self.notice = r"Ctrl-\ d detaches, Ctrl-\ p gives you the agent's keyboard"
            case Key.QUIT:
                self.notice = rf"Ctrl-\ d detaches, and {self.name} keeps running"
            case Key.NEXT | Key.PREVIOUS:
                step = 1 if pressed.key is Key.NEXT else -1
                self._priority = (self._priority + step) % len(PRIORITIES)
            case Key.MENU:
                self._go(Mode.MENU)
            case Key.PAGE_UP:
                yield from self._scroll_back()
            case Key.REDRAW:
                yield Act.REDRAW
            case _:
                pass

    # The agent's keyboard

    def _take_keyboard(self, *, is_forced: bool = False) -> Iterator[Meant]:
        if self.keyboard == "other" and not is_forced:
            self._go(Mode.INPUT)
            self.notice = _ELSEWHERE
            return
        self._go(Mode.KEYS)
        self._is_pasting, self._tail = False, b""
        yield Act.FORCE_KEYBOARD if is_forced else Act.TAKE_KEYBOARD

    def _pass_on(self) -> Iterator[Meant]:
        data, self._rest = self._rest, b""
        seen = self._tail + data
        self._tail = seen[1 - _MARK_BYTES :]
        for found in _MARKS.finditer(seen):
            start = found.end() - len(seen) + len(data)
            if start <= 0:
                continue  # it was complete the last time
            if found["paste"] is not None:
                self._is_pasting = found["paste"] == b"0"
            elif not self._is_pasting and (found["suspend"] is None or self.keys_first):
                begin = found.start() - len(seen) + len(data)
                if begin > 0:
                    yield RawKeys(data[:begin])
                self._rest, self._tail = data[start:], b""
                if found["suspend"] is None:
                    yield from self._leave_keys()
                else:
                    yield Act.SUSPEND  # a harness would wait for a shell that its own terminal does not have
                return
        yield RawKeys(data)

    def _leave_keys(self) -> Iterator[Meant]:
        if self.is_bare:
            self.mode = Mode.MENU
        else:
            self._go(Mode.INPUT)
            yield Act.GIVE_KEYBOARD

    # The menu and its choices

    def _choose(self, key: bytes) -> Iterator[Meant]:
        match self.mode:
            case Mode.MENU:
                yield from self._choose_in_menu(key)
            case Mode.QUIT:
                self._go(Mode.INPUT)
                if key in (b"y", b"Y"):
                    self.notice = f"{self.name} was asked to end"
                    yield Act.STOP
                else:
                    self.notice = f"{self.name} keeps running"
            case _:
                self._move(key)

    def _choose_in_menu(self, key: bytes) -> Iterator[Meant]:
        self._go(Mode.INPUT)
        match key.lower():
            case b"p":
                yield from self._take_keyboard()
            case b"t":
                yield from self._take_keyboard(is_forced=True)
            case b"s":
                yield from self._scroll_back()
            case b"d":
                yield Act.LEAVE
            case b"q":
                self.mode = Mode.QUIT
            case b"r":
                yield Act.REDRAW
            case b"?" | b"h":
                self.mode, self.back, self.limit = Mode.HELP, 0, _ALL
            case _:
                pass

    def _scroll_back(self) -> Iterator[Meant]:
        self.mode, self.back, self.limit = Mode.SCROLL, self.page, _ALL
        yield Act.SCROLL

    def _move(self, key: bytes) -> None:
        """Move in the scroll-back, or in the help, which is read downwards."""
        step = _STEPS.get(key)
        if step is None or (self.mode is Mode.SCROLL and step < 0 and not self.back):
            self._go(Mode.INPUT)
            return
        rows = self.page * (step // _PAGE) if abs(step) == _PAGE else step
        moved = self.back + (rows if self.mode is Mode.SCROLL else -rows)
        self.back = max(min(moved, self.limit), 0)

    def _go(self, mode: Mode) -> None:
        """Change the mode; without a bar, from the input to the agent's keys."""
        self.mode = Mode.KEYS if mode is Mode.INPUT and self.is_bare else mode


_STEPS: Final = {
    b"\x1b[A": 1,
    b"\x1bOA": 1,
    b"k": 1,
    b"\x1b[B": -1,
    b"\x1bOB": -1,
    b"j": -1,
    b"\r": -1,
    b"\x1b[5~": _PAGE,
    b"b": _PAGE,
    b"\x1b[6~": -_PAGE,
    b" ": -_PAGE,
    b"\x1b[H": _ALL,
    b"\x1b[1~": _ALL,
    b"g": _ALL,
    b"\x1b[F": -_ALL,
    b"\x1b[4~": -_ALL,
    b"G": -_ALL,
}
"""Rows up, by key; two is a page."""
