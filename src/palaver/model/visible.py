"""Texts that people base decisions on: every character in them is visible. Pure.

Terminal controls, direction marks, characters without width and unusual spaces are written as numbers.
Ordinary letters of all languages stay, and so do look-alikes.
"""

from typing import Final

_BLANK: Final = frozenset(
    map(
        chr,
        [
            0x034F,  # joins letters, invisible
            *(0x115F, 0x1160, 0x3164, 0xFFA0),  # invisible Hangul letters
            *(0x17B4, 0x17B5),  # invisible Khmer vowels
            *range(0x180B, 0x1810),  # variants in Mongolian
            0x2800,  # Braille without a dot
            *range(0xFE00, 0xFE10),  # variants
            *range(0xE0100, 0xE01F0),
        ],
    )
)
"""Characters that Python considers printable, but that show nothing."""


def exact(text: str) -> str:
    """Return a text on one line in which every character is visible."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(map(_seen, text))


def escaped(char: str) -> str:
    """Return the visible form of an invisible character: its picture (ESC is ␛), else its number."""
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
