"""Describe permission requests, and write the decision as a hook's reply. Pure.

Only Claude Code is known to accept a decision from a hook instead of its dialog. Codex and OpenCode receive
decisions through their servers, without a hook; every other harness asks its own user at its own terminal.
"""

import json
from collections.abc import Mapping
from typing import Final

from palaver.harness.hook_news import text_in

_EVENT: Final = "PermissionRequest"
_WHAT: Final = ("command", "file_path", "filepath", "notebook_path", "url", "query", "pattern", "prompt")
ANSWERABLE: Final = frozenset({"claude"})
"""The harnesses that accept a decision from a hook."""


def permission_text(tool: str, given: Mapping[str, object]) -> str:
    """Describe a request: the tool and its target, or its whole input if the target is unknown."""
    inner = given.get("input")
    what = text_in(given, *_WHAT) or (text_in(inner, *_WHAT) if isinstance(inner, dict) else "")
    what = what or (json.dumps(given, ensure_ascii=False, default=str) if given else "")
    return f"{tool}: {what}" if what else tool


def permission_answer(harness: str, event: str, *, is_allowed: bool, message: str) -> dict[str, object]:
    """Return a hook's reply for a decision; empty if the hook cannot carry one."""
    if harness not in ANSWERABLE or event != _EVENT:
        return {}
    decision: dict[str, object] = {"behavior": "allow" if is_allowed else "deny"}
    if message and not is_allowed:
        decision["message"] = message
    return {"hookSpecificOutput": {"hookEventName": _EVENT, "decision": decision}}
