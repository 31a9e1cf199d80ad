"""Texts made fit to be typed, and found again on a screen. Pure."""

import re
from typing import Final

_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LINE_ENDS: Final = re.compile(r"\r\n?|\u2028|\u2029|\x85")
_OPENS_LIST: Final = re.compile(r"(?:^|\s)\S*[@#/]\S*$")


def clean_text(text: str, *, has_paste_mode: bool, has_lists: bool) -> str:
    """Take from a text every byte that a terminal or a program could take for a key.

    In a bracketed paste a line feed is only a line feed; without it every line end becomes a blank. A tab is
    a blank: it completes words. Where a program `has_lists`, a word at the end that opens one, of files or
    commands, gets a blank behind it, or Enter would choose from the list.
    """
    text = _LINE_ENDS.sub("\n", text)
    text = _CONTROLS.sub("", text.replace("\t", " "))
    if not has_paste_mode:
        text = " ".join(text.split("\n"))
    is_command = text.startswith("/") and not any(sign.isspace() for sign in text)
    return f"{text} " if has_lists and _OPENS_LIST.search(text) and not is_command else text


def squeeze(text: str) -> str:
    """Drop all blanks: programs wrap and indent as they like."""
    return "".join(text.split())
