"""The hooks that Codex is given for one session, and how it knows that a person trusts them. Pure.

Codex runs no hook that nobody has trusted, and knows a trusted one by a hash of all of it. Hooks and hashes
are said in arguments and hold for one session, so nothing is written to a person's settings. They are said
only when a person has agreed to exactly these hooks; a Codex that hashes otherwise asks its user itself.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from typing import Final

from palaver.harness.codex_launch import setting

EVENTS: Final = (
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PreCompact",
    "PostCompact",
    "Stop",
    "SessionEnd",
)
"""The start, and what leave is asked for, are known without a hook in a session that `pal` has started."""

_SOURCE: Final = "/<session-flags>/config.toml"
"""Where Codex says that hooks come from which were given as arguments."""
_LIMIT_S: Final = 3
"""More Codex allows no hook at the end of a session, and so none of ours needs more."""
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def hook_command(pal: str, home: str, event: str) -> str:
    """Give what Codex runs at an event."""
    return f"exec {shlex.join((pal, '--home', home, 'hook', 'codex', event))}"


def hooks_digest(pal: str, home: str) -> str:
    """Tell these hooks from any others: what a person agreed to is this, and nothing else."""
    return hashlib.sha256("".join(trusted_hash(pal, home, event) for event in EVENTS).encode()).hexdigest()


def hook_settings(pal: str, home: str) -> tuple[str, ...]:
    """Give the arguments with which Codex has these hooks for one session, trusted by their hashes."""
    words: list[str] = []
    for event in EVENTS:
        command = json.dumps(hook_command(pal, home, event), ensure_ascii=False)
        words += setting_of(
            f"hooks.{event}", f'[{{hooks=[{{type="command",command={command},timeout={_LIMIT_S}}}]}}]'
        )
    states = ",".join(
        f'{json.dumps(f"{_SOURCE}:{_snake(event)}:0:0")}={{trusted_hash="{trusted_hash(pal, home, event)}"}}'
        for event in EVENTS
    )
    return (*words, *setting_of("hooks.state", f"{{{states}}}"))


def setting_of(key: str, value: str) -> Sequence[str]:
    """Write a setting whose value is TOML already."""
    return (setting(key, "")[0], f"{key}={value}")


def trusted_hash(pal: str, home: str, event: str) -> str:
    """Give the hash by which Codex 0.166 knows a hook: of its event, its command and how it is run."""
    hook = {"async": False, "command": hook_command(pal, home, event), "timeout": _LIMIT_S, "type": "command"}
    whole = json.dumps(
        {"event_name": _snake(event), "hooks": [hook]},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return f"sha256:{hashlib.sha256(whole.encode('utf-8', 'surrogateescape')).hexdigest()}"


def _snake(event: str) -> str:
    return _HUMP.sub("_", event).lower()
