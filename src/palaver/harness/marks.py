"""The environment variables by which a harness marks the processes it starts. Pure; imports little.

Exact names, never prefixes: similar variables carry keys and tokens, and must not leave the caller. The C
client contains the same list; a test compares the two.
"""

from collections.abc import Mapping
from typing import Final

SEAT_MARK: Final = "PALAVER_SEAT"

SESSION_MARKS: Final[Mapping[str, tuple[str, ...]]] = {
    "claude": ("CLAUDE_CODE_SESSION_ID",),
    "codex": ("CODEX_THREAD_ID", "CODEX_SESSION_ID"),
    "gemini": ("GEMINI_SESSION_ID",),
    "opencode": ("OPENCODE_SESSION_ID",),
}
"""Variables whose value names one session of the harness."""

PRESENCE_MARKS: Final[Mapping[str, tuple[str, ...]]] = {
    "claude": ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"),
    "codex": ("CODEX_SANDBOX",),
    "gemini": ("GEMINI_CLI",),
    "opencode": ("OPENCODE", "OPENCODE_PID"),
}
"""Variables that only show that some parent process is a harness."""

SHARED_HARNESSES: Final = frozenset({"codex", "opencode"})
"""Harnesses that run several sessions in one process: their seats have a session key."""

MARKS: Final[tuple[str, ...]] = tuple(
    name for table in (PRESENCE_MARKS, SESSION_MARKS) for names in table.values() for name in names
)


def harness_of(environment: Mapping[str, str]) -> str | None:
    """Return the harness whose marks are set, or None."""
    # Session marks first: a presence mark may come from a harness further up, in which this one was
    # started.
    for table in (SESSION_MARKS, PRESENCE_MARKS):
        for harness, names in table.items():
            if any(environment.get(name) for name in names):
                return harness
    return None


def session_of(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (harness, session id) of the first session mark that is set, or None."""
    for harness, names in SESSION_MARKS.items():
        for name in names:
            if value := environment.get(name):
                return harness, value
    return None
