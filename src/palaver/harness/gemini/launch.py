"""Start Gemini CLI 0.61 as an agent: its hooks, its tools and its arguments. Pure.

It reads hooks from the system's settings, from the user's settings and from extensions. So it is given a home
that links to everything in the user's own, with our extension added. The user's settings are not changed by
us, and changes that Gemini CLI makes reach the user's own files.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.harness.base import NO_REPLY, SAFE_COMMANDS, SAFE_TOOLS, TurnReply, json_value, text_in
from palaver.harness.gemini.hooks import EVENTS

HOME: Final = "GEMINI_CLI_HOME"
"""Names the folder that contains its folder `.gemini`; by default the user's home."""
FOLDER: Final = ".gemini"
EXTENSIONS: Final = "extensions"
EXTENSION: Final = "palaver"
SHARED: Final = (
    *("settings.json", "trustedFolders.json", "state.json", "keybindings.json", "GEMINI.md", ".env"),
    *("oauth_creds.json", "google_accounts.json", "installation_id", "user_id", "mcp-oauth-tokens.json"),
)
"""Files that it may create.

They are linked before they exist, so that they are created in the user's folder.
"""
WORKING: Final = ("tmp", "history")
"""Folders that it creates at its first start."""
_HOOK_LIMIT_MS: Final = 10_000
"""Milliseconds. The client gives up long before this."""
_LATEST: Final = "latest"

_COMMANDS: Final = frozenset({"mcp", "extensions", "extension", "skills", "skill", "hooks", "hook", "gemma"})
_INFORMATION: Final = frozenset(
    {"--version", "-v", "--help", "-h", "--list-extensions", "-l", "--list-sessions", "--delete-session"}
)
_PROMPT: Final = frozenset({"-p", "--prompt"})
_FIRST_PROMPT: Final = frozenset({"-i", "--prompt-interactive"})
_RESUME: Final = frozenset({"-r", "--resume"})
_WITH_VALUE: Final = frozenset(
    {
        *("-m", "--model", "-i", "--prompt-interactive", "--approval-mode", "--policy", "--admin-policy"),
        *("--allowed-mcp-server-names", "--allowed-tools", "-e", "--extensions", "--include-directories"),
        *("-o", "--output-format", "--session-file", "-w", "--worktree"),
    }
)
_FLAGS: Final = frozenset(
    {
        *("-d", "--debug", "-s", "--sandbox", "-y", "--yolo", "--skip-trust", "--screen-reader"),
        *("--acp", "--experimental-acp", "--raw-output", "--accept-raw-output-risk"),
    }
)
"""Options without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiCall:
    """The parts of a Gemini CLI command line that matter for starting it."""

    is_conversation: bool = True
    is_headless: bool = False
    """It prints one reply and ends."""
    session: str = ""
    """The session to resume, or the id of a new one."""
    is_last: bool = False
    """It resumes the last session of this folder."""


def read_gemini_args(args: Sequence[str]) -> GeminiCall:
    """Find out what a command line asks for. Unknown arguments are ignored."""
    if args and args[0] in _COMMANDS:
        return GeminiCall(is_conversation=False)
    is_headless = is_last = is_information = False
    session = ""
    for name, arguments in _options(args):
        is_information |= name in _INFORMATION
        is_headless |= name in _PROMPT or name in ("--acp", "--experimental-acp")
        if name in _RESUME or name == "--session-id":
            value = _value(arguments)
            is_last |= name in _RESUME and (value or _LATEST) == _LATEST
            # A number is only a position in the list of sessions, not an id that stays.
            session = "" if value == _LATEST or value.isdigit() else value
    return GeminiCall(
        is_conversation=not is_information, is_headless=is_headless, session=session, is_last=is_last
    )


def gemini_args(args: Sequence[str], *, session: str = "") -> list[str]:
    """Return the arguments to start it with; `session` is resumed unless `args` name a session."""
    asked = read_gemini_args(args)
    if not session or not asked.is_conversation:
        return list(args)
    again = [] if asked.session or asked.is_last else ["--resume", session]
    return [*again, *_resumable(args)]


def _resumable(args: Sequence[str]) -> list[str]:
    """Leave out the first prompt, which a resumed session has received already, and a session's number.

    Numbers shift with every new session. A headless prompt stays. An argument after an unknown option may be
    its value and is kept.
    """
    kept: list[str] = []
    for name, arguments in _options(args):
        is_number = name in _RESUME and _value(arguments).isdigit()
        if name not in _FIRST_PROMPT and not is_number:
            kept += arguments
    return kept


def _options(args: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each option with its value, up to `--`. Other arguments are left out."""
    rest = list(args)
    while rest and (argument := rest.pop(0)) != "--":
        name, equals, _ = argument.partition("=")
        if not argument.startswith("-"):
            continue
        # An argument after an unknown option may be its value.
        has_value = name in _WITH_VALUE | _PROMPT or (bool(rest) and not rest[0].startswith("-"))
        end = 1 if has_value and not equals and name not in _FLAGS else 0
        yield name, [argument, *rest[:end]]
        del rest[:end]


def _value(arguments: Sequence[str]) -> str:
    """Return the value of an option that `_options` has found; empty if it has none."""
    return arguments[0].partition("=")[2] + "".join(arguments[1:])


POLICIES: Final = "policies"
"""The folder of the user's own policies, and of ours in the home of the bus."""
POLICY_FILE: Final = "palaver.toml"
_POLICY: Final = "--policy"


def policy_text() -> str:
    """Return the policy by which Gemini CLI runs the safe commands and tools of the bus without a prompt.

    It has the lowest priority among policies of a user: every policy of the user takes precedence. Gemini CLI
    checks each command of a line on its own, and asks before it redirects output.
    """
    commands = json.dumps([f"pal {command}" for command in SAFE_COMMANDS])
    return (
        f'[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = {commands}\n'
        'decision = "allow"\npriority = 1\n\n'
        f'[[rule]]\nmcpName = "{EXTENSION}"\ntoolName = {json.dumps(SAFE_TOOLS)}\n'
        'decision = "allow"\npriority = 1\n'
    )


def with_policy(args: Sequence[str], ours: str, theirs: str) -> list[str]:
    """Add our policy file to the arguments; `theirs` is the folder of the user's own policies, or empty.

    With `--policy`, Gemini CLI reads that folder no longer, so it is named too, unless the user has chosen
    policies. The options come last: each takes all arguments up to the next option.
    """
    end = list(args).index("--") if "--" in args else len(args)
    has_own = any(argument.partition("=")[0] == _POLICY for argument in args[:end])
    paths = [ours] if has_own or not theirs else [theirs, ours]
    return [*args[:end], *(f"{_POLICY}={path}" for path in paths), *args[end:]]


def extension_files(pal: str) -> Mapping[str, str]:
    """Return the files of our extension by name; `pal` is the path of the client."""
    manifest = {
        "name": EXTENSION,
        "version": "1.0.0",
        "mcpServers": {EXTENSION: {"command": pal, "args": ["mcp"]}},
    }
    hooks = {event: [_hook(pal, event)] for event in EVENTS}
    return {"gemini-extension.json": _json(manifest), "hooks/hooks.json": _json({"hooks": hooks})}


def _hook(pal: str, event: str) -> dict[str, object]:
    command = {
        "name": EXTENSION,
        "type": "command",
        "command": f"exec {shlex.quote(pal)} hook gemini {event}",
        "timeout": _HOOK_LIMIT_MS,
    }
    return {"hooks": [command]}


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


# --------------------
# One turn without a terminal: the prompt is read from standard input. Pure.

_NOT_IN_A_TURN: Final = (
    _FIRST_PROMPT
    | _PROMPT
    | _RESUME
    | {"--session-id", "--session-file", "-o", "--output-format", "--acp", "--experimental-acp"}
    | {"-w", "--worktree", "-d", "--debug", "--screen-reader"}
)
"""Options that select a session, need a terminal, or change the form of the output."""


def turn_args(args: Sequence[str], session: str) -> list[str]:
    """Return the arguments for one turn of an agent that was started with `args`.

    It resumes `session`, or begins a new one if that is empty.
    """
    kept = [one for name, arguments in _options(args) if name not in _NOT_IN_A_TURN for one in arguments]
    return ["--output-format", "json", *(["--resume", session] if session else []), *kept]


def read_turn(output: str) -> TurnReply:
    """Read the output of a turn: one object, perhaps after other lines."""
    lines = output.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("{")), 0)
    found = json_value("\n".join(lines[start:]))
    session, error = text_in(found, "session_id"), text_in(found, "error", "message")
    if error or not isinstance(found, dict) or "response" not in found:
        return TurnReply(session=session, error=error or NO_REPLY.error)
    return TurnReply(text=text_in(found, "response"), session=session)
