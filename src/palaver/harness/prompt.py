"""Decide whether the line before the cursor shows that a program takes a message there. Pure.

For programs without a composer rule. Proof is a bare sign (`>`, `>>>`, `❯`), a rule of the profile or of `pal
run --prompt`, or a line at which a message was accepted before. A line without words proves nothing by
itself; together with bracketed paste it is proof.
"""

import enum
import re
from collections.abc import Collection
from typing import Final

from palaver.errors import BadRequest
from palaver.harness.profile import Profile

LIMIT_LINE: Final = 200
"""Characters of a line that are compared with a rule. A longer line is never a prompt."""
LIMIT_PATTERN: Final = 500
_LIMIT_REPEATS: Final = 3
"""Repeats allowed in one rule: with up to this many, and no repeated group, a match takes milliseconds."""

_BARE_SIGNS: Final = frozenset({">", ">>>", "❯"})
_WORDS: Final = re.compile(r"\w")
_ONE_WORD: Final = re.compile(r"\W*[\w.@:/~=+*()\[\]-]{1,40}[>❯›»$#%]")
_SPEAKERS: Final = re.compile(r"\W*(?:you|me|human|chat|ask|prompt)\W{0,3}|In \[\d+\]:", re.IGNORECASE)
_LITERAL: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[^)]", re.DOTALL)


class Prompt(enum.StrEnum):
    """The kinds of lines before the cursor."""

    KNOWN = "known"
    """A program that reads a line here takes a message."""
    PLAIN = "plain"
    """No words, or a single word and a sign: a composer, if bracketed paste is on."""
    OTHER = "other"
    """Words that may ask for something else."""


def judge_prompt(
    profile: Profile, line: str, accepted: Collection[str], *, after: str = "", has_cursor: bool = True
) -> Prompt:
    """Classify the line before the cursor, without our own text; `accepted`: prompts that took a message.

    `after` is the rest of the cursor's line without faint hints: words in it are a button, or an item of a
    list. `has_cursor`: the program shows its cursor; without it, an empty line means nothing.
    """
    if len(line) > LIMIT_LINE:
        return Prompt.OTHER
    bare = line.strip()
    if is_asked_for(profile, line):
        return Prompt.KNOWN
    if _WORDS.search(after):
        return Prompt.OTHER
    if bare in _BARE_SIGNS or (bare and bare in accepted):
        return Prompt.KNOWN
    if profile.has_known_prompts or not (bare or has_cursor):
        return Prompt.OTHER
    is_plain = not _WORDS.search(bare) or _ONE_WORD.fullmatch(bare) or _SPEAKERS.fullmatch(bare)
    return Prompt.PLAIN if is_plain else Prompt.OTHER


def is_asked_for(profile: Profile, line: str) -> bool:
    """Whether a rule of the profile, or of `--prompt`, matches the whole line, with or without its blanks."""
    if len(line) > LIMIT_LINE:
        return False
    forms = (line, line.rstrip(), line.strip(), f"{line.strip()} ")
    return any(pattern.fullmatch(form) for pattern in profile.takes_messages for form in forms)


def compile_rule(text: str, what: str) -> re.Pattern[str]:
    """Compile a regular expression that a user wrote. Raises BadRequest, whose text begins with `what`.

    Patterns that could be slow are refused: a repeated group, and more than three repeats.
    """
    if len(text) > LIMIT_PATTERN:
        raise BadRequest(f"{what} is longer than {LIMIT_PATTERN} characters: shorten it")
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRequest(f"{what} is not a regular expression: {error}") from None
    rest = _LITERAL.sub("x", text)
    if re.search(r"\)(?:[*+]|\{)", rest):
        raise BadRequest(f"{what} repeats a group, which can take very long: repeat single characters only")
    if len(re.findall(r"[*+{]", rest)) > _LIMIT_REPEATS:
        raise BadRequest(f"{what} has more than {_LIMIT_REPEATS} repeats (*, +, {{}}): use fewer")
    return pattern
