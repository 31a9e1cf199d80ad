"""The characters allowed in a text, and its size. Refuses; never cuts, strips or repairs."""

import re
from typing import Final

from palaver.errors import BadRequest, BadText, MessageTooLarge

LIMIT_BODY_BYTES: Final = 100_000
LIMIT_WEBHOOK_BYTES: Final = 8 * 1024 * 1024
"""The payload of a webhook as JSON. A body of 1 MiB can become six times as long: each NUL is `\\u0000`."""
LIMIT_THREAD: Final = 64
LIMIT_FRAME_BYTES: Final = 10 * 1024 * 1024
"""A line or frame on any wire: room for the largest events, which are the payload of a webhook, and a bundle
of 4 MiB that takes up to twice its size as JSON."""
LIMIT_PATH_BYTES: Final = 1_024
LIMIT_PATH_SEGMENTS: Final = 64
LIMIT_PATH_MANY: Final = 8
"""The number of `**` that a path may have; several in a row count as one."""
LIMIT_INJECTION: Final = 50
"""Messages that an agent gets at once."""

# Controls except tab, LF and CR, because they could control a terminal; bidi embeddings, overrides and
# isolates, because a text would be shown in another order than it is read by programs; lone surrogates,
# because they have no form in UTF-8.
_REFUSED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# A name is on one line: no tab, LF or CR, and none of the other line ends.
_REFUSED_IN_NAMES: Final = re.compile(f"{_REFUSED.pattern}|[\t\n\r\u2028\u2029]")


def check_text(text: str, what: str = "the message", limit_bytes: int = LIMIT_BODY_BYTES) -> None:
    """Refuse a text that is too long or contains a forbidden character."""
    _check(_REFUSED, text, what, limit_bytes)


def check_line(text: str, what: str, limit_bytes: int) -> None:
    """Refuse a name, such as a path, that is too long or contains a forbidden character or a line end."""
    _check(_REFUSED_IN_NAMES, text, what, limit_bytes)


def _check(refused: re.Pattern[str], text: str, what: str, limit_bytes: int) -> None:
    if found := refused.search(text):
        raise BadText(what, ord(found.group()), found.start())
    # A character has at most four bytes: short texts need not be encoded to be measured.
    if len(text) * 4 > limit_bytes:
        size_bytes = len(text) if text.isascii() else len(text.encode())
        if size_bytes > limit_bytes:
            raise MessageTooLarge(what, size_bytes, limit_bytes)


def check_thread(name: str) -> None:
    """Refuse a thread name that is empty, over 64 characters, or contains a character refused in names."""
    if not name.strip():
        raise BadRequest("a thread needs a name")
    if len(name) > LIMIT_THREAD:
        raise BadRequest(f"a thread name has at most {LIMIT_THREAD} characters; this one has {len(name)}")
    # Only for its characters: the length is checked above, and a character has at most four bytes.
    check_line(name, "the thread name", 4 * LIMIT_THREAD)


# --------------------
# Texts that people base decisions on: every character in them is visible. Pure.
#
# Terminal controls, direction marks, characters without width and unusual spaces are written as numbers.
# Ordinary letters of all languages stay, and so do look-alikes.

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


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: 1 message, 2 messages. `many` is for nouns that do not just add an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"
