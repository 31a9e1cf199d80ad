r"""Interpret the user's keys: a line for the agent, a choice in the menu, keys for the agent. Pure.

It is always in one mode. Ctrl-\ opens the menu from the input bar, and returns there from every other mode;
pasted text is never read as that key.
"""

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.app.attach.editor import Editor, Key, Pressed

PRIORITIES: Final = ("normal", "interrupt", "idle-first", "idle")
PREFIX: Final = b"\x1c"

# An Escape that is followed by another one is the Escape key itself.
_KEY: Final = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[@-~]|\x1b[^\[O\x1b]|\x1b(?=\x1b)|[^\x1b]", re.DOTALL
)
_MARKS: Final = re.compile(
    rb"\x1b\[20(?P<paste>[01])~|\x1c|\x1b\[92;(?:5|69|133|197)(?::[12])?u|\x1b\[27;5;92~"
    rb"|(?P<suspend>\x1a|\x1b\[122;(?:5|69|133|197)(?::[12])?u|\x1b\[27;5;122~)"
)
r"""The ends of a paste, Ctrl-\ and Ctrl-Z, in every encoding of keys. Ctrl-\ is never passed on."""
_MARK_BYTES: Final = 12
"""The length of the longest mark. This much of the last input finds a mark that is split over two reads."""
_ESCAPE: Final = b"\x1b"
_ALL: Final = 1_000_000
"""Rows; more than any scroll-back has."""
_PAGE: Final = 2
_ELSEWHERE: Final = r"another terminal has the keyboard: Ctrl-\ t takes it over"


class Mode(enum.Enum):
    """Where keys go."""

    INPUT = "input"
    MENU = "menu"
    KEYS = "passthrough"
    SCROLL = "scroll back"
    SEARCH = "search"
    AGENTS = "agents"
    QUIT = "quit?"
    HELP = "help"


class Act(enum.Enum):
    """Actions other than lines and keys."""

    LEAVE = enum.auto()
    STOP = enum.auto()
    REDRAW = enum.auto()
    SCROLL = enum.auto()
    LIST_AGENTS = enum.auto()
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


@dataclass(frozen=True, slots=True)
class CopyText:
    """Text of the scroll-back for the user's clipboard."""

    text: str


@dataclass(frozen=True, slots=True)
class ShowAgent:
    """Show another agent instead of this one."""

    name: str


Meant = Act | Say | RawKeys | CopyText | ShowAgent


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChoice:
    """Another agent, in the list that the user chooses from."""

    name: str
    state: str
    detail: str = ""
    unread: int = 0
    has_terminal: bool = True


# --------------------
# The scroll-back: the position in it, a search, and a selection of lines. Pure.
#
# A line is counted from the last one, which is 0: so it keeps its number when older lines are added.


class LookBack:
    """The lines that have scrolled off and the screen, oldest first, and the part of them that is shown."""

    def __init__(self) -> None:
        self.lines: Sequence[str] = ()
        self.is_complete = False
        """Whether the holder has sent its lines; before that there may be more than are known here."""
        self.back = 0
        """Lines after the shown part."""
        self.page = 10
        """Lines that Page Up goes: one less than are shown."""
        self.needle = ""
        """The text that was searched for; empty if there was no search."""
        self.found: int | None = None
        """The line of the current match."""
        self.mark: int | None = None
        """The first line of the selection; None without a selection."""
        self.at = 0
        """The last line of the selection, which moves with the keys."""

    @property
    def limit(self) -> int:
        """The limit of `back`."""
        return max(len(self.lines) - self.page - 1, 0) if self.is_complete else _ALL

    def begin(self) -> None:
        """Start one page back, without a search or selection."""
        self.lines, self.is_complete, self.back = (), False, self.page
        self.needle, self.found, self.mark = "", None, None

    def show(self, lines: Sequence[str], *, is_complete: bool) -> None:
        """Set the lines. The position is kept where possible; a match that has moved is dropped."""
        last = max(len(lines) - 1, 0)
        self.lines, self.is_complete = lines, is_complete
        self.back = min(self.back, self.limit)
        self.at = min(self.at, last)
        self.mark = None if self.mark is None else min(self.mark, last)
        if self.found not in self.matches():
            self.found = None

    def move(self, rows: int) -> None:
        """Move up, or down for a negative number: the selection if there is one, else the shown part."""
        if self.mark is None:
            self.back = max(min(self.back + rows, self.limit), 0)
        else:
            self.at = max(min(self.at + rows, len(self.lines) - 1), 0)
            self._show_line(self.at)

    # The search

    def matches(self) -> list[int]:
        """Return the lines that contain the searched text, the last one first.

        Upper and lower case count only if the text has upper case.
        """
        if not self.needle:
            return []
        is_exact = self.needle != self.needle.lower()
        lines = enumerate(reversed(self.lines))
        return [at for at, line in lines if self.needle in (line if is_exact else line.lower())]

    def search(self, needle: str) -> bool:
        """Search upwards from the shown part, then from the end. Return whether there is a match."""
        self.needle, self.found = needle, None
        return self.find(is_up=True)

    def find(self, *, is_up: bool) -> bool:
        """Go to the next match, upwards or downwards, and around the end. Return whether there is one."""
        matches = self.matches()
        if not matches:
            self.found = None
            return False
        start = self.back - 1 if self.found is None else self.found
        after = [at for at in matches if (at > start if is_up else at < start)]
        # The nearest one in this direction; without one, the farthest in the other direction.
        self.found = (after or matches)[0 if is_up else -1]
        self._show_line(self.found)
        if self.mark is not None:
            self.at = self.found
        return True

    def _show_line(self, at: int) -> None:
        if not self.back <= at <= self.back + self.page:
            wanted = at - self.page // 2 if self.mark is None else at if at < self.back else at - self.page
            self.back = max(min(wanted, self.limit), 0)

    # The selection

    def select(self) -> None:
        """Start a selection at the current match if it is shown, else at the last shown line."""
        is_shown = self.found is not None and self.back <= self.found <= self.back + self.page
        self.mark = self.at = self.found if is_shown and self.found is not None else self.back

    @property
    def selected(self) -> range:
        """The selected lines; without a selection, the shown ones."""
        if self.mark is None:
            return range(self.back, min(self.back + self.page + 1, len(self.lines)))
        return range(min(self.mark, self.at), max(self.mark, self.at) + 1)

    def take(self) -> str:
        """Return the selected lines, and end the selection."""
        chosen = self.selected
        end = max(len(self.lines) - chosen.start, 0)
        self.mark = None
        return "\n".join(line.rstrip() for line in self.lines[max(end - len(chosen), 0) : end])


# --------------------
# The keys.


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
        self.past = LookBack()
        self.finder = Editor()
        """The line in which the text to search for is typed."""
        self.back = 0
        """Rows scrolled in the help."""
        self.limit = _ALL
        """The limit of `back`."""
        self.agents: Sequence[AgentChoice] | None = None
        """The other agents, while the user chooses one; None until the list is known."""
        self.choice = 0
        """The chosen one of `agents`."""
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
                case Mode.SEARCH:
                    self._search()
                case _:
                    found = _KEY.match(self._rest)
                    # The key is incomplete. If the rest does not follow soon, `settle` handles it.
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
        return bool(self._rest) or self.editor.has_half or self.finder.has_half

    def settle(self) -> Iterator[Meant]:
        """Handle a pause in the input: a lone Escape was the Escape key."""
        if self.editor.settle() and self.mode is Mode.INPUT and self.keys_first:
            yield from self._take_keyboard()
            return
        if self.finder.settle() and self.mode is Mode.SEARCH:
            self.mode = Mode.SCROLL
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
        """Record a refusal; `about` names the refused request."""
        if about == "passthrough" and self.mode is Mode.KEYS and not self.is_bare:
            self._go(Mode.INPUT)
        self.notice = sentence

    def put_back(self, text: str, priority: str) -> None:
        """Put a line back that could not be sent, unless the user types another one."""
        if not self.editor.text:
            self.editor.put(text)
            self._priority = PRIORITIES.index(priority)

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
                if self.priority == "interrupt":
                    self._priority = 0  # The next line should not interrupt by mistake.
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
        # A paste that began in the bar has ended there: its end mark never comes here.
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
            case Mode.SCROLL:
                yield from self._look_back(key)
            case Mode.AGENTS:
                yield from self._choose_agent(key)
            case _:
                self._read_help(key)

    def _choose_in_menu(self, key: bytes) -> Iterator[Meant]:
        self._go(Mode.INPUT)
        match key.lower():
            case b"p":
                yield from self._take_keyboard()
            case b"t":
                yield from self._take_keyboard(is_forced=True)
            case b"s":
                yield from self._scroll_back()
            case b"n":
                self.mode, self.agents, self.choice = Mode.AGENTS, None, 0
                yield Act.LIST_AGENTS
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

    def _read_help(self, key: bytes) -> None:
        """Move in the help, which is read downwards; any other key ends it."""
        step = self._step(key)
        if step is None:
            self._go(Mode.INPUT)
        else:
            self.back = max(min(self.back - step, self.limit), 0)

    def _step(self, key: bytes) -> int | None:
        """Return how many rows a key goes up; None if it does not move."""
        step = _STEPS.get(key)
        return step if step is None or abs(step) != _PAGE else self.past.page * (step // _PAGE)

    # The scroll-back

    def _scroll_back(self) -> Iterator[Meant]:
        self.mode = Mode.SCROLL
        self.past.begin()
        yield Act.SCROLL

    def _look_back(self, key: bytes) -> Iterator[Meant]:
        past, step = self.past, self._step(key)
        if step is not None and (step > 0 or past.back or past.mark is not None):
            past.move(step)
        elif key == b"/":
            self.mode = Mode.SEARCH
            self.finder.put("")
        elif key in (b"n", b"N"):
            self._find(has_found=past.find(is_up=key == b"n"))
        elif key == b"v":
            past.select()
        elif key == b"y":
            yield CopyText(past.take())
        # Escape first ends the selection only. The prefix leaves every mode at once.
        elif past.mark is not None and key != PREFIX:
            past.mark = None
        else:
            self._go(Mode.INPUT)

    def _search(self) -> None:
        data, self._rest = self._rest, b""
        for pressed in self.finder.feed(data):
            if pressed.key in (Key.SUBMIT, Key.CANCEL, Key.MENU):
                self._rest = self.finder.take_rest()
                self._go(Mode.INPUT if pressed.key is Key.MENU else Mode.SCROLL)
                if pressed.key is Key.SUBMIT and pressed.text:
                    self._find(has_found=self.past.search(pressed.text))
                return

    def _find(self, *, has_found: bool) -> None:
        if not has_found:
            needle = self.past.needle
            self.notice = f"not found: {needle}" if needle else "/ searches; then n and N go on"

    # The other agents

    def offer(self, agents: Sequence[AgentChoice] | None) -> None:
        """Show the other agents to choose from, if the user still wants that; None closes the list."""
        if self.mode is Mode.AGENTS and agents is None:
            self._go(Mode.INPUT)
        elif self.mode is Mode.AGENTS and agents is not None:
            self.agents = agents
            self.choice = min(self.choice, max(len(agents) - 1, 0))

    def _choose_agent(self, key: bytes) -> Iterator[Meant]:
        agents = self.agents or ()
        # In this list Enter chooses. In the help and the scroll-back it moves down.
        step = None if key == b"\r" else self._step(key)
        if step is not None:
            self.choice = max(min(self.choice - step, len(agents) - 1), 0)
        elif key == b"r":
            yield Act.LIST_AGENTS
        elif key != b"\r":
            self._go(Mode.INPUT)
        elif agents and not agents[self.choice].has_terminal:
            self.notice = f"{agents[self.choice].name} has no terminal that 'pal' started"
        elif agents:
            yield ShowAgent(agents[self.choice].name)

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
