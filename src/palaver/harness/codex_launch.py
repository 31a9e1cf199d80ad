"""How Codex 0.166 is started as an agent: its arguments, and those of a server of its own. Pure.

Its screen is shown by one process and its work done by another, the app-server, so that a second client can
bring mail in. What is added is said in arguments: nothing is written to a person's settings, and a person's
own arguments stay as they are and count more. What a server of its own would not know (a profile, another
provider, another server) is left to Codex alone; then mail is typed.
"""

import enum
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_WITH_VALUE: Final = frozenset(
    {
        *("-c", "--config", "--enable", "--disable", "--remote", "--remote-auth-token-env"),
        *("-m", "--model", "--local-provider", "-p", "--profile", "-s", "--sandbox", "-C", "--cd"),
        *("--add-dir", "-a", "--ask-for-approval"),
    }
)
_IMAGES: Final = frozenset({"-i", "--image"})
"""Takes every word up to the next option."""
_SHARED: Final = frozenset({"-c", "--config", "--enable", "--disable"})
"""What the server must know too: it does not hear of it from the screen."""
_ALONE: Final = frozenset(
    {
        *("-p", "--profile", "--oss", "--local-provider", "--remote", "--remote-auth-token-env"),
        *("--no-daemon", "--dangerously-bypass-hook-trust"),
    }
)
"""With one of these Codex is started without a server of ours."""
_ALONE_AGAIN: Final = frozenset({"--add-dir", "--approve-for-me"})
"""Rights that a conversation which goes on can be given by Codex alone."""
_RIGHTS: Final = {
    **dict.fromkeys(("-s", "--sandbox"), "sandbox_mode"),
    **dict.fromkeys(("-a", "--ask-for-approval"), "approval_policy"),
}
"""Rights that a screen may not ask for when a conversation goes on: the server is given them itself."""
_ALL_RIGHTS: Final = frozenset({"--dangerously-bypass-approvals-and-sandbox", "--yolo"})
_NO_SESSION: Final = frozenset({"-h", "--help", "-V", "--version"})
_SCREENS: Final = frozenset({"resume", "fork"})
_WHICH: Final = frozenset({"--last", "--all"})
"""Which conversation is to go on: of no use once that is known."""
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
    """Return what an agent in Codex must know of its shell: a login shell, perhaps in a sandbox."""
    return _SHELL_TIP.format(pal=shlex.quote(pal))


class Kind(enum.Enum):
    """What a command line of Codex comes to."""

    SCREEN = "screen"
    HEADLESS = "headless"
    OTHER = "other"
    """No session: help, a login, a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A person's arguments, as far as they matter here."""

    kind: Kind = Kind.SCREEN
    shared: tuple[str, ...] = ()
    """The words that a server must be given too."""
    options: tuple[str, ...] = ()
    """All words but those that stand for themselves: the command and the prompt."""
    session: str = ""
    """The conversation that is to go on, where its id is named."""
    is_last: bool = False
    """The last conversation of this folder is to go on."""
    is_again: bool = False
    """A conversation is to go on, or to be forked, whichever it is."""
    is_alone: bool = False
    is_remote: bool = False
    """A person has a server already: it is theirs, and so is what it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start: the server first, where there is one, then the screen."""

    arguments: tuple[str, ...]
    server: tuple[str, ...] = ()


def read_arguments(arguments: Sequence[str]) -> Asked:
    """Read a person's arguments, as Codex would."""
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
    return Asked(
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
    """Give each option with its words, and each other word under no name. Behind `--` is only text."""
    rest = list(arguments)
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            yield "", [word]
            continue
        name, has_value, _ = word.partition("=") if word.startswith("--") else (word[:2], word[2:], "")
        words = [word]
        if not has_value and name in _WITH_VALUE and rest:
            words.append(rest.pop(0))
        elif name in _IMAGES:
            while rest and not rest[0].startswith("-"):
                words.append(rest.pop(0))
        yield name, words


def plan_launch(arguments: Sequence[str], *, address: str, settings: Sequence[str], told: str) -> Launch:
    """Say what to start, with our settings and the text that the agent is told at its start.

    Without an address there is no server of ours.
    """
    asked = read_arguments(arguments)
    if asked.kind is Kind.OTHER or asked.is_remote:
        return Launch(arguments=tuple(arguments))
    own = _own_instructions(asked.shared)
    last = setting(_INSTRUCTIONS, f"{own}\n\n{told}" if own else told)
    if asked.kind is Kind.HEADLESS or asked.is_alone or not address:
        # A word before the command counts less than the same one behind it.
        alone = () if asked.kind is Kind.HEADLESS or "--no-daemon" in arguments else ("--no-daemon",)
        return Launch(arguments=(*alone, *settings, *last, *arguments))
    there = f"unix://{address}"
    rights, screen = _take_rights(arguments) if asked.is_again else ((), tuple(arguments))
    return Launch(
        server=("app-server", "--listen", there, *settings, *asked.shared, *rights, *last),
        arguments=("--remote", there, *screen),
    )


def _take_rights(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide arguments into the rights, as settings, and all others."""
    rights: list[str] = []
    others: list[str] = []
    read = 0
    for name, words in _split(arguments):
        read += len(words)
        value = words[-1].removeprefix(name).removeprefix("=")
        if name in _RIGHTS and value:
            rights += setting(_RIGHTS[name], value)
        elif name in _ALL_RIGHTS:
            rights += setting("sandbox_mode", "danger-full-access") + setting("approval_policy", "never")
        else:
            others += words
    return tuple(rights), (*others, *arguments[read:])


def resumed(arguments: Sequence[str], session: str) -> tuple[str, ...]:
    """Give the arguments to go on with a conversation; a prompt was said in it already."""
    asked = read_arguments(arguments)
    if not session or asked.kind is not Kind.SCREEN:
        return tuple(arguments)
    return "resume", session, *(word for word in asked.options if word not in _WHICH)


def launch_settings(pal: str, home: str) -> tuple[str, ...]:
    """Give the settings that are added for one session: our tools, which its sandbox lets it reach."""
    return (
        *setting(f"{_SERVER}.command", pal),
        *setting(f"{_SERVER}.args", ["mcp"]),
        *setting(f"{_SERVER}.env.PALAVER_HOME", home),
        *setting(f"{_SERVER}.env_vars", ["PALAVER_SEAT"]),
        # Whoever starts an agent of the bus wants it to speak there: a dialog for each word would stop it.
        *setting(f"{_SERVER}.default_tools_approval_mode", "approve"),
    )


def setting(key: str, value: str | Sequence[str]) -> tuple[str, str]:
    """Write one setting as an argument."""
    return "-c", f"{key}={_toml(value)}"


def _toml(value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_toml, value))}]"


def _own_instructions(shared: Sequence[str]) -> str:
    """Give what a person's arguments tell the agent at its start; ours goes behind it."""
    found = ""
    for word in shared:
        key, has_value, value = word.removeprefix("--config=").removeprefix("-c").partition("=")
        if has_value and key.strip() == _INSTRUCTIONS:
            found = instructions_in(word.removeprefix("--config=").removeprefix("-c")) or value
    return found


def instructions_in(settings: str) -> str:
    """Give what settings tell every agent at its start, or nothing when they cannot be read."""
    try:
        found = tomllib.loads(settings).get(_INSTRUCTIONS)
    except (tomllib.TOMLDecodeError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""
