"""Profile of aider in a terminal, as version 0.86 draws it. Pure.

aider asks its questions in the same line editor as its prompt, with bracketed paste on. So only its own
prompts count as prompts: `> `, `ask> `, `architect> `. In multi-line mode (`multi> `) Enter sends nothing.
"""

import re
from dataclasses import replace
from typing import Final

from palaver.harness import generic
from palaver.harness.profile import Interrupt

PROFILE: Final = replace(
    generic.PROFILE,
    name="aider",
    takes_messages=(re.compile(r"(?:(?!multi)[a-z][a-z-]{0,30})?>"),),
    has_known_prompts=True,
    # A second Ctrl-C within two seconds ends it.
    interrupt=Interrupt(keys=b"\x03"),
)
