"""Read the line at the cursor, without our own text, and decide whether it is a question. Pure."""

import re
from typing import Final

from palaver.agents.terminal.typed_text import squeeze
from palaver.harness.hook_states import PERMISSION
from palaver.harness.profile import Profile, View
from palaver.harness.prompt import is_asked_for

PROMPT_ROWS: Final = 12

_OWN_HEAD: Final = re.compile(r"\[(?:URGENT )?pal message #\d+ from:")
"""The head of a message that we typed. A line that contains it is not a question of the program."""
_RULE: Final = re.compile(r"\W*[\u2500-\u259f]{8,}\W*")
"""A rule drawn across the screen: the next row does not continue it."""
_PROMPT_SIGNS: Final = frozenset("><$#%:»›❯➜|│┃ \t")


def before_cursor(view: View, columns: int) -> str:
    """Return the text that ends at the cursor, including the full rows above that it wraps over."""
    if view.row >= len(view.lines):
        return ""
    return _wrapped(view, view.row, columns, view.lines[view.row].ljust(view.column)[: view.column])


def without_ours(before: str, ours: str) -> str:
    """Remove our own text from the end. `ours` has no white space.

    Return an empty text if only the end of our text is visible.
    """
    if not ours:
        return before
    seen = squeeze(before)
    if not seen.endswith(ours):
        return "" if seen and ours.endswith(seen) and len(seen) >= len(ours) // 2 else before
    left = len(seen) - len(ours)
    for place, sign in enumerate(before):
        if not left and not sign.isspace():
            return before[:place]
        left -= not sign.isspace()
    return before


def dialog_asked(profile: Profile, view: View, text: str, before: str, columns: int) -> str | None:
    """Return the subject of the open dialog, or None. The arguments are those of `sees_dialog`."""
    if profile.read_dialog is not None and (asked := profile.read_dialog(view)) is not None:
        return asked
    return PERMISSION if sees_dialog(profile, view, text, before, columns) else None


def sees_dialog(profile: Profile, view: View, text: str, before: str, columns: int) -> bool:
    """Return whether a dialog is open, judged by the screen `text` and the line `before` the cursor."""
    if any(pattern.search(text) for pattern in profile.dialogs):
        return True
    if is_asked_for(profile, before):
        return False
    rules = (*profile.prompts, *profile.questions)
    if any(pattern.search(before) for pattern in rules):
        return True
    # The question may be on the line above the one in which it is answered.
    above = _line_above(view, columns)
    above_rules = rules if not before.strip() else profile.prompts if set(before) <= _PROMPT_SIGNS else ()
    return any(pattern.search(above) for pattern in above_rules)


def _line_above(view: View, columns: int) -> str:
    """Return the line above the cursor line, with the rows that it wraps over; empty if it is our own."""
    if not 0 < view.row < len(view.lines):
        return ""
    above = _wrapped(view, view.row - 1, columns, view.lines[view.row - 1])
    return "" if _OWN_HEAD.search(above) else above


def _wrapped(view: View, row: int, columns: int, end: str) -> str:
    parts = [end]
    while row > 0 and len(parts) < PROMPT_ROWS and len(view.lines[row - 1]) >= columns - 1:
        row -= 1
        if _RULE.fullmatch(view.lines[row]):
            break
        parts.append(view.lines[row])
    return "".join(reversed(parts))
