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

SESSION_ARGUMENT: Final = "palaver_session"
_CALL: Final = "claudecode/toolUseId"
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


def call_in_meta(meta: Mapping[str, object] | None) -> str:
    """Give the id that Claude Code has for a call of a tool, or nothing. Its hooks tell whose call it is."""
    return _at(meta, (_CALL,)) if meta else ""


def session_in_arguments(arguments: Mapping[str, object] | None) -> tuple[str, dict[str, object] | None]:
    """Give the session that stands among the arguments of a call, and the arguments without it.

    A plugin of OpenCode can change the arguments of a call and nothing else of it.
    """
    if arguments is None or SESSION_ARGUMENT not in arguments:
        return "", None if arguments is None else dict(arguments)
    rest = {name: value for name, value in arguments.items() if name != SESSION_ARGUMENT}
    return _at(arguments, (SESSION_ARGUMENT,)), rest


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
