"""What stands where the cursor is, without what we typed ourselves, and whether it is a question. Pure."""

import re
from typing import Final

from palaver.agents.terminal.typed_text import squeeze
from palaver.harness.hook_states import PERMISSION
from palaver.harness.profile import Profile, View
from palaver.harness.prompt import is_asked_for

PROMPT_ROWS: Final = 12

_OWN_HEAD: Final = re.compile(r"\[(?:URGENT )?pal message #\d+ from:")
"""A line that a program shows because it was sent to it asks nothing."""
_RULE: Final = re.compile(r"\W*[\u2500-\u259f]{8,}\W*")
"""A line that a program draws across the screen: nothing goes on from it."""
_PROMPT_SIGNS: Final = frozenset("><$#%:»›❯➜|│┃ \t")


def before_cursor(view: View, columns: int) -> str:
    """Give the text that ends at the cursor, with the full rows above that it wrapped over."""
    if view.row >= len(view.lines):
        return ""
    return _wrapped(view, view.row, columns, view.lines[view.row].ljust(view.column)[: view.column])


def without_ours(before: str, ours: str) -> str:
    """Cut off our own text, given without its blanks; where it is longer than what can be seen, all of it."""
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
    """Say what an open dialog is about; None when there is none. The arguments are those of `sees_dialog`."""
    if profile.read_dialog is not None and (asked := profile.read_dialog(view)) is not None:
        return asked
    return PERMISSION if sees_dialog(profile, view, text, before, columns) else None


def sees_dialog(profile: Profile, view: View, text: str, before: str, columns: int) -> bool:
    """Whether a dialog is open: on the screen `text`, or in the line that ends `before` the cursor."""
    if any(pattern.search(text) for pattern in profile.dialogs):
        return True
    if is_asked_for(profile, before):
        return False
    rules = (*profile.prompts, *profile.questions)
    if any(pattern.search(before) for pattern in rules):
        return True
    # The question may stand above the line in which it is answered.
    above = _line_above(view, columns)
    above_rules = rules if not before.strip() else profile.prompts if set(before) <= _PROMPT_SIGNS else ()
    return any(pattern.search(above) for pattern in above_rules)


def _line_above(view: View, columns: int) -> str:
    """Give the line above the cursor's, with the rows that it wrapped over; nothing when it is our own."""
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
