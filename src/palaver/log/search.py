"""The words of a search: how they are read, asked of FTS5, and found in a text without it. Pure.

Words stand side by side and all must be there, in any order; "several words" in quotes must stand together;
a star behind a word or a quote means any ending. Nothing else has a meaning, so no search is ever a syntax
error.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_PART: Final = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')
_WORD: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Phrase:
    """What stands together, as it was typed; `is_open` when its last word may go on."""

    text: str
    is_open: bool = False


def parse_search(search: str) -> tuple[Phrase, ...]:
    """Read what somebody typed. What holds no letter or digit is passed over."""
    readable = search.encode(errors="replace").decode().replace("\0", " ")
    phrases = [
        Phrase((quoted or bare).rstrip("*"), is_open=bool(star) or bare.endswith("*"))
        for quoted, star, bare in _PART.findall(readable)
    ]
    return tuple(phrase for phrase in phrases if words_of(phrase.text))


def format_search(phrases: Sequence[Phrase]) -> str:
    """Write phrases as FTS5 reads them, and as `parse_search` does."""
    return " ".join(f'"{phrase.text}"{"*" if phrase.is_open else ""}' for phrase in phrases)


def words_of(text: str) -> list[str]:
    """Cut a text into words: letters and digits, without accents, in small letters."""
    decomposed = unicodedata.normalize("NFD", text)
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _WORD.findall(plain.lower())


def is_found(phrases: Sequence[Phrase], text: str) -> bool:
    """Tell whether a text holds every phrase; none at all is found nowhere."""
    words = words_of(text)
    return bool(phrases) and all(_is_in(phrase, words) for phrase in phrases)


def _is_in(phrase: Phrase, words: list[str]) -> bool:
    *before, last = words_of(phrase.text)
    size = len(before)
    return any(
        words[start : start + size] == before
        and (words[start + size] == last or (phrase.is_open and words[start + size].startswith(last)))
        for start in range(len(words) - size)
    )
