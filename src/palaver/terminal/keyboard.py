"""Track the unsent draft of a person from their keys alone. Pure; time is a parameter.

This is for programs whose composer cannot be read from the screen. It also records when a person last pressed
a key. Bytes that a terminal sends by itself (replies, focus, mouse) are not keys. The draft is known while
every key acts at the end of the line and has the same effect in every program. After any other key the draft
is unknown until the person presses Enter or Ctrl-C. Our own text before it in the same line becomes part of
the draft when a person changes it, or when it is left unsent.
"""

import re
import unicodedata
from typing import Final

import msgspec

from palaver.terminal.emulator import Sequences, width_of

HUMAN_QUIET_MS: Final = 500
"""How long a person must have left the keyboard alone."""

HUMAN_SHOWN_MS: Final = 5_000
"""How long to wait for output after a person's key. Until then the effect of the key is unknown."""

DRAFT_LIMIT: Final = 4_096
"""Characters of a draft that are kept. A longer draft is shortened and counts as unknown."""
PIECE_LIMIT: Final = 65_536
"""Bytes of one piece of input that are parsed. A longer one makes the draft unknown."""

_ALT_CONTROL: Final = re.compile(rb"\x1b[\x00-\x1a\x1c-\x1f\x7f]")
# Alt with Enter in the kitty protocol. It replaces Alt with any control key: each makes the draft unknown.
_ALT_KEY: Final = b"\x1b[13;3u"
_OLD_MOUSE: Final = re.compile(rb"\x1b\[M[\s\S]{3}")
_PASTE_BEGIN: Final = b"\x1b[200~"
_PASTE_END: Final = b"\x1b[201~"
_KEYPAD: Final = re.compile(rb"\x1bO([A-DFHMP-S])")
_LAST_WORD: Final = re.compile(r"(?:^|(?<=\s))[A-Za-z0-9]+\s*\Z")
"""The word that Ctrl-W deletes. Programs disagree about the ends of a word with any other character in it."""
_SENDS: Final = frozenset("\r\n\x03")
"""Enter sends a draft, Ctrl-C drops it."""
_RUBS: Final = frozenset("\x08\x7f")
_MOVES: Final = frozenset("\x01\x02\x05\x06")
"""They move the cursor in the line, and have no effect in an empty line."""
_HARMLESS: Final = frozenset("\x0b\x0c\x11")
"""Delete the text after the cursor, redraw, resume output: they do not change a known draft."""
_REPORTS: Final = frozenset({"I", "O", "c", "n", "t", "$y", "M", "m", "R"})
"""Final characters of sequences that a terminal sends by itself."""
_MOVING_CODES: Final = frozenset({"1", "4", "7", "8"})
_LOCKS: Final = (range(57358, 57364), range(57441, 57455))
"""Codes of Caps Lock, Shift and other modifier keys in the kitty protocol."""


class KeyboardMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a `Keyboard`, for the process that takes over."""

    # At an upgrade an older version wrote this, so a field added later needs a default (see `Kept`).
    text: str = ""
    has_draft: bool = False
    is_known: bool = True
    last_ms: int | None = None
    count: int = 0
    left_at: int | None = None
    """The key count when the text was put into the line that is left there; None if no text is left."""


class Keyboard:
    """The keys of all persons who type in one terminal."""

    def __init__(self) -> None:
        self._sequences = Sequences()
        self._is_pasting = False
        self._has_draft = False
        self._is_known = True
        self.draft = ""
        self.last_ms: int | None = None
        self.count = 0
        """Total number of pieces of input that contained a key."""
        self._ours = ""
        self._placed_at = 0
        self._left_at: int | None = None

    @property
    def has_draft(self) -> bool:
        """Whether the line contains, or may contain, text typed since the last Enter."""
        return self._has_draft

    @property
    def is_pasting(self) -> bool:
        """Whether a paste has begun and not ended: any text in between would become part of it."""
        return self._is_pasting

    @property
    def is_left_alone(self) -> bool:
        """Whether the draft is our own text that was left, and no person has pressed a key since."""
        return self._left_at == self.count

    def press(self, data: bytes, now_ms: int) -> None:
        """Process typed bytes. Never raises."""
        if len(data) > PIECE_LIMIT:
            self._lose_track()
            # A bracket of a paste counts also in the part that is not parsed, or if it is cut there.
            left_out = data[: len(_PASTE_BEGIN) - 1 - PIECE_LIMIT]
            begin, end = left_out.rfind(_PASTE_BEGIN), left_out.rfind(_PASTE_END)
            if begin != end:
                self._is_pasting = begin > end
            data = data[-PIECE_LIMIT:]
        # Alt with Enter is Escape and CR on the wire, and inserts a line in many programs. Read as two
        # keys, its CR would count as an Enter that sends the draft. The bytes of a mouse report may look
        # like any key.
        data = _OLD_MOUSE.sub(b"", _ALT_CONTROL.sub(_ALT_KEY, data))
        # In application mode these keys come as ESC O and a letter, which `Sequences` does not read as one
        # key.
        data = _KEYPAD.sub(lambda found: b"\r" if found[1] == b"M" else b"\x1b[" + found[1], data)
        has_key = False
        for found in self._sequences.split(data):
            match found.lastgroup:
                case "text":
                    self._add(found[0])
                    has_key = True
                case "control":
                    self._control(found[0])
                    has_key = True
                case "final":
                    has_key = self._sequence(found["params"], found["final"]) or has_key
                # ST ends a string that the terminal sends. Any other escape is a key with Alt.
                case "escape" if found["escape"] != "\\":
                    self._lose_track()
                    has_key = True
                case _:
                    pass
        # A lone Escape looks like the start of a longer sequence.
        if self._sequences.tail == "\x1b":
            self._move()
            has_key = True
        if has_key:
            self.last_ms = now_ms
            self.count += 1

    def forget(self) -> None:
        """Forget the draft: it was sent or deleted, or the program shows an empty line."""
        self._has_draft, self._is_known, self.draft = False, True, ""
        self._ours, self._left_at = "", None

    def put(self, text: str) -> None:
        """Record that our text was put into the empty line."""
        self._ours, self._placed_at = text, self.count

    def clear(self) -> None:
        """Record that our text has left the line."""
        self._ours = ""

    def leave(self) -> None:
        """Record that our text may still be in the line and will not be sent. From now on it is a draft.

        Does nothing if a person has sent or deleted the line since.
        """
        if not self._ours:
            return
        text, self._ours, self.draft = self._ours + self.draft, "", ""
        # In a text of several lines, programs disagree about how much one key such as Ctrl-U deletes.
        self._is_known = self._is_known and "\n" not in text
        # Not the current count: any key since the text was put there may have changed it.
        self._left_at = self._placed_at
        self._add(text)

    def keep(self) -> KeyboardMemory:
        """Return the state for the process that takes over. During a sequence the draft is unknown."""
        # Our own text is not kept: an upgrade waits until no message is being typed.
        is_between = self._is_pasting or bool(self._sequences.tail)
        return KeyboardMemory(
            text=self.draft,
            has_draft=self._has_draft or is_between,
            is_known=self._is_known and not is_between,
            last_ms=self.last_ms,
            count=self.count,
            left_at=self._left_at,
        )

    def take_up(self, draft: KeyboardMemory) -> None:
        """Continue with the state of the replaced process."""
        self._left_at = draft.left_at
        self.draft, self._has_draft, self._is_known = draft.text, draft.has_draft, draft.is_known
        self.last_ms, self.count = draft.last_ms, draft.count

    def _add(self, text: str) -> None:
        self._has_draft = True
        self.draft += text
        if len(self.draft) > DRAFT_LIMIT:
            self.draft = self.draft[-DRAFT_LIMIT:]
            self._is_known = False

    def _lose_track(self) -> None:
        """Handle a key with an unknown effect: from now on the content of the line is unknown."""
        self.leave()
        self._has_draft, self._is_known = True, False

    def _move(self) -> None:
        """Handle a cursor key: the cursor may have left the end of the draft, unless the line is empty."""
        self.leave()
        self._is_known = self._is_known and not self._has_draft

    def _control(self, sign: str) -> None:
        # Inside a paste a control character is text. Programs treat it in different ways.
        if self._is_pasting:
            self._add(sign)
            self._is_known = False
        elif sign in _SENDS:
            self.forget()
        # Only Enter and Ctrl-C end an unknown draft: any other key may do anything in it.
        elif not self._is_known:
            pass
        elif sign in _RUBS:
            self._begin_rub()
            self._rub(len(self.draft) - 1)
        elif sign == "\x17":
            self._begin_rub()
            word = _LAST_WORD.search(self.draft)
            if word is not None:
                self._rub(word.start())
            elif self._has_draft:
                self._lose_track()
        elif sign == "\x15":
            # The cursor is at the end of a known draft, so this deletes all of it.
            self.forget()
        elif sign in _MOVES:
            self._move()
        elif sign == "\x04":
            pass  # it may send or complete a draft, or do nothing; in an empty line it ends the program
        elif sign not in _HARMLESS:
            self._lose_track()

    def _begin_rub(self) -> None:
        """Turn our text into a draft if a person deletes and has typed nothing: they delete our text."""
        if not self._has_draft:
            self.leave()

    def _rub(self, start: int) -> None:
        """Delete the draft from an index on. Programs disagree about the length of non-ASCII characters."""
        gone, self.draft = self.draft[max(start, 0) :], self.draft[: max(start, 0)]
        self._has_draft = bool(self.draft)
        if not gone.isascii():
            self._lose_track()

    def _sequence(self, params: str, final: str) -> bool:
        """Process a control sequence. Return whether it was a key."""
        if final == "~":
            return self._tilde(params)
        if final == "u":
            return self._kitty(params)
        # With parameters, R reports the position of the cursor. Without them it is the key F3.
        if final in _REPORTS and (final != "R" or ";" in params):
            return False
        # Up and down are not among them: they may replace the line by an earlier one.
        if final in ("C", "D", "F", "H"):
            self._move()
        else:
            self._lose_track()
        return True

    def _tilde(self, params: str) -> bool:
        code, _, rest = params.partition(";")
        if code in ("200", "201"):
            self._is_pasting = code == "200"
        elif code == "27" and rest:
            # xterm's modifyOtherKeys: the values of the kitty protocol in another order.
            modifiers, _, sign = rest.partition(";")
            return self._kitty(f"{sign};{modifiers}")
        elif code in _MOVING_CODES:
            self._move()
        elif code != "3" or not self._is_known:  # Delete has no effect at the end of the line
            self._lose_track()
        return True

    def _kitty(self, params: str) -> bool:
        """Process a key of the kitty protocol, `code:shifted;modifiers:event`. A release is ignored."""
        if params.startswith("?"):
            return False
        code_part, _, rest = params.partition(";")
        modifiers, _, event = rest.partition(";")[0].partition(":")
        if event == "3":
            return False
        code_text = code_part.partition(":")[0]
        # Parameters may also contain `<`, `=`, `>` and `?`. Cut, because Python raises an error for very long
        # numbers.
        code = int(code_text[:7]) if code_text.isdecimal() else 0
        # The protocol sends the modifiers plus one, so that 1 means none.
        held = int(modifiers[:4]) - 1 if modifiers.isdecimal() else 0
        held &= 0b111111  # ignore Caps Lock and Num Lock
        # A modifier alone changes no text, but it shows that a person is at the keyboard.
        if any(code in lock for lock in _LOCKS):
            return True
        if held == 4 and 97 <= code <= 122:
            self._control(chr(code & 0x1F))
        elif held & ~1:
            self._lose_track()
        elif code in (13, 57414) and not held:
            self._control("\r")
        elif code == 127:
            self._control("\x7f")
        elif code == 27:
            self._move()
        elif 32 <= code < 0xD800 and code != 127:
            self._add(chr(code))
        else:
            self._lose_track()
        return True


# --------------------
# Clean texts before they are typed, and normalise them for comparison with a screen. Pure.

# Marks of the text direction are removed too: with them a person would read another text than the program.
_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LINE_ENDS: Final = re.compile(r"\r\n?|\u2028|\u2029|\x85")
_BREAKS: Final = re.compile(r"[\t\n\r\u2028\u2029\x85]")
_OPENS_LIST: Final = re.compile(r"(?:^|\s)\S*[@#/]\S*$")


def clean_text(text: str, *, has_paste_mode: bool, has_lists: bool) -> str:
    """Remove every character that a terminal or a program could interpret as a key.

    A line feed is safe only in a bracketed paste; otherwise every line end becomes a space. A tab becomes a
    space, because it would complete words. If a program `has_lists` and the last word opens a list of files
    or commands, a space is appended, because Enter would select an item of that list.
    """
    # Line ends first: a CR is also a control character, and removing it would join two lines.
    text = _LINE_ENDS.sub("\n", text)
    text = _CONTROLS.sub("", text.replace("\t", " "))
    if not has_paste_mode:
        text = " ".join(text.split("\n"))
    # A single word after `/` is meant as a command of the program, and is typed as it is.
    is_command = text.startswith("/") and not any(sign.isspace() for sign in text)
    return f"{text} " if has_lists and _OPENS_LIST.search(text) and not is_command else text


def has_breaks(text: str) -> bool:
    """Return whether a text has tabs or line ends inside it; white space around it does not count."""
    return _BREAKS.search(text.strip()) is not None


def squeeze(text: str) -> str:
    """Remove what a screen does not show as it was typed, to compare a text with a screen.

    White space, because programs wrap and indent text in different ways, and characters without a cell.
    """
    squeezed = "".join(text.split())
    if squeezed.isascii():
        return squeezed
    # A cell has one character: an accent is part of its letter, and the selector of an emoji has no cell.
    return "".join(sign for sign in unicodedata.normalize("NFC", squeezed) if width_of(sign) > 0)


# --------------------
# A typed message that may still be in the input line of a program whose composer cannot be read. Pure.
#
# Further keys would be added to that line. So the text counts as a draft until a person has sent or deleted
# it, or until the program has taken it: then the cursor is elsewhere and the program is silent.

_TAIL: Final = 16
"""Characters at the end of our text that identify it. A program may show no more of a long text."""


def is_at_cursor(before: str, ours: str) -> bool:
    """Return whether a text, or its end, is right before the cursor. `ours` has no white space."""
    return bool(ours) and squeeze(before).endswith(ours[-_TAIL:])


class Leftover:
    """The text that we put into the input line of one program."""

    def __init__(self, keyboard: Keyboard) -> None:
        self._keyboard = keyboard
        self._placed = ""
        self._text = ""
        self._outputs = 0

    def put(self, text: str) -> None:
        """Record that our text was put into the empty line."""
        self._placed = squeeze(text)
        self._keyboard.put(text)

    def clear(self) -> None:
        """Record that our text has left the line."""
        self._keyboard.clear()

    def leave(self, outputs: int) -> None:
        """Record that our text may still be in the line. `outputs` is the current output count."""
        self._text, self._outputs = self._placed, outputs
        self._keyboard.leave()

    def take_up(self, outputs: int) -> None:
        """Continue with the text that the replaced process left, as recorded by the keyboard."""
        if self._keyboard.is_left_alone:
            self._text, self._outputs = squeeze(self._keyboard.draft), outputs

    def is_there(self, before: str, outputs: int, *, is_silent: bool) -> bool:
        """Return whether our text may still be in the line. `before` is the text that ends at the cursor.

        If the program has taken the text and no person has typed since, the draft is forgotten.
        """
        if not self._text:
            return False
        # While the program writes, the cursor may be anywhere: that is no evidence that the text was taken.
        if is_at_cursor(before, self._text) or not is_silent:
            return True
        if self._keyboard.is_left_alone:
            # It has written nothing since, so it has not taken the text either.
            if outputs == self._outputs:
                return True
            self._keyboard.forget()
        self._text = ""
        return self._keyboard.has_draft
