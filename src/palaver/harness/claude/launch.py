"""Start Claude Code as an agent: the plugin that it loads, and its arguments. Pure.

Everything that the bus needs is in one plugin that is named on the command line: hooks that run this client,
a monitor, and the tools. The user's settings are not changed, and the user's arguments are passed on
unchanged.
"""

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.harness.base import NO_REPLY, SAFE_COMMANDS, SAFE_TOOLS, TurnReply, json_value, text_in
from palaver.harness.claude.hooks import EVENTS

PLUGIN: Final = "palaver"
_HOOK_LIMIT_S: Final = 10
"""Seconds. The client gives up long before this."""

_WAKING: Final = ("SessionStart", "UserPromptSubmit", "Stop")
"""After these hooks a session may become idle, also because the user stops its turn.

Each one starts a process that waits and wakes the session once.
"""
_WAIT_LIMIT_S: Final = 2_000_000
"""Seconds. Close to the longest timeout that the harness can count in milliseconds."""

_PERSON_LIMIT_S: Final = 3700
"""Seconds to wait for a person, if that is configured; otherwise this hook ends as early as the others."""

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
"""First arguments that start something other than a conversation."""
_INFORMATION: Final = frozenset({"--version", "-v", "--help", "-h"})
_PRINT: Final = frozenset({"-p", "--print"})
_RESUME: Final = frozenset({"-r", "--resume"})
_CONTINUE: Final = frozenset({"-c", "--continue"})
_FORK: Final = "--fork-session"
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
"""Options whose next argument is a value, so that prompts, values and options are distinguished."""

_SEVERAL: Final = frozenset(
    {
        *("--add-dir", "--allowedTools", "--allowed-tools", "--betas", "--disallowedTools"),
        *("--disallowed-tools", "--mcp-config", "--tools"),
    }
)
"""Options that take every argument up to the next option."""
_ALONE: Final = _CONTINUE | {
    *("--allow-dangerously-skip-permissions", "--bare", "--chrome", "--dangerously-skip-permissions"),
    *(
        "--disable-slash-commands",
        "--fork-session",
        "--ide",
        "--no-chrome",
        "--strict-mcp-config",
        "--verbose",
    ),
    *("--ax-screen-reader", "--background", "--bg", "--brief", "--desktop", "--forward-subagent-text"),
    *("--exclude-dynamic-system-prompt-sections", "--include-hook-events", "--include-partial-messages"),
    *("--no-session-persistence", "--replay-user-messages", "--restricted", "--tmux"),
}
"""Options without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeCall:
    """The parts of a Claude Code command line that matter for starting it."""

    is_conversation: bool = True
    is_headless: bool = False
    """It prints one reply and ends."""
    session: str = ""
    """The session to resume, or the id of a new one."""
    is_last: bool = False
    """It resumes the last session of this folder."""
    is_chosen: bool = False
    """The user picks the session to resume from a list."""


def read_claude_args(args: Sequence[str]) -> ClaudeCall:
    """Find out what a command line asks for. Unknown arguments are ignored."""
    if args and args[0] in _COMMANDS:
        return ClaudeCall(is_conversation=False)
    is_headless = is_last = is_information = is_chosen = False
    session, index = "", 0
    while index < len(args) and args[index] != "--":
        name, equals, value = args[index].partition("=")
        following = args[index + 1] if index + 1 < len(args) else ""
        index += 1
        is_headless |= name in _PRINT
        is_last |= name in _CONTINUE
        is_information |= name in _INFORMATION
        # The value of `--resume` is optional: without one, Claude Code shows a list of sessions.
        if name in _RESUME or name == "--session-id":
            has_value = not equals and following[:1] not in ("", "-")
            session = value if equals else following if has_value else ""
            is_chosen |= name in _RESUME and not session
            index += has_value
        elif name in _WITH_VALUE and not equals:
            index += 1
    return ClaudeCall(
        is_conversation=not is_information,
        is_headless=is_headless,
        session=session,
        is_last=is_last,
        is_chosen=is_chosen and not session and not is_last,
    )


def claude_args(
    args: Sequence[str], plugin: str, *, session: str = "", may_use_bus: bool = False, is_fork: bool = False
) -> list[str]:
    """Return the arguments to start it with; `session` is resumed unless `args` name a session.

    `is_fork`: it continues a copy of that session, under a new id.
    `may_use_bus`: it runs the safe commands and tools of the bus without a prompt. Arguments of the user that
    allow or deny more are added to this list by Claude Code.
    """
    asked = read_claude_args(args)
    if not asked.is_conversation:
        return list(args)
    again = ["--resume", session] if session and not asked.session and not asked.is_last else []
    again += [_FORK] if is_fork else []
    # One argument with `=`: an option that takes several values would take the prompt as a value.
    allowed = [f"--allowedTools={','.join(allow_rules())}"] if may_use_bus else []
    return [f"--plugin-dir={plugin}", *allowed, *again, *(_without_prompt(args) if session else args)]


def allow_rules() -> list[str]:
    """Return the permission rules of Claude Code for the safe commands and tools of the bus.

    Claude Code checks each command of a line on its own, so a rule allows nothing that is added to it.
    """
    commands = [f"Bash(pal {command}:*)" for command in SAFE_COMMANDS]
    # Claude Code puts the names of the plugin and of its server before the name of each tool.
    return [*commands, *(f"mcp__plugin_{PLUGIN}_{PLUGIN}__{tool}" for tool in SAFE_TOOLS)]


def without_session(args: Sequence[str]) -> list[str]:
    """Return the arguments for a copy of a session: without a session, a prompt, or one single reply."""
    if read_claude_args(args).is_headless:
        return []
    return _without_prompt(args, _RESUME | _CONTINUE | {"--session-id", _FORK})


def _without_prompt(args: Sequence[str], dropped: Collection[str] = ()) -> list[str]:
    """Leave out the first prompt, which a resumed session has received already, and the options `dropped`.

    An argument after an unknown option may be its value and is kept. Arguments after `--` are the prompt.
    """
    kept: list[str] = []
    index = 0
    while index < len(args) and args[index] != "--":
        name, equals, _ = args[index].partition("=")
        end = index + 1
        if name.startswith("-") and not equals and name not in _ALONE:
            limit = len(args) if name in _SEVERAL else end + 1
            while end < min(limit, len(args)) and not args[end].startswith("-"):
                end += 1
        if name.startswith("-") and name not in dropped:
            kept += args[index:end]
        index = end
    return kept


def has_waker(harness: str, environment: Mapping[str, str]) -> bool:
    """Whether a hook ran in a session that a waiting process can wake.

    A session that only prints (`-p`) cannot be woken: its entry point begins with `sdk`.
    """
    entry = environment.get("CLAUDE_CODE_ENTRYPOINT", "")
    return harness == "claude" and entry != "" and not entry.startswith("sdk")


def plugin_files(pal: str) -> Mapping[str, str]:
    """Return the files of the plugin by name; `pal` is the path of the client."""
    program = shlex.quote(pal)
    hooks = {
        event: [
            {
                "hooks": [
                    {
                        "type": "command",
                        # `exec` replaces the shell that the harness starts: one process less for each hook.
                        "command": f"exec {program} hook claude {event}",
                        "timeout": _PERSON_LIMIT_S if event == "PermissionRequest" else _HOOK_LIMIT_S,
                    },
                    *([_rewake(program, event)] if event in _WAKING else []),
                ]
            }
        ]
        for event in EVENTS
    }
    monitor = {
        "name": "mail",
        # `exec` replaces the shell, so that the parent of our process is the harness itself: the monitor
        # ends with its parent.
        "command": f"exec {program} monitor",
        "description": "messages from Palaver",
    }
    description = "Messages from other agents and people, while you work and while you are idle."
    return {
        ".claude-plugin/plugin.json": _json(
            {"name": PLUGIN, "version": "1.0.0", "description": description, "author": {"name": "Palaver"}}
        ),
        "hooks/hooks.json": _json({"description": description, "hooks": hooks}),
        "monitors/monitors.json": _json([monitor]),
        ".mcp.json": _json({"mcpServers": {PLUGIN: {"command": pal, "args": ["mcp"]}}}),
    }


def _rewake(program: str, event: str) -> dict[str, object]:
    """Return the hook that wakes a session without a monitor. If a monitor runs, the hook ends at once."""
    return {
        "type": "command",
        # `exec`, because this process too ends with its parent, which must be the harness and not a shell.
        "command": f"exec {program} rewake {event}",
        "asyncRewake": True,
        "rewakeMessage": "Messages from Palaver:",
        "rewakeSummary": "messages from Palaver",
        "timeout": _WAIT_LIMIT_S,
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


# --------------------
# Find the folder of Claude Code's sessions and the newest of them. Pure: names in, names out.

_SIGNS: Final = re.compile(r"[^A-Za-z0-9]")
_FILE: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl\Z")


def sessions_folder(environment: Mapping[str, str], cwd: str) -> str:
    """Return the folder of the sessions of a directory: its path, with `-` for all but letters and digits."""
    base = environment.get("CLAUDE_CONFIG_DIR") or f"{environment.get('HOME', '')}/.claude"
    return f"{base}/projects/{_SIGNS.sub('-', cwd)}"


def newest_session(files: Iterable[tuple[str, float]]) -> str:
    """Return the session that was written to last, from files with their times; else empty."""
    return next(iter(newest_sessions(files, 1)), "")


def newest_sessions(files: Iterable[tuple[str, float]], most: int) -> tuple[str, ...]:
    """Return the sessions that were written to last, newest first."""
    found = [(time, name[1]) for file, time in files if (name := _FILE.match(file))]
    return tuple(session for _, session in sorted(found, reverse=True)[:most])


# --------------------
# One turn without a terminal: the prompt is read from standard input. Pure.

_NOT_IN_A_TURN: Final = (
    _PRINT
    | _RESUME
    | _CONTINUE
    | {
        *("--session-id", _FORK, "--from-pr", "--teleport", "--cloud", "--environment", "--remote-control"),
        *("--bg", "--background", "--desktop", "--tmux", "-w", "--worktree", "--no-session-persistence"),
        *("--output-format", "--input-format", "--replay-user-messages", "--include-partial-messages"),
        *("--include-hook-events", "--forward-subagent-text", "--verbose", "-d", "--debug"),
    }
)
"""Options that select a session, need a terminal, or change the form of the output."""


def turn_args(args: Sequence[str], session: str) -> list[str]:
    """Return the arguments for one turn of an agent that was started with `args`.

    It resumes `session`, or begins a new one if that is empty.
    """
    kept = _without_prompt(args, _NOT_IN_A_TURN)
    return ["-p", "--output-format", "json", *(["--resume", session] if session else []), *kept]


def read_turn(output: str) -> TurnReply:
    """Read the output of a turn: one object, or a list of all events if the user's settings are verbose."""
    found = json_value(output)
    events = found if isinstance(found, list) else [found]
    results = [one for one in events if isinstance(one, dict) and one.get("type") == "result"]
    if not results:
        return NO_REPLY
    last = results[-1]
    text, session = text_in(last, "result"), text_in(last, "session_id")
    if last.get("is_error") or "result" not in last:
        return TurnReply(session=session, error=text or text_in(last, "subtype") or NO_REPLY.error)
    return TurnReply(text=text, session=session)
