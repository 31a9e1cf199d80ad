"""How Claude Code is started as an agent: the plugin it is given, and its arguments. Pure.

All that the bus needs is in a plugin of its own, named on the command line: hooks that are this client, a
monitor, and the tools. The user's settings are not touched, and the user's arguments go along as they are.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.harness.claude_hooks import EVENTS

PLUGIN: Final = "palaver"
_HOOK_LIMIT_S: Final = 10
"""The client gives up long before this."""

_PERSON_LIMIT_S: Final = 3700
"""While a person is asked, when that is wanted; else this hook ends as soon as the others."""

_COMMANDS: Final = frozenset(
    [
        "agents",
        "attach",
        "auth",
        "auto-mode",
        "config",
        "doctor",
        "gateway",
        "install",
        "logs",
        "mcp",
        "migrate-installer",
        "plugin",
        "plugins",
        "project",
        "remote-control",
        "setup-token",
        "stop",
        "ultrareview",
        "update",
        "upgrade",
    ]
)
"""Words by which it does something else than hold a conversation."""
_INFORMATION: Final = frozenset({"--version", "-v", "--help", "-h"})
_PRINT: Final = frozenset({"-p", "--print"})
_RESUME: Final = frozenset({"-r", "--resume"})
_CONTINUE: Final = frozenset({"-c", "--continue"})
_WITH_VALUE: Final = frozenset(
    {
        "--add-dir",
        "--agent",
        "--agents",
        "--allowedTools",
        "--allowed-tools",
        "--append-system-prompt",
        "--betas",
        "--debug-file",
        "--disallowedTools",
        "--disallowed-tools",
        "--effort",
        "--fallback-model",
        "--input-format",
        "--json-schema",
        "--max-budget-usd",
        "--max-turns",
        "--mcp-config",
        "--model",
        "-n",
        "--name",
        "--output-format",
        "--permission-mode",
        "--permission-prompt-tool",
        "--plugin-dir",
        "--setting-sources",
        "--settings",
        "--system-prompt",
        "--tools",
    }
)
"""Options whose next word is a value, so that a prompt is not taken for one, nor a value for an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeCall:
    """What a command line of Claude Code asks for, as far as it matters for starting it."""

    is_conversation: bool = True
    is_headless: bool = False
    """It prints an answer and ends."""
    session: str = ""
    """The conversation that it goes on with, or the id that a new one is to have."""
    is_last: bool = False
    """It goes on with the last conversation in this folder."""


def read_claude_args(args: Sequence[str]) -> ClaudeCall:
    """Find out what a command line asks for; what is not known is passed over."""
    if args and args[0] in _COMMANDS:
        return ClaudeCall(is_conversation=False)
    is_headless = is_last = is_information = False
    session, place = "", 0
    while place < len(args) and args[place] != "--":
        name, equals, value = args[place].partition("=")
        following = args[place + 1] if place + 1 < len(args) else ""
        place += 1
        is_headless |= name in _PRINT
        is_last |= name in _CONTINUE
        is_information |= name in _INFORMATION
        if name in _RESUME or name == "--session-id":
            has_value = not equals and following[:1] not in ("", "-")
            session = value if equals else following if has_value else ""
            place += has_value
        elif name in _WITH_VALUE and not equals:
            place += 1
    return ClaudeCall(
        is_conversation=not is_information, is_headless=is_headless, session=session, is_last=is_last
    )


def claude_args(args: Sequence[str], plugin: str, *, session: str = "") -> list[str]:
    """Give the arguments to start it with; `session` is what to go on with, unless they name one."""
    asked = read_claude_args(args)
    if not asked.is_conversation:
        return list(args)
    again = ["--resume", session] if session and not asked.session and not asked.is_last else []
    # In one word: an option that takes several values must not take the prompt for one.
    return [f"--plugin-dir={plugin}", *again, *args]


def plugin_files(pal: str) -> Mapping[str, str]:
    """Give the files of the plugin, by their names; `pal` is the path of the client."""
    program = shlex.quote(pal)
    hooks = {
        event: [
            {
                "hooks": [
                    {
                        "type": "command",
                        "command": f"exec {program} hook claude {event}",
                        "timeout": _PERSON_LIMIT_S if event == "PermissionRequest" else _HOOK_LIMIT_S,
                    }
                ]
            }
        ]
        for event in EVENTS
    }
    monitor = {
        "name": "mail",
        "command": f"exec {program} monitor",
        "description": "messages from Palaver",
    }
    description = "Messages from other agents and people, while you work and when you rest."
    return {
        ".claude-plugin/plugin.json": _json(
            {"name": PLUGIN, "version": "1.0.0", "description": description, "author": {"name": "Palaver"}}
        ),
        "hooks/hooks.json": _json({"description": description, "hooks": hooks}),
        "monitors/monitors.json": _json([monitor]),
        ".mcp.json": _json({"mcpServers": {PLUGIN: {"command": pal, "args": ["mcp"]}}}),
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
