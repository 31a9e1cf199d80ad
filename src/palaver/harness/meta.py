"""Find the session that a harness names in the `_meta` of an MCP call. Pure.

It matters if one process runs several sessions that share one server. Only keys in the table are read.
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
"""The paths of the session key for each harness, most reliable first; last, the path for any other program.

A string on the path may contain JSON.
"""

SESSION_ARGUMENT: Final = "palaver_session"
_CALL: Final = "claudecode/toolUseId"
_LIMIT_KEY: Final = 256


def session_in_meta(meta: Mapping[str, object] | None) -> str:
    """Return the session that a call names; empty if it names none."""
    if not meta:
        return ""
    for places in META_KEYS.values():
        for place in places:
            if found := _at(meta, place):
                return found
    return ""


def call_in_meta(meta: Mapping[str, object] | None) -> str:
    """Return Claude Code's id of a tool call; empty if there is no id. Its hooks show whose call it is."""
    return _at(meta, (_CALL,)) if meta else ""


def session_in_arguments(arguments: Mapping[str, object] | None) -> tuple[str, dict[str, object] | None]:
    """Return the session named in the arguments of a call, and the arguments without it.

    A plugin of OpenCode can change only the arguments of a call.
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
