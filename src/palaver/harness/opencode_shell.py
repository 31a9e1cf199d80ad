"""The shell that OpenCode runs for its agents, without the password of its server. Pure.

OpenCode passes its whole environment to commands in a shell. A command with the password could answer
OpenCode's questions over HTTP, so the shell unsets the password first.
"""

import shlex
from collections.abc import Iterable
from typing import Final

from palaver.harness.json_text import Dialect, parse_json
from palaver.harness.opencode_launch import PASSWORD, USERNAME

NOT_FOR_TOOLS: Final = frozenset({"fish", "nu"})
"""Shells that OpenCode does not use for its agents: it picks another one."""
USUAL: Final = "bash"
"""The shell that it uses if there is no other."""
_DIALECT: Final = Dialect(comments=True, trailing_commas=True)


def shell_in_settings(texts: Iterable[str]) -> str:
    """Return the shell of the last settings that name one; unreadable settings are skipped."""
    found = ""
    for text in texts:
        try:
            settings = parse_json(text, _DIALECT).value
        except (ValueError, RecursionError):
            continue
        named = settings.get("shell") if isinstance(settings, dict) else None
        found = named if isinstance(named, str) and named else found
    return found


def shell_name(shell: str) -> str:
    """Return the name by which OpenCode knows how to call a shell; the wrapper has the same name."""
    return shell.rpartition("/")[2]


def shell_wrapper(shell: str) -> str:
    """Return a wrapper script that runs this shell without the password."""
    return f'#!/bin/sh\nunset {PASSWORD} {USERNAME}\nexec {shlex.quote(shell)} "$@"\n'
