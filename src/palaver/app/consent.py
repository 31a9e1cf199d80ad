"""A person's consent, requested once in the client's terminal and stored in the home of the bus.

There are two questions: whether Codex may run hooks, and whether agents may use the safe commands of the bus
without a prompt. Only a person at the terminal is asked. For any other caller that starts a harness, the
earlier decision counts, and without a decision the answer is no. Each version of the hooks needs a new
consent.
"""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

from palaver.app.install_plan import write_private
from palaver.config import load
from palaver.errors import PalaverError
from palaver.harness.base import SAFE_COMMANDS
from palaver.harness.codex.hooks import TRUSTED_EVENTS, hook_command, hooks_digest
from palaver.home import find_pal

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


# --------------------
# The safe commands and tools of the bus. The decision is the setting `agent_commands`.

_SETTING: Final = "agent_commands"
_LIMIT_S: Final = 30.0
"""Seconds that the bus may take to store the decision."""


def may_use_bus(word: str, home: str) -> bool:
    """Whether agents may use the safe commands without a prompt; asks the user if that is allowed.

    The file is read, and not the settings of the running bus: the user may have decided a moment ago.
    """
    try:
        known = load(Path(home), {}).settings.agent_commands
    except (PalaverError, OSError):  # the bus would not start with such settings
        return False
    if known != ASK or word != ASK or not _is_person_there():
        return known == "yes"
    sys.stderr.write(_bus_question())
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        return False  # no reply: ask again the next time
    is_agreed = answer.strip().lower() in _YES
    return _store("yes" if is_agreed else "no", home) and is_agreed


def _store(value: str, home: str) -> bool:
    """Have the bus write the decision; it accepts this from a person only, and records it in the log.

    Return False if it refuses: then the reply did not come from a person.
    """
    command = [find_pal(), "--home", home, "config", "set", _SETTING, value]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False)
        trouble = done.stderr.decode("utf-8", "replace").strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        trouble = f"pal: {error}"
    if trouble:
        sys.stderr.write(f"{trouble}\npal: agents are asked as before; the reply could not be stored\n")
        return False
    sys.stderr.write(f"Stored. 'pal config set {_SETTING}' with yes, no or ask changes it.\n")
    return True


def _bus_question() -> str:
    commands = ", ".join(SAFE_COMMANDS)
    text = (
        "Agents write to each other with 'pal' and with the tools of Palaver. In a mode that asks, a harness "
        "asks you before each of these calls. You can allow the safe ones once for all agents that 'pal' "
        f"starts: pal {commands}, and the tools that do the same. Everything else is asked as before, also "
        "'pal config', 'run', 'stop', 'approve' and 'install'."
    )
    width = min(shutil.get_terminal_size().columns - 1, _WIDEST)
    return "\n".join([*_wrapped(text, width), "Allow these without a prompt? [y/N] "])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, _NARROWEST), break_long_words=False, break_on_hyphens=False)
