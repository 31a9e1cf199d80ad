"""A message of ours that was typed and not seen to leave, in a program whose composer cannot be read. Pure.

It may stand in the line still, and whatever is typed then would be one line with it. So it is a draft until a
person has sent or dropped it, or the program has: then the cursor stands elsewhere, and all is quiet.
"""

from typing import Final

from palaver.agents.terminal.keyboard import Keyboard
from palaver.agents.terminal.typed_text import squeeze

_TAIL: Final = 16
"""So many characters tell the end of our text: of a long one a program may show no more."""


def is_at_cursor(before: str, ours: str) -> bool:
    """Whether a text, given without its blanks, or the end of it stands before the cursor."""
    return bool(ours) and squeeze(before).endswith(ours[-_TAIL:])


class Leftover:
    """What we put into the line of one program."""

    def __init__(self, keyboard: Keyboard) -> None:
        self._keyboard = keyboard
        self._placed = ""
        self._text = ""
        self._outputs = 0

    def place(self, text: str) -> None:
        """Our text was put into the line, which was empty."""
        self._placed = squeeze(text)
        self._keyboard.place(text)

    def clear(self) -> None:
        """It has left the line."""
        self._keyboard.clear()

    def leave(self, outputs: int) -> None:
        """It may stand there still; `outputs` is how many times the program has written until now."""
        self._text, self._outputs = self._placed, outputs
        self._keyboard.leave()

    def take_up(self, outputs: int) -> None:
        """Go on with what an older version of this process left, as its keyboard knows it."""
        if self._keyboard.is_left_alone:
            self._text, self._outputs = squeeze(self._keyboard.draft), outputs

    def is_there(self, before: str, outputs: int, *, is_silent: bool) -> bool:
        """Whether it may still stand in the line that ends `before` the cursor.

        Once the program was seen to have taken it by itself, and no person has touched it, the draft is over.
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
