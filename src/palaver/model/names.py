"""Names of agents: base names, tags, devices, and reserved names.

Pure. Knows the rules for names and not which agents have them.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from palaver.errors import BadName
from palaver.model.agent import ROLES

LIMIT_NAME: Final = 64
"""Characters of a full name without its device; it is part of a socket's path."""

SCRIPT_NAME: Final = "script"
"""The name of every caller that is neither an agent nor a person."""

HARNESS_WORDS: Final = ("claude", "codex", "gemini", "opencode")

RESERVED: Final = frozenset(
    {
        "room",
        "all",
        "human",
        "system",
        SCRIPT_NAME,
        "pal",
        "guest",
        "external",
        "self",
        *ROLES,
        *(f"{role}s" for role in ROLES),
        *HARNESS_WORDS,
    }
)
"""Words with another meaning in an address. A base name may not be one."""

_NOT_FIRST: Final = frozenset({"room", "all", "human", "system", SCRIPT_NAME, "pal", "guest", "external"})
"""Words that a new name may not begin with: `human-zed` would look like the person, `pal-x` like the bus."""

_BASE: Final = re.compile(r"[a-z][a-z0-9_]*")
_TAGGED_BASE: Final = re.compile(r"[a-z0-9][a-z0-9_]*")
_TAG: Final = re.compile(r"[a-z][a-z0-9_-]*")
_FULL: Final = re.compile(
    r"(?:(?P<tag>[a-z][a-z0-9_-]*)-(?P<tagged>[a-z0-9][a-z0-9_]*)|(?P<base>[a-z][a-z0-9_]*))"
    r"(?::(?P<device>[a-z0-9]+))?",
    re.ASCII | re.IGNORECASE,
)


_SHAPE: Final = (
    "a name has lowercase letters, digits and _, and begins with a letter (after a tag also with a digit)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """The parts of a full name: lower case, with the device in capitals."""

    base: str
    tag: str = ""
    device: str = ""


def valid_base(base: str, *, behind_tag: bool = False) -> bool:
    """Return whether a base name is well formed; only after a tag may it begin with a digit."""
    return (_TAGGED_BASE if behind_tag else _BASE).fullmatch(base) is not None


def valid_tag(tag: str) -> bool:
    """Return whether a tag is well formed."""
    return _TAG.fullmatch(tag) is not None


@lru_cache(maxsize=4096)
def split_name(text: str) -> Name:
    """Parse a full name in any case; the last hyphen divides tag and base. The pair of `full_name`."""
    found = _FULL.fullmatch(text)
    if found is None:
        raise BadName(text, _SHAPE)
    tag, tagged, base, device = found.groups(default="")
    return Name(base=(tagged or base).lower(), tag=tag.lower(), device=device.upper())


def full_name(base: str, tag: str = "", device: str = "") -> str:
    """Format a full name: `luna`, `api-luna`, `api-luna:BOXE`."""
    name = f"{tag}-{base}" if tag else base
    return f"{name}:{device}" if device else name


def check_name(base: str, tag: str = "") -> None:
    """Refuse a name that is not allowed, with the reason."""
    if tag and not valid_tag(tag):
        raise BadName(tag, "a tag has lowercase letters, digits, _ and -, and begins with a letter")
    if tag.partition("-")[0] in _NOT_FIRST:
        raise BadName(full_name(base, tag), f"no agent's name begins with {tag.partition('-')[0]}-")
    if base.startswith("human_"):
        raise BadName(full_name(base, tag), "no agent's name begins with human_")
    if base.lower() in RESERVED:
        raise BadName(base, "the name is reserved; it has another meaning in an address")
    if not valid_base(base, behind_tag=bool(tag)):
        raise BadName(base, _SHAPE)
    if len(full_name(base, tag)) > LIMIT_NAME:
        raise BadName(full_name(base, tag), f"a name has at most {LIMIT_NAME} characters")


_CONSONANTS: Final = "bcdfghjklmnprstvwxyz"
_VOWELS: Final = "aeiou"
# Offensive words, and words that are common in commands and code.
_SKIPPED: Final = frozenset(
    re.findall(
        r"\w+",
        "caca dago foda fuca homo kaka kike kuso lolo mona nazi niga paki pedo peni pipi popo puta puto rape "
        "sida base code date file here home like line make mode name node none note rule same save site size "
        "sudo take time type vote",
    )
)
# Far from every small fraction of the number of words, so that neighbours look unrelated.
_STRIDE: Final = 6_181


@cache
def _spare_words() -> tuple[str, ...]:
    words = [a + b + c + d for a in _CONSONANTS for b in _VOWELS for c in _CONSONANTS for d in _VOWELS]
    shuffled = [words[place * _STRIDE % len(words)] for place in range(1, len(words) + 1)]
    return tuple(word for word in shuffled if word not in _SKIPPED)


def spare_name(index: int) -> str:
    """Return the drawn name of an index: consonant, vowel, consonant, vowel. Each index has another name.

    When the words are used up they repeat with a number: `luna2`.
    """
    words = _spare_words()
    turn, place = divmod(index, len(words))
    return f"{words[place]}{turn + 1}" if turn else words[place]
