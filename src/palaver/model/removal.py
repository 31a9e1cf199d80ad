"""Events without their text, for `pal redact`: which fields are removed, and which stay. Pure."""

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec

from palaver.model.envelope import Event
from palaver.model.redact import REDACTED

REDACTED_TYPE: Final = "redacted"
"""The type of the event that records that a text was removed."""
LEAST_QUOTED: Final = 4
"""Shorter texts are not searched in other events: they would be found by accident."""
FOLDED_TYPES: Final = frozenset({"note_added", "task.create", "task.update", "task.complete", "bundle"})
"""Types whose text is also in rows of the fold: the rows are rebuilt after it is removed."""

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "message": ("text", "raw", "hash"),
    "life": ("text",),
    "delivery": ("evidence",),
    "note_added": ("text",),
    "task.create": ("title", "description"),
    "task.update": ("title", "description"),
    "task.complete": ("summary",),
    "bundle": ("title", "description"),
}
_EMPTY: Final = frozenset({"raw", "hash"})
"""Fields that are emptied instead: other code reads their form."""
_PRINTED: Final = re.compile(rf"[^\x00-\x1f\x7f]{{{LEAST_QUOTED},}}")


def can_remove(event: Event, *, is_foreign: bool) -> bool:
    """Return whether an event has a text that can be removed. A foreign payload is removed completely."""
    return is_foreign or any(isinstance(event.payload.get(key), str) for key in _FIELDS.get(event.type, ()))


def removed_text(event: Event, *, is_foreign: bool) -> str:
    """Return the text that is removed from an event, for a hash and to search for copies."""
    if is_foreign:
        return msgspec.json.encode(event.payload).decode()
    raw = event.payload.get("raw")
    if event.type == "message" and isinstance(raw, str) and raw:
        return base64.b64decode(raw).decode("utf-8", "replace")
    texts = (event.payload.get(key) for key in _FIELDS[event.type] if key not in _EMPTY)
    return "\n".join(text for text in texts if isinstance(text, str))


def without_text(event: Event, *, is_foreign: bool) -> Event:
    """Return the event without its text. Everything that decides about its delivery stays."""
    if is_foreign:
        return replace(event, payload={"text": REDACTED})
    payload = dict(event.payload)
    for key in _FIELDS[event.type]:
        if isinstance(payload.get(key), str):
            payload[key] = "" if key in _EMPTY else REDACTED
    return replace(event, payload=payload)


def is_removed(event: Event, *, is_foreign: bool) -> bool:
    """Return whether the text of an event was removed: there is nothing left to remove."""
    return can_remove(event, is_foreign=is_foreign) and event == without_text(event, is_foreign=is_foreign)


def pieces_of(text: str) -> list[str]:
    """Return the printable pieces of a text that are long enough to be searched, as JSON writes them."""
    pieces = (piece.strip() for piece in _PRINTED.findall(text))
    return [msgspec.json.encode(piece).decode()[1:-1] for piece in pieces if len(piece) >= LEAST_QUOTED]
