"""Find a pasted text on the screen: in the composer, in the transcript, or not visible. Pure."""

import enum
import re
from typing import Final

from palaver.agents.terminal.leftover import is_at_cursor
from palaver.agents.terminal.look import Composer, Look
from palaver.agents.terminal.typed_text import squeeze

_PART_LEAST: Final = 40
"""Characters of our text that identify it in a composer that scrolls and shows only a part of it."""


class Place(enum.Enum):
    """Where the pasted text is."""

    OURS = enum.auto()
    """The composer contains our text and nothing else."""
    MIXED = enum.auto()
    """The composer contains another text, or more than ours."""
    EMPTY = enum.auto()
    HIDDEN = enum.auto()
    """The composer is not visible, or we do not know the composer of this program."""


def find_place(look: Look, ours: str, folded: re.Pattern[str] | None, *, can_be_part: bool) -> Place:
    """Return where our text is. `ours` is that text without white space.

    `folded` matches the placeholder that a composer shows instead of a long paste. `can_be_part`: no person
    has typed since, so a composer that shows only a piece of our text, or the placeholder, contains our text.
    """
    if not look.is_readable:
        return Place.HIDDEN
    if not look.has_composer_rule:
        if look.composer is Composer.DRAFT:
            return Place.MIXED
        return Place.OURS if squeeze(look.before_cursor).endswith(ours) else Place.HIDDEN
    match look.composer:
        case Composer.EMPTY:
            return Place.EMPTY
        case Composer.UNKNOWN:
            return Place.HIDDEN
        case Composer.DRAFT:
            is_ours = _is_ours(look.draft, ours, folded, can_be_part=can_be_part)
            return Place.OURS if is_ours else Place.MIXED


def _is_ours(draft: str, ours: str, folded: re.Pattern[str] | None, *, can_be_part: bool) -> bool:
    seen = squeeze(draft)
    if seen == ours:
        return True
    if not can_be_part:
        return False
    if folded is not None and folded.fullmatch(draft.strip()):
        return True
    return len(seen) >= _PART_LEAST and seen in ours


def is_in_transcript(look: Look, ours: str) -> bool:
    """Return whether our text is on the screen outside the composer."""
    return bool(ours) and ours in squeeze(look.text).replace(squeeze(look.draft) or "\0", "", 1)


def may_stand(look: Look, ours: str, *, is_touched: bool, is_hidden: bool) -> bool:
    """Return whether our unsent text may still be in the input line.

    False if the composer can be read: then the screen shows it. `is_touched`: a person has typed since, and
    their keys show what happened to the text. `is_hidden`: the program reacted to the paste and never showed
    the whole text at the cursor.
    """
    if look.has_composer_rule:
        return False
    return is_touched or is_hidden or is_at_cursor(look.before_cursor, ours)
