"""Read the hooks of all harnesses into one form, and write replies to them. Pure.

Unreadable input is ignored: a hook must never disturb its harness.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from palaver.harness.claude_hooks import claude_answer, read_claude_hook
from palaver.harness.codex_hooks import codex_answer, read_codex_hook
from palaver.harness.gemini_hooks import gemini_answer, read_gemini_hook
from palaver.harness.hook_news import HookNews

_Read = Callable[[str, Mapping[str, object]], HookNews]
_Say = Callable[[str, str, str], Mapping[str, object] | None]

_HARNESSES: Final[Mapping[str, tuple[_Read, _Say]]] = {
    "claude": (read_claude_hook, claude_answer),
    "codex": (read_codex_hook, codex_answer),
    "gemini": (read_gemini_hook, gemini_answer),
}

HOOKED: Final = tuple(_HARNESSES)
"""The harnesses whose hooks can be read."""

_LIMIT_EVENT: Final = 64
_decode: Final = msgspec.json.Decoder(dict[str, object]).decode


def read_hook(harness: str, event: str, data: bytes | Mapping[str, object]) -> HookNews | None:
    """Read the input of a hook; None if it cannot be read or the harness is unknown."""
    found = _HARNESSES.get(harness)
    if found is None or not 0 < len(event) <= _LIMIT_EVENT:
        return None
    if isinstance(data, bytes):
        try:
            data = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    return found[0](event, data)


def hook_answer_object(
    harness: str, event: str, *, context: str = "", block_reason: str = ""
) -> dict[str, object]:
    """Return the reply to a hook: context for the next request to the model, or why the turn goes on.

    Empty if there is nothing to reply, or this hook takes no reply.
    """
    found = _HARNESSES.get(harness)
    return dict(found[1](event, context, block_reason) or {}) if found else {}
