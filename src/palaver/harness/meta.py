"""Where a harness names its session in the `_meta` of an MCP call. Pure.

It matters where one process runs several sessions and shares one server between them. What is not in the
table is not looked at.
"""

import json
from collections.abc import Mapping
from typing import Final

META_KEYS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "codex": (
        ("threadId",),
        ("x-codex-turn-metadata", "thread_id"),
        ("x-codex-turn-metadata", "session_id"),
    ),
    "": (("palaver/session",),),
}
"""For each harness the places of a session's key, the surest first; at the end the one for any other program.

A text on the way may hold JSON.
"""

_LIMIT_KEY: Final = 256


def session_in_meta(meta: Mapping[str, object] | None) -> str:
    """Give the session that a call names, or nothing."""
    if not meta:
        return ""
    for places in META_KEYS.values():
        for place in places:
            if found := _at(meta, place):
                return found
    return ""


def _at(meta: Mapping[str, object], place: tuple[str, ...]) -> str:
    value: object = meta
    for word in place:
        value = _opened(value).get(word)
    return value if isinstance(value, str) and 0 < len(value) <= _LIMIT_KEY else ""


def _opened(value: object) -> Mapping[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
