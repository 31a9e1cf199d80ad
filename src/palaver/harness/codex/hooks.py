"""Read the hooks of Codex 0.166 and write replies to them. Pure.

They have the form of Claude Code's hooks, but replies are checked strictly: a field that Codex does not know
makes the reply invalid. Codex calls no hook between the results of several tools and the request that
contains them. So a text that was added to a result is known to have been read only when the turn ends.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from palaver.harness.claude.hooks import claude_answer, read_claude_hook
from palaver.harness.codex.launch import setting
from palaver.harness.hooks import HookNews

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
    # The table of Claude Code has hooks that Codex does not set up here, such as those of sub-agents.
    return claude_answer(event, context, block_reason) if event in EVENTS else None


# --------------------
# Hooks that Codex is given for one session, with the hashes that mark them as trusted. Pure.
#
# Codex runs no hook that the user has not trusted, and recognizes a trusted hook by a hash of its whole
# definition. Hooks and hashes are passed as arguments and hold for one session, so nothing is written to the
# user's settings. They are passed only if the user has agreed to exactly these hooks. A Codex version that
# hashes differently asks its user itself.

TRUSTED_EVENTS: Final = (
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PreCompact",
    "PostCompact",
    "Stop",
    "SessionEnd",
)
"""Without start and permission hooks: in a session started by `pal` the bus knows both without them."""

_SOURCE: Final = "/<session-flags>/config.toml"
"""The source that Codex names for hooks that were given as arguments."""
_LIMIT_S: Final = 3
"""Seconds. Codex allows a hook no more at the end of a session, so none of ours needs more."""
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def hook_command(pal: str, home: str, event: str) -> str:
    """Return the command that Codex runs at an event."""
    return f"exec {shlex.join((pal, '--home', home, 'hook', 'codex', event))}"


def hooks_digest(pal: str, home: str) -> str:
    """Return a digest that identifies these hooks: the user's consent is for this digest only."""
    return hashlib.sha256(
        "".join(trusted_hash(pal, home, event) for event in TRUSTED_EVENTS).encode()
    ).hexdigest()


def hook_settings(pal: str, home: str) -> tuple[str, ...]:
    """Return the arguments that set up these hooks for one session, trusted by their hashes."""
    words: list[str] = []
    for event in TRUSTED_EVENTS:
        command = json.dumps(hook_command(pal, home, event), ensure_ascii=False)
        words += setting_of(
            f"hooks.{event}", f'[{{hooks=[{{type="command",command={command},timeout={_LIMIT_S}}}]}}]'
        )
    states = ",".join(
        f'{json.dumps(f"{_SOURCE}:{_snake(event)}:0:0")}={{trusted_hash="{trusted_hash(pal, home, event)}"}}'
        for event in TRUSTED_EVENTS
    )
    return (*words, *setting_of("hooks.state", f"{{{states}}}"))


def setting_of(key: str, value: str) -> Sequence[str]:
    """Write a setting whose value is TOML already."""
    return (setting(key, "")[0], f"{key}={value}")


def trusted_hash(pal: str, home: str, event: str) -> str:
    """Return the hash that Codex 0.166 computes for a hook: of its event, its command and its options."""
    # Every field, the order of the names and the missing blanks are a part of the hash: any other form
    # counts as another hook, which Codex does not trust.
    hook = {"async": False, "command": hook_command(pal, home, event), "timeout": _LIMIT_S, "type": "command"}
    whole = json.dumps(
        {"event_name": _snake(event), "hooks": [hook]},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    # A path may contain bytes that are not UTF-8; they are hashed as they are on the command line.
    return f"sha256:{hashlib.sha256(whole.encode('utf-8', 'surrogateescape')).hexdigest()}"


def _snake(event: str) -> str:
    return _HUMP.sub("_", event).lower()
