"""A person's leave for hooks, asked once in the client's own terminal and remembered in the home of the bus.

It is asked only of a person who sits there; whoever else starts a harness has what a person agreed to before,
or no hooks. Another version of the hooks is another question.
"""

import json
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Final

from palaver.cli.install_record import write_private
from palaver.harness.codex_trust import EVENTS, hook_command, hooks_digest

OFF: Final = "off"
KNOWN: Final = "known"
ASK: Final = "ask"
AGAIN: Final = "again"
"""What the daemon says may be done: none, those that were agreed to, ask if need be, ask in any case."""

_FILE: Final = "codex-hooks.json"
_NARROWEST: Final = 20
_WIDEST: Final = 100
_YES: Final = frozenset({"y", "yes"})


def has_codex_hooks(word: str, pal: str, home: str) -> bool:
    """Whether Codex is given hooks; asks where nobody was asked before, and it may be. Raises OSError."""
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
        return False  # nobody said anything: the next one is asked
    is_agreed = answer.strip().lower() in _YES
    write_private(path, json.dumps({"hooks": digest, "agreed": is_agreed}).encode())
    if not is_agreed:
        sys.stderr.write("No hooks then. 'pal codex --hooks' asks again.\n")
    return is_agreed


def _remembered(path: Path, digest: str) -> bool | None:
    """Give what a person said to these hooks, None when nobody was asked."""
    try:
        found = json.loads(path.read_bytes())
        return bool(found["agreed"]) if found["hooks"] == digest else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _is_person_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _question(pal: str, home: str) -> str:
    """Ask, in lines as wide as the terminal; the command itself is never broken."""
    before = (
        "Codex can tell the bus what it does by hooks, and is given messages by them where it has no server "
        f"of its own. At {', '.join(EVENTS)} it would run"
    )
    behind = (
        "in sessions started with 'pal codex'. Nothing is written to your settings; 'pal codex --no-hooks' "
        "goes without. Codex runs only hooks that you trust."
    )
    width = min(shutil.get_terminal_size().columns - 1, _WIDEST)
    lines = [*_wrapped(before, width), "", f"    {hook_command(pal, home, 'EVENT')}", ""]
    return "\n".join([*lines, *_wrapped(behind, width), "Do you trust these? [y/N] "])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, _NARROWEST), break_long_words=False, break_on_hyphens=False)
