"""Where our text is after it was pasted, as far as a look can tell. Pure."""

import enum
import re
from typing import Final

from palaver.agents.terminal.leftover import is_at_cursor
from palaver.agents.terminal.look import Composer, Look
from palaver.agents.terminal.typed_text import squeeze

_PART_LEAST: Final = 40
"""So many characters of our text, seen alone in a composer that scrolls, are taken for ours."""


class Place(enum.Enum):
    """Where our text is, after it was pasted."""

    OURS = enum.auto()
    """In the composer, alone."""
    MIXED = enum.auto()
    """In the composer there is something else, or more."""
    EMPTY = enum.auto()
    HIDDEN = enum.auto()
    """The composer cannot be seen, or this program has none that we know."""


def find_place(look: Look, ours: str, folded: re.Pattern[str] | None, *, can_be_part: bool) -> Place:
    """Say where our text is, given without its blanks.

    `folded` is what a composer shows in place of a long paste; `can_be_part`: no person has typed since, so a
    piece of our text that stands there alone is the end of ours.
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
    """Whether our text stands on the screen, and not only in the composer."""
    return bool(ours) and ours in squeeze(look.text).replace(squeeze(look.draft) or "\0", "", 1)


def may_stand(look: Look, ours: str, *, is_touched: bool, is_hidden: bool) -> bool:
    """Whether nothing shows that our text, which was not sent, has left the line.

    Where a composer is read, that tells it. `is_touched`: a person has typed since, and their keys tell what
    they did to it. `is_hidden`: the program showed something of it, and never all of it at the cursor.
    """
    if look.has_composer_rule:
        return False
    return is_touched or is_hidden or is_at_cursor(look.before_cursor, ours)
