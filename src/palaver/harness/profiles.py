"""Which profile belongs to which harness. Pure: a table."""

from collections.abc import Mapping
from typing import Final

from palaver.harness import claude, codex, gemini, generic, opencode
from palaver.harness.profile import Profile

PROFILES: Final[Mapping[str, Profile]] = {
    module.PROFILE.name: module.PROFILE for module in (claude, codex, gemini, opencode, generic)
}


def profile_of(harness: str) -> Profile:
    """Give the profile of a harness; one that is not known is a generic program."""
    return PROFILES.get(harness, generic.PROFILE)
