"""What an agent asks leave for, in words, and how a hook is told the answer. Pure.

Only Claude Code has a hook that answers in place of its dialog, and that was tried. Codex and OpenCode are
answered where they let us in, without a hook; every other harness asks its own user, at its own terminal.
"""

import json
from collections.abc import Mapping
from typing import Final

from palaver.harness.hook_news import text_in

_EVENT: Final = "PermissionRequest"
_WHAT: Final = ("command", "file_path", "filepath", "notebook_path", "url", "query", "pattern", "prompt")
ANSWERABLE: Final = frozenset({"claude"})
"""The harnesses that can be answered by a hook."""


def permission_text(tool: str, given: Mapping[str, object]) -> str:
    """Say what is asked: the tool, and what it would be used on; all of its input where that is not known."""
    inner = given.get("input")
    what = text_in(given, *_WHAT) or (text_in(inner, *_WHAT) if isinstance(inner, dict) else "")
    what = what or (json.dumps(given, ensure_ascii=False, default=str) if given else "")
    return f"{tool}: {what}" if what else tool


def permission_answer(harness: str, event: str, *, is_allowed: bool, message: str) -> dict[str, object]:
    """Give what a hook says for yes or no; empty where a hook cannot say it."""
    if harness not in ANSWERABLE or event != _EVENT:
        return {}
    decision: dict[str, object] = {"behavior": "allow" if is_allowed else "deny"}
    if message and not is_allowed:
        decision["message"] = message
    return {"hookSpecificOutput": {"hookEventName": _EVENT, "decision": decision}}
