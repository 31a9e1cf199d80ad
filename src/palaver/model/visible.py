"""Texts by which people decide: nothing stands in them that is not seen. Pure.

What a terminal would obey, what turns the reading direction, what has no width and what looks like a space
and is none is written as its number. Ordinary letters of all languages stay; those that only look alike do
too.
"""

from typing import Final

_BLANK: Final = frozenset(
    map(
        chr,
        [
            0x034F,  # joins letters, unseen
            *(0x115F, 0x1160, 0x3164, 0xFFA0),  # letters of Hangul that are not there
            *(0x17B4, 0x17B5),  # vowels of Khmer that are not there
            *range(0x180B, 0x1810),  # variants in Mongolian
            0x2800,  # Braille without a dot
            *range(0xFE00, 0xFE10),  # variants
            *range(0xE0100, 0xE01F0),
        ],
    )
)
"""What Python takes for printable, and what shows nothing."""


def exact(text: str) -> str:
    """Write a text on one line so that every character of it is seen."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(map(_seen, text))


def escaped(char: str) -> str:
    """Write a character that is not seen: its picture where it has one (ESC is ␛), else its number."""
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _seen(char: str) -> str:
    return char if char.isprintable() and char not in _BLANK else escaped(char)
