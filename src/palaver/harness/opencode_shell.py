"""The shell that OpenCode gives its agents, without the password of its server. Pure.

OpenCode hands its whole environment on to what it runs in a shell. Whoever has the password there could
answer OpenCode's own questions over HTTP; so its shell is one that forgets it first.
"""

import shlex
from collections.abc import Iterable
from typing import Final

from palaver.harness.json_text import Dialect, parse_json
from palaver.harness.opencode_launch import PASSWORD, USERNAME

NOT_FOR_TOOLS: Final = frozenset({"fish", "nu"})
"""Shells in which OpenCode's agents run nothing: it takes another one for them."""
USUAL: Final = "bash"
"""What it takes where there is no other."""
_DIALECT: Final = Dialect(comments=True, trailing_commas=True)


def shell_in_settings(texts: Iterable[str]) -> str:
    """Give the shell that settings name, the last one that does; what cannot be read names none."""
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
    """Give the name by which OpenCode knows how a shell is called; the wrapper has the same."""
    return shell.rpartition("/")[2]


def shell_wrapper(shell: str) -> str:
    """Give a program that is this shell, with the password forgotten."""
    return f'#!/bin/sh\nunset {PASSWORD} {USERNAME}\nexec {shlex.quote(shell)} "$@"\n'
