"""A person's consent to hooks, requested once in the client's terminal and stored in the home of the bus.

Only a person at the terminal is asked. Any other caller that starts a harness gets the hooks that a person
agreed to before, or no hooks. Each version of the hooks needs a new consent.
"""

import json
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Final

from palaver.app.install_plan import write_private
from palaver.harness.codex.hooks import TRUSTED_EVENTS, hook_command, hooks_digest

OFF: Final = "off"
KNOWN: Final = "known"
ASK: Final = "ask"
AGAIN: Final = "again"
"""The daemon's permission: no hooks, those agreed to before, ask if needed, ask in any case."""

_FILE: Final = "codex-hooks.json"
_NARROWEST: Final = 20
_WIDEST: Final = 100
_YES: Final = frozenset({"y", "yes"})


def has_codex_hooks(word: str, pal: str, home: str) -> bool:
    """Whether Codex gets hooks; asks the user if that is allowed and not yet done. Raises OSError."""
    if word in ("", OFF):
        return False
    path, digest = Path(home) / "harness" / _FILE, hooks_digest(pal, home)
    known = _remembered(path, digest)
    if word == KNOWN or (known is not None and word != AGAIN) or not _is_person_there():
        return bool(known)
    sys.stderr.write(_question(pal, home))
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        return False  # no reply: ask again the next time
    is_agreed = answer.strip().lower() in _YES
    write_private(path, json.dumps({"hooks": digest, "agreed": is_agreed}).encode())
    if not is_agreed:
        sys.stderr.write("Codex runs without hooks. To be asked again, use 'pal codex --hooks'.\n")
    return is_agreed


def _remembered(path: Path, digest: str) -> bool | None:
    """Return the stored decision about these hooks; None if there was no decision."""
    try:
        found = json.loads(path.read_bytes())
        return bool(found["agreed"]) if found["hooks"] == digest else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _is_person_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _question(pal: str, home: str) -> str:
    """Return the question, wrapped to the width of the terminal; the command itself is never broken."""
    before = (
        "With hooks, Codex reports its state to the bus, and receives messages where it has no server of its "
        f"own. At the events {', '.join(TRUSTED_EVENTS)} it would run"
    )
    behind = (
        "in sessions started with 'pal codex'. Your settings are not changed; 'pal codex --no-hooks' runs "
        "without hooks. Codex runs only hooks that you trust."
    )
    width = min(shutil.get_terminal_size().columns - 1, _WIDEST)
    lines = [*_wrapped(before, width), "", f"    {hook_command(pal, home, 'EVENT')}", ""]
    return "\n".join([*lines, *_wrapped(behind, width), "Trust these hooks? [y/N] "])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, _NARROWEST), break_long_words=False, break_on_hyphens=False)
