"""The words of a search: how they are parsed, passed to FTS5, and found in a text without it. Pure.

All words must occur, in any order; "several words" in quotes must be adjacent; a star after a word or a quote
allows any ending. Nothing else has a meaning, so no search is ever a syntax error.
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
    """Adjacent words as they were typed; with `is_open` the last one may continue."""

    text: str
    is_open: bool = False


def parse_search(search: str) -> tuple[Phrase, ...]:
    """Parse the text of a search. Skip parts without a letter or digit."""
    readable = search.encode(errors="replace").decode().replace("\0", " ")
    phrases = [
        Phrase((quoted or bare).rstrip("*"), is_open=bool(star) or bare.endswith("*"))
        for quoted, star, bare in _PART.findall(readable)
    ]
    return tuple(phrase for phrase in phrases if words_of(phrase.text))


def format_search(phrases: Sequence[Phrase]) -> str:
    """Format phrases so that FTS5 and `parse_search` can read them."""
    return " ".join(f'"{phrase.text}"{"*" if phrase.is_open else ""}' for phrase in phrases)


def words_of(text: str) -> list[str]:
    """Split a text into words: letters and digits, without accents, in lower case."""
    decomposed = unicodedata.normalize("NFD", text)
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _WORD.findall(plain.lower())


def is_found(phrases: Sequence[Phrase], text: str) -> bool:
    """Return whether a text contains every phrase; no phrases are found nowhere."""
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
