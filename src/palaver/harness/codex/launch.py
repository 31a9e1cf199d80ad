"""Start Codex 0.166 as an agent: its arguments, and those of an app-server for it. Pure.

One process shows the screen and another, the app-server, does the work, so that a second client can deliver
messages. Settings are added as arguments: nothing is written to the user's settings, and the user's own
arguments stay as they are and take precedence. If the app-server could not know something (a profile, another
provider, another server), Codex is started without it, and messages are typed.
"""

import enum
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from palaver.harness.base import NO_REPLY, SAFE_TOOLS, TurnReply, json_objects, text_in

_WITH_VALUE: Final = frozenset(
    {
        *("-c", "--config", "--enable", "--disable", "--remote", "--remote-auth-token-env"),
        *("-m", "--model", "--local-provider", "-p", "--profile", "-s", "--sandbox", "-C", "--cd"),
        *("--add-dir", "-a", "--ask-for-approval"),
    }
)
_IMAGES: Final = frozenset({"-i", "--image"})
"""Options that take every argument up to the next option."""
_SHARED: Final = frozenset({"-c", "--config", "--enable", "--disable"})
"""Options that the server needs too: the screen does not pass them on."""
_ALONE: Final = frozenset(
    {
        *("-p", "--profile", "--oss", "--local-provider", "--remote", "--remote-auth-token-env"),
        *("--no-daemon", "--dangerously-bypass-hook-trust"),
    }
)
"""With one of these, Codex is started without our server, because a server would not know the option."""
_ALONE_AGAIN: Final = frozenset({"--add-dir", "--approve-for-me"})
"""With one of these, a resumed session needs Codex without our server.

Its screen may not request such rights for a resumed session, and a server has no setting for them.
"""
_RIGHTS: Final = {
    **dict.fromkeys(("-s", "--sandbox"), "sandbox_mode"),
    **dict.fromkeys(("-a", "--ask-for-approval"), "approval_policy"),
}
"""Rights that the screen may not request for a resumed session: they are passed to the server."""
_ALL_RIGHTS: Final = frozenset({"--dangerously-bypass-approvals-and-sandbox", "--yolo"})
_NO_SESSION: Final = frozenset({"-h", "--help", "-V", "--version"})
_SCREENS: Final = frozenset({"resume", "fork"})
_WHICH: Final = frozenset({"--last", "--all"})
"""Options that select the session to resume; dropped once its id is known."""
_HEADLESS: Final = frozenset({"exec", "e", "review"})
_OTHERS: Final = frozenset(
    {
        *("agents", "login", "logout", "mcp", "plugin", "app-server", "remote-control", "completion"),
        *("update", "doctor", "sandbox", "debug", "apply", "a", "queue", "archive", "delete"),
        *("migrate-rollouts", "migrate-nfs-db", "unarchive", "cloud", "exec-server", "features", "help"),
    }
)
_INSTRUCTIONS: Final = "developer_instructions"
_SERVER: Final = "mcp_servers.palaver"

_SHELL_TIP: Final = (
    "In your shell write {pal} for pal: its PATH may lack it. Your shell may run in a sandbox that cannot "
    "reach the bus: then use the palaver MCP tools, send (with reply_to to answer), inbox and list_agents."
)


_SESSION: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def shell_tip(pal: str) -> str:
    """Return the hint about the shell of an agent in Codex: a login shell, perhaps in a sandbox."""
    return _SHELL_TIP.format(pal=shlex.quote(pal))


class Kind(enum.Enum):
    """The kinds of command lines of Codex."""

    SCREEN = "screen"
    HEADLESS = "headless"
    OTHER = "other"
    """No session: help, a login, a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexArguments:
    """The user's arguments, as far as they matter here."""

    kind: Kind = Kind.SCREEN
    shared: tuple[str, ...] = ()
    """Arguments that a server needs too."""
    options: tuple[str, ...] = ()
    """All options with their values, without the command and the prompt."""
    session: str = ""
    """The session to resume, if its id is given."""
    is_last: bool = False
    """Resume the last session of this folder."""
    is_again: bool = False
    """Resume or fork a session, whichever it is."""
    is_alone: bool = False
    is_remote: bool = False
    """The user has a server already: its settings and instructions are theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexLaunch:
    """The commands to start: the server first, if there is one, then the screen."""

    arguments: tuple[str, ...]
    server: tuple[str, ...] = ()


def read_arguments(arguments: Sequence[str]) -> CodexArguments:
    """Read the user's arguments as Codex would."""
    shared: list[str] = []
    names: set[str] = set()
    options: list[str] = []
    texts: list[str] = []
    for name, words in _split(arguments):
        if not name:
            texts += words
            continue
        names.add(name)
        options += words
        if name in _SHARED:
            shared += words
    command = texts[0] if texts else ""
    is_again = command in _SCREENS
    kind = Kind.SCREEN
    if names & _NO_SESSION or command in _OTHERS:
        kind = Kind.OTHER
    elif command in _HEADLESS:
        kind = Kind.HEADLESS
    return CodexArguments(
        kind=kind,
        shared=tuple(shared),
        options=tuple(options),
        session=next(filter(_SESSION.fullmatch, texts[1:2]), "") if is_again else "",
        is_last=is_again and "--last" in names,
        is_again=is_again,
        is_alone=bool(names & (_ALONE | _ALONE_AGAIN if is_again else _ALONE)),
        is_remote="--remote" in names,
    )


def _split(arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each option with its values, and each other argument with an empty name. Stop at `--`."""
    rest = list(arguments)
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            yield "", [word]
            continue
        # The value of a short option may be in the same word, as in `-mMODEL`.
        name, has_value, _ = word.partition("=") if word.startswith("--") else (word[:2], word[2:], "")
        words = [word]
        if not has_value and name in _WITH_VALUE and rest:
            words.append(rest.pop(0))
        elif name in _IMAGES:
            while rest and not rest[0].startswith("-"):
                words.append(rest.pop(0))
        yield name, words


def plan_launch(
    arguments: Sequence[str], *, address: str, settings: Sequence[str], instructions: str
) -> CodexLaunch:
    """Return the commands to start, with our settings and the instructions for the agent.

    Without an `address` there is no server.
    """
    asked = read_arguments(arguments)
    if asked.kind is Kind.OTHER or asked.is_remote:
        return CodexLaunch(arguments=tuple(arguments))
    # Of two values for one key the last one counts, so ours would replace the text of the user: both become
    # one value.
    own = _own_instructions(asked.shared)
    last = setting(_INSTRUCTIONS, f"{own}\n\n{instructions}" if own else instructions)
    if asked.kind is Kind.HEADLESS or asked.is_alone or not address:
        # An option before the command has lower precedence than the same option after it.
        # Without `--no-daemon` Codex would work in the server that all its windows share, which does not
        # run below this agent: its tools could not be identified as this agent.
        alone = () if asked.kind is Kind.HEADLESS or "--no-daemon" in arguments else ("--no-daemon",)
        return CodexLaunch(arguments=(*alone, *settings, *last, *arguments))
    there = f"unix://{address}"
    rights, screen = _take_rights(arguments) if asked.is_again else ((), tuple(arguments))
    # Later settings take precedence: ours come first, then those of the user.
    return CodexLaunch(
        server=("app-server", "--listen", there, *settings, *asked.shared, *rights, *last),
        arguments=("--remote", there, *screen),
    )


def _take_rights(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split arguments into rights, as settings, and all others."""
    rights: list[str] = []
    others: list[str] = []
    read = 0
    for name, words in _split(arguments):
        read += len(words)
        # One of three forms: `-s VALUE`, `-sVALUE` and `--sandbox=VALUE`.
        value = words[-1].removeprefix(name).removeprefix("=")
        if name in _RIGHTS and value:
            rights += setting(_RIGHTS[name], value)
        elif name in _ALL_RIGHTS:
            rights += setting("sandbox_mode", "danger-full-access") + setting("approval_policy", "never")
        else:
            others += words
    # Arguments from `--` on were not split, and stay as they are.
    return tuple(rights), (*others, *arguments[read:])


def resumed(arguments: Sequence[str], session: str, *, is_fork: bool = False) -> tuple[str, ...]:
    """Return the arguments that resume a session, without a prompt: the session has received it already.

    `is_fork`: they continue a copy of it, under a new id.
    """
    if not session or read_arguments(arguments).kind is not Kind.SCREEN:
        return tuple(arguments)
    return "fork" if is_fork else "resume", session, *without_session(arguments)


def without_session(arguments: Sequence[str]) -> list[str]:
    """Return the arguments for another start of a session: without a command, a session and a prompt."""
    asked = read_arguments(arguments)
    if asked.kind is not Kind.SCREEN:
        return []
    return [word for word in asked.options if word not in _WHICH]


def launch_settings(pal: str, home: str, *, may_use_bus: bool = False) -> tuple[str, ...]:
    """Return the settings that are added for one session: our tools, which its sandbox can reach.

    `may_use_bus`: it calls the safe tools without a dialog.
    """
    approvals = approved_tools().items() if may_use_bus else ()
    return (
        *setting(f"{_SERVER}.command", pal),
        *setting(f"{_SERVER}.args", ["mcp"]),
        *setting(f"{_SERVER}.env.PALAVER_HOME", home),
        *setting(f"{_SERVER}.env_vars", ["PALAVER_SEAT"]),
        *chain.from_iterable(setting(f"{_SERVER}.{key}", value) for key, value in approvals),
    )


def approved_tools() -> dict[str, str]:
    """Return the settings of our server by which Codex calls the safe tools without a dialog.

    There are no such settings for commands: rules for them are files in the folder of the user, and a command
    in its sandbox cannot reach the bus in any case.
    """
    return {f"tools.{tool}.approval_mode": "approve" for tool in SAFE_TOOLS}


def setting(key: str, value: str | Sequence[str]) -> tuple[str, str]:
    """Write one setting as an argument."""
    return "-c", f"{key}={_toml(value)}"


def _toml(value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        # A string of JSON is one of TOML, except that TOML forbids the plain character DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_toml, value))}]"


def _own_instructions(shared: Sequence[str]) -> str:
    """Return the instructions in the user's arguments; ours are added after them."""
    found = ""
    for word in shared:
        key, has_value, value = word.removeprefix("--config=").removeprefix("-c").partition("=")
        if has_value and key.strip() == _INSTRUCTIONS:
            # Codex takes a value that is not TOML as plain text.
            found = instructions_in(word.removeprefix("--config=").removeprefix("-c")) or value
    return found


def instructions_in(settings: str) -> str:
    """Return the instructions in a settings text; empty if it cannot be parsed."""
    try:
        found = tomllib.loads(settings).get(_INSTRUCTIONS)
    # The parser raises RecursionError for deep nesting, and a plain ValueError for huge numbers.
    except (ValueError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


# --------------------
# One turn without a terminal, `codex exec`: the prompt is read from standard input. Pure.

_IN_A_TURN: Final = (
    _SHARED
    | (_ALL_RIGHTS - {"--yolo"})
    | {
        *("-m", "--model", "-p", "--profile", "--oss", "--local-provider", "-C", "--cd", "--add-dir"),
        *("--strict-config", "--approve-for-me", "--dangerously-bypass-hook-trust"),
        *("--ignore-user-config", "--ignore-rules"),
    }
)
"""Options of a start that `codex exec` has too. Rights are passed as settings."""


def turn_arguments(arguments: Sequence[str], session: str) -> tuple[str, ...]:
    """Return the arguments for one turn of an agent that was started with `arguments`.

    It resumes `session`, or begins a new one if that is empty. A person has started the agent in that folder,
    so Codex does not require a repository there.
    """
    rights, others = _take_rights(arguments)
    kept = chain.from_iterable(words for name, words in _split(others) if name in _IN_A_TURN)
    again = ("resume", session) if session else ()
    return ("exec", "--json", "--skip-git-repo-check", *rights, *kept, *again, "-")


def read_turn(output: str) -> TurnReply:
    """Read the output of a turn: lines of events. The last message of the model is the reply."""
    session, text, error = "", None, ""
    for event in json_objects(output):
        kind = event.get("type")
        if kind == "thread.started":
            session = text_in(event, "thread_id")
        elif kind == "item.completed" and text_in(event, "item", "type") == "agent_message":
            text = text_in(event, "item", "text")
        elif kind in ("turn.failed", "error"):
            error = text_in(event, "error", "message") or text_in(event, "message")
        # A turn can complete after an error of one of its requests.
        elif kind == "turn.completed":
            error = ""
    if error or text is None:
        return TurnReply(session=session, error=error or NO_REPLY.error)
    return TurnReply(text=text, session=session)
