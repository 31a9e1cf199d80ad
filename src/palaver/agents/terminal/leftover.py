"""A typed message that may still be in the input line of a program whose composer cannot be read. Pure.

Further keys would be added to that line. So the text counts as a draft until a person has sent or deleted it,
or until the program has taken it: then the cursor is elsewhere and the program is silent.
"""

from typing import Final

from palaver.agents.terminal.keyboard import Keyboard
from palaver.agents.terminal.typed_text import squeeze

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

    def place(self, text: str) -> None:
        """Record that our text was put into the empty line."""
        self._placed = squeeze(text)
        self._keyboard.place(text)

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
        if is_at_cursor(before, self._text) or not is_silent:
            return True
        if self._keyboard.is_left_alone:
            if outputs == self._outputs:
                return True
            self._keyboard.forget()
        self._text = ""
        return self._keyboard.has_draft
