"""A line that a user types: keys in, meaning out, and how it fits into a width. Pure."""

import codecs
import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from palaver.protocol.display import display_width, safe

_LEAST_TEXT: Final = 10
_LIMIT_HISTORY: Final = 200

_ESCAPE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~]|[^\[O])")
_HALF_ESCAPE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
_PASTE_BEGIN: Final = b"\x1b[200~"
_PASTE_END: Final = b"\x1b[201~"


class Key(enum.Enum):
    """Keys with a meaning other than text."""

    SUBMIT = enum.auto()
    CANCEL = enum.auto()
    QUIT = enum.auto()
    REDRAW = enum.auto()
    MENU = enum.auto()
    NEXT = enum.auto()
    PREVIOUS = enum.auto()
    PAGE_UP = enum.auto()


@dataclass(frozen=True, slots=True)
class Pressed:
    """A key that the caller must handle; `text` is the line when the key was pressed."""

    key: Key
    text: str = ""


class Editor:
    """One line under the cursor, and the lines before it.

    A paste is always text: its line ends stay in the line and submit nothing.
    """

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self._bytes = b""
        self._is_pasting = False
        # Incremental, because the bytes of a character may arrive in two reads.
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.is_secret = False
        """Do not remember submitted lines."""
        self._history: list[str] = []
        self._position = 0
        self._draft = ""

    def put(self, text: str) -> None:
        """Replace the line, for example by one that could not be sent."""
        self.text, self.cursor = text, len(text)

    def feed(self, data: bytes) -> Iterator[Pressed]:
        """Take input of the terminal; an incomplete key waits for its rest."""
        self._bytes += data
        while self._bytes:
            if self._is_pasting:
                if not self._paste():
                    return
            elif self._bytes.startswith(b"\x1b"):
                if (found := _ESCAPE.match(self._bytes)) is not None and found[0] in _KEYS:
                    self._bytes = self._bytes[found.end() :]
                    yield Pressed(_KEYS[found[0]], self.text)
                elif not self._escape():
                    return
            else:
                yield from self._plain()

    def take_rest(self) -> bytes:
        """Return the unread input, because the keys after this one are for another reader."""
        rest, self._bytes = self._bytes, b""
        return rest

    @property
    def has_half(self) -> bool:
        """Whether a key is incomplete."""
        return bool(self._bytes)

    def settle(self) -> bool:
        """Handle a pause in the input: a lone Escape was the Escape key. Return whether there was one."""
        is_escape = self._bytes == b"\x1b" and not self._is_pasting
        if is_escape:
            self._bytes = b""
        return is_escape

    def _paste(self) -> bool:
        pasted, end, rest = self._bytes.partition(_PASTE_END)
        if not end:
            return False
        self._bytes, self._is_pasting = rest, False
        self._insert(pasted.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n"))
        return True

    def _escape(self) -> bool:
        found = _ESCAPE.match(self._bytes)
        if found is None:
            if _HALF_ESCAPE.match(self._bytes):
                return False
            # Not a key that exists: drop only the Escape, so that no typed text is lost.
            self._bytes = self._bytes[1:]
            return True
        self._bytes = self._bytes[found.end() :]
        if found[0] == _PASTE_BEGIN:
            self._is_pasting = True
        elif (move := _MOVES.get(found[0])) is not None:
            move(self)
        return True

    def _plain(self) -> Iterator[Pressed]:
        byte, self._bytes = self._bytes[:1], self._bytes[1:]
        if byte in b"\r\n":
            yield Pressed(Key.SUBMIT, self._submitted())
        elif byte == b"\x03":
            line = self.text
            self.put("")
            yield Pressed(Key.CANCEL, line)
        # In a line with a text, Ctrl-D deletes a character as in a shell (see `_MOVES`).
        elif byte == b"\x04" and not self.text:
            yield Pressed(Key.QUIT)
        elif byte in _KEYS:
            yield Pressed(_KEYS[byte], self.text)
        elif (move := _MOVES.get(byte)) is not None:
            move(self)
        elif byte >= b" ":
            self._insert(self._decode(byte))

    def _submitted(self) -> str:
        line = self.text
        self.put("")
        # The history can be shown again on a screen that others see.
        if line and not self.is_secret and self._history[-1:] != [line]:
            self._history = [*self._history, line][-_LIMIT_HISTORY:]
        self._position = len(self._history)
        return line

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    # Moves

    def _left(self) -> None:
        self.cursor = max(0, self.cursor - 1)

    def _right(self) -> None:
        self.cursor = min(len(self.text), self.cursor + 1)

    def _home(self) -> None:
        self.cursor = 0

    def _end(self) -> None:
        self.cursor = len(self.text)

    def _backspace(self) -> None:
        if self.cursor:
            self._cut(self.cursor - 1, self.cursor)

    def _delete(self) -> None:
        self._cut(self.cursor, self.cursor + 1)

    def _cut_word(self) -> None:
        kept = self.text[: self.cursor].rstrip().rpartition(" ")
        self._cut(len(kept[0]) + len(kept[1]), self.cursor)

    def _cut_before(self) -> None:
        self._cut(0, self.cursor)

    def _cut_to_end(self) -> None:
        self.text = self.text[: self.cursor]

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _earlier(self) -> None:
        if self._position == len(self._history):
            self._draft = self.text
        if self._position:
            self._position -= 1
            self.put(self._history[self._position])

    def _later(self) -> None:
        if self._position < len(self._history):
            self._position += 1
            is_draft = self._position == len(self._history)
            self.put(self._draft if is_draft else self._history[self._position])


_KEYS: Final = {
    b"\x0c": Key.REDRAW,
    b"\x1c": Key.MENU,
    b"\t": Key.NEXT,
    b"\x1b[Z": Key.PREVIOUS,
    b"\x1b[5~": Key.PAGE_UP,
}

_MOVES: Final = {
    b"\x1b[D": Editor._left,
    b"\x02": Editor._left,
    b"\x1b[C": Editor._right,
    b"\x06": Editor._right,
    b"\x1b[A": Editor._earlier,
    b"\x10": Editor._earlier,
    b"\x1b[B": Editor._later,
    b"\x0e": Editor._later,
    b"\x1b[H": Editor._home,
    b"\x1bOH": Editor._home,
    b"\x1b[1~": Editor._home,
    b"\x01": Editor._home,
    b"\x1b[F": Editor._end,
    b"\x1bOF": Editor._end,
    b"\x1b[4~": Editor._end,
    b"\x05": Editor._end,
    b"\x1b[3~": Editor._delete,
    b"\x04": Editor._delete,
    b"\x7f": Editor._backspace,
    b"\x08": Editor._backspace,
    b"\x17": Editor._cut_word,
    b"\x15": Editor._cut_before,
    b"\x0b": Editor._cut_to_end,
}


# --------------------
# Texts and the typed line in a width.


def wrap(text: str, width: int, indent: int) -> list[str]:
    """Break a text into lines of at most `width` columns, at spaces if possible.

    Its own line ends are kept. In a pane too narrow for words a word is broken.
    """
    indent = indent if width - indent >= _LEAST_TEXT else 0
    lines: list[str] = []
    for paragraph in text.split("\n"):
        rest = paragraph if not lines else " " * indent + paragraph
        while display_width(rest) > width:
            head = _head(rest, width)
            cut = head.rfind(" ")
            if cut <= indent:
                cut = len(head)
            lines.append(rest[:cut].rstrip())
            rest = " " * indent + rest[cut:].lstrip(" ")
        lines.append(rest.rstrip())
    return lines


def _head(text: str, width: int) -> str:
    """Return as many characters as fit, and at least one."""
    columns = 0
    for index, char in enumerate(text):
        columns += display_width(char)
        if columns > width:
            return text[: max(index, 1)]
    return text


def input_line(prompt: str, text: str, cursor: int, width: int) -> tuple[str, int]:
    """Return the prompt with as much of the typed line as fits, and the cursor's column.

    The part around the cursor is shown; line ends within a pasted text are shown as signs.
    """
    prompt = prompt if width - display_width(prompt) >= _LEAST_TEXT else "> "
    room = max(width - display_width(prompt) - 1, 1)
    shown = safe(text.replace("\n", "⏎"))
    before = safe(text[:cursor].replace("\n", "⏎"))
    start, columns = 0, display_width(before)
    # Not measured again from each start: the line has no limit, and it is drawn again for each key.
    while columns > room:
        columns -= display_width(before[start])
        start += 1
    column = display_width(prompt) + columns
    return prompt + _head(shown[start:], room) if shown[start:] else prompt, column
