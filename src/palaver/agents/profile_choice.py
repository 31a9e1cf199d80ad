"""Choose the profile of the program in a terminal: the user's own, the harness's, or the generic one."""

import logging
from collections.abc import Sequence
from typing import Final

from palaver.errors import BadRequest
from palaver.harness import generic
from palaver.harness.profile import Profile
from palaver.harness.profiles import PROFILES, profile_of, profile_of_start, program_names
from palaver.harness.user_profile import parse_user_profile, with_prompt
from palaver.home import read_profile_files

_logger: Final = logging.getLogger("palaver.holder")


def choose_profile(home: str, harness: str, command: Sequence[str], prompt: str) -> Profile:
    """Return the profile for a program, with the rule of `--prompt`.

    A harness that Palaver knows keeps its own profile. For any other program a file of the user comes first.
    A file that cannot be used is logged and skipped: then less is known, and the gate stays closed.
    """
    if harness in PROFILES and harness != generic.PROFILE.name:
        return with_prompt(profile_of_start(harness, command), prompt)
    names = (harness, *program_names(command))
    for name, content in read_profile_files(home):
        try:
            found = parse_user_profile(name, content)
        except BadRequest as error:
            _logger.warning("%s", error)
            continue
        if not set(found.commands).isdisjoint(names):
            return with_prompt(found.profile, prompt)
    known = next((name for name in names if name in PROFILES), "")
    return with_prompt(profile_of(known), prompt)
