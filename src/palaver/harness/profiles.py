"""The profile of each harness or program. Pure: a table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from palaver.harness import aider, claude, codex, copilot, gemini, generic, opencode, qwen
from palaver.harness.profile import Profile

PROFILES: Final[Mapping[str, Profile]] = {
    module.PROFILE.name: module.PROFILE
    for module in (claude, codex, gemini, opencode, aider, qwen, copilot, generic)
}

PACKAGE_RUNNERS: Final = frozenset({"npm", "npx", "pnpm", "bunx", "uv", "uvx", "pipx"})
"""Programs that install a program, if necessary, and run it."""
_LAUNCHERS: Final = PACKAGE_RUNNERS | {"env", "node", "bun", "python", "python3"}
"""Programs that run the program named in their arguments."""
_PACKAGES: Final = {"qwen-code": "qwen", "aider-chat": "aider"}
"""Other names of a program."""
_BY_COMMAND: Final[Mapping[str, Callable[[Sequence[str]], Profile]]] = {
    gemini.PROFILE.name: gemini.profile_of_start
}
"""Harnesses whose profile depends on the command that starts them."""


def profile_of(harness: str) -> Profile:
    """Return the profile of a harness; the generic one if the harness is unknown."""
    return PROFILES.get(harness, generic.PROFILE)


def program_names(command: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the program that a command runs, also through a launcher such as `npx`."""
    names = [word.rpartition("/")[2] for word in command[:1]]
    if names and names[0] in _LAUNCHERS:
        words = (word for word in command[1:] if not word.startswith("-"))
        names += [word.rpartition("/")[2].partition("@")[0] for word in words][:1]
    return tuple(_PACKAGES.get(name, name) for name in names)


def profile_of_start(harness: str, command: Sequence[str]) -> Profile:
    """Return the profile of a harness that was started by this command."""
    by_command = _BY_COMMAND.get(harness)
    return profile_of(harness) if by_command is None else by_command(command)
