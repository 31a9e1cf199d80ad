"""How Gemini CLI 0.61 is started as an agent: its hooks, its tools, its arguments. Pure.

It is given a file of defaults, the weakest of its settings: hooks are added to those that a person or an
administrator has, and whatever else they set counts more. Their own files are not touched. Defaults that are there
already stay in the file.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.harness.gemini_hooks import EVENTS

DEFAULTS: Final = "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"
SETTINGS: Final = "GEMINI_CLI_SYSTEM_SETTINGS_PATH"
FILE: Final = "system-defaults.json"
_SERVER: Final = "palaver"
_HOOK_LIMIT_MS: Final = 10_000
"""The client gives up long before this."""
_LAST: Final = "latest"

_COMMANDS: Final = frozenset({"mcp", "extensions", "extension", "skills", "skill", "hooks", "hook", "gemma"})
_INFORMATION: Final = frozenset(
    {"--version", "-v", "--help", "-h", "--list-extensions", "-l", "--list-sessions", "--delete-session"}
)
_PROMPT: Final = frozenset({"-p", "--prompt"})
_RESUME: Final = frozenset({"-r", "--resume"})
_WITH_VALUE: Final = frozenset(
    {
        *("-m", "--model", "-i", "--prompt-interactive", "--approval-mode", "--policy", "--admin-policy"),
        *("--allowed-mcp-server-names", "--allowed-tools", "-e", "--extensions", "--include-directories"),
        *("-o", "--output-format", "--session-id", "--session-file", "-w", "--worktree"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiCall:
    """What a command line of Gemini CLI asks for, as far as it matters for starting it."""

    is_conversation: bool = True
    is_headless: bool = False
    """It prints an answer and ends."""
    session: str = ""
    """The conversation that it goes on with, or the id that a new one is to have."""
    is_last: bool = False
    """It goes on with the last conversation in this folder, or with one that is named by its place."""


def read_gemini_args(args: Sequence[str]) -> GeminiCall:
    """Find out what a command line asks for; what is not known is passed over."""
    if args and args[0] in _COMMANDS:
        return GeminiCall(is_conversation=False)
    is_headless = is_last = is_information = False
    session, rest = "", list(args)
    while rest and (word := rest.pop(0)) != "--":
        name, equals, value = word.partition("=")
        is_information |= name in _INFORMATION
        is_headless |= name in _PROMPT or name in ("--acp", "--experimental-acp")
        if name in _RESUME or name == "--session-id":
            if not equals and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            is_last |= name in _RESUME and (value or _LAST) == _LAST
            session = "" if value == _LAST or value.isdigit() else value
        elif name in (_WITH_VALUE | _PROMPT) and not equals:
            del rest[:1]
    return GeminiCall(
        is_conversation=not is_information, is_headless=is_headless, session=session, is_last=is_last
    )


def gemini_args(args: Sequence[str], *, session: str = "") -> list[str]:
    """Give the arguments to start it with; `session` is what to go on with, unless they name one."""
    asked = read_gemini_args(args)
    if not session or asked.session or asked.is_last or not asked.is_conversation:
        return list(args)
    return ["--resume", session, *args]


def defaults_file(pal: str, theirs: str = "") -> str:
    """Write the file of defaults; `theirs` is the text of one that is there already.

    Raises ValueError when that cannot be read: it is an administrator's, and must not be lost.
    """
    found = json.loads(theirs) if theirs.strip() else {}
    if not isinstance(found, dict):
        raise ValueError("it holds no settings")
    hooks, servers = found.get("hooks"), found.get("mcpServers")
    kept = hooks if isinstance(hooks, dict) else {}
    merged = {
        **found,
        "hooks": {**kept, **{event: [*_list(kept.get(event)), _hook(pal, event)] for event in EVENTS}},
        "mcpServers": {
            _SERVER: {"command": pal, "args": ["mcp"]},
            **(servers if isinstance(servers, dict) else {}),
        },
    }
    return json.dumps(merged, indent=2, ensure_ascii=False) + "\n"


def defaults_path(environment: Mapping[str, str], system: str) -> str:
    """Say where a file of defaults is, or would be; `system` is the folder of this machine's own."""
    if path := environment.get(DEFAULTS):
        return path
    settings = environment.get(SETTINGS)
    folder = settings.rpartition("/")[0] if settings else system
    return f"{folder}/{FILE}"


def _hook(pal: str, event: str) -> dict[str, object]:
    command = {
        "name": "palaver",
        "type": "command",
        "command": f"exec {shlex.quote(pal)} hook gemini {event}",
        "timeout": _HOOK_LIMIT_MS,
    }
    return {"hooks": [command]}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
