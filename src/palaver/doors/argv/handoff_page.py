"""Read handoffs from the options of a command line, and format them for a terminal.

Does not check whether a handoff is valid.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from palaver.doors.argv.parsed import Parsed
from palaver.doors.argv.style import Paint, display_width, truncate
from palaver.errors import InvalidHandoff

_ARTIFACT: Final = re.compile(r"(.+):([0-9]+)(-[0-9]+)?", re.ASCII | re.DOTALL)
_LISTS: Final = {"artifacts": "--artifact", "open_questions": "--question", "do_not": "--do-not"}
_LABELS: Final = {
    "status": "status",
    "next_action": "next",
    "artifacts": "artifacts",
    "open_questions": "questions",
    "do_not": "do not",
}
_COLUMN: Final = 11
"""Columns of the labels; the texts begin after them."""
_NARROWEST: Final = 20

_to_json: Final = msgspec.json.Encoder().encode


def handoff_from(parsed: Parsed, content: str | None) -> dict[str, object]:
    """Return a handoff from the options, or from `content`, which is JSON."""
    if content is not None:
        return handoff_from_json(content)
    made: dict[str, object] = {}
    for key, option in (("status", "--status"), ("next_action", "--next")):
        if (words := parsed.value(option)) is not None:
            made[key] = words
    for key, option in _LISTS.items():
        if values := parsed.values(option):
            made[key] = [_artifact(one) for one in values] if key == "artifacts" else values
    return made


def handoff_from_json(text: str) -> dict[str, object]:
    """Parse a handoff that a program wrote. Raises InvalidHandoff."""
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidHandoff("content", f"must be one JSON object: {error}") from None


def handoff_lines(handoff: Mapping[str, object], *, width: int | None, paint: Paint) -> Iterator[str]:
    """Yield a handoff line by line, each part next to its label; the label of an unknown part is its key."""
    known = [key for key in _LABELS if handoff.get(key) not in (None, [], "")]
    for key in (*known, *(key for key in handoff if key not in _LABELS)):
        value = handoff[key]
        parts = value if isinstance(value, list) else [value]
        shown = map(_artifact_words, parts) if key == "artifacts" else map(_words, parts)
        yield from _labelled(_LABELS.get(key, key), list(shown), width, paint)


def _labelled(label: str, parts: list[str], width: int | None, paint: Paint) -> Iterator[str]:
    """Yield the parts one below the other, wrapped to the terminal, with the label before the first.

    A label that is too long for its column is on a separate line.
    """
    head = paint.safe(f"{label}:")
    indent = " " * (2 + _COLUMN)
    if display_width(head) < _COLUMN:
        first = f"  {paint.dim(head)}" + " " * (_COLUMN - display_width(head))
    else:
        yield f"  {paint.dim(head if width is None else truncate(head, max(_NARROWEST, width - 2)))}"
        first = indent
    for part in parts:
        for line in paint.safe(part, keep_lines=True).splitlines() or [""]:
            room = None if width is None else max(_NARROWEST, width - len(indent))
            wrapped = [line] if room is None else textwrap.wrap(line, room, break_on_hyphens=False) or [""]
            for piece in wrapped:
                yield f"{first}{piece}".rstrip()
                first = indent


def _artifact(written: str) -> dict[str, object]:
    found = _ARTIFACT.fullmatch(written)
    if found is None:
        return {"path": written}
    lines: object = [int(found[2])] if found[3] is None else f"{found[2]}{found[3]}"
    return {"path": found[1], "lines": lines}


def _artifact_words(value: object) -> str:
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        return _words(value)
    lines, note = value.get("lines"), value.get("note")
    numbers = lines if isinstance(lines, list) else [] if lines is None else [lines]
    places = ":" + ",".join(map(_words, numbers)) if numbers else ""
    return f"{value['path']}{places}" + (f" ({note})" if note else "")


def _words(value: object) -> str:
    return value if isinstance(value, str) else _to_json(value).decode()
