"""Read the hooks of Codex 0.166 and write replies to them. Pure.

They have the form of Claude Code's hooks, but replies are checked strictly: a field that Codex does not know
makes the reply invalid. Codex calls no hook between the results of several tools and the request that
contains them. So a text that was added to a result is known to have been read only when the turn ends.
"""

from collections.abc import Mapping
from typing import Final

from palaver.harness.claude_hooks import claude_answer, read_claude_hook
from palaver.harness.hook_news import HookNews

EVENTS: Final = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PermissionRequest",
    "PreCompact",
    "PostCompact",
    "Stop",
    "SessionEnd",
)
"""The hooks that are set up."""


def read_codex_hook(event: str, data: Mapping[str, object]) -> HookNews:
    """Read the input of a hook. A field that is missing or has another type counts as empty."""
    return read_claude_hook(event, data)


def codex_answer(event: str, context: str, block_reason: str) -> Mapping[str, object] | None:
    """Return the reply to a hook, or None. A context for a hook that takes none is dropped."""
    return claude_answer(event, context, block_reason) if event in EVENTS else None
