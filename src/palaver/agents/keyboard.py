"""What a person has typed and not yet sent, told from their keys alone. Pure; time is handed in.

It serves programs whose composer cannot be read from the screen, and says when a person last pressed a key.
What a terminal sends by itself (answers, focus, mouse) is no key.
"""

import re
from typing import Final

from palaver.agents.sequences import Sequences

DRAFT_LIMIT: Final = 4_096
"""Characters of a draft that are kept; that there is one is never forgotten."""

_ALT_ENTER: Final = re.compile(rb"\x1b[\r\n]")
_OLD_MOUSE: Final = re.compile(rb"\x1b\[M[\s\S]{3}")
_SENDS: Final = frozenset("\r\n\x03\x04\x15")
"""Enter sends a draft; Ctrl-C, Ctrl-D and Ctrl-U drop it."""
_RUBS: Final = frozenset("\x08\x7f")
_REPORTS: Final = frozenset({"I", "O", "c", "n", "t", "$y", "M", "m", "R"})
"""Last characters of sequences that a terminal sends and no person types."""


class Keyboard:
    """One person's keys, or those of several who share a terminal."""

    def __init__(self) -> None:
        self._sequences = Sequences()
        self._is_pasting = False
        self._has_draft = False
        self.draft = ""
        self.last_ms: int | None = None
        self.count = 0
        """Pieces of input with a key in them, ever."""

    @property
    def has_draft(self) -> bool:
        """Whether something was typed since the last Enter."""
        return self._has_draft

    def press(self, data: bytes, now_ms: int) -> None:
        """Take in what was typed. Raises nothing."""
        data = _OLD_MOUSE.sub(b"", _ALT_ENTER.sub(b"\t", data))
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
                # ST ends what a terminal says; all else is a key pressed with Alt.
                case "escape" if found["escape"] != "\\":
                    has_key = True
                case _:
                    pass
        # A lone Escape looks like the beginning of something longer.
        if has_key or self._sequences.tail == "\x1b":
            self.last_ms = now_ms
            self.count += 1

    def forget(self) -> None:
        """Drop the draft: the program was seen to start afresh."""
        self._has_draft, self.draft = False, ""

    def _add(self, text: str) -> None:
        self._has_draft = True
        self.draft = (self.draft + text)[-DRAFT_LIMIT:]

    def _control(self, sign: str) -> None:
        if self._is_pasting:
            self._add(sign)
        elif sign in _SENDS:
            self.forget()
        elif sign in _RUBS:
            self.draft = self.draft[:-1]
            self._has_draft = bool(self.draft)
        elif sign == "\x17":
            self.draft = self.draft.rstrip().rpartition(" ")[0]
            self._has_draft = bool(self.draft)
        elif sign == "\t":
            self._add(sign)

    def _sequence(self, params: str, final: str) -> bool:
        """Take in a control sequence; give whether a person made it."""
        if final == "~" and params in ("200", "201"):
            self._is_pasting = params == "200"
            return True
        if final == "u":
            return self._kitty(params)
        return not (final in _REPORTS and (final != "R" or ";" in params))

    def _kitty(self, params: str) -> bool:
        """Take in a key of the kitty protocol, `code:shifted;modifiers:event`; releases are no keys."""
        if params.startswith("?"):
            return False
        code_part, _, rest = params.partition(";")
        modifiers, _, event = rest.partition(";")[0].partition(":")
        if event == "3":
            return False
        code = int(code_part.partition(":")[0][:7] or "0") if code_part[:1].isdigit() else 0
        has_control = modifiers.isdigit() and bool((int(modifiers[:4]) - 1) & 4)
        if code == 13 and modifiers in ("", "1"):
            self._control("\r")
        elif has_control and chr(code & 0x1F) in _SENDS and 97 <= code <= 122:
            self._control(chr(code & 0x1F))
        elif code == 127:
            self._control("\x7f")
        elif not has_control and 32 <= code < 0xE000:
            self._add(chr(code))
        return True
