"""The hooks of Codex, as its version 0.166 calls them: what each says, what can be said back. Pure.

They have the form of Claude Code's, and stricter answers: a field that Codex does not know makes the answer
invalid. No hook stands between the results of several tools and the request that holds them: a text that went
along with a result is known to have been read when the turn ends.
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
    """Read the input of a hook. What is missing or of another kind counts as not said."""
    return read_claude_hook(event, data)


def codex_answer(event: str, context: str, block_reason: str) -> Mapping[str, object] | None:
    """Give what to say back; None for nothing. A hook that takes no context is given none."""
    return claude_answer(event, context, block_reason) if event in EVENTS else None
