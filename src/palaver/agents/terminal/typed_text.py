"""Clean texts before they are typed, and normalise them for comparison with a screen. Pure."""

import re
from typing import Final

_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LINE_ENDS: Final = re.compile(r"\r\n?|\u2028|\u2029|\x85")
_OPENS_LIST: Final = re.compile(r"(?:^|\s)\S*[@#/]\S*$")


def clean_text(text: str, *, has_paste_mode: bool, has_lists: bool) -> str:
    """Remove every character that a terminal or a program could interpret as a key.

    A line feed is safe only in a bracketed paste; otherwise every line end becomes a space. A tab becomes a
    space, because it would complete words. If a program `has_lists` and the last word opens a list of files
    or commands, a space is appended, because Enter would select an item of that list.
    """
    text = _LINE_ENDS.sub("\n", text)
    text = _CONTROLS.sub("", text.replace("\t", " "))
    if not has_paste_mode:
        text = " ".join(text.split("\n"))
    is_command = text.startswith("/") and not any(sign.isspace() for sign in text)
    return f"{text} " if has_lists and _OPENS_LIST.search(text) and not is_command else text


def squeeze(text: str) -> str:
    """Remove all white space, because programs wrap and indent text in different ways."""
    return "".join(text.split())
